"""Bugs about files that clients send along; see ``planted``."""

from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.faults import Fault
from tests.simulation.planting import Planted
from torpor.provider_errors import AttachmentNotTaken
from torpor.turn import answers, attached, interpret
from torpor.turn.attached import AttachedFiles


def damaged_file_sent() -> AbstractContextManager[object]:
    """What is read is believed to be what was stored."""

    class Whatever:
        __hash__ = None  # type: ignore[assignment]  # nobody looks it up

        def __ne__(self, other: object) -> bool:
            return False

    async def digest(data: bytes) -> Whatever:
        return Whatever()

    return patch.object(attached, "_digest", digest)


def files_refused_for_ever() -> AbstractContextManager[object]:
    """A turn is asked again as often as the host refuses a file."""
    failed = answers.failed

    def again(*args: Any, is_without_files: bool, **named: Any) -> Any:
        is_of_file = isinstance(args[1], AttachmentNotTaken)
        return failed(*args, is_without_files=is_without_files or is_of_file, **named)

    return patch.object(answers, "failed", again)


def room_forgets_recovery() -> AbstractContextManager[object]:
    """Room for new files is made by the call itself, which then is no repeat any more."""
    act = interpret.Interpreter._act

    async def hasty(self: Any, step: Any) -> None:
        marks = self._journal.state.view.marks
        await act(self, step)
        self._recovers = self._recovers and len(self._journal.state.view.marks) >= len(marks)

    return patch.object(interpret.Interpreter, "_act", hasty)


def no_room_is_made() -> AbstractContextManager[object]:
    """A request holds all files there ever were."""
    return patch.object(AttachedFiles, "_crowded_out", lambda self, attachments: ())


_FILES: Final = {
    "has_files": True,
    "clients": 2,
    "conversations": 1,
    "sends": 6,
    "chance": {**dict.fromkeys(Fault, 0.0), Fault.FILE_DAMAGED: 0.2, Fault.FILE_REFUSED: 0.5},
    "weight": {Fault.CRASH_AT_PORT: 1.0},
    "misfortune_every_s": 2.0,
}

_CRASHES: Final = {
    **_FILES,
    "chance": {**dict.fromkeys(Fault, 0.0), Fault.STORE_SLOW: 0.3},
    "weight": {Fault.CRASH_AT_STEP: 1.0, Fault.CRASH_AT_PORT: 1.0},
    "unprocessed_max": 32,
    "mailbox_capacity": 64,
    "idle_timeout_s": 4.0,
}

PLANTED_FILES: Final = {
    "damaged_file_sent": Planted(damaged_file_sent, "file_differs", 20, dwells=_FILES),
    "files_refused_for_ever": Planted(files_refused_for_ever, "unbounded", 60, dwells=_FILES),
    "room_forgets_recovery": Planted(room_forgets_recovery, "recovery_unrecorded", 200, dwells=_CRASHES),
    "no_room_is_made": Planted(no_room_is_made, "too_many_files", 20, dwells=_FILES),
}
