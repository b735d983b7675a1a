"""What the model is told when something did not end as it should. Every sentence ends up in a record."""

from torpor.records.blocks import Block, text_block
from torpor.records.journal import Outcome
from torpor.toolhost.contract import ToolResult


def never_started(name: str) -> ToolResult:
    """A call settled before it began."""
    text = f"Not executed: the turn was ended before {name} started. Nothing was done."
    return ToolResult(outcome=Outcome.NEVER_STARTED, text=text)


def interrupted(name: str) -> ToolResult:
    """A read stopped while running."""
    text = f"Stopped while running: the turn was ended before {name} returned. It only reads, so nothing was changed."
    return ToolResult(outcome=Outcome.INTERRUPTED, text=text)


def unknown(name: str, *, why: str) -> ToolResult:
    """A write whose effect nobody can tell."""
    text = (
        f"Outcome unknown: {name} was started and {why}. It may or may not have taken effect. "
        "Do not assume either, and do not repeat it without checking."
    )
    return ToolResult(outcome=Outcome.UNKNOWN, text=text)


def reply_cut(reason: str, *, had_text: bool) -> Block:
    """For the next user message after a cancelled turn."""
    who = {"interrupt": "a new message", "operator": "an operator"}.get(reason, "the user")
    what = "Your previous reply was cut short" if had_text else "The previous turn was ended early"
    return text_block(f"[{what} by {who}.]")


def turn_failed(code: str) -> Block:
    """For the next user message after a failed turn."""
    return text_block(f"[The previous message could not be answered: {code}.]")


def late_result(name: str, result: ToolResult, *, of_turn: int) -> Block:
    """For the next user message after a write ended that had been reported as unknown."""
    ended = "succeeded" if result.outcome is Outcome.SUCCEEDED else f"ended as {result.outcome.value}"
    return text_block(f"[{name}, reported as outcome unknown in turn {of_turn}, has {ended}: {result.text}]")
