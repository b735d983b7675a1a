from typing import Any

import msgspec
import pytest

from tests.support.models import Heard, a_request, round_of, user
from torpor.conversation.view import View
from torpor.errors import ConfigError
from torpor.model.contract import ModelReply
from torpor.model.rehearsal import Rehearsal, RehearsalFile, scripted_from
from torpor.model.scripted import ScriptedModel
from torpor.provider_errors import (
    AttachmentMissing,
    AttachmentsUnavailable,
    ProviderError,
    ProviderUnavailable,
)

FOR_THE_REST = {"step": [{"say": "Pardon?"}]}
HOURS = {
    "match": r"hours(?: on (?P<day>\w+))?",
    "step": [
        {"say": "Looking.", "call": [{"tool": "hours", "arguments": {"day": "{day:lower}"}}]},
        {"say": "More.", "call": [{"tool": "find"}, {"tool": "hours"}]},
        {"say": "{result.hours}, {result.1}, {result.find} on {day}"},
    ],
}


def a_rehearsal(*rules: dict[str, Any], **fields: Any) -> Rehearsal:
    file = msgspec.convert({"rule": [*rules, FOR_THE_REST], **fields}, RehearsalFile)
    return Rehearsal(file, where="r.toml")


async def played(rehearsal: Rehearsal, view: View, sink: Heard | None = None) -> ModelReply:
    return await ScriptedModel(rehearsal).reply(a_request(view), sink or Heard())


def shown(reply: ModelReply) -> list[Any]:
    blocks = [msgspec.json.decode(block) for block in reply.blocks]
    return [block["text"] if block["type"] == "text" else (block["name"], block["input"]) for block in blocks]


async def test_the_first_rule_found_in_the_text_plays() -> None:
    rehearsal = a_rehearsal(
        {"match": "hello", "step": [{"say": "one"}]}, {"match": "HELLO|bye", "step": [{"say": "two"}]}
    )
    assert shown(await played(rehearsal, user(View(), "well, Hello there"))) == ["one"]
    assert shown(await played(rehearsal, user(View(), "Bye"))) == ["two"]
    assert shown(await played(rehearsal, user(View(), "what?"))) == ["Pardon?"]


async def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    rehearsal = a_rehearsal({"match": "hello", "step": [{"say": "one"}]})
    assert shown(await played(rehearsal, user(View(), "x" * 1_990 + " hello"))) == ["one"]
    assert shown(await played(rehearsal, user(View(), "x" * 200_000 + " hello"))) == ["Pardon?"]


async def test_steps_are_played_one_per_model_call_as_the_request_tells() -> None:
    rehearsal = a_rehearsal(HOURS)
    view = user(View(), "your hours on Monday?")
    assert shown(await played(rehearsal, view)) == ["Looking.", ("hours", {"day": "monday"})]
    view = round_of(view, ("hours", "8 to 18"), said="Looking.")
    assert shown(await played(rehearsal, view)) == ["More.", ("find", {}), ("hours", {})]
    view = round_of(view, ("find", "none"), ("hours", "closed"), said="More.")
    assert shown(await played(rehearsal, view)) == ["closed, 8 to 18, none on Monday"]
    assert shown(await played(rehearsal, round_of(view, ("find", "x")))) == ["closed, 8 to 18, x on Monday"]


async def test_another_copy_goes_on_where_one_was() -> None:
    view = round_of(user(View(), "hours?"), ("hours", "8 to 18"))
    assert shown(await played(a_rehearsal(HOURS), view)) == shown(await played(a_rehearsal(HOURS), view))


async def test_a_text_that_steers_is_answered_by_its_own_rule() -> None:
    view = user(round_of(user(View(), "hours?"), ("hours", "8 to 18")), "something else")
    assert shown(await played(a_rehearsal(HOURS), view)) == ["Pardon?"]


FAULTS = [fault for fault in ProviderError.__subclasses__() if fault not in {AttachmentMissing, AttachmentsUnavailable}]
"""Of hosts; the others are found before one is asked."""


@pytest.mark.parametrize(("code", "error"), [(fault.code, fault) for fault in FAULTS])
async def test_a_rule_may_fail_behind_some_words(code: str, error: type[Exception]) -> None:
    fail = {"code": code, "after_words": 2, "message": "as asked"}
    rehearsal = a_rehearsal({"match": "fail", "step": [{"say": "One two three", "fail": fail}]})
    sink = Heard()
    with pytest.raises(error, match="as asked"):
        await played(rehearsal, user(View(), "fail"), sink)
    assert "".join(sink.pieces) == "One two "


async def test_a_rule_may_fail_before_its_first_word() -> None:
    rehearsal = a_rehearsal({"match": "fail", "step": [{"fail": {"code": "model_unavailable"}}]})
    sink = Heard()
    with pytest.raises(ProviderUnavailable):
        await played(rehearsal, user(View(), "fail"), sink)
    assert sink.pieces == []


def test_a_rehearsal_tells_which_tools_it_calls() -> None:
    assert a_rehearsal(HOURS).tool_names() == {"hours", "find"}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"match": "(", "step": [{"say": "x"}]}, "rule[0].match is '(', expected a regular expression"),
        ({"match": "", "step": [{"say": "x"}]}, "rule[0].match is '', expected a regular expression"),
        ({"match": "a", "step": [{"say": " "}]}, "rule[0].step[0].say is ' ', expected something to say"),
        (
            {"match": "a", "step": [{"say": "x", "call": [{"tool": "t"}]}]},
            "rule[0].step[0].call is ['t'], expected no calls in a last step",
        ),
        (
            {"match": "a", "step": [{"say": "x"}, {"say": "y"}]},
            "rule[0].step[0].call is [], expected a call, or no step behind this one",
        ),
        (
            {"match": "a", "step": [{"fail": {"code": "gone"}}]},
            "rule[0].step[0].fail.code is 'gone', expected one of model_billing_refused, ",
        ),
        (
            {"match": "a", "step": [{"call": [{"tool": "t"}], "fail": {"code": "model_unavailable"}}, {"say": "x"}]},
            "rule[0].step[0].fail is 'model_unavailable', expected no failure in a step that calls",
        ),
        (
            {"match": "(?P<day>a)", "step": [{"say": "{month}"}]},
            "rule[0].step[0].say is '{month}', expected placeholders among 0, 1, day",
        ),
        (
            {"match": "a", "step": [{"call": [{"tool": "t", "arguments": {"x": ["{b}"]}}]}, {"say": "x"}]},
            "rule[0].step[0].call is '{b}', expected placeholders among 0",
        ),
        (
            {"match": "a", "step": [{"say": "{result.t}", "call": [{"tool": "t"}]}, {"say": "x"}]},
            "rule[0].step[0].say is '{result.t}'",
        ),
        (
            {"match": "a", "step": [{"say": "{0:upper} {b:upper}"}]},
            "rule[0].step[0].say is '{0:upper}', expected one of number, int, lower, ids behind the colon",
        ),
    ],
)
def test_a_rule_that_can_never_play_as_written_is_an_error(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        a_rehearsal(rule)
    assert str(caught.value).startswith(f"r.toml: {said}")


def test_the_last_rule_plays_for_the_rest() -> None:
    file = msgspec.convert({"rule": [{"match": "a", "step": [{"say": "x"}]}]}, RehearsalFile)
    with pytest.raises(
        ConfigError,
        match=r"expected none, since the last rule plays for all that no other one matches: add a \[\[rule\]\]",
    ):
        Rehearsal(file, where="r.toml")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"kind": "scripted"}, "model.rehearsal is missing, expected a value"),
        ({"kind": "scripted", "rehearsal": "../secret"}, "model.rehearsal is '../secret', expected 1 to 64 characters"),
        ({"kind": "scripted", "rehearsal": 7}, "model.rehearsal is 7, expected str"),
        ({"kind": "scripted", "rehearsal": "x", "pace": 3}, "model.pace is unknown, expected one of kind, "),
        ({"kind": "scripted", "rehearsal": "x", "pace_cps": -1}, "model.pace_cps is -1, expected float >= 0"),
    ],
)
def test_a_model_table_that_does_not_fit_is_an_error(table: dict[str, Any], said: str, tmp_path: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        scripted_from(table, home=tmp_path, where="config/agents/a.toml")
    assert str(caught.value).startswith(f"config/agents/a.toml: {said}")
