"""What the model reads when something did not end as it should: honest, and never one thing for another."""

import msgspec
import pytest

from torpor.records.blocks import Block
from torpor.records.terms import Outcome
from torpor.toolhost.contract import ToolResult
from torpor.turn import notes


def text(block: Block) -> str:
    decoded = msgspec.json.decode(block)
    assert decoded["type"] == "text"
    return str(decoded["text"])


def test_never_started_stopped_and_unknown_are_told_apart() -> None:
    results = [notes.never_started("pay"), notes.interrupted("pay"), notes.unknown("pay", why="the lights went out")]
    assert [result.outcome for result in results] == [Outcome.NEVER_STARTED, Outcome.INTERRUPTED, Outcome.UNKNOWN]
    assert all("pay" in result.text for result in results)
    assert "Nothing was done" in results[0].text
    assert "nothing was changed" in results[1].text
    assert "may or may not have taken effect" in results[2].text
    assert "the lights went out" in results[2].text


@pytest.mark.parametrize(
    "result", [notes.never_started("pay"), notes.interrupted("pay"), notes.unknown("pay", why="x")]
)
def test_nobody_is_said_to_have_refused(result: ToolResult) -> None:
    assert not {"rejected", "refused", "denied", "declined"} & set(result.text.lower().replace(".", " ").split())


@pytest.mark.parametrize(
    ("reason", "who"), [("client", "the user"), ("operator", "an operator"), ("interrupt", "a new message")]
)
def test_a_reply_that_was_cut_says_by_whom_and_whether_anything_was_said(reason: str, who: str) -> None:
    assert text(notes.reply_cut(reason, had_text=True)) == f"[Your previous reply was cut short by {who}.]"
    assert text(notes.reply_cut(reason, had_text=False)) == f"[The previous turn was ended early by {who}.]"


def test_a_turn_that_failed_names_the_reason() -> None:
    assert text(notes.turn_failed("step_limit")) == "[The previous message could not be answered: step_limit.]"


@pytest.mark.parametrize(
    ("outcome", "ended"),
    [(Outcome.SUCCEEDED, "succeeded"), (Outcome.FAILED, "ended as failed"), (Outcome.UNKNOWN, "ended as unknown")],
)
def test_a_late_result_names_the_call_the_turn_and_the_end(outcome: Outcome, ended: str) -> None:
    note = notes.late_result("pay", ToolResult(outcome=outcome, text="5 euros"), of_turn=3)
    assert text(note) == f"[pay, reported as outcome unknown in turn 3, has {ended}: 5 euros]"
