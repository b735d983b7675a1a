"""A policy file and its excerpts."""

import pytest

from torpor.policies.parse import Excerpt, PolicyUnreadable, parse_policy

FRONT = "---\nid: visits\nversion: 2\ntitle: Visits\n---\n"


def parts(body: str) -> list[tuple[str, str]]:
    return [(excerpt.heading, excerpt.text) for excerpt in parse_policy(FRONT + body).excerpts]


def fault(text: str) -> tuple[int, str]:
    with pytest.raises(PolicyUnreadable) as caught:
        parse_policy(text)
    return caught.value.line, caught.value.message


def test_policy_has_what_its_front_matter_says() -> None:
    policy = parse_policy(FRONT + "Be kind.\n")

    assert (policy.id, policy.version, policy.title) == ("visits", "2", "Visits")
    assert policy.excerpts == (Excerpt(id="visits", version="2", heading="Visits", text="Be kind."),)


def test_title_is_the_id_where_there_is_none() -> None:
    policy = parse_policy('---\nid: visits\nversion: "2026-09"\n---\nBe kind.')

    assert (policy.title, policy.version, policy.excerpts[0].heading) == ("visits", "2026-09", "visits")


def test_each_heading_begins_an_excerpt_that_names_those_above_it() -> None:
    body = "First.\n# Late\nA.\n\nB.\n## Very late ##\nC.\n# Missed\nD."

    assert parts(body) == [("Visits", "First."), ("Late", "A.\n\nB."), ("Late > Very late", "C."), ("Missed", "D.")]


def test_heading_without_text_is_only_named_by_those_below_it() -> None:
    assert parts("# Fees\n\n## Late\nA.\n# Nothing\n") == [("Fees > Late", "A.")]


@pytest.mark.parametrize("fence", ["```", "~~~", "````md"])
def test_line_in_a_code_fence_is_no_heading(fence: str) -> None:
    body = f"# Late\n{fence}\n# no heading\n{fence.rstrip('md')}\n# Missed\nD."

    assert [heading for heading, _ in parts(body)] == ["Late", "Missed"]


@pytest.mark.parametrize("line", ["#hashtag", "####### seven", "    # indented"])
def test_what_only_looks_like_a_heading_is_text(line: str) -> None:
    assert len(parts(f"# Late\nA.\n{line}\nB.")) == 1


def test_windows_line_ends_and_a_byte_order_mark_are_read_past() -> None:
    policy = parse_policy("\ufeff" + (FRONT + "# Late\nA.\n").replace("\n", "\r\n"))

    assert policy.excerpts == (Excerpt(id="visits", version="2", heading="Late", text="A."),)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("# Visits\n", 1, "does not begin with front matter"),
        ("---\nid: visits\n", 1, "does not begin with front matter"),
        ("---\nid: visits\n---\nA.", 1, "missing required field version"),
        ("---\nversion: 1\n---\nA.", 1, "missing required field id"),
        ("---\nid: Visits!\nversion: 1\n---\nA.", 1, "matching regex"),
        ("---\nid: visits\nversion: ''\n---\nA.", 1, "length >= 1"),
        ("---\nid: visits\nversion: 1\nowner: me\n---\nA.", 1, "unknown field owner"),
        ("---\n- visits\n---\nA.", 1, "expected object"),
        ("---\nid: visits\nversion: [1\n---\nA.", 4, "not YAML"),
        ('---\nid: visits\nversion: 1\ntitle: "\\ud800"\n---\nA.', 1, "half a character"),
        ("---\n" + "[" * 5_000 + "\n---\nA.", 1, "not YAML"),
        (FRONT, 0, "says nothing"),
        (FRONT + "# Late\n", 0, "says nothing"),
    ],
)
def test_file_that_is_no_policy_is_told_with_the_line(text: str, line: int, told: str) -> None:
    found_line, message = fault(text)

    assert found_line == line
    assert told.lower() in message.lower()


@pytest.mark.parametrize("escape", [r"\U00110000", r"\UFFFFFFFF", r"\uD800"])
def test_title_beyond_unicode_is_a_fault_like_any_other(escape: str) -> None:
    line, _ = fault(f'---\nid: visits\nversion: "1"\ntitle: "{escape}"\n---\n# A\nText')

    assert line == 1


@pytest.mark.parametrize(
    "line",
    [
        "# a" + " " * 200_000 + "b",
        "# " + "# " * 100_000 + "b",
        "# " + " #" * 100_000,
        "# a" + "#" * 200_000 + "b",
        "#" + "\t" * 200_000 + "b",
        " " * 200_000 + "# b",
        "`" * 200_000 + "\n" + "`" * 200_000,
        "~" * 100_000 + "`" * 100_000 + "\n" + "~" * 100_000,
    ],
    ids=range(8),
)
def test_long_lines_are_read_in_proportion_to_their_length(line: str) -> None:
    # The square of its length would take minutes, and the run's own deadline would end it.
    assert parts(f"{line}\n# Next\n" * 2 + "text\n")


def test_closing_signs_of_a_heading_are_no_part_of_it() -> None:
    body = "# A ##\na\n# B##\nb\n# C # c\nc\n# #\nd\n#\te\t#\t\ne\n"

    assert [heading for heading, _ in parts(body)] == ["A", "B##", "C # c", "Visits", "e"]


def test_heading_without_end_is_cut_since_every_excerpt_below_repeats_it() -> None:
    (heading, _), *_ = parts("# " + "long " * 1_000 + "\ntext\n")

    assert len(heading) <= 256


def test_title_without_end_is_a_fault() -> None:
    assert "title" in fault(f"---\nid: visits\nversion: '1'\ntitle: {'a' * 257}\n---\n# A\nText")[1]
