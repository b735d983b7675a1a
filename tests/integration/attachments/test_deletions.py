"""Messages that name files while conversations with the same files are deleted and their uploads dropped."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import pytest

from tests.support.gateway_line import ManualClock
from tests.support.uploaded import uploads_in
from torpor.attachment_errors import UnknownAttachment, UnknownUpload, UploadDiffers, UploadOutOfStep
from torpor.attachments.inspector import Inspector
from torpor.attachments.options import AttachmentOptions
from torpor.attachments.worker import Answer
from torpor.records.ids import ConversationKey
from torpor.store.blobs import MemoryBlobs

ANN = ConversationKey("t", "ann", "")
FILES = (b"one file", b"another")
OPTIONS = AttachmentOptions()


class Glance(Inspector):
    """Finds a text in everything."""

    async def look(self, path: Path, *, made: Path, name: str) -> Answer:
        return Answer(media_type="text/plain", tokens=9)


class Owner:
    """What she does at once: conversations by name, each with the files that it is on record to have."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        self.rng = Random(seed)
        self.blobs = MemoryBlobs()
        self.recorded: dict[str, str] = {}
        self.folder = folder
        self.tickets: list[str] = []
        self.taken = self.refused = 0
        self.numbers = iter(range(1_000))
        self.restart()

    def restart(self) -> None:
        self.uploads = uploads_in(
            self.folder,
            blobs=self.blobs,
            clock=ManualClock(),
            inspector=Glance(OPTIONS),
            records=self,
            in_threads=False,
        )

    async def unnamed(self, key: ConversationKey, handles: Sequence[str]) -> tuple[str, ...]:
        """Implements ``gateway.uploads.NamesBlobs``."""
        await anyio.lowlevel.checkpoint()
        return tuple(handle for handle in handles if handle not in self.recorded.values())

    async def upload(self) -> None:
        data, upload = self.rng.choice(FILES), self.rng.choice(("u1", "u2", "u3"))
        digest = hashlib.sha256(data).hexdigest()
        try:
            await self.uploads.begin(ANN, upload, name=upload, size_bytes=len(data), sha256=digest)
            await self.uploads.take(ANN, upload, offset=0, data=data)
            self.tickets.append((await self.uploads.finish(ANN, upload))["attachment"])
        except (UnknownUpload, UploadDiffers, UploadOutOfStep):  # another file came under the same id
            return

    async def send(self) -> None:
        if not self.tickets:
            return
        key = ConversationKey("t", "ann", f"c{next(self.numbers)}")
        try:
            (attachment,) = self.uploads.named(key, [self.rng.choice(self.tickets)])
        except UnknownAttachment:
            self.refused += 1
            return
        self.taken += 1
        await self.some_while()
        self.recorded[key.conversation] = attachment.blob
        self.blobs.let_go(key)

    async def delete(self) -> None:
        """As a directory does it."""
        if not self.recorded:
            return
        name = self.rng.choice(sorted(self.recorded))
        with self.blobs.deciding():
            blob = self.recorded.pop(name)
            await self.some_while()
            handles = [blob] if blob not in self.recorded.values() else []
            going = sorted(await self.uploads.give_up(ANN, handles))
            await self.blobs.remove(ConversationKey("t", "ann", name), going)

    async def drop(self) -> None:
        await self.uploads.drop(ANN, self.rng.choice(("u1", "u2", "u3")))

    async def some_while(self) -> None:
        for _ in range(self.rng.randrange(6)):
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(2))
async def test_a_message_that_was_taken_has_its_file_whatever_is_deleted_meanwhile(tmp_path: Path, seed: int) -> None:
    owner = Owner(tmp_path, seed=seed)
    deeds = [owner.upload, owner.upload, owner.send, owner.send, owner.send, owner.delete, owner.delete, owner.drop]

    async def busy() -> None:
        for _ in range(20):
            await owner.rng.choice(deeds)()
            await owner.some_while()

    for _ in range(2):
        async with owner.uploads.sweeping(), anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(busy)
        stored = frozenset(await owner.blobs.stored(ANN))
        assert set(owner.recorded.values()) <= stored
        assert await owner.uploads.awaited(ANN) <= stored, "what a ticket names is there"
        owner.restart()
    assert owner.taken > 5
    assert owner.refused
