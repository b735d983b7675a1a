"""What the model is told when something did not end as it should. Every sentence ends up in a record."""

from typing import Final

from torpor.records.blocks import Block, text_block
from torpor.records.terms import Offer, Outcome
from torpor.toolhost.contract import ToolResult


def never_started(name: str) -> ToolResult:
    """A call settled before it began."""
    text = f"Not executed: the turn was ended before {name} started. Nothing was done."
    return ToolResult(outcome=Outcome.NEVER_STARTED, text=text)


def gone(name: str) -> ToolResult:
    """A call of what was offered when the turn began, and is not there any more."""
    text = f"Not executed: {name} is no longer there. Nothing was done; go on without it."
    return ToolResult(outcome=Outcome.FAILED, text=text)


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


def calls_cut(stop_reason: str) -> Block:
    """Behind a reply that stopped in the middle of its calls."""
    return text_block(
        f"[Your reply stopped early ({stop_reason}), so none of its tool calls was run. Make them again, with shorter "
        "arguments or fewer at once.]"
    )


def refused(executed: tuple[str, ...]) -> Block:
    """For the next user message after a refused turn."""
    did = f" Executed in it: {', '.join(executed)}." if executed else ""
    return text_block(f"[A message before this one was refused and is no longer part of this conversation.{did}]")


def retracted(executed: tuple[str, ...]) -> tuple[Block, ...]:
    """For the next user message after a turn was taken back; nothing when it changed nothing."""
    if not executed:
        return ()
    what = f"The user took back a message and what came of it. Executed before, and not undone: {', '.join(executed)}."
    return (text_block(f"[{what}]"),)


RESUME: Final = {
    Offer.CONTINUE: "[Please go on where your reply was cut off.]",
    Offer.RETRY: "[Please try again to answer the message before this one.]",
}
"""What the model reads when a client takes up an offer."""


def late_result(name: str, result: ToolResult, *, of_turn: int) -> Block:
    """For the next user message after a write ended that had been reported as unknown."""
    ended = "succeeded" if result.outcome is Outcome.SUCCEEDED else f"ended as {result.outcome.value}"
    return text_block(f"[{name}, reported as outcome unknown in turn {of_turn}, has {ended}: {result.text}]")
