"""What a retold journal says of its calls and requests, and of what took their place or their room."""

from dataclasses import dataclass

from tests.support.oracle_evidence import Json


@dataclass(slots=True)
class Call:
    """One tool call."""

    id: str
    name: str
    turn: int
    started_seq: int = 0
    effect: str = ""
    key: str = ""
    finished_seq: int = 0
    outcome: str = ""
    text: str = ""
    size_bytes: int = 0
    """Of its result."""
    late_seq: int = 0
    late_outcome: str = ""


@dataclass(slots=True)
class Request:
    """A model call as the journal names it, with the body that it must have had."""

    seq: int
    turn: int
    round: int
    call: str
    link: str
    body: bytes
    fixed_bytes: int
    """Of the body, what stands before the messages."""
    turns: list[int]
    """In the view, in order."""
    live_bytes: int
    """Of the body, its live context."""
    older_bytes: int
    """Of the view, what stands before the last three of them."""
    is_new: bool
    """Not asked again as it was."""
    is_measured: bool
    """Whether a reply came since the view was replaced last."""
    new_files: int
    """In the messages that joined and in the first one that wanted to and did not."""
    left_bytes: int
    """Of the first message that wanted to join and did not; 0 when there is none, or a fold keeps crashing."""


@dataclass(slots=True)
class TooLong:
    """A turn that ended since its next request would not fit."""

    seq: int
    body_bytes: int
    """Of that request, without the messages that wait, and of a first one without what may be left out."""


@dataclass(slots=True)
class Fold:
    """A replaced part of the view, and what it was replaced in."""

    seq: int
    turn: int
    record: Json
    turns: list[int]
    """In the view before, in order."""
    gone_bytes: int
    """Size of what left the view."""
    last_seq: int
    """The last record before the turns that stay."""
    is_measured: bool
    """Whether a reply came since the fold before."""
    before: Json
    """The record of that fold; empty for the first one."""


@dataclass(slots=True)
class Withdrawal:
    """Files that notes stand for from then on."""

    seq: int
    why: str
    files: list[Json]
    """Their markers."""
    notes: list[Json]
