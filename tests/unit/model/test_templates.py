import re

import pytest

from torpor.model.templates import Values, placeholders

MATCH = re.search(r"pay (?P<amount>\S+) from (\w+)(?: on (?P<day>\w+))?", "please pay 12,50 from Ada")
VALUES = Values(MATCH, [("hours", "8 to 18"), ("find", "none"), ("hours", "closed")])


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{amount} from {2}", "12,50 from Ada"),
        ("<{0}>", "<pay 12,50 from Ada>"),
        ("on {day}.", "on ."),
        ("{result.hours}, {result.1}, {result.find}", "closed, 8 to 18, none"),
        ("{a: 1} {} {{x y}}", "{a: 1} {} {{x y}}"),
        ("no placeholder", "no placeholder"),
    ],
)
def test_a_text_is_filled(template: str, text: str) -> None:
    assert VALUES.text(template) == text


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{amount:number}", 12.5),
        ("{amount:int}", "12,50"),
        ("{2:lower}", "ada"),
        ("{2:number}", "Ada"),
        ("{2}", "Ada"),
        ("from {2}", "from Ada"),
        (7, 7),
        (["{2}", {"x": "{amount}", "y": "{day}"}], ["Ada", {"x": "12,50"}]),
    ],
)
def test_an_argument_is_filled_and_typed(template: object, value: object) -> None:
    assert VALUES.arguments({"it": template}) == {"it": value}


def test_a_whole_number_may_be_asked_for() -> None:
    values = Values(re.search(r"(\d+)", "3 times"), [])
    assert values.arguments({"count": "{1:int}"}) == {"count": 3}


def test_ids_are_what_lines_begin_with_each_once() -> None:
    values = Values(None, [("search", 'a-1 | Falls | 2020\nb-2 | Sleep "well"\na-1 | again\nno id here')])

    assert values.arguments({"ids": "{result.search:ids}"}) == {"ids": ["a-1", "b-2"]}
    assert values.text('{"ids": {result.1:ids}}') == '{"ids": ["a-1", "b-2"]}'
    assert values.text("{result.2:ids}") == "[]"


def test_a_group_that_took_no_part_leaves_its_argument_out() -> None:
    assert VALUES.arguments({"day": "{day}", "patient": "{2}"}) == {"patient": "Ada"}


def test_without_a_match_only_results_are_known() -> None:
    values = Values(None, [("hours", "8 to 18")])
    assert values.text("{0}{result.hours}") == "8 to 18"


def test_placeholders_are_found_at_any_depth() -> None:
    template = ["{a} and {b:int}", {"x": ["{result.find}"], "y": 7}, "{no placeholder}"]
    assert list(placeholders(template)) == ["a", "b", "result.find"]
