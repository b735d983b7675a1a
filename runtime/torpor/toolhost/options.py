"""Bounds of tool calls."""

from typing import Annotated, Final

import msgspec

from torpor.records.bounds import Amount, Count, Pause

RESULT_CAP_MIN_BYTES: Final = 1_024
"""Below this a shortened result would be little but the note that says so."""


class ToolOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds, bytes and counts; a tool's own declaration wins where it has one."""

    deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    """One call, the wait for a free thread or process included."""
    result_cap_bytes: Annotated[int, msgspec.Meta(ge=RESULT_CAP_MIN_BYTES)] = 16_384
    """UTF-8 size of a result as the model reads it; a longer one keeps its head and tail and a handle to the whole."""
    skill_cap_bytes: Annotated[int, msgspec.Meta(ge=RESULT_CAP_MIN_BYTES)] = 65_536
    """The same for the text of a skill, which is meant to be read whole."""
    worker_threads: Count = 16
    """Synchronous tools running at once, those given up but not yet ended included."""
    worker_threads_per_tool: Count = 8
    """Calls of one of them at once, so that one that hangs leaves threads to the others."""
    worker_processes: Count = 2
    """Tools with ``runs="process"`` running at once; the processes are started when they are needed."""
    process_idle_s: Pause = 60.0
    """A process that ran no tool for this long is stopped."""
    process_memory_bytes: Amount = 0
    """Address space of one process, beyond which its tool fails; 0 for no limit."""
    progress_cap_chars: Annotated[int, msgspec.Meta(ge=1)] = 500
    """Of one progress report; the rest is cut off."""
    blob_deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """Storing or reading one whole result."""
    earlier_deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    """One look into earlier turns; what was found until then is told."""
    earlier_records_max: Annotated[int, msgspec.Meta(ge=1)] = 20_000
    """Records of earlier turns that one search looks at; the next one goes on from there."""
