"""The files that a request holds: read just before it is sent, and what is done when they cannot be.

Above: the interpreter and the model call. Below: the blobs. Nothing is kept of what was read.
"""

from collections.abc import Mapping
from typing import Final

import anyio

from torpor.attachments.options import AttachmentOptions
from torpor.conversation.state import ConversationState
from torpor.conversation.view import View
from torpor.conversation.withdrawing import attachments_in, crowded_out, place_of
from torpor.errors import StoreError
from torpor.provider_errors import (
    AttachmentMissing,
    AttachmentNotTaken,
    AttachmentsUnavailable,
    ProviderError,
    RequestInvalid,
    RequestTooLarge,
)
from torpor.records.attachments import Why
from torpor.records.ids import ConversationKey
from torpor.store.contract import Blobs

_OPTIONS: Final = AttachmentOptions()


class AttachedFiles:
    """Of all conversations."""

    def __init__(self, blobs: Blobs | None = None, options: AttachmentOptions = _OPTIONS) -> None:
        """Args: blobs: none where nothing can be attached; then all files are missing."""
        self._blobs = blobs
        self._options = options

    async def read(self, key: ConversationKey, view: View) -> Mapping[str, bytes]:
        """What the markers of ``view`` stand for, by name of the blob.

        Raises: AttachmentMissing: of some there are no bytes. AttachmentsUnavailable: nobody can tell now.
        """
        found: dict[str, bytes] = {}
        missing: list[int] = []
        try:
            with anyio.fail_after(self._options.read_deadline_s):
                for place, attachment in enumerate(attachments_in(view)):
                    if attachment.blob not in found and self._blobs is not None:
                        data = await self._blobs.get(key, attachment.blob)
                        if data is not None and len(data) == attachment.size_bytes:
                            found[attachment.blob] = data
                    if attachment.blob not in found:
                        missing.append(place)
        except (StoreError, TimeoutError) as exc:
            raise AttachmentsUnavailable(f"attachments cannot be read now: {exc}") from exc
        if missing:
            raise AttachmentMissing(tuple(missing))
        return found

    def crowded_out(self, view: View, *, of: View) -> tuple[int, ...]:
        """Attachments of ``of``, the view so far, for which the request with ``view`` has no room."""
        if not view.marks:
            return ()
        options = self._options
        places = crowded_out(
            attachments_in(view),
            attachments_max=options.request_attachments_max,
            bytes_max=options.request_bytes_max,
            pages_max=options.request_pages_max,
        )
        return tuple(place for place in places if place < len(of.marks))


NO_FILES: Final = AttachedFiles()


def not_to_be_sent(state: ConversationState, fault: ProviderError) -> tuple[tuple[int, ...], Why]:
    """The attachments in the view that ``fault`` speaks of; none where it speaks of something else.

    Where a host says no more than that it does not take the request, it is those that came with this turn: one before
    it was taken with all others.
    """
    view = state.view
    if isinstance(fault, AttachmentMissing):
        return fault.places, Why.MISSING
    if not view.marks or not isinstance(fault, RequestInvalid | RequestTooLarge):
        return (), Why.REFUSED
    if type(fault) is RequestInvalid:
        begin = state.turn.base.size_bytes if state.turn is not None else 0
        return tuple(place for place, mark in enumerate(view.marks) if mark.begin >= begin), Why.REFUSED
    if isinstance(fault, AttachmentNotTaken) and fault.at is not None:
        place = place_of(view, message=fault.at[0], block=fault.at[1])
        if place is not None:
            return (place,), Why.REFUSED
    known = attachments_in(view)
    pictures = tuple(place for place, each in enumerate(known) if each.is_picture)
    if isinstance(fault, AttachmentNotTaken) and fault.is_of_picture and pictures:
        return pictures, Why.REFUSED
    return tuple(range(len(known))), Why.REFUSED
