"""Whether a copy is what was erased, and when that cannot be told."""

import hashlib

from torpor.operations.erased import CopyVerdict, judged_copy
from torpor.operations.export import ExportHeader
from torpor.store.contract import Tombstone
from torpor.store.tombstones import RecordsDigest

SECRET = b"s" * 32


def tombstone_of(*records: bytes, is_readable: bool = True) -> Tombstone:
    digest = RecordsDigest(secret=SECRET)
    for record in records:
        digest.add(record)
    return Tombstone(
        at_us=1,
        cause="deleted",
        records=len(records),
        events=len(records),
        epoch=1,
        digest=digest.hexdigest() if is_readable else "",
    )


def verdict_on(*records: bytes, tombstones: tuple[Tombstone, ...]) -> CopyVerdict:
    lines = [record + b"\n" for record in records]
    header = ExportHeader(records=len(lines), digest=hashlib.sha256(b"".join(lines)).hexdigest())
    return judged_copy(header, lines, tombstones=tombstones, secret=SECRET)


def test_a_copy_of_all_records_is_recognised_among_several_that_were_erased() -> None:
    meant = tombstone_of(b"1", b"2")

    assert verdict_on(b"1", b"2", tombstones=(tombstone_of(b"3"), meant, tombstone_of(b"4"))).tombstone == meant


def test_of_a_copy_that_was_made_before_the_last_record_nothing_can_be_told() -> None:
    verdict = verdict_on(b"1", tombstones=(tombstone_of(b"1", b"2"),))

    assert (verdict.tombstone, verdict.compared) == (None, False)
    assert verdict.difference.startswith("it was made at record 1, and what is kept of the erased conversation is one")
    assert not verdict_on(b"1", tombstones=(tombstone_of(b"1", b"2"), tombstone_of(b"3"))).compared


def test_a_copy_that_is_as_long_or_longer_and_another_one_differs() -> None:
    for tombstone in (tombstone_of(b"1", b"3"), tombstone_of(b"1")):
        verdict = verdict_on(b"1", b"2", tombstones=(tombstone,))

        assert (verdict.tombstone, verdict.compared) == (None, True)
        assert verdict.difference == "what was erased here was something else"


def test_where_what_was_erased_could_not_be_read_nothing_can_be_told() -> None:
    verdict = verdict_on(b"1", tombstones=(tombstone_of(b"1", is_readable=False), tombstone_of(b"2")))

    assert not verdict.compared
    assert verdict.difference.startswith("what was erased could not be read any more")
