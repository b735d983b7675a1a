"""Whether what goes on beside the turns is true as well: live contexts and their jobs, flags, working context, skills.

Shares no code with the engine.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.support.journal_checker import Account, Journal, Record, text_of

FLAG = "tool.gossip"
FLAGGED_TOOL = "gossip"
FAILURES = frozenset({"bad_live_context", "given_up"})
"""The second one where the process ended in each attempt."""
Line = dict[str, Any]


def live_faults(journal: Journal, log: Iterable[Line]) -> Iterator[str]:
    """Jobs that were lost, done by nobody or told twice, and live contexts that are not what was said or not used."""
    asked = _asked_for(journal.path, log)
    ordered, current = "", 0
    jobs, replaced = set[str](), set[str]()
    for record in journal.records:
        where = f"{journal.path} record {record['seq']}"
        match record["kind"]:
            case "live_context_ordered":
                if record["job"] in jobs:
                    yield f"{where}: job {record['job']} was ordered before"
                replaced.update([ordered] if ordered else [])
                ordered = record["job"]
                jobs.add(ordered)
            case "live_context_replaced" | "live_context_failed":
                if record["job"] != ordered:
                    yield f"{where}: tells of job {record['job']}, expected {ordered or 'none'}"
                ordered = ""
                if record["kind"] == "live_context_failed" and record["code"] not in FAILURES:
                    yield f"{where}: failed with {record['code']}: {record['detail']}"
                if record["kind"] == "live_context_replaced":
                    current = record["seq"]
                    if record["words"] not in asked.get(record["job"], {}).values():
                        yield f"{where}: nobody said {record['words']!r}"
                    if record["words"] not in text_of([record["block"]]):
                        yield f"{where}: the model cannot read {record['words']!r}"
            case "turn_prepared":
                if record.get("live", 0) != current:
                    yield f"{where}: uses the live context of record {record.get('live', 0)}, expected {current}"
    if ordered:
        yield f"{journal.path}: nothing came of job {ordered}"
    yield from (
        f"{journal.path}: job {job} was ordered and never done" for job in sorted(jobs - replaced - asked.keys())
    )
    yield from (f"{journal.path}: job {job} is left" for job in journal.jobs)


def _asked_for(path: str, log: Iterable[Line]) -> dict[str, dict[str, str]]:
    """For each job of a conversation the runs in which the model was asked, and what it said; empty for nothing."""
    conversation = path.rpartition("/")[2]
    asked: dict[str, dict[str, str]] = {}
    runs: dict[str, dict[str, str]] = {}
    for line in log:
        if line["what"] == "ended":
            if line["run"] in runs:
                runs[line["run"]][line["run"]] = line["said"]
        elif line.get("purpose") == "live" and f"{conversation} says: " in json.dumps(line["body"]["messages"]):
            runs[line["run"]] = asked.setdefault(line["call"], {})
            runs[line["run"]][line["run"]] = ""
    return asked


def live_block(journal: Journal, account: Account, request: Record) -> list[dict[str, Any]]:
    """The system block that stands for the live context in the requests of its turn; none for none."""
    seq = account.turns[request["turn"]].live
    return [journal.records[seq - 1]["block"]] if seq else []


def digest_of(blocks: list[dict[str, Any]]) -> str:
    """As the journal names a live context; empty for none."""
    text = "".join(json.dumps(block, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for block in blocks)
    return hashlib.sha256(text.encode()).hexdigest() if blocks else ""


def flag_faults(journal: Journal) -> Iterator[str]:
    """Flags that are recorded again and again, or that do not say what is offered."""
    pinned: Record = {}
    tools = set[str]()
    all_pinned, all_tools = dict[str, Record](), dict[str, set[str]]()
    for record in journal.records:
        where = f"{journal.path} record {record['seq']}"
        match record["kind"]:
            case "flags_pinned":
                if record["digest"] == pinned.get("digest"):
                    yield f"{where}: pins the flags that were pinned"
                pinned = all_pinned[record["digest"]] = record
            case "flags_returned":
                if record["digest"] == pinned.get("digest") or record["digest"] not in all_pinned:
                    yield f"{where}: goes back to flags {record['digest']}, pinned before are {sorted(all_pinned)}"
                pinned = all_pinned.get(record["digest"], pinned)
            case "preamble_changed":
                tools = all_tools[record["digest"]] = {tool["name"] for tool in record["body"]["tools"]}
            case "preamble_returned":
                if record["digest"] not in all_tools:
                    yield f"{where}: goes back to preamble {record['digest']}, which was never stored"
                tools = all_tools.get(record["digest"], tools)
            case "turn_prepared":
                decided = {decision["key"]: decision["value"] for decision in pinned.get("decisions", [])}
                if (FLAGGED_TOOL in tools) is not decided.get(FLAG):
                    yield f"{where}: flags are {decided}, offered are {sorted(tools)}"


def context_faults(journal: Journal, log: Iterable[Line]) -> Iterator[str]:
    """Updates of what is selected that were lost, repeated, mixed up, or that the model was not told of."""
    told = [line["id"] for line in log if line["what"] == "told" and line["path"] == journal.path]
    found, selected = list[str](), ""
    for record in journal.records:
        where = f"{journal.path} record {record['seq']}"
        if record["kind"] == "context_changed":
            selected = record["context"]["record"]["id"]
            found.append(selected)
            if record["version"] != len(found):
                yield f"{where}: is version {record['version']}, expected {len(found)}"
        elif record["kind"] == "turn_prepared" and selected not in text_of(record.get("signal", [])):
            yield f"{where}: the model is not told of {selected}"
    if found != told:
        yield f"{journal.path}: {found} were selected, the application told {told}"


def skill_faults(path: str, account: Account, *, file: bytes) -> Iterator[str]:
    """Texts of skills without their record, and records without their text. Args: file: the one skill there is."""
    digest, text = hashlib.sha256(file).hexdigest(), file.decode().rpartition("---\n")[2].strip()
    loaded = {record["call_id"]: record for record in account.skills}
    for call in account.calls.values():
        where = f"{path} call {call.id}"
        record = loaded.pop(call.id, None)
        has_text = call.name == "load_skill" and text in call.result
        if has_text is (record is None):
            yield f"{where}: has the text of a skill: {has_text}, its record is {record}"
        elif record is not None and (record["digest"] != digest or call.finished is None):
            yield f"{where}: loaded version {record['digest']}, the file is {digest}"
        elif record is not None and call.finished is not None and record["seq"] < call.finished["seq"]:
            yield f"{where}: its skill was recorded before its result"
    yield from (f"{path}: a skill was loaded by {call_id}, which nobody called" for call_id in loaded)
