"""Batches as bytes and back: what is whole is read, and whatever does not add up is named."""

import msgspec
import pytest

from tests.support.sample_records import KEY, created, finished, message, receipt, requested
from torpor.errors import InvariantBroken, JournalCorrupt
from torpor.records.blocks import text_block
from torpor.records.ids import CallId
from torpor.records.journal import JournalRecord, SubagentFinished, ToolFinished
from torpor.records.terms import Outcome
from torpor.store.codec import (
    BatchNumbers,
    StoredBatch,
    bundles_in,
    decode_receipt,
    encode_receipt,
    encode_records,
    events_after,
    handles_in,
    loaded,
    number_batch,
    records_after,
    until,
)
from torpor.store.contract import Head, Snapshot

RECORDS: tuple[tuple[JournalRecord, ...], ...] = (
    (created(), message(2, event=1)),
    (requested(3),),
    (message(4, event=2), requested(5), finished(6, event=3)),
    (requested(7),),
)
LAST_EVENTS = (1, 1, 3, 3)
HEAD = Head(seq=7, event=3, batch_id="b")


def stored(records: tuple[JournalRecord, ...], last_event: int) -> StoredBatch:
    return StoredBatch(records[0].seq, records[-1].seq, last_event, encode_records(records))


BATCHES = tuple(stored(records, event) for records, event in zip(RECORDS, LAST_EVENTS, strict=True))
ALL = tuple(record for records in RECORDS for record in records)


def replaced(place: int, **changes: object) -> tuple[StoredBatch, ...]:
    """``BATCHES`` with one of them changed."""
    return tuple(
        msgspec.structs.replace(batch, **changes) if number == place else batch for number, batch in enumerate(BATCHES)
    )


def test_blobs_are_named_by_results_that_were_too_long_and_by_what_sub_agents_found() -> None:
    call, block = CallId("a"), text_block("cut")
    result = ToolFinished(call_id=call, name="dig", outcome=Outcome.SUCCEEDED, block=block)
    found = SubagentFinished(call_id=call, name="digger", child="a-1", outcome=Outcome.SUCCEEDED)
    long = msgspec.structs.replace(result, handle="h")
    assert bundles_in([long, found, msgspec.structs.replace(found, bundle="b"), *ALL]) == ["b"]
    assert handles_in([result, long, found, msgspec.structs.replace(found, bundle="b"), *ALL]) == ["h", "b"]


class TestNumbers:
    def test_a_batch_tells_where_it_goes(self) -> None:
        assert number_batch(KEY, RECORDS[2], expected_seq=3) == BatchNumbers(3, 6, 1, 3)

    def test_a_batch_without_a_public_record_says_nothing_of_events(self) -> None:
        assert number_batch(KEY, RECORDS[1], expected_seq=2) == BatchNumbers(2, 3, None, None)

    @pytest.mark.parametrize(
        ("records", "expected"),
        [
            ((), "0 records, expected 1 to 256"),
            ((requested(5),), "numbers a record 5, expected 4"),
            ((requested(4), requested(6)), "numbers a record 6, expected 5"),
            ((message(4, event=2), message(5, event=2)), "numbers an event 2, expected 3"),
            ((message(4, event=2), message(5, event=4)), "numbers an event 4, expected 3"),
        ],
    )
    def test_numbers_that_do_not_follow_are_a_bug_of_ours(
        self, records: tuple[JournalRecord, ...], expected: str
    ) -> None:
        with pytest.raises(InvariantBroken, match=f"acme/ann/c_1.*{expected}"):
            number_batch(KEY, records, expected_seq=3)


class TestWhole:
    @pytest.mark.parametrize("seq", range(8))
    def test_records_after_any_number_are_read_from_the_batches_that_end_above_it(self, seq: int) -> None:
        batches = [batch for batch in BATCHES if batch.last_seq > seq]
        assert records_after(KEY, batches, seq=seq, head=HEAD) == ALL[seq:]
        assert records_after(KEY, batches, seq=seq, head=HEAD, limit=2) == ALL[seq : seq + 2]

    @pytest.mark.parametrize("event", range(4))
    def test_events_after_any_number_are_read_from_the_batches_that_end_above_it(self, event: int) -> None:
        batches = [batch for batch in BATCHES if batch.last_event > event]
        read = events_after(KEY, batches, event=event, head=HEAD, limit=9)
        assert [record.event for record in read] == list(range(event + 1, 4))

    def test_batches_are_taken_up_to_the_one_that_is_asked_for(self) -> None:
        assert until(BATCHES, seq=3) == list(BATCHES[:2])
        assert until(BATCHES, event=2) == list(BATCHES[:3])
        assert until(BATCHES, seq=99) == list(BATCHES)

    def test_a_load_counts_the_bytes_of_its_tail(self) -> None:
        snapshot = Snapshot(seq=3, version=1, data=b"x")
        whole = loaded(KEY, BATCHES[2:], snapshot=snapshot, head=HEAD)
        assert (whole.head, whole.snapshot, whole.tail) == (HEAD, snapshot, ALL[3:])
        assert whole.tail_bytes == sum(len(batch.records) for batch in BATCHES[2:])

    def test_a_receipt_comes_back(self) -> None:
        assert decode_receipt(KEY, encode_receipt(receipt("m_2"))) == receipt("m_2")

    def test_an_array_that_another_program_wrote_out_differently_is_the_same_array(self) -> None:
        spaced = b"\n" + msgspec.json.format(BATCHES[1].records, indent=2) + b"\n"
        assert records_after(KEY, replaced(1, records=spaced), seq=0, head=HEAD) == ALL

    def test_fields_that_a_later_version_added_are_passed_over(self) -> None:
        (record,) = msgspec.json.decode(encode_records(RECORDS[1]))
        later = msgspec.json.encode([record | {"added_later": {"deep": [1]}}])
        assert records_after(KEY, replaced(1, records=later), seq=0, head=HEAD) == ALL


class TestCorrupt:
    @pytest.mark.parametrize(
        ("batches", "reason"),
        [
            ((), "it ends at record 0, expected 7"),
            (BATCHES[1:], "records 1 to 2 are missing"),
            (BATCHES[:3], "it ends at record 6, expected 7"),
            ((BATCHES[0], *BATCHES[2:]), "records 3 to 3 are missing"),
            ((*BATCHES[:2], BATCHES[1], *BATCHES[2:]), "record 3 is there twice"),
            (replaced(1, records=b"[{"), "batch 3 cannot be decoded"),
            (replaced(1, records=b""), "batch 3 cannot be decoded"),
            (replaced(1, records=b"\xff\xfe"), "batch 3 cannot be decoded"),
            (replaced(1, records=b'[{"kind":"never_heard_of","seq":3}]'), "batch 3 cannot be decoded.*never_heard_of"),
            (replaced(1, records=b"[]"), "record 3 carries the number 4"),
            (replaced(1, records=BATCHES[0].records), "record 3 carries the number 1"),
            (replaced(2, records=encode_records(RECORDS[2][:2])), "record 6 carries the number 7"),
            (replaced(3, records=encode_records((*RECORDS[3], requested(8)))), "1 records follow"),
            (replaced(2, last_seq=5), "batch 4 ends at record 5, event 2, expected record 5, event 3"),
            (replaced(2, last_event=4), "batch 4 ends at record 6, event 3, expected record 6, event 4"),
            (replaced(3, last_event=2), "batch 7 ends at record 7, event 3, expected record 7, event 2"),
            (
                replaced(2, records=encode_records((message(4, event=3), requested(5), finished(6, event=4)))),
                "record 4 carries event number 3, expected 2",
            ),
        ],
    )
    def test_what_does_not_add_up_is_named(self, batches: tuple[StoredBatch, ...], reason: str) -> None:
        with pytest.raises(JournalCorrupt, match=f"acme/ann/c_1.*({reason})") as refused:
            records_after(KEY, batches, seq=0, head=HEAD)
        assert refused.value.key == "acme/ann/c_1"

    def test_a_head_that_counts_other_events_than_the_journal_is_corrupt(self) -> None:
        with pytest.raises(JournalCorrupt, match="ends at record 7, event 3, expected 7, 4"):
            loaded(KEY, BATCHES, snapshot=None, head=Head(seq=7, event=4))

    def test_a_snapshot_ahead_of_the_journal_proves_lost_records(self) -> None:
        with pytest.raises(JournalCorrupt, match="snapshot is at record 8, but it ends at 7"):
            loaded(KEY, (), snapshot=Snapshot(seq=8, version=1, data=b"x"), head=HEAD)

    def test_missing_events_are_corrupt_and_not_an_end(self) -> None:
        with pytest.raises(JournalCorrupt, match="events 2 to 3 are not all there, found 0"):
            events_after(KEY, (), event=1, head=HEAD, limit=9)
        with pytest.raises(JournalCorrupt, match="events 1 to 3 are not all there"):
            events_after(KEY, BATCHES[2:], event=0, head=HEAD, limit=9)

    def test_a_receipt_that_cannot_be_decoded_is_corrupt(self) -> None:
        with pytest.raises(JournalCorrupt, match="receipt cannot be decoded"):
            decode_receipt(KEY, b"{")


NESTED = b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
"""What no reader goes to the end of."""


def test_what_is_nested_too_deeply_or_is_no_text_is_a_corrupt_journal() -> None:
    for records in (b"[%b]" % NESTED, b'[{"kind":"\xff"}]'):
        damaged = replaced(1, records=records)
        with pytest.raises(JournalCorrupt, match="batch 3 cannot be decoded"):
            records_after(KEY, damaged, seq=0, head=HEAD)
        with pytest.raises(JournalCorrupt, match="batch 3 cannot be decoded"):
            events_after(KEY, damaged, event=0, head=HEAD, limit=9)
    with pytest.raises(JournalCorrupt, match="a receipt cannot be decoded"):
        decode_receipt(KEY, NESTED)
