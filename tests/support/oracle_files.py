"""What was promised of files: a host gets the bytes that a marker names, or a note that says truly why not."""

import json
from collections.abc import Iterator

from tests.support.oracle_case import Case
from tests.support.oracle_evidence import Violation
from tests.support.oracle_view import files_in
from tests.support.oracle_views_told import Withdrawal

_WORDS = {
    "missing": "no longer stored",
    "damaged": "damaged",
    "refused": "did not take it",
    "room": "no room",
}
"""What the model is told, by why."""


def judge_files(case: Case) -> Iterator[Violation]:
    yield from _sent(case)
    for withdrawal in case.story.withdrawals:
        for file, note in zip(withdrawal.files, withdrawal.notes, strict=True):
            words = _WORDS[withdrawal.why]
            if file["name"] not in note["text"] or words not in note["text"]:
                fact = f"record {withdrawal.seq} says {note['text']!r} of {file['name']}, expected {words!r}"
                yield case.broken("note_untrue", fact)
            if withdrawal.why in {"missing", "damaged"} and not _was_spoilt(case, withdrawal, file["blob"]):
                yield case.broken("file_lost", f"record {withdrawal.seq} calls {file['name']} {withdrawal.why}")


def _sent(case: Case) -> Iterator[Violation]:
    for call in case.model_calls:
        if b'"type":"attachment"' not in call.body:
            continue
        files = files_in(json.loads(call.body)["messages"])
        wrong = [file["name"] for file in files if call.attached.get(file["blob"]) != file["blob"]]
        if wrong:
            yield case.broken("file_differs", f"call {call.call} of {call.life} sent other bytes for {wrong}")
        if len(files) > (most := case.evidence.files_max):
            yield case.broken("too_many_files", f"call {call.call} has {len(files)} files, {most} are allowed")


def _was_spoilt(case: Case, withdrawal: Withdrawal, blob: str) -> bool:
    """Whether the disk had done so; what a deleted conversation had may be gone as well."""
    moment, what = case.durable(withdrawal.seq), "gone" if withdrawal.why == "missing" else "damaged"
    if any(spoilt.blob == blob and spoilt.what == what and spoilt.moment < moment for spoilt in case.evidence.spoilt):
        return True
    gone = (entry for entry in case.evidence.gone if entry.moment < moment)
    return what == "gone" and any(blob.encode() in row.records for entry in gone for row in entry.journal.rows)
