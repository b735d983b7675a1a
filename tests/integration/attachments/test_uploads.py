"""Uploads on disk: where they go on, what they may not be, and what becomes of those that nobody needs."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.gateway_line import ManualClock
from tests.support.uploaded import uploads_in
from torpor.attachment_errors import (
    AttachmentEmpty,
    AttachmentTooLarge,
    TooManyAttachments,
    TooManyUploads,
    UnknownAttachment,
    UnknownUpload,
    UploadDiffers,
    UploadOutOfStep,
)
from torpor.attachments.inspector import Inspector
from torpor.attachments.options import AttachmentOptions
from torpor.attachments.worker import Answer
from torpor.errors import StoreUnavailable
from torpor.gateway.uploads import Uploads, shown
from torpor.records.ids import ConversationKey
from torpor.store.blobs import MemoryBlobs

ANN, BOB = ConversationKey("t", "ann", ""), ConversationKey("t", "bob", "")
CHAT = ConversationKey("t", "ann", "c1")
DATA = bytes(range(256)) * 8
PIECE = 700
OPTIONS = AttachmentOptions(upload_bytes_max=4_096, uploads_per_owner_max=2, uploads_bytes_per_owner_max=5_000)


class Glance(Inspector):
    """Finds a picture in everything but what begins with an x."""

    looking: Callable[[], Awaitable[None]] = staticmethod(anyio.lowlevel.checkpoint)
    """What happens behind the look."""

    async def look(self, path: Path, *, made: Path, name: str) -> Answer:
        data = await anyio.Path(path).read_bytes()
        await self.looking()
        if data.startswith(b"x"):
            raise AttachmentEmpty(f"file {name!r} has nothing in it")
        return Answer(media_type="image/png", tokens=9, pages=1)


class Meddled(MemoryBlobs):
    """Something happens behind the storing of a blob, and before anybody hears of it."""

    stored_one: Callable[[], Awaitable[None]] = staticmethod(anyio.lowlevel.checkpoint)

    async def put(self, key: ConversationKey, data: bytes) -> str:
        handle = await super().put(key, data)
        await self.stored_one()
        return handle


class House:
    """A server's uploads, as they are before and after it was killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.blobs = Meddled()
        self.start()

    def start(self, **options: Any) -> None:
        told = msgspec.structs.replace(OPTIONS, **options)
        self.inspector = Glance(told)
        self.uploads: Uploads = uploads_in(
            self.folder, blobs=self.blobs, clock=self.clock, options=told, inspector=self.inspector
        )

    async def begin(self, upload: str = "u1", data: bytes = DATA, *, key: ConversationKey = ANN, **told: Any) -> int:
        announced = {"name": "scan.png", "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **told}
        return await self.uploads.begin(key, upload, **announced)

    async def whole(self, upload: str = "u1", data: bytes = DATA, *, key: ConversationKey = ANN) -> dict[str, Any]:
        received = await self.begin(upload, data, key=key)
        while received < len(data):
            piece = data[received : received + PIECE]
            received = await self.uploads.take(key, upload, offset=received, data=piece)
        return await self.uploads.finish(key, upload)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "uploads")


async def test_it_goes_on_where_it_was_cut_off_at_every_piece(house: House) -> None:
    received = await house.begin()
    assert received == 0
    while received < len(DATA):
        house.start()
        assert await house.begin() == received
        received = await house.uploads.take(ANN, "u1", offset=received, data=DATA[received : received + PIECE])
    house.start()
    row = await house.uploads.finish(ANN, "u1")
    assert row["blob"] == hashlib.sha256(DATA).hexdigest()
    assert await house.blobs.get(CHAT, row["blob"]) == DATA
    house.start()
    assert await house.begin() == len(DATA)
    assert await house.uploads.finish(ANN, "u1") == row


async def test_a_piece_may_come_twice_and_overlap(house: House) -> None:
    await house.begin()
    assert await house.uploads.take(ANN, "u1", offset=0, data=DATA[:100]) == 100
    assert await house.uploads.take(ANN, "u1", offset=0, data=DATA[:100]) == 100
    assert await house.uploads.take(ANN, "u1", offset=50, data=DATA[50:200]) == 200
    assert await house.uploads.take(ANN, "u1", offset=200, data=DATA[200:]) == len(DATA)
    assert (await house.uploads.finish(ANN, "u1"))["size_bytes"] == len(DATA)


async def test_what_does_not_follow_is_told_where_it_goes_on(house: House) -> None:
    await house.begin()
    with pytest.raises(UploadOutOfStep, match="has 0 bytes, expected 7 before this"):
        await house.uploads.take(ANN, "u1", offset=7, data=b"abc")
    with pytest.raises(UploadOutOfStep, match="has 0 bytes"):
        await house.uploads.finish(ANN, "u1")
    with pytest.raises(UploadDiffers, match="more than the 2048 bytes"):
        await house.uploads.take(ANN, "u1", offset=0, data=DATA + b"x")


async def test_another_file_of_the_same_name_begins_anew(house: House) -> None:
    await house.begin()
    await house.uploads.take(ANN, "u1", offset=0, data=DATA[:100])
    assert await house.begin(data=DATA[::-1]) == 0


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_what_was_looked_into_is_what_is_kept_whoever_uses_its_id_meanwhile(
    house: House, is_dropped: bool
) -> None:
    rows: list[dict[str, Any]] = []
    other = DATA[::-1]

    async def meddle() -> None:
        await (house.uploads.drop(ANN, "u1") if is_dropped else house.begin(data=other))

    async with anyio.create_task_group() as tasks:

        async def looking() -> None:
            tasks.start_soon(meddle)
            await anyio.wait_all_tasks_blocked()

        house.inspector.looking = looking
        rows.append(await house.whole())
    house.inspector.looking = anyio.lowlevel.checkpoint
    rows.append(await house.whole(data=other))
    assert [row["blob"] for row in rows] == [hashlib.sha256(data).hexdigest() for data in (DATA, other)]


async def test_files_of_one_owner_that_take_long_hold_up_no_other_one(house: House) -> None:
    goes_on, begun = anyio.Event(), anyio.Event()

    async def looking() -> None:
        begun.set()
        await goes_on.wait()

    house.inspector.looking = looking
    async with anyio.create_task_group() as tasks:
        for upload in ("u1", "u2"):
            await house.begin(upload)
            await house.uploads.take(ANN, upload, offset=0, data=DATA)
            tasks.start_soon(house.uploads.finish, ANN, upload)
            with anyio.fail_after(10):
                await begun.wait()
        house.inspector.looking = anyio.lowlevel.checkpoint
        with anyio.fail_after(10):
            assert (await house.whole(key=BOB))["size_bytes"] == len(DATA)
        goes_on.set()
    assert len(await house.uploads.awaited(ANN)) == 1


async def test_it_is_told_what_came_of_all_uploads(house: House) -> None:
    with pytest.raises(AttachmentTooLarge):
        await house.begin(size_bytes=4_097)
    with pytest.raises(AttachmentEmpty):
        await house.whole(data=b"xyz")
    await house.begin(sha256="0" * 64)
    await house.uploads.take(ANN, "u1", offset=0, data=DATA)
    with pytest.raises(UploadDiffers):
        await house.uploads.finish(ANN, "u1")
    await house.begin()
    await house.whole()
    await house.uploads.finish(ANN, "u1")
    house.clock.advance(OPTIONS.upload_expiry_s + 1)
    await house.uploads.sweep_of(ANN)
    told = house.uploads.statistics()
    assert (told.begun, told.finished, told.stored_bytes, told.collected) == (3, 1, len(DATA), 1)
    assert told.refused == {"attachment_too_large": 1, "attachment_empty": 1, "upload_differs": 1}


@pytest.mark.parametrize("at", ["looked", "stored"])
async def test_of_an_owner_who_is_forgotten_while_a_file_is_looked_into_nothing_stays(house: House, at: str) -> None:
    async def forget() -> None:
        await house.uploads.forget(ANN)

    if at == "looked":
        house.inspector.looking = forget
    else:
        house.blobs.stored_one = forget
    with pytest.raises(UnknownUpload):
        await house.whole()
    assert await house.blobs.stored(ANN) == ()
    assert [path for path in house.folder.rglob("*") if path.is_file()] == []


async def test_what_was_stored_when_the_server_was_killed_goes_with_its_upload(house: House) -> None:
    async def killed() -> None:
        raise StoreUnavailable("the server was killed")

    house.blobs.stored_one = killed
    with pytest.raises(StoreUnavailable):
        await house.whole()
    assert len(await house.blobs.stored(ANN)) == 1
    house.start()
    house.clock.advance(OPTIONS.upload_expiry_s + 1)
    await house.uploads.sweep_of(ANN)
    assert await house.blobs.stored(ANN) == ()


async def test_what_is_forgotten_before_a_message_names_it_is_not_stored_any_more(house: House) -> None:
    row = await house.whole()
    twin = await house.whole("u2")
    await house.uploads.drop(ANN, "u1")
    assert await house.blobs.stored(ANN) == (row["blob"],)  # the other one is the same
    await house.begin("u2", DATA[::-1])
    assert await house.blobs.stored(ANN) == ()
    await house.whole("u2", DATA[::-1])
    house.uploads.named(CHAT, [(await house.uploads.finish(ANN, "u2"))["attachment"]])
    await house.uploads.drop(ANN, "u2")
    assert len(await house.blobs.stored(ANN)) == 1
    assert twin["blob"] not in await house.blobs.stored(ANN)


async def test_bytes_that_are_not_those_announced_are_forgotten(house: House) -> None:
    await house.begin(sha256="0" * 64)
    await house.uploads.take(ANN, "u1", offset=0, data=DATA)
    with pytest.raises(UploadDiffers, match="another digest"):
        await house.uploads.finish(ANN, "u1")
    with pytest.raises(UnknownUpload):
        await house.uploads.finish(ANN, "u1")


async def test_a_file_that_is_refused_is_forgotten(house: House) -> None:
    with pytest.raises(AttachmentEmpty):
        await house.whole(data=b"xyz")
    with pytest.raises(UnknownUpload):
        await house.uploads.finish(ANN, "u1")
    assert [path for path in house.folder.rglob("*") if path.is_file()] == []


async def test_nobody_sees_what_is_anothers(house: House) -> None:
    row = await house.whole()
    with pytest.raises(UnknownUpload):
        await house.uploads.finish(BOB, "u1")
    with pytest.raises(UnknownAttachment):
        house.uploads.named(ConversationKey("t", "bob", "c1"), [row["attachment"]])
    with pytest.raises(UnknownAttachment):
        house.uploads.named(ConversationKey("T", "ann", "c1"), [row["attachment"]])
    (attachment,) = house.uploads.named(CHAT, [row["attachment"]])
    assert (attachment.blob, attachment.name, attachment.pages) == (row["blob"], "scan.png", 1)


@pytest.mark.parametrize("forged", ["", "x", "é" * 30, "A" * 5_000, lambda ticket: ticket[:-2] + "AA"])
async def test_what_no_server_said_is_no_ticket(house: House, forged: str | Callable[[str], str]) -> None:
    ticket = (await house.whole())["attachment"]
    with pytest.raises(UnknownAttachment):
        house.uploads.named(CHAT, [forged(ticket) if callable(forged) else forged])


async def test_a_link_is_no_attachment_nor_the_other_way_round(house: House) -> None:
    row = await house.whole()
    link, _ = house.uploads.link(CHAT, row["blob"])
    key, blob = house.uploads.followed(link)
    assert (key.tenant, key.owner, blob) == (CHAT.tenant, CHAT.owner, row["blob"])
    with pytest.raises(UnknownAttachment):
        house.uploads.named(CHAT, [link])
    with pytest.raises(UnknownAttachment):
        house.uploads.followed(row["attachment"])
    house.clock.advance(OPTIONS.link_expiry_s + 1)
    with pytest.raises(UnknownAttachment):
        house.uploads.followed(link)


async def test_an_owner_has_so_much_under_way_and_no_more(house: House) -> None:
    with pytest.raises(AttachmentTooLarge, match="expected at most 4096"):
        await house.begin(size_bytes=4_097)
    await house.begin("u1", size_bytes=4_000)
    with pytest.raises(TooManyUploads, match="6000 bytes of uploads under way, expected at most 5000"):
        await house.begin("u2", size_bytes=2_000)
    await house.begin("u2", size_bytes=1_000)
    with pytest.raises(TooManyUploads, match="3 uploads under way, expected at most 2"):
        await house.begin("u3", size_bytes=1)
    assert await house.begin("u2", size_bytes=900) == 0  # in the place of the other one
    assert await house.begin("u3", key=BOB) == 0
    await house.uploads.drop(ANN, "u1")
    assert await house.begin("u3", size_bytes=1) == 0


async def test_an_owner_keeps_so_much_and_no_more(house: House) -> None:
    house.start(uploads_kept_bytes_per_owner_max=5_000)
    await house.whole("u1")
    await house.whole("u2")
    house.clock.advance(60.0)
    expected = "6144 bytes of uploads that are kept, expected at most 5000; drop some, or wait about 24 h until"
    with pytest.raises(TooManyUploads, match=expected) as full:
        await house.begin("u3")
    assert full.value.retry_after_s == pytest.approx(OPTIONS.upload_expiry_s - 60, abs=2)
    assert await house.begin("u3", key=BOB) == 0
    house.clock.advance(OPTIONS.upload_expiry_s + 1)
    assert await house.begin("u3") == 0


async def test_a_file_without_bytes_is_told_before_it_is_sent(house: House) -> None:
    with pytest.raises(AttachmentEmpty, match=r"file 'scan\.png' has no bytes"):
        await house.begin(data=b"")


async def test_a_finished_one_whose_bytes_are_gone_is_sent_again(house: House) -> None:
    row = await house.whole()
    house.blobs = Meddled()
    house.start()
    with pytest.raises(UnknownUpload):
        await house.uploads.finish(ANN, "u1")
    assert (await house.whole())["blob"] == row["blob"]
    assert await house.blobs.get(CHAT, row["blob"]) == DATA


async def test_a_message_has_so_many_and_no_more(house: House) -> None:
    ticket = (await house.whole())["attachment"]
    for options, what in (
        ({"message_attachments_max": 2}, "3 attachments"),
        ({"request_bytes_max": 5_000}, "6144 bytes in its attachments"),
        ({"request_pages_max": 2}, "3 pages in its attachments"),
    ):
        house.start(**options)
        async with house.uploads.sweeping():
            with pytest.raises(TooManyAttachments, match=what):
                house.uploads.named(CHAT, [ticket] * 3)


async def test_what_no_message_came_to_name_goes_in_the_end(house: House) -> None:
    row = await house.whole()
    await house.begin("u2")
    assert await house.uploads.awaited(ANN) == {row["blob"]}
    house.clock.advance(OPTIONS.upload_expiry_s + 1)
    assert await house.uploads.awaited(ANN) == frozenset()
    await house.uploads.sweep_of(ANN)
    assert await house.blobs.stored(ANN) == ()
    assert [path for path in house.folder.rglob("*") if path.is_file()] == []
    with pytest.raises(UnknownAttachment):
        house.uploads.named(CHAT, [row["attachment"]])


async def test_what_a_message_is_about_to_name_stays(house: House) -> None:
    row = await house.whole()
    house.uploads.named(CHAT, [row["attachment"]])
    house.clock.advance(OPTIONS.upload_expiry_s + 1)
    await house.uploads.sweep_of(ANN)
    assert await house.blobs.get(CHAT, row["blob"]) == DATA


async def test_a_ticket_is_good_until_its_upload_is_forgotten(house: House) -> None:
    async def refused(ticket: str) -> None:
        with pytest.raises(UnknownAttachment):
            house.uploads.named(CHAT, [ticket])

    ticket = (await house.whole())["attachment"]
    house.start()
    async with house.uploads.sweeping():
        house.uploads.named(CHAT, [ticket])
    await house.uploads.drop(ANN, "u1")
    await refused(ticket)
    ticket = (await house.whole())["attachment"]
    await house.begin(data=DATA[::-1])
    await refused(ticket)
    ticket = (await house.whole())["attachment"]
    await house.uploads.forget(ANN)
    await refused(ticket)
    house.start()
    async with house.uploads.sweeping():
        await refused(ticket)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_with_the_last_conversation_goes_what_a_message_named_and_not_what_one_may_name(
    house: House, is_restarted: bool
) -> None:
    async with house.uploads.sweeping():
        used, waiting = (await house.whole("u1"))["attachment"], (await house.whole("u2"))["attachment"]
        other = await house.whole("u3", DATA[::-1])
        house.uploads.named(CHAT, [used, other["attachment"]])
    if is_restarted:
        house.start()
    async with house.uploads.sweeping():
        blobs = await house.uploads.awaited(ANN)
        assert await house.uploads.give_up(ANN, blobs) == {other["blob"]}
        assert await house.uploads.awaited(ANN) == blobs - {other["blob"]}
        for ticket in (used, other["attachment"]):
            with pytest.raises(UnknownAttachment):
                house.uploads.named(CHAT, [ticket])
        house.uploads.named(CHAT, [waiting])
        assert await house.uploads.give_up(ANN, blobs) == blobs


async def test_whoever_asks_for_a_ticket_once_more_may_name_it_once_more(house: House) -> None:
    row = await house.whole()
    house.uploads.named(CHAT, [row["attachment"]])
    assert await house.whole() == row
    assert await house.uploads.give_up(ANN, [row["blob"]]) == frozenset()
    house.uploads.named(CHAT, [row["attachment"]])


async def test_everybody_of_whom_there_is_something_is_swept(house: House) -> None:
    await house.begin()
    await house.begin(key=BOB)
    assert {key.owner for key in house.uploads._files.owners()} == {"ann", "bob"}


async def test_what_a_crash_left_half_written_goes_and_hides_nobody(house: House) -> None:
    await house.begin()
    await house.begin(key=BOB)
    (told,) = house.uploads._files.part(ANN, "u1").parent.glob("*.json")
    told.write_bytes(b"")
    told.with_name("u2.part").write_bytes(b"alone")
    assert {key.owner for key in house.uploads._files.owners()} == {"bob"}
    await house.uploads.sweep_of(ANN)
    assert list(told.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("C:\\Users\\ann\\scan.png", "scan.png"),
        ("../../etc/passwd", "passwd"),
        ("a\nb\x00", "a b␀"),
        ("x" * 300, "x" * 120),
        ("invoice\u202egpj.exe", "invoicegpj.exe"),
        ("\u2066a\u2069\u200f\ufeff\x9bb\U000e0041.png", "ab.png"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.pdf",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.pdf",
        ),
        ("\u202e", ""),
    ],
)
def test_a_name_is_kept_as_one_line_without_folders(name: str, kept: str) -> None:
    assert shown(name) == kept
