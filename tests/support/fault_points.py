"""Places at which a server is stopped dead, listed from the code, and the trap that holds it there.

A point is a string: where, and for what. Kinds of records come from the union of the journal, frames from the union of
the wire, what is written of jobs from their store's contract, so a kind that is added gets its points here without
anybody's doing, and a suite that has to reach every point fails until it reaches the new ones.
"""

import signal
from collections import Counter
from typing import Any, Final, NoReturn, Protocol, get_args

from tests.support.side_model import CHILD, GRANDCHILD, LIVE, SUMMARY, TURN
from torpor.records.frames import AnyServerFrame
from torpor.records.journal import AttemptStarted, JournalRecord
from torpor.records.terms import StepKind
from torpor.store.job_contract import JobStore


def name_of(record: JournalRecord) -> str:
    """As it stands in ``RECORD_NAMES``."""
    kind = _tag_of(type(record))
    return f"{kind}.{record.step}" if isinstance(record, AttemptStarted) else kind


def _tag_of(struct: Any) -> str:
    return str(struct.__struct_config__.tag)


RECORD_NAMES: Final = tuple(
    name
    for kind in get_args(JournalRecord)
    for name in ([f"attempt_started.{step}" for step in StepKind] if kind is AttemptStarted else [_tag_of(kind)])
)
"""Kinds of records; an attempt goes by its step, since each of them begins again in a way of its own."""
GRANDCHILD_NAMES: Final = tuple(
    f"{GRANDCHILD}/{name}"
    for name in (
        *("conversation_created", "message_received", "flags_pinned", "preamble_changed", "turn_prepared"),
        *("model_requested", "model_replied", "tool_started", "tool_finished", "turn_finished", "turn_cancelled"),
    )
)
"""Those in the journal of a sub-agent that works for a sub-agent."""
FRAME_TAGS: Final = tuple(_tag_of(frame) for frame in get_args(AnyServerFrame))
JOB_WRITES: Final = tuple(
    sorted(name for name in vars(JobStore) if name.endswith("_job") and not name.startswith("find"))
)
PURPOSES: Final = (TURN, CHILD, GRANDCHILD, SUMMARY, LIVE)
"""What a model is asked for."""


def fault_points(tools: tuple[str, ...]) -> tuple[str, ...]:
    """Every point of a server whose home offers ``tools``.

    ``append.lost``: the batch never reaches the store, as with a disk that stalls, while everything else goes on for a
    moment. ``append.handed``: it may or may not be durable. ``append.after``: it is, and nobody has been told.
    """
    return (
        *(f"append.lost:{name}" for name in (*RECORD_NAMES, *GRANDCHILD_NAMES)),
        "append.handed",
        *(f"append.after:{name}" for name in (*RECORD_NAMES, *GRANDCHILD_NAMES)),
        "snapshot.before",
        "snapshot.after",
        "blob.before",
        "blob.after",
        "bundle.before",
        "bundle.after",
        *(f"tool.start:{name}" for name in tools),
        *(f"tool.end:{name}" for name in tools),
        "probe.start",
        "probe.end",
        *(f"{purpose}.start" for purpose in PURPOSES),
        *(f"{purpose}.end" for purpose in PURPOSES),
        "delta.flush",
        *(f"{name}.before" for name in JOB_WRITES),
        *(f"{name}.after" for name in JOB_WRITES),
        *(f"frame:{tag}" for tag in FRAME_TAGS),
    )


class Announce(Protocol):
    """Tells the test, at once, in a line of its own."""

    def __call__(self, **facts: Any) -> None: ...


class Trap:
    """Counts how often each point is passed, and stops this process at one of them for good.

    Held, the process says so and blocks its event loop until it is killed.
    """

    def __init__(self, point: str = "", *, nth: int = 1, announce: Announce) -> None:
        self._point = point
        self._nth = nth
        self._announce = announce
        self.passed = Counter[str]()
        """How often each point was passed so far."""

    def reach(self, point: str) -> None:
        """This process is at ``point``; returns unless it is the one to stop at."""
        if self.is_here(point):
            self.hold()

    def is_here(self, point: str) -> bool:
        """Whether ``point``, which is passed now, is the one to stop at."""
        self.passed[point] += 1
        return point == self._point and self.passed[point] == self._nth

    def hold(self) -> NoReturn:
        """Stop."""
        self._announce(held=self._point, nth=self._nth)
        while True:
            signal.pause()
