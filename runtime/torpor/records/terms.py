"""Words and counts that records, commands and frames are written with.

Below the records, so that whoever speaks of a choice, an outcome or a count needs no record. The words are part of the
stored format: one is only ever added.
"""

from enum import StrEnum

import msgspec


class WhenBusy(StrEnum):
    """What the sender wants done with a message that meets a running turn."""

    QUEUE = "queue"
    """A turn of its own, after those already waiting."""
    STEER = "steer"
    """Joins the running turn at its next model call, or becomes the next turn."""
    INTERRUPT = "interrupt"
    """Cancels the running turn and is next."""
    REJECT = "reject"
    """Is refused; nothing is recorded."""


class Offer(StrEnum):
    """What a client may do about a turn that failed; sent as ``resume`` with a new message."""

    CONTINUE = "continue"
    """Go on where the reply was cut."""
    RETRY = "retry"
    """Answer the same message again."""


class Effect(StrEnum):
    """What a tool does to the world; undeclared means write."""

    READ = "read"
    WRITE = "write"


class Outcome(StrEnum):
    """How a tool call ended; the result block tells the model the same in words."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """It ran and failed, or its arguments or name were not usable."""
    DENIED = "denied"
    """Refused by the tool or by policy; nothing was done."""
    NEVER_STARTED = "never_started"
    """Settled before it began; nothing was done."""
    INTERRUPTED = "interrupted"
    """Stopped while running; a read, so nothing can have changed."""
    UNKNOWN = "unknown"
    """Stopped, lost or timed out while running; a write, so its effect is unknown."""


class StepKind(StrEnum):
    """Steps that act on the outside, and so can crash half-way."""

    CALL_MODEL = "call_model"
    RUN_TOOLS = "run_tools"
    COMPACT = "compact"


class FoldReason(StrEnum):
    """Why and how a part of the view was replaced."""

    SUMMARY = "summary"
    """Turns older than the last two were folded by a summariser."""
    MECHANICAL = "mechanical"
    """The same without a model, because the request would not have fitted."""
    SHORTENED = "shortened"
    """Nothing older was left: long tool results of the turns that stay were shortened."""
    EVERYTHING = "everything"
    """That was not enough: every turn but the running one was folded without a model."""
    WITHDRAWN = "withdrawn"
    """Nothing was folded: notes stand for attachments that cannot be sent."""


class LiveReason(StrEnum):
    """Why the live context is made anew."""

    FIRST = "first"
    """There was none."""
    MESSAGES = "messages"
    """Enough was said since."""
    AGE = "age"
    """It is old."""
    HAND = "hand"
    """Somebody asked for it."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens as the model host reports them; context used is the sum of all four."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
