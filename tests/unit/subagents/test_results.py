"""A final text becomes a value, or words that tell the model what to mend."""

from typing import Annotated

import msgspec
import pytest

from torpor.subagents.results import Unacceptable, read_answer


class Owed(msgspec.Struct, forbid_unknown_fields=True):
    ids: Annotated[tuple[str, ...], msgspec.Meta(max_length=2)]
    note: str = ""


GOOD = '{"ids": ["a"], "note": "b"}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}```",
        f"Here it is:\n\n```json\n{GOOD}\n```\nThat is all.",
    ],
)
def test_a_json_object_is_read_alone_or_in_one_fence(text: str) -> None:
    assert read_answer(text, Owed) == Owed(ids=("a",), note="b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Your answer is not a JSON object: Input data was truncated."),
        ("I could not find anything.", "Your answer is not a JSON object: invalid character (byte 0)."),
        (f"Here it is: {GOOD}", "Your answer is not a JSON object: invalid character (byte 0)."),
        (f"```\n{GOOD}\n```\n```\n{GOOD}\n```", "Your answer is not a JSON object: invalid character (byte 0)."),
        (f"{GOOD} {GOOD}", "Your answer is not a JSON object: trailing characters (byte 29)."),
        ("[" * 100_000, "Your answer is not a JSON object: it is nested too deeply."),
        ('{"ids": "\ud800"}', "Your answer is not a JSON object: it has half of a character."),
        ("[]", "Your answer does not fit: the answer is array, expected object."),
        ("{}", "Your answer does not fit: ids is missing, expected a value, since it has no default."),
        ('{"ids": [1]}', "Your answer does not fit: ids[0] is int, expected str."),
        ('{"ids": ["a","b","c"]}', "Your answer does not fit: ids is not as expected: array of length <= 2."),
        ('{"ids": [], "why": 1}', "Your answer does not fit: why is unknown, expected one of ids, note."),
    ],
)
def test_what_is_not_of_the_type_is_told_to_the_model(text: str, said: str) -> None:
    with pytest.raises(Unacceptable) as raised:
        read_answer(text, Owed)

    assert raised.value.message == f"{said} Answer again with the JSON object alone, with nothing before it and " + (
        "nothing behind it."
    )
