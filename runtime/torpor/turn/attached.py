"""The files that a request holds: read just before it is sent, and what is done when they cannot be.

Above: the interpreter and the model call. Below: the blobs. Nothing is kept of what was read.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import anyio
import anyio.to_thread
import structlog

from torpor.attachments.options import AttachmentOptions
from torpor.conversation.state import ConversationState
from torpor.conversation.turn_folds import requested_view
from torpor.conversation.view import View
from torpor.conversation.withdrawing import attachments_in, crowded_out, place_of
from torpor.errors import StoreError
from torpor.provider_errors import (
    AttachmentDamaged,
    AttachmentMissing,
    AttachmentNotTaken,
    AttachmentsUnavailable,
    ProviderError,
    RequestInvalid,
    RequestTooLarge,
)
from torpor.records.attachments import Attachment, Why
from torpor.records.ids import ConversationKey, MessageId
from torpor.store.contract import Blobs

_OPTIONS: Final = AttachmentOptions()
_HASHED_AT_ONCE_BYTES: Final = 262_144
"""A larger one is hashed in a thread: 3 MB take 2.2 ms, and the way to a thread and back 0.2 ms."""
_log = structlog.get_logger()


class AttachedFiles:
    """Of all conversations."""

    def __init__(self, blobs: Blobs | None = None, options: AttachmentOptions = _OPTIONS) -> None:
        """Args: blobs: none where nothing can be attached; then all files are missing."""
        self._blobs = blobs
        self._options = options

    async def read(self, key: ConversationKey, view: View) -> Mapping[str, bytes]:
        """What the markers of ``view`` stand for, by name of the blob.

        Raises: AttachmentMissing: of some there are no bytes. AttachmentDamaged: of none that, but of some there are
            others. AttachmentsUnavailable: nobody can tell now.
        """
        known = attachments_in(view)
        found: dict[str, bytes] = {}
        lost: dict[str, Why] = {}
        began_s = anyio.current_time()
        try:
            with anyio.fail_after(self._options.read_deadline_s):
                for blob in dict.fromkeys(each.blob for each in known):
                    data = await self._blobs.get(key, blob) if self._blobs is not None else None
                    if data is None:
                        lost[blob] = Why.MISSING
                    elif await _digest(data) != blob:
                        lost[blob] = Why.DAMAGED
                    else:
                        found[blob] = data
        except (StoreError, TimeoutError) as exc:
            # Where files lie is for the log alone: what a call failed of goes to clients.
            _log.warning("attachments.unreadable", conversation=key.path, why=str(exc) or type(exc).__name__)
            raise AttachmentsUnavailable(
                "attachments cannot be read now: their storage does not answer",
                waited_s=anyio.current_time() - began_s,
            ) from exc
        for why, kind in _LOST.items():
            if places := tuple(place for place, each in enumerate(known) if lost.get(each.blob) is why):
                blobs = sorted({known[place].blob for place in places})
                _log.warning(f"attachments.{why.value}", conversation=key.path, blobs=blobs)
                raise kind(places)
        return found

    def joining(self, state: ConversationState, joined: tuple[MessageId, ...]) -> tuple[MessageId, ...]:
        """As many of the messages ``joined``, in order, as have no more files than one request may hold; the others
        wait."""
        for count in range(len(joined), 0, -1):
            view = requested_view(state, joined[:count])
            begin = len(state.view.marks)
            if len(view.marks) == begin or not self._crowded_out(attachments_in(view)[begin:]):
                return joined[:count]
        return ()

    def making_room(self, state: ConversationState, joined: tuple[MessageId, ...]) -> tuple[int, ...]:
        """Attachments in the view so far for which the next request, with the messages ``joined``, has no room."""
        if not state.view.marks:
            return ()
        places = self._crowded_out(attachments_in(requested_view(state, joined)))
        return tuple(place for place in places if place < len(state.view.marks))

    def _crowded_out(self, attachments: tuple[Attachment, ...]) -> tuple[int, ...]:
        options = self._options
        return crowded_out(
            attachments,
            attachments_max=options.request_attachments_max,
            bytes_max=options.request_bytes_max,
            pages_max=options.request_pages_max,
        )


NO_FILES: Final = AttachedFiles()
_LOST: Final = {Why.MISSING: AttachmentMissing, Why.DAMAGED: AttachmentDamaged}
"""One after the other, since a note gives one reason."""


async def _digest(data: bytes) -> str:
    if len(data) <= _HASHED_AT_ONCE_BYTES:
        return hashlib.sha256(data).hexdigest()
    return await anyio.to_thread.run_sync(lambda: hashlib.sha256(data).hexdigest())


def not_to_be_sent(state: ConversationState, fault: ProviderError) -> tuple[tuple[int, ...], Why]:
    """The attachments in the view that ``fault`` speaks of; none where it speaks of something else.

    Where a host does not say which, it is those that came with this turn: one before it was taken with all others.
    """
    if isinstance(fault, AttachmentMissing):
        return fault.places, Why.DAMAGED if isinstance(fault, AttachmentDamaged) else Why.MISSING
    return _refused(state, fault) if state.view.marks else (), Why.REFUSED


def _refused(state: ConversationState, fault: ProviderError) -> tuple[int, ...]:
    everything = tuple(range(len(state.view.marks)))
    match fault:
        case RequestTooLarge():
            return everything
        case AttachmentNotTaken():
            if fault.at is not None:
                place = place_of(state.view, message=fault.at[0], block=fault.at[1])
                if place is not None:
                    return (place,)
            known = attachments_in(state.view)
            spoken_of = tuple(place for place in everything if known[place].is_picture == fault.is_of_picture)
            spoken_of = spoken_of or everything
            return spoken_of if fault.takes_none else _of_turn(state, spoken_of) or spoken_of
        case RequestInvalid(is_of_messages=True):
            return _of_turn(state, everything)
    return ()


def _of_turn(state: ConversationState, places: tuple[int, ...]) -> tuple[int, ...]:
    """Those of ``places`` that came with the running turn."""
    begin = state.turn.base.size_bytes if state.turn is not None else 0
    return tuple(place for place in places if state.view.marks[place].begin >= begin)
