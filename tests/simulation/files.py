"""Files that clients send along, where their bytes lie, and what becomes of them there.

A client has uploaded a file when it names it; what a gateway does of that is to keep the bytes until a record names
them. The bytes may be gone, spoilt or out of reach when a model is to see them.
"""

import hashlib
from collections.abc import Collection
from random import Random
from typing import Final

import msgspec

from tests.simulation.faults import Fault
from tests.simulation.life import Life
from tests.simulation.tools import Ledger, SimBlobs
from tests.simulation.world import World
from tests.support.oracle_evidence import Spoilt
from torpor.attachments.options import AttachmentOptions
from torpor.conversation.view import TOKEN_BYTES
from torpor.errors import StoreUnavailable
from torpor.records.attachments import Attachment, marker_block
from torpor.records.ids import ConversationKey
from torpor.turn.attached import AttachedFiles

AT_ONCE: Final = 2
"""Files that one request may hold."""


def _file(name: str, media_type: str) -> tuple[Attachment, bytes]:
    """One that weighs what its marker does, so that whoever measures requests need not know of files."""
    data = f"what is in {name}".encode()
    told = Attachment(
        blob=hashlib.sha256(data).hexdigest(), media_type=media_type, size_bytes=len(data), tokens=50, name=name
    )
    return msgspec.structs.replace(told, tokens=len(bytes(marker_block(told))) // TOKEN_BYTES), data


FILES: Final = (
    _file("scan.png", "image/png"),
    _file("photo.jpg", "image/jpeg"),
    _file("letter.pdf", "application/pdf"),
    _file("notes.txt", "text/plain"),
)


def brought(world: World, key: ConversationKey, *, rng: Random) -> tuple[Attachment, ...]:
    """Some files of which the bytes are there now, or none."""
    if not world.plan.has_files or rng.random() < 0.5:
        return ()
    files = rng.sample(FILES, rng.choice((1, 1, 2)))
    for attachment, data in files:
        world.blobs[key.owner, attachment.blob] = data
        world.uploaded.add(attachment.blob)
    return tuple(attachment for attachment, _ in files)


class SimFiles(SimBlobs):
    """The blobs as whoever reads files for a request sees them: on a bad disk."""

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        world, place = self._life.world, (key.owner, handle)
        self._life.reach("blob.get")
        await self._life.gate()
        if world.roll(Fault.FILE_UNREADABLE):
            raise StoreUnavailable("the disk does not answer")
        if (data := world.blobs.get(place)) is not None and world.roll(Fault.FILE_GONE):
            self._spoil(handle, "gone")
            del world.blobs[place]
        elif data is not None and world.roll(Fault.FILE_DAMAGED):
            self._spoil(handle, "damaged")
            world.blobs[place] = data[:-1] + bytes([data[-1] ^ 1])
        return await super().get(key, handle, offset=offset, size=size)

    def _spoil(self, handle: str, what: str) -> None:
        world = self._life.world
        world.evidence.spoilt.append(Spoilt(moment=world.moment(), blob=handle, what=what))


class SimUploads:
    """Implements ``supervisor.directory.Coming``: what was uploaded may be named for longer than a run lasts."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def awaited(self, key: ConversationKey) -> frozenset[str]:
        return frozenset(self._world.uploaded)

    async def give_up(self, key: ConversationKey, blobs: Collection[str]) -> frozenset[str]:
        self._world.uploaded.difference_update(blobs)
        return frozenset(blobs)

    async def forget(self, key: ConversationKey) -> None:
        self._world.uploaded.clear()


def attached_of(life: Life, ledger: Ledger) -> AttachedFiles:
    """What reads files for the requests of one life."""
    return AttachedFiles(SimFiles(ledger, life), AttachmentOptions(request_attachments_max=AT_ONCE))
