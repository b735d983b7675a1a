"""A tombstone recognises the name and the records that it was made of, and nobody else can tell them from it."""

import hashlib
import hmac

import msgspec

from tests.support.sample_records import KEY, opening
from torpor.store.codec import encode_records
from torpor.store.tombstones import RecordsDigest, digest_of, path_mark

SECRET, OTHER = b"s" * 32, b"t" * 32


def test_a_mark_belongs_to_a_name_and_a_store() -> None:
    marks = {
        path_mark(KEY, secret=SECRET),
        path_mark(KEY, secret=OTHER),
        path_mark(msgspec.structs.replace(KEY, conversation="c_2"), secret=SECRET),
        path_mark(msgspec.structs.replace(KEY, owner="c_2"), secret=SECRET),
    }

    assert len(marks) == 4
    assert path_mark(KEY, secret=SECRET) in marks
    assert hashlib.sha256(KEY.path.encode()).hexdigest() not in marks


def test_the_digest_is_that_of_the_lines_of_an_export_however_rows_were_cut() -> None:
    records = opening()
    together = encode_records(records)
    rows = [encode_records([record]) for record in records]
    lines = b"".join(bytes(raw) + b"\n" for raw in msgspec.json.decode(together, type=list[msgspec.Raw]))

    assert digest_of([together], secret=SECRET) == digest_of(rows, secret=SECRET)
    assert digest_of(rows, secret=SECRET) == hmac.digest(SECRET, b"records\n" + lines, "sha256").hex()
    assert digest_of(rows, secret=OTHER) != digest_of(rows, secret=SECRET)
    assert digest_of(rows[:1], secret=SECRET) != digest_of(rows, secret=SECRET)


def test_records_that_cannot_be_read_have_none() -> None:
    rows = [encode_records(opening()), b"\xff["]

    assert digest_of(rows, secret=SECRET) == ""


def test_no_record_is_something_too() -> None:
    assert digest_of([], secret=SECRET) == RecordsDigest(secret=SECRET).hexdigest() != ""
