"""Conversations that an engine once wrote can be rebuilt by this one, request by request."""

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from tests.support.golden import GOLDEN, MAKERS, digests_of
from torpor.operations.audit import audited
from torpor.operations.export import Importing, read_header
from torpor.operations.origins import origins
from torpor.operations.prefix import prefixes
from torpor.operations.requests import rebuilt
from torpor.operations.verify import Verification
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, LiveContextReplaced
from torpor.store.blobs import LocalBlobs
from torpor.store.sqlite.auditing import open_to_audit
from torpor.store.sqlite.importing import open_to_import

KEY = ConversationKey("acme", "ann", "old")
FILES = sorted(GOLDEN.glob("*.jsonl"))
UNTOLD = {"compaction_failed", "live_context_failed"}
"""Kinds that hold nothing that is ever sent, and are in none of them."""
golden = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def digests(file: Path) -> str:
    return file.with_suffix(".requests").read_text()


def lines_of(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def records_of(file: Path) -> list[JournalRecord]:
    verification, lines = Verification(), file.read_bytes().splitlines()
    return [verification.record(line) for line in lines[1:] if not line.startswith(b'{"blob"')]


def test_all_that_was_ever_written_is_there() -> None:
    assert {file.stem for file in FILES} >= {*MAKERS}
    assert all(len(digests(file).splitlines()) > 5 for file in FILES)


@golden
def test_every_request_is_rebuilt_as_it_was_sent(file: Path) -> None:
    found = [f"{request.seq} {request.call} {request.digest()}\n" for request in rebuilt(records_of(file))]

    assert "".join(found) == digests(file)


@golden
def test_somebody_who_shares_nothing_with_the_engine_rebuilds_the_same(file: Path) -> None:
    assert digests_of(file.read_bytes().splitlines()) == digests(file)


@golden
async def test_it_can_be_imported_and_verifies(file: Path, tmp_path: Path) -> None:
    header, *lines = lines_of(file)
    blobs = LocalBlobs(tmp_path / "blobs", in_threads=False)
    with open_to_import(tmp_path, KEY) as importer:
        importing = Importing(
            read_header(header), importer, key=KEY, blobs=blobs, now_us=1, new_id=iter(map(str, range(99))).__next__
        )
        for line in lines:
            importing.line(line)
        imported = importing.end()
        for line in lines:
            await importing.keep_blob(line)
    with open_to_audit(tmp_path) as reader:
        stored = reader.stored(KEY)
        assert stored is not None
        verdict = await audited(stored, blobs)

    assert verdict.difference == ""
    assert verdict.requests == imported.requests == len(digests(file).splitlines())


@golden
def test_its_digest_is_that_of_its_lines(file: Path) -> None:
    header, *lines = lines_of(file)

    assert json.loads(header)["digest"] == hashlib.sha256(b"".join(lines)).hexdigest()


def test_a_live_context_is_told_with_its_record_and_is_the_cause_where_it_changed() -> None:
    records = records_of(GOLDEN / "live-context.jsonl")
    made = [record.seq for record in records if isinstance(record, LiveContextReplaced)]
    requests = list(rebuilt(records))

    told: list[list[int]] = []
    for request in requests:
        found = origins(records, seq=request.seq)
        assert found is not None
        told.append([part.seq for part in found.parts if part.part == "live context"])
    causes = [each.cause for each in prefixes(records)]
    changes = [number for number, (before, after) in enumerate(pairwise(told), start=1) if before != after]

    assert [told[0], *(told[number] for number in changes)] == [[], made[:1], made[1:]]
    assert [number for number, cause in enumerate(causes) if cause] == changes
    assert {cause for cause in causes if cause} == {"live context"}


def test_every_kind_of_record_is_in_one_of_them() -> None:
    """Whoever adds a kind adds a golden journal with it."""
    kinds = {json.loads(line).get("kind") for file in FILES for line in file.read_bytes().splitlines()[1:]}

    assert kinds >= {kind.__struct_config__.tag for kind in get_args(JournalRecord)} - UNTOLD
