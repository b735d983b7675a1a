"""Places in a reply where something may happen, written as words: ``after_deltas:2``."""

import re
from typing import Final, Literal, NamedTuple, cast

Where = Literal[
    "before_headers",
    "first_event",
    "after_events",
    "after_deltas",
    "after_bytes",
    "before_block_stop",
    "before_message_delta",
    "before_message_stop",
]

BEFORE_HEADERS: Final = "before_headers"
FIRST_EVENT: Final = "first_event"
BEFORE_BLOCK_STOP: Final = "before_block_stop"
"""Before the first ``content_block_stop``."""
BEFORE_MESSAGE_DELTA: Final = "before_message_delta"
BEFORE_MESSAGE_STOP: Final = "before_message_stop"

_COUNTED: Final = re.compile(r"(after_events|after_deltas|after_bytes):(\d+)")
_PLAIN: Final = frozenset({BEFORE_HEADERS, FIRST_EVENT, BEFORE_BLOCK_STOP, BEFORE_MESSAGE_DELTA, BEFORE_MESSAGE_STOP})


class Position(NamedTuple):
    """A place, read."""

    where: Where
    number: int = 0


def after_events(count: int) -> str:
    """After so many events of any kind."""
    return f"after_events:{count}"


def after_deltas(count: int) -> str:
    """After so many ``content_block_delta`` events, of whatever block."""
    return f"after_deltas:{count}"


def after_bytes(count: int) -> str:
    """After so many bytes of the body, wherever in an event that is."""
    return f"after_bytes:{count}"


def position(words: str) -> Position:
    """Raises: ValueError: there is no such place."""
    if words in _PLAIN:
        return Position(cast("Where", words))
    if counted := _COUNTED.fullmatch(words):
        return Position(cast("Where", counted[1]), int(counted[2]))
    known = ", ".join(sorted({*_PLAIN, "after_events:N", "after_deltas:N", "after_bytes:N"}))
    raise ValueError(f"{words!r} is no position in a reply, expected one of {known}")
