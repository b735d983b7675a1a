from torpor.toolhost.docstrings import described


def test_the_text_before_the_first_section_is_the_description() -> None:
    text, _ = described(
        """Find appointments.

        Only future ones.

        Args:
            day: A weekday.

        Returns:
            One line each.
        """
    )
    assert text == "Find appointments.\n\nOnly future ones."


def test_entries_of_args_may_span_lines_and_carry_types() -> None:
    _, entries = described(
        """Find.

        Args:
            patient (str): The name,
                or a part of it.
            day: A weekday.

                Any of the seven.
        """
    )
    assert entries == {"patient": "The name, or a part of it.", "day": "A weekday. Any of the seven."}


def test_other_sections_describe_no_parameters() -> None:
    _, entries = described("Find.\n\nRaises:\n    ValueError: it is late.\n\nArgs:\n    day: A weekday.")
    assert entries == {"day": "A weekday."}


def test_a_text_without_sections_is_all_description() -> None:
    assert described("Find: appointments.") == ("Find: appointments.", {})


def test_an_empty_docstring_describes_nothing() -> None:
    assert described("") == ("", {})


def test_a_stray_line_before_the_first_entry_is_no_parameter() -> None:
    assert described("Find.\n\nArgs:\n    all of them\n    day: A weekday.") == ("Find.", {"day": "A weekday."})
