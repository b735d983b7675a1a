"""Files that people send, from the first piece to the message that names them; and the way back.

Above: the frames, see ``upload_frames``, and the links, see ``attachment_route``. Below: the pieces on disk, the
process that looks into files, and the blobs.

An upload is its owner's, and begins again where it was cut off. What comes of it is a ticket, which a message names:
whoever reads that message needs nothing but the ticket's word, so a send waits for no disk. Whether the ticket is still
good, ``good_tickets`` knows.
"""

import hashlib
import unicodedata
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio
import msgspec
import structlog

from torpor.attachment_errors import (
    AttachmentRefused,
    TooManyAttachments,
    UnknownAttachment,
    UnknownUpload,
    UploadDiffers,
    UploadOutOfStep,
)
from torpor.attachments.inspector import Inspector
from torpor.attachments.options import AttachmentOptions
from torpor.attachments.tickets import Linked, Sendable, Tickets
from torpor.clock import Clock
from torpor.conversation.title import titled
from torpor.errors import StoreError
from torpor.gateway.good_tickets import Disk, GoodTickets
from torpor.gateway.upload_numbers import UploadNumbers
from torpor.gateway.upload_room import check_room, check_size
from torpor.records.attachments import NAME_CHARS_MAX, Attachment
from torpor.records.ids import ConversationKey
from torpor.store.blob_names import HANDLE
from torpor.store.contract import ErasableBlobs
from torpor.store.uploads import Announced, LocalUploads, OpenUpload
from torpor.turn.places import FairPlaces

_MICROSECONDS: Final = 1_000_000
_SWEEP_S: Final = 3_600.0
_UNSEEN: Final = frozenset({"Cc", "Cf"})
_JOINERS: Final = "\u200c\u200d"
"""Words of some languages are written with them, and emoji that consist of others."""
_log = structlog.get_logger()
_T = TypeVar("_T")
Row = dict[str, Any]


class NamesBlobs(Protocol):
    """Implemented by the stores."""

    async def unnamed(self, key: ConversationKey, handles: Sequence[str]) -> tuple[str, ...]: ...


class Uploads:
    """Of all owners. The ``key`` of each call is an owner's; its conversation does not count, but for ``named``."""

    def __init__(
        self,
        files: LocalUploads,
        *,
        blobs: ErasableBlobs,
        inspector: Inspector,
        records: NamesBlobs,
        tickets: Tickets,
        clock: Clock,
        options: AttachmentOptions,
        in_threads: bool = True,
    ) -> None:
        """Args: in_threads: without, the disk is waited for on the event loop."""
        self._files = files
        self._blobs = blobs
        self._inspector = inspector
        self._records = records
        self._tickets = tickets
        self._clock = clock
        self._options = options
        self._disk = Disk(in_threads=in_threads)
        self._good = GoodTickets(files, disk=self._disk)
        processes = options.inspect_processes
        self._looks = FairPlaces(processes, monotonic_s=clock.monotonic_s, per_owner=max(processes - 1, 1))
        self._numbers = UploadNumbers()
        self.statistics = self._numbers.statistics

    async def begin(self, key: ConversationKey, upload: str, *, name: str, size_bytes: int, sha256: str) -> int:
        """How many bytes of it are there; the next piece goes on from there.

        Raises: AttachmentEmpty. AttachmentTooLarge: more than the server takes. TooManyUploads.
        """
        announced = Announced(
            name=shown(name),
            size_bytes=size_bytes,
            sha256=sha256,
            tenant=key.tenant,
            owner=key.owner,
            touched_us=self._clock.now_us(),
        )
        gone: dict[str, Announced] = {}
        with self._numbers.refusals():
            check_size(announced, options=self._options)
            try:
                async with self._good.alone(key, upload):
                    return await self._disk.waited(partial(self._begin, key, upload, announced, gone=gone))
            finally:
                await self._collect(key, gone)

    def _begin(self, key: ConversationKey, upload: str, announced: Announced, *, gone: dict[str, Announced]) -> int:
        """Args: gone: gets what is forgotten for it."""
        with self._files.lock(key):
            dropped, left = self._files.drop_older(key, before_us=self._expired_us())
            gone.update(dropped)
            found = left.get(upload)
            if found is not None and found.announced.is_same_as(announced):
                return found.received_bytes
            others = [each.announced for name, each in left.items() if name != upload]
            check_room(announced, others=others, options=self._options, now_us=self._clock.now_us())
            if found is not None:
                gone[upload] = found.announced
            self._files.begin(key, upload, announced)
            self._numbers.began()
            return 0

    async def take(self, key: ConversationKey, upload: str, *, offset: int, data: bytes) -> int:
        """A piece that follows what is there, or is there already; how many bytes are there then.

        Raises: UnknownUpload, UploadOutOfStep, UploadDiffers: more than was announced.
        """
        with self._numbers.refusals():
            return await self._disk.waited(partial(self._take, key, upload, offset=offset, data=data))

    def _take(self, key: ConversationKey, upload: str, *, offset: int, data: bytes) -> int:
        with self._files.lock(key):
            found = self._files.found(key, upload)
            if found is None:
                raise UnknownUpload(upload)
            if found.announced.blob or offset + len(data) <= found.received_bytes:
                return found.received_bytes
            if offset > found.received_bytes:
                raise UploadOutOfStep(upload, offset=offset, received_bytes=found.received_bytes)
            if offset + len(data) > found.announced.size_bytes:
                what = f"has more than the {found.announced.size_bytes} bytes that were announced"
                raise UploadDiffers(upload, what=what)
            new = data[found.received_bytes - offset :]
            self._files.append(key, upload, new)
            self._files.note(key, upload, msgspec.structs.replace(found.announced, touched_us=self._clock.now_us()))
            return found.received_bytes + len(new)

    async def finish(self, key: ConversationKey, upload: str) -> Row:
        """What came of a whole upload, with the ticket by which messages name it. Once more, the same again.

        Raises: UnknownUpload, UploadOutOfStep: it is not whole. UploadDiffers: its digest is another one; it is
            forgotten. AttachmentRefused: it is nothing that a model could be shown; likewise.
        """
        with self._numbers.refusals():
            async with self._good.alone(key, upload):
                return await self._finished(key, upload)

    async def _finished(self, key: ConversationKey, upload: str) -> Row:
        found = await self._disk.waited(partial(self._whole, key, upload))
        if found.announced.blob:
            if not await self._is_stored(key, found.announced.blob):  # it was damaged, or this is another bucket
                self._good.void(key, [upload])
                await self._disk.waited(partial(self._files.drop, key, upload))
                raise UnknownUpload(upload)
            # Whoever asks for its ticket once more means to name it once more.
            await self._noted(key, upload, msgspec.structs.replace(found.announced, is_named=False))
            return msgspec.json.decode(found.announced.result, type=Row)
        part = self._files.part(key, upload)
        made = part.with_suffix(".made")
        try:
            async with self._looks.of(key):
                looked = await self._inspector.look(part, made=made, name=found.announced.name)
            data = await self._disk.waited(partial(self._files.read, made if looked.is_made else part))
        except AttachmentRefused:
            await self._disk.waited(partial(self._files.drop, key, upload))
            raise
        except StoreError:
            if await self._disk.waited(partial(self._files.found, key, upload)) is None:  # it was forgotten meanwhile
                raise UnknownUpload(upload) from None
            raise
        meant = msgspec.structs.replace(found.announced, meant=hashlib.sha256(data).hexdigest())
        await self._noted(key, upload, meant)
        blob = await self._blobs.put(_kept_for(key, upload), data)
        attachment = Attachment(
            blob=blob,
            media_type=looked.media_type,
            size_bytes=len(data),
            tokens=looked.tokens,
            name=found.announced.name,
            pages=looked.pages,
        )
        expires_us = self._clock.now_us() + round(self._options.upload_expiry_s * _MICROSECONDS)
        ticket = Sendable(key.tenant, key.owner, expires_us, upload, attachment)
        row: Row = {
            "upload": upload,
            "attachment": self._tickets.sealed(ticket),
            "expires_at_us": expires_us,
            "note": looked.note,
            **msgspec.to_builtins(attachment),
        }
        done = msgspec.structs.replace(
            meant,
            blob=blob,
            result=msgspec.Raw(msgspec.json.encode(row)),
            touched_us=self._clock.now_us(),
        )
        await self._noted(key, upload, done)
        self._numbers.finished(len(data))
        return row

    async def _noted(self, key: ConversationKey, upload: str, announced: Announced) -> None:
        """Keep what is known of it, unless it was forgotten meanwhile: then nothing of it stays.

        Raises: UnknownUpload.
        """
        if announced.blob:
            self._good.add(key, upload, blob=announced.blob, finished_us=announced.touched_us)

        def note() -> bool:
            with self._files.lock(key):
                if (found := self._files.found(key, upload)) is None or not found.announced.is_same_as(announced):
                    return False
                keep = self._files.finish if announced.blob else self._files.note
                keep(key, upload, announced)
                return True

        if not await self._disk.waited(note):
            await self._collect(key, {upload: announced})
            raise UnknownUpload(upload)

    async def _is_stored(self, key: ConversationKey, blob: str) -> bool:
        data = await self._blobs.get(key, blob)
        return data is not None and await self._disk.waited(lambda: hashlib.sha256(data).hexdigest()) == blob

    def _whole(self, key: ConversationKey, upload: str) -> OpenUpload:
        with self._files.lock(key):
            found = self._files.found(key, upload)
            if found is None:
                raise UnknownUpload(upload)
            if found.announced.blob:
                return found
            if found.received_bytes < found.announced.size_bytes:
                raise UploadOutOfStep(upload, offset=found.announced.size_bytes, received_bytes=found.received_bytes)
            if self._files.sha256(key, upload) != found.announced.sha256:
                self._files.drop(key, upload)
                raise UploadDiffers(upload, what="has another digest than was announced")
            return found

    async def drop(self, key: ConversationKey, upload: str) -> None:
        """Forget one; one that is not there is no error."""

        def drop() -> OpenUpload | None:
            with self._files.lock(key):
                found = self._files.found(key, upload)
                self._files.drop(key, upload)
                return found

        async with self._good.alone(key, upload):
            if (found := await self._disk.waited(drop)) is not None:
                await self._collect(key, {upload: found.announced})

    def named(self, key: ConversationKey, tickets: Sequence[str]) -> tuple[Attachment, ...]:
        """What a message for the conversation ``key`` may hold; from now on it is kept for that one. At once.

        Raises: UnknownAttachment: also when its upload was forgotten since, or the last conversation that had it is
            gone. TooManyAttachments.
        """
        options, now_us = self._options, self._clock.now_us()
        if len(tickets) > options.message_attachments_max:
            raise TooManyAttachments(len(tickets), what="attachments", most=options.message_attachments_max)
        opened = [self._tickets.opened(ticket, Sendable, now_us=now_us) for ticket in tickets]
        if any((ticket.tenant, ticket.owner) != (key.tenant, key.owner) for ticket in opened):
            raise UnknownAttachment
        if not all(self._good.is_good(key, ticket.upload, blob=ticket.attachment.blob) for ticket in opened):
            raise UnknownAttachment
        attachments = tuple(ticket.attachment for ticket in opened)
        for what, most in (("size_bytes", options.request_bytes_max), ("pages", options.request_pages_max)):
            if (found := sum(getattr(each, what) for each in attachments)) > most:
                words = "bytes in its attachments" if what == "size_bytes" else "pages in its attachments"
                raise TooManyAttachments(found, what=words, most=most)
        # Nothing is awaited from the look whether they are good to this: a deletion comes before both or after them.
        self._blobs.keep(key, [each.blob for each in attachments])
        self._good.name(key, [ticket.upload for ticket in opened])
        for ticket in opened:
            self._blobs.let_go(_kept_for(key, ticket.upload))
        return attachments

    async def piece(self, key: ConversationKey, blob: str, *, offset: int, size_bytes: int) -> bytes:
        """A part of a blob that a message of the conversation names, as the caller has made sure.

        Raises: UnknownAttachment: it is not there.
        """
        data = await self._blobs.get(key, blob, offset=offset, size=size_bytes) if HANDLE.fullmatch(blob) else None
        if data is None:
            raise UnknownAttachment
        return data

    def link(self, key: ConversationKey, blob: str) -> tuple[str, int]:
        """What stands in an address by which anybody may fetch it for a while, and until when (UTC, microseconds)."""
        expires_us = self._clock.now_us() + round(self._options.link_expiry_s * _MICROSECONDS)
        return self._tickets.sealed(Linked(key.tenant, key.owner, expires_us, blob)), expires_us

    def followed(self, ticket: str) -> tuple[ConversationKey, str]:
        """Whose blob a link leads to, and which one. Raises: UnknownAttachment."""
        linked = self._tickets.opened(ticket, Linked, now_us=self._clock.now_us())
        return ConversationKey(linked.tenant, linked.owner, ""), linked.blob

    async def size_bytes(self, key: ConversationKey, blob: str) -> int:
        """Of a whole blob. Raises: UnknownAttachment: it is not there."""
        if (found := await self._blobs.size_bytes(key, blob)) is None:
            raise UnknownAttachment
        return found

    async def awaited(self, key: ConversationKey) -> frozenset[str]:
        """Blobs of the owner that a message may name soon: not to be taken away for want of one that does."""
        return self._good.blobs(key, since_us=self._expired_us())

    async def give_up(self, key: ConversationKey, blobs: Collection[str]) -> frozenset[str]:
        """See ``GoodTickets.give_up``."""
        return await self._good.give_up(key, blobs)

    async def forget(self, key: ConversationKey) -> None:
        """Everything of an owner that is on its way; what is looked into just now finds that it was forgotten."""

        def forget() -> Collection[str]:
            with self._files.lock(key):
                known = self._files.known(key)
                self._files.forget(key)
                return known

        known = await self._disk.waited(forget)
        self._good.void_all(key)
        for upload in known:
            self._blobs.let_go(_kept_for(key, upload))

    @asynccontextmanager
    async def sweeping(self) -> AsyncIterator[None]:
        """Until the block ends, what has expired goes, whoever comes back for it or not.

        Tickets from before this process are good in the block.
        """
        await self._good.load(since_us=self._expired_us())
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._sweep, name="uploads:sweep")
                tasks.start_soon(self._good.noting, name="uploads:noting")
                yield
                tasks.cancel_scope.cancel()
        finally:
            await self._good.note_last()

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(min(self._options.upload_expiry_s / 2, _SWEEP_S))
            try:
                for key in await self._disk.waited(self._files.owners):
                    await self.sweep_of(key)
            except StoreError as exc:  # the next look comes as well
                _log.warning("uploads.not_swept", why=str(exc))

    async def sweep_of(self, key: ConversationKey) -> None:
        """What has expired of an owner's uploads goes, with blobs that no message came to name."""

        def drop() -> dict[str, Announced]:
            with self._files.lock(key):
                return self._files.drop_older(key, before_us=self._expired_us()).gone

        await self._collect(key, await self._disk.waited(drop))

    async def _collect(self, key: ConversationKey, gone: Mapping[str, Announced]) -> None:
        """Uploads are forgotten: their blobs go, unless something else needs them."""
        self._good.void(key, gone)
        for upload in gone:
            self._blobs.let_go(_kept_for(key, upload))
        if not (blobs := {each.blob or each.meant for each in gone.values()} - {""}):
            return
        with self._blobs.deciding():
            awaited = await self.awaited(key)
            unnamed = await self._records.unnamed(key, sorted(blobs))
            needless = [blob for blob in unnamed if blob not in awaited]
            await self._blobs.remove(key, needless)
        self._numbers.collected(len(needless))

    def _expired_us(self) -> int:
        """What was touched before has expired."""
        return self._clock.now_us() - round(self._options.upload_expiry_s * _MICROSECONDS)


def _kept_for(key: ConversationKey, upload: str) -> ConversationKey:
    """What a blob is kept for until a message names it: no conversation is called so."""
    return ConversationKey(key.tenant, key.owner, f"+{upload}")


def shown(name: str) -> str:
    """A file's name as it is kept: one line, without the folders that some clients tell, and without characters that
    are not seen, such as those that turn round how the others are read."""
    line = titled(name.replace("\\", "/").rpartition("/")[2])
    seen = (char for char in line if char in _JOINERS or unicodedata.category(char) not in _UNSEEN)
    return "".join(seen).strip()[:NAME_CHARS_MAX]
