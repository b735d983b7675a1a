"""The files of a request: read, missing, out of reach; and which of them a host's fault is about."""

import anyio
import pytest
from structlog.testing import capture_logs

from tests.support.damaged import damage
from tests.support.marked import attachment
from torpor.attachments.options import AttachmentOptions
from torpor.conversation.fold import fold
from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState, TurnState
from torpor.conversation.view import View
from torpor.errors import StoreUnavailable
from torpor.provider_errors import (
    AttachmentDamaged,
    AttachmentMissing,
    AttachmentNotTaken,
    AttachmentsUnavailable,
    Overloaded,
    ProviderError,
    RequestInvalid,
    RequestTooLarge,
)
from torpor.records.attachments import Attachment, Why, marker_block
from torpor.records.blocks import text_block
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ConversationCreated, JournalRecord, MessageReceived, TurnPrepared
from torpor.records.terms import WhenBusy
from torpor.store.blobs import MemoryBlobs
from torpor.turn.attached import NO_FILES, AttachedFiles, not_to_be_sent

KEY = ConversationKey("t", "ann", "c1")
OLD, NEW = attachment(b"old picture"), attachment(b"new picture")
PDF = attachment(b"%PDF", media_type="application/pdf", pages=2)


def view_of(*files: Attachment) -> View:
    return View().extended("user", [*map(marker_block, files), text_block("see")])


class Broken(MemoryBlobs):
    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        raise StoreUnavailable("the disk is gone")


async def test_each_file_is_read_once_for_its_owner() -> None:
    blobs = MemoryBlobs()
    await blobs.put(KEY, b"old picture")
    found = await AttachedFiles(blobs).read(KEY, view_of(OLD, OLD))
    assert found == {OLD.blob: b"old picture"}
    assert await AttachedFiles(blobs).read(KEY, View()) == {}


async def test_what_is_not_there_is_named_by_its_place() -> None:
    blobs = MemoryBlobs()
    await blobs.put(KEY, b"old picture")
    with pytest.raises(AttachmentMissing) as missing:
        await AttachedFiles(blobs).read(KEY, view_of(NEW, OLD, PDF))
    assert missing.value.places == (0, 2)
    with pytest.raises(AttachmentMissing):
        await AttachedFiles(blobs).read(ConversationKey("t", "bob", "c1"), view_of(OLD))
    with pytest.raises(AttachmentMissing):
        await NO_FILES.read(KEY, view_of(OLD))


async def test_bytes_that_are_not_those_named_are_not_sent() -> None:
    blobs = MemoryBlobs()
    large = bytes(1_000_000)
    for data in (b"old picture", b"new picture", large):
        await blobs.put(KEY, data)
    damage(blobs, KEY, NEW.blob, b"new pictur\xe5")
    damage(blobs, KEY, attachment(large).blob, large[:-1] + b"1")
    with pytest.raises(AttachmentMissing) as missing:
        await AttachedFiles(blobs).read(KEY, view_of(NEW, PDF, OLD))
    assert (type(missing.value), missing.value.places) == (AttachmentMissing, (1,))
    with capture_logs() as logs, pytest.raises(AttachmentDamaged) as damaged:
        await AttachedFiles(blobs).read(KEY, view_of(NEW, OLD, attachment(large)))
    assert damaged.value.places == (0, 2)
    assert [(line["event"], len(line["blobs"])) for line in logs] == [("attachments.damaged", 2)]
    await blobs.put(KEY, b"new picture")
    assert await AttachedFiles(blobs).read(KEY, view_of(NEW)) == {NEW.blob: b"new picture"}


async def test_what_cannot_be_read_now_may_be_asked_for_again() -> None:
    with capture_logs() as logs, pytest.raises(AttachmentsUnavailable, match="storage does not answer") as unavailable:
        await AttachedFiles(Broken()).read(KEY, view_of(OLD))
    assert "the disk is gone" not in str(unavailable.value)
    assert [line["why"] for line in logs] == ["the disk is gone"]


async def test_it_is_told_how_long_a_storage_that_hangs_was_waited_for() -> None:
    class Hanging(MemoryBlobs):
        async def get(
            self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None
        ) -> bytes | None:
            await anyio.sleep_forever()
            raise AssertionError("it hangs")

    with pytest.raises(AttachmentsUnavailable) as hung:
        await AttachedFiles(Hanging(), AttachmentOptions(read_deadline_s=0.02)).read(KEY, view_of(OLD))
    assert hung.value.waited_s >= 0.02


def state(*new: Attachment) -> ConversationState:
    """One file from the turn before, and those of the running one."""
    base = view_of(OLD).extended("assistant", [text_block("seen")])
    view = base.extended("user", [*map(marker_block, new), text_block("and this")])
    turn = TurnState(number=2, messages=(), principal="ann", base=base)
    return ConversationState(view=view, turn=turn)


@pytest.mark.parametrize(
    ("fault", "places", "why"),
    [
        (AttachmentMissing((1,)), (1,), Why.MISSING),
        (AttachmentDamaged((1, 2)), (1, 2), Why.DAMAGED),
        (AttachmentNotTaken("no", at=(2, 1), is_of_picture=True), (2,), Why.REFUSED),
        (AttachmentNotTaken("no", at=(9, 9), is_of_picture=True), (1,), Why.REFUSED),
        (AttachmentNotTaken("a bad image", is_of_picture=True), (1,), Why.REFUSED),
        (AttachmentNotTaken("no images", is_of_picture=True, takes_none=True), (0, 1), Why.REFUSED),
        (AttachmentNotTaken("a bad document"), (2,), Why.REFUSED),
        (RequestTooLarge("no"), (0, 1, 2), Why.REFUSED),
        (RequestInvalid("no"), (1, 2), Why.REFUSED),
        (RequestInvalid("max_tokens: no", is_of_messages=False), (), Why.REFUSED),
        (Overloaded("no"), (), Why.REFUSED),
    ],
    ids=str,
)
def test_a_fault_is_about_the_files_that_it_names(fault: ProviderError, places: tuple[int, ...], why: Why) -> None:
    assert not_to_be_sent(state(NEW, PDF), fault) == (places, why)


def test_a_file_of_an_earlier_turn_is_meant_where_none_came_with_this_one() -> None:
    assert not_to_be_sent(state(), AttachmentNotTaken("a bad image", is_of_picture=True)) == ((0,), Why.REFUSED)
    assert not_to_be_sent(state(), AttachmentNotTaken("a bad document")) == ((0,), Why.REFUSED)
    assert not_to_be_sent(state(), RequestInvalid("no")) == ((), Why.REFUSED)


@pytest.mark.parametrize(
    "fault", [AttachmentNotTaken("no image"), RequestInvalid("no"), RequestTooLarge("no")], ids=str
)
def test_without_files_it_is_about_none(fault: ProviderError) -> None:
    assert not_to_be_sent(ConversationState(view=View().extended("user", [text_block("x")])), fault)[0] == ()


def waiting(*messages: tuple[str, tuple[Attachment, ...]], asked: tuple[Attachment, ...] = (OLD,)) -> ConversationState:
    """A turn behind its first reply, and messages that steer it, with their files."""
    records: list[JournalRecord] = [
        ConversationCreated(agent="clerk"),
        MessageReceived(message_id=MessageId("m1"), principal="ann", blocks=tuple(map(marker_block, asked))),
        TurnPrepared(turn=1, messages=(MessageId("m1"),)),
        *(
            MessageReceived(
                message_id=MessageId(name),
                principal="ann",
                blocks=(*map(marker_block, files), text_block(name)),
                when_busy=WhenBusy.STEER,
            )
            for name, files in messages
        ),
    ]
    return fold(ConversationState(), numbered(ConversationState(), records, at_us=1))


def ids(*names: str) -> tuple[MessageId, ...]:
    return tuple(map(MessageId, names))


def test_only_what_is_in_the_view_so_far_makes_room() -> None:
    files = AttachedFiles(MemoryBlobs(), AttachmentOptions(request_attachments_max=2))
    state = waiting(("m2", (NEW,)), ("m3", (PDF,)))
    assert files.making_room(state, ids("m2")) == ()
    assert files.making_room(state, ids("m2", "m3")) == (0,)
    assert files.making_room(waiting(asked=()), ()) == ()


def test_who_has_more_files_than_a_request_holds_waits_for_a_turn_of_their_own() -> None:
    files = AttachedFiles(MemoryBlobs(), AttachmentOptions(request_attachments_max=2))
    state = waiting(("m2", (NEW,)), ("m3", ()), ("m4", (PDF, OLD)), ("m5", ()))
    assert files.joining(state, ids("m2", "m3", "m4", "m5")) == ids("m2", "m3")
    assert files.joining(state, ids("m2", "m3")) == ids("m2", "m3")
    assert files.joining(waiting(("m2", (NEW, PDF, OLD))), ids("m2")) == ()
    assert files.joining(waiting(), ()) == ()
