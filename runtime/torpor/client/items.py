"""What a watch yields."""

from typing import TypeAlias

import msgspec

from torpor.records.events import TOOL_PROGRESS, AnyEvent
from torpor.records.frames import RunStatus
from torpor.records.ids import CallId


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """The header every item carries."""

    conversation: str


class EventItem(Item, frozen=True):
    """One event: each exactly once, in order. ``(epoch, event.event)`` is the cursor after it."""

    epoch: int
    event: AnyEvent


class DeltaItem(Item, frozen=True):
    """The next piece of the reply ``call``; without gap or repetition while the watch lasts, but it may break off.

    A new ``call`` replaces what an older one said, unless that was finished by an event.
    """

    call: str
    offset: int
    text: str


class ProgressItem(Item, frozen=True):
    """What a running tool, or a sub-agent at work for it, says of itself."""

    call_id: CallId
    name: str
    text: str
    type: str = TOOL_PROGRESS
    """Else ``subagent.progress`` or ``research.progress``."""


class ReloadItem(Item, frozen=True):
    """Begin over: this is the state, and events go on after ``head``."""

    epoch: int
    head: int
    status: RunStatus
    events: tuple[AnyEvent, ...]
    """The latest up to ``head``, oldest first, without those of types that this client does not know."""


class ResumedItem(Item, frozen=True):
    """The server goes on where the watch was; what is known of the conversation as of ``head``."""

    epoch: int
    head: int
    status: RunStatus


class StatusItem(Item, frozen=True):
    """An operator or the server itself has set the conversation aside, or released it; no event says so."""

    status: RunStatus


AnyItem: TypeAlias = EventItem | DeltaItem | ProgressItem | ReloadItem | ResumedItem | StatusItem
