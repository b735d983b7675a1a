"""Whether rows are what an engine wrote, or the first record that is not."""

import hashlib
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.histories import Teller, told
from torpor.conversation.fold import fold
from torpor.conversation.snapshot import SNAPSHOT_VERSION, encode_snapshot
from torpor.conversation.state import ConversationState
from torpor.operations.requests import RebuiltRequest
from torpor.operations.verify import Differs, Handle, Verification, check_blobs
from torpor.records.blocks import canonical, text_block, tool_result_block
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    JournalRecord,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    SubagentFinished,
    ToolFinished,
    TurnPrepared,
)
from torpor.records.nesting import RECORD_DEPTH_MAX
from torpor.store.blobs import MemoryBlobs
from torpor.store.codec import StoredBatch, encode_records, shown_by
from torpor.store.contract import Head, Snapshot

KEY = ConversationKey("acme", "ann", "c_1")


@pytest.fixture(scope="module")
def teller() -> Teller:
    """One long history that has come to rest."""
    teller = told(random.Random(0).randbytes(600))
    teller.rest()
    return teller


def rows(journal: Sequence[JournalRecord], *, size: int = 3) -> list[StoredBatch]:
    """The journal as a store holds it."""
    found, event = [], 0
    for start in range(0, len(journal), size):
        batch = journal[start : start + size]
        event = max(event, *(record.event for record in batch))
        found.append(StoredBatch(batch[0].seq, batch[-1].seq, event, encode_records(batch)))
    return found


def verified(
    journal: Sequence[JournalRecord], *, snapshot: Snapshot | None = None, batches: list[StoredBatch] | None = None
) -> Verification:
    verification = Verification(snapshot=snapshot)
    for row in rows(journal) if batches is None else batches:
        verification.row(row)
    event = max((record.event for record in journal), default=0)
    verification.end(Head(seq=journal[-1].seq if journal else 0, event=event))
    return verification


def snapshot_at(teller: Teller, seq: int, *, version: int = SNAPSHOT_VERSION) -> Snapshot:
    state = fold(ConversationState(), teller.journal[:seq])
    return Snapshot(seq=seq, version=version, data=encode_snapshot(state))


def resting(teller: Teller) -> list[int]:
    """After which records a snapshot may be taken."""
    state, found = ConversationState(), []
    for record in teller.journal:
        state = fold(state, (record,))
        if state.turn is None and not state.queued:
            found.append(state.seq)
    return found


def receipts_of(journal: Sequence[JournalRecord]) -> dict[str, bytes]:
    return {
        record.message_id: msgspec.json.encode(
            Receipt(message_id=record.message_id, event=record.event, at_us=record.at_us + 1)
        )
        for record in journal
        if isinstance(record, MessageReceived)
    }


@given(st.binary(min_size=1, max_size=250).map(told), st.integers(1, 9))
def test_what_was_written_is_verified_whatever_happened_in_it(teller: Teller, size: int) -> None:
    verification = verified(teller.journal, batches=rows(teller.journal, size=size))

    assert verification.records == len(teller.journal)
    assert verification.requests == len(teller.requests)
    verification.check_receipts(receipts_of(teller.journal).items(), event_now=lambda: 0)


def test_a_row_gives_its_records_as_they_are_written(teller: Teller) -> None:
    verification = Verification()
    written = [bytes(raw) for row in rows(teller.journal) for raw in verification.row(row)]

    assert written == [msgspec.json.encode(record) for record in teller.journal]


def first(teller: Teller, kind: type[JournalRecord], *, nth: int = 1) -> int:
    """Place of the ``nth`` record of a kind; of turns, of those that asked the model at once."""
    places = [
        place
        for place, record in enumerate(teller.journal)
        if isinstance(record, kind)
        and (kind is not TurnPrepared or isinstance(teller.journal[place + 1], ModelRequested))
    ]
    return places[nth - 1]


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        (MessageReceived, {"blocks": (text_block("something else"),)}, "requested link"),
        (ModelReplied, {"blocks": (text_block("never said"),)}, "which is not open|requested link"),
        (ModelRequested, {"link": "00"}, "requested link 00"),
        (ModelRequested, {"preamble": "00"}, "names preamble 00"),
        (PreambleChanged, {"digest": "00"}, "names digest 00, its body has"),
        (PreambleChanged, {"body": canonical({"model": "other"})}, "names digest"),
        (TurnPrepared, {"turn_only": (text_block("forged"),)}, "requested link"),
        (TurnPrepared, {"turn": 99}, "begins turn 99"),
        (TurnPrepared, {"event": 99}, "carries event 99"),
        (TurnPrepared, {"seq": 99}, "begins with record 99"),
        (MessageReceived, {"blocks": (msgspec.Raw(b'{"type":"text", "text":"a"}'),)}, "not canonical"),
        (ToolFinished, {"block": tool_result_block("other", "fine", is_error=False)}, "names call 'other'"),
    ],
)
def test_a_changed_record_is_found_at_the_first_record_that_shows_it(
    teller: Teller, kind: type[JournalRecord], changes: dict[str, object], complaint: str
) -> None:
    place = first(teller, kind)
    journal = [*teller.journal]
    journal[place] = msgspec.structs.replace(journal[place], **changes)

    with pytest.raises(Differs, match=complaint) as caught:
        verified(teller.journal, batches=[*rows(journal[:place]), *rows(journal[place:])])

    assert caught.value.seq > place


def test_a_message_that_was_received_twice_is_told(teller: Teller) -> None:
    place = first(teller, MessageReceived, nth=2)
    earlier, later = teller.journal[first(teller, MessageReceived)], teller.journal[place]
    assert isinstance(earlier, MessageReceived)
    journal = [*teller.journal[:place], msgspec.structs.replace(later, message_id=earlier.message_id)]

    with pytest.raises(Differs, match="was received before"):
        verified(journal)


def changed(row: StoredBatch, **changes: object) -> StoredBatch:
    return StoredBatch(**{name: getattr(row, name) for name in row.__struct_fields__} | changes)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"first_seq": 5}, "the row that follows begins with record 5"),
        ({"last_seq": 5}, "its row says it ends at 5"),
        ({"last_event": 99}, "event 99"),
        ({"records": b"[{}"}, "its row cannot be read"),
        ({"records": b"{}"}, "its row cannot be read"),
        ({"records": b'[{"kind":"never_heard_of","seq":4}]'}, "it cannot be read"),
        ({"records": b"[\xff]"}, "cannot be read"),
    ],
)
def test_a_row_whose_own_account_is_wrong_is_told(teller: Teller, changes: dict[str, object], complaint: str) -> None:
    batches = rows(teller.journal)
    batches[1] = changed(batches[1], **changes)

    with pytest.raises(Differs, match=complaint) as caught:
        verified(teller.journal, batches=batches)

    assert caught.value.seq == 4


@pytest.mark.parametrize("inserted", [(b'"seq"', b' "seq"'), (b'"seq"', b'"extra":1,"seq"')])
def test_a_record_that_an_engine_would_not_write_so_is_told(teller: Teller, inserted: tuple[bytes, bytes]) -> None:
    batches = rows(teller.journal)
    batches[1] = changed(batches[1], records=batches[1].records.replace(*inserted))

    with pytest.raises(Differs, match="not written as this engine writes it"):
        verified(teller.journal, batches=batches)


def test_blanks_between_records_are_told(teller: Teller) -> None:
    batches = rows(teller.journal)
    batches[1] = changed(batches[1], records=batches[1].records.replace(b"[{", b"[ {", 1))

    with pytest.raises(Differs, match="not written as a list"):
        verified(teller.journal, batches=batches)


def test_a_block_that_is_not_text_is_told() -> None:
    record = msgspec.json.encode(
        MessageReceived(seq=1, event=1, message_id="m", principal="a", blocks=(text_block("a~"),))  # type: ignore[arg-type]  # ids are strings
    )

    with pytest.raises(Differs, match="cannot be read"):
        Verification().record(record.replace(b"~", b"\xff"))


def test_rows_that_are_missing_are_told_at_the_first_record_of_them(teller: Teller) -> None:
    batches = rows(teller.journal)

    with pytest.raises(Differs) as gap:
        verified(teller.journal, batches=[*batches[:2], *batches[3:]])
    with pytest.raises(Differs, match="its head says") as end:
        verified(teller.journal, batches=batches[:-1])

    assert gap.value.seq == 7
    assert end.value.seq == batches[-1].first_seq


def test_a_snapshot_is_the_fold_of_what_stands_before_it(teller: Teller) -> None:
    for seq in resting(teller):
        verified(teller.journal, snapshot=snapshot_at(teller, seq))


def test_a_snapshot_of_something_else_is_told(teller: Teller) -> None:
    seq, other = resting(teller)[-1], resting(teller)[-2]
    held = snapshot_at(teller, other)

    with pytest.raises(Differs, match="not the fold") as caught:
        verified(teller.journal, snapshot=Snapshot(seq=seq, version=held.version, data=held.data))

    assert caught.value.seq == seq


def test_a_snapshot_that_cannot_be_read_is_told(teller: Teller) -> None:
    seq = resting(teller)[-1]

    with pytest.raises(Differs, match="cannot be read"):
        verified(teller.journal, snapshot=Snapshot(seq=seq, version=SNAPSHOT_VERSION, data=b"?"))


def test_a_snapshot_behind_the_end_is_told_and_one_of_another_version_is_nobodys_business(teller: Teller) -> None:
    beyond = Snapshot(seq=len(teller.journal) + 1, version=SNAPSHOT_VERSION, data=b"?")

    with pytest.raises(Differs, match="the journal ends before"):
        verified(teller.journal, snapshot=beyond)

    verified(teller.journal, snapshot=msgspec.structs.replace(beyond, version=SNAPSHOT_VERSION + 1))


def test_lists_show_what_the_records_say(teller: Teller) -> None:
    verification, now = verified(teller.journal), verification_facts(teller)

    verification.check_directory(now)

    end = len(teller.journal)
    places = {"agent": 1, "title": 1, "created_us": 1, "updated_us": end, "is_archived": end, "is_failed": end}
    for name, seq in places.items():
        with pytest.raises(Differs, match=f"the directory says {name}") as caught:
            verification.check_directory(now | {name: "?"})
        assert caught.value.seq == seq


def verification_facts(teller: Teller) -> dict[str, object]:
    created, last = teller.state, teller.journal[-1]
    return {
        "agent": created.agent,
        "title": created.title,
        "created_us": created.created_us,
        "updated_us": last.at_us,
        "is_archived": created.is_archived,
        "is_failed": bool(shown_by(teller.journal).is_failed),
    }


def test_a_receipt_that_is_missing_wrong_or_nobodys_is_told(teller: Teller) -> None:
    verification, receipts = verified(teller.journal), receipts_of(teller.journal)
    message = teller.journal[first(teller, MessageReceived)]
    assert isinstance(message, MessageReceived)
    id_, good = message.message_id, Receipt(message_id=message.message_id, event=message.event, at_us=message.at_us)

    def complaint(changes: dict[str, bytes]) -> str:
        with pytest.raises(Differs) as caught:
            verification.check_receipts({**receipts, **changes}.items(), event_now=lambda: 0)
        return str(caught.value)

    def encoded(**fields: object) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(good, **fields))

    with pytest.raises(Differs, match="has no receipt") as caught:
        verification.check_receipts([], event_now=lambda: 0)
    assert caught.value.seq == message.seq
    assert "cannot be read" in complaint({id_: b"{"})
    assert "names" in complaint({id_: encoded(event=99)})
    assert "names" in complaint({id_: encoded(message_id="other")})
    assert "not the one that was given" in complaint({id_: encoded(at_us=message.at_us - 1)})
    assert "not the one that was given" in complaint({id_: encoded(at_us=message.at_us + 10**12)})
    assert "not the one that was given" in complaint({id_: encoded() + b" "})
    assert "names" in complaint({"unheard_of": encoded(message_id="unheard_of")})


def test_a_receipt_of_a_message_that_came_meanwhile_is_none_of_this(teller: Teller) -> None:
    verification, receipts = verified(teller.journal), receipts_of(teller.journal)
    later = Receipt(message_id="later", event=teller.state.event + 1, at_us=1)  # type: ignore[arg-type]  # ids are strings

    came = [*receipts.items(), ("later", msgspec.json.encode(later))]
    verification.check_receipts(came, event_now=lambda: later.event)
    with pytest.raises(Differs, match=rf"receipt of message 'later' names event {later.event}, the last is"):
        verification.check_receipts(came, event_now=lambda: later.event - 1)


async def test_blobs_that_records_name_are_there_and_are_what_their_handles_say() -> None:
    blobs = MemoryBlobs()
    handle = await blobs.put(KEY, b"a long result")

    assert await check_blobs(blobs, KEY, [Handle(3, handle), Handle(5, handle)]) == (handle,)
    with pytest.raises(Differs, match="is not there") as caught:
        await check_blobs(blobs, KEY, [Handle(3, handle), Handle(7, hashlib.sha256(b"").hexdigest())])
    assert caught.value.seq == 7


async def test_a_file_that_is_gone_is_told_with_its_message_and_how_to_mend_it() -> None:
    file = Handle(3, hashlib.sha256(b"").hexdigest(), "the image/png of message 'm1'")
    expected = "the image/png of message 'm1', is not there; whoever sends the same file again has it stored anew"
    with pytest.raises(Differs, match=expected):
        await check_blobs(MemoryBlobs(), KEY, [file])


class ChangedBlobs(MemoryBlobs):
    """Gives the same for every handle."""

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        return b"another result"[offset:]


async def test_a_blob_that_changed_is_told() -> None:
    with pytest.raises(Differs, match="has digest"):
        await check_blobs(ChangedBlobs(), KEY, [Handle(3, hashlib.sha256(b"a result").hexdigest())])


@pytest.mark.parametrize(("kind", "field"), [(ToolFinished, "handle"), (SubagentFinished, "bundle")])
def test_a_handle_is_noted_with_its_record(teller: Teller, kind: type[JournalRecord], field: str) -> None:
    place = first(teller, kind)
    journal = [*teller.journal[:place], msgspec.structs.replace(teller.journal[place], **{field: "h"})]

    assert verified(journal).handles == [Handle(place + 1, "h")]


def test_words_that_changed_are_told_by_the_request_that_sent_others(teller: Teller) -> None:
    place = first(teller, MessageReceived)
    changed = msgspec.structs.replace(teller.journal[place], blocks=(text_block("not what was said"),))

    with pytest.raises(Differs, match=r"the view has .*: something before it is not what was sent") as caught:
        verified([*teller.journal[:place], changed, *teller.journal[place + 1 :]])

    assert isinstance(teller.journal[caught.value.seq - 1], ModelRequested)


def test_a_body_that_is_not_what_its_link_names_is_told_whatever_the_fold_says(
    teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = RebuiltRequest.body
    monkeypatch.setattr(RebuiltRequest, "body", lambda request: body(request).replace(b"yes", b"no"))

    with pytest.raises(Differs, match=r"it names link .* its messages have") as caught:
        verified(teller.journal)

    assert isinstance(teller.journal[caught.value.seq - 1], ModelRequested)


def test_a_preamble_that_is_no_object_is_told() -> None:
    body = canonical(["no", "object"])
    record = PreambleChanged(seq=1, digest=hashlib.sha256(body).hexdigest(), body=body)

    with pytest.raises(Differs, match="its body is no preamble"):
        Verification().record(msgspec.json.encode(record))


@pytest.mark.parametrize("depth", [RECORD_DEPTH_MAX, 500, 50_000])
def test_what_is_nested_too_deeply_differs_however_deep_the_stack_is(teller: Teller, depth: int) -> None:
    written = msgspec.json.encode(teller.journal[0]).replace(b"{", b'{"a":' + b"[" * depth + b"]" * depth + b",", 1)
    verification = Verification()

    with pytest.raises(Differs, match="it cannot be read: it is nested deeper than"):
        verification.record(written)
    with pytest.raises(Differs, match="its row cannot be read: it is nested deeper than"):
        verification.row(StoredBatch(1, 1, 0, b"[%b]" % written))
    whole = verified(teller.journal)
    with pytest.raises(Differs, match="the receipt of message 'm' cannot be read"):
        whole.check_receipts([("m", written)], event_now=lambda: 0)


def test_what_no_engine_writes_differs_before_it_is_folded(teller: Teller) -> None:
    place = first(teller, MessageReceived)
    journal = [*teller.journal]
    journal[place] = msgspec.structs.replace(journal[place], blocks=(msgspec.Raw(b"5"),))

    with pytest.raises(Differs, match="expected an object") as caught:
        verified(journal)

    assert caught.value.seq == journal[place].seq
