"""Whether sub-agents did what their calls say: from the journals, theirs and those they work for, and the model's log.

Shares no code with the engine. A sub-agent of the kill test is given a wish in its task and says in the end that it was
fulfilled, see ``tests.support.obedient_model``; a scout may have a tracker work, which leaves a bundle. None outlives
its process: one that is lost is begun anew under another name, with whatever works for it, and then asks for the same
once more.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.journal_checker import Account, Call, Journal, Record, account_of, text_of

Line = dict[str, Any]
RESEARCHER = "tracker"
SPAWNING = frozenset({"scout", RESEARCHER})
"""Tools that stand for sub-agents."""
CODES = frozenset({"", "cancelled", "lost"})
"""No budget is ever over here, and none fails."""
_WISH = re.compile(r"\[(mc+\d+): ")


def accounts_of(journals: dict[str, Journal]) -> dict[str, Account]:
    """Of all of them; what nobody went on with may end anywhere."""
    accounts: dict[str, Account] = {}
    for path, journal in sorted(journals.items()):  # whom one works for comes before it
        ended = _ended(journal, accounts) if journal.is_child else None
        is_cut = journal.is_child and (ended is None or ended.get("code") == "lost")
        accounts[path] = account_of(journal, is_cut=is_cut)
    return accounts


def _ended(journal: Journal, accounts: dict[str, Account]) -> Record | None:
    """The record that says how it ended."""
    path, name = journal.parent
    ended = accounts[path].children_ended if path in accounts else []
    return next((record for record in ended if record["child"] == name), None)


def child_faults(journals: dict[str, Journal], accounts: dict[str, Account]) -> Iterator[str]:
    """Every sub-agent that nobody had work, that did another thing than it was told, or of which another thing is told.

    That each one ends, and for its own call, is judged with the journal it works for.
    """
    for path, journal in journals.items():
        if journal.is_child:
            parent, name = journal.parent
            begun = accounts[parent].children_begun if parent in accounts else []
            if name not in {record["child"] for record in begun}:
                yield f"{path}: nobody had it work"
        account = accounts[path]
        for record in account.children_ended:
            where, child = f"{path} record {record['seq']}", _child(path, record)
            yield from _end_faults(where, record, account, journals.get(child))
            below = [each for place, each in journals.items() if f"{place}/".startswith(f"{child}/")]
            yield from _account_faults(where, record, below)
            yield from _late_faults(where, record, below)
        for call in account.calls.values():
            if call.name in SPAWNING and not (account.is_cut and call.finished is None):
                yield from _call_faults(path, call, account, accounts)


def _child(path: str, record: Record) -> str:
    return f"{path}/{record['child']}"


def _end_faults(where: str, record: Record, account: Account, journal: Journal | None) -> Iterator[str]:
    """Where the record of an end is not what the journal of the sub-agent comes to."""
    code, records = record.get("code", ""), journal.records if journal is not None else []
    call = account.calls.get(record["call_id"])
    if code not in CODES and not (code == "failed" and call is not None and call.was_not_stored):
        yield f"{where}: ended with {code!r}, expected one of {sorted(CODES)}"
    if record["outcome"] != ("failed" if code else "succeeded"):
        yield f"{where}: has {record['outcome']}, its code is {code!r}"
    if code == "cancelled" and not account.is_cut and account.turns[record["turn"]].end != "cancelled":
        yield f"{where}: was cancelled, its turn has {account.turns[record['turn']].end}"
    replies = _replies(records)
    if record.get("rounds", 0) != len(replies):
        yield f"{where}: had {record.get('rounds', 0)} replies, by its journal {len(replies)}"
    if code != "lost" and record.get("child_seq", 0) != len(records):
        yield f"{where}: ended at record {record.get('child_seq', 0)}, its journal ends at {len(records)}"
    agents = [each["agent"] for each in records if each["kind"] == "conversation_created"]
    if agents != [record["name"]] * bool(records):
        yield f"{where}: is {record['name']}, its journal was made for {agents}"
    if bool(record.get("bundle")) != (not code and record["name"] == RESEARCHER):
        yield f"{where}: left the bundle {record.get('bundle')!r}"


def _replies(records: Iterable[Record]) -> list[Record]:
    return [each for each in records if each["kind"] == "model_replied"]


def _account_faults(where: str, record: Record, below: Iterable[Journal]) -> Iterator[str]:
    """What it used is what all model calls used that were made for it, each counted once."""
    usage: dict[str, int] = defaultdict(int)
    for journal in below:
        for each in _replies(journal.records):
            for name, tokens in each["usage"].items():
                usage[name] += tokens
    if record.get("usage", {}) != usage:
        yield f"{where}: used {record.get('usage')}, by its journal {dict(usage)}"


def _late_faults(where: str, record: Record, below: Iterable[Journal]) -> Iterator[str]:
    """Whoever works for it does not outlive it."""
    for journal in below:
        late = [each["seq"] for each in journal.records if each["at_us"] > record["at_us"]]
        if late:
            yield f"{where}: has ended, and {journal.path} went on with records {late}"


def _call_faults(path: str, call: Call, account: Account, accounts: dict[str, Account]) -> Iterator[str]:
    """A result is that of one sub-agent, the last; those before it were lost."""
    where = f"{path} call {call.id}"
    ended = [record for record in account.children_ended if record["call_id"] == call.id]
    answered = [record for record in ended if not record.get("code")]
    for record in ended:
        child = accounts.get(_child(path, record))
        tasks = [text_of(message["blocks"]) for message in child.messages.values()] if child is not None else []
        if tasks not in ([call.input["task"]], []):
            yield f"{where}: {record['child']} was told {tasks}, expected {call.input['task']!r}"
    if call.outcome == "succeeded":
        if len(answered) != 1 or ended[-1] is not answered[0]:
            yield f"{where}: succeeded by {[(record['child'], record.get('code', '')) for record in ended]}"
            return
        child = accounts.get(_child(path, answered[0]), Account())
        if (told := _told(call, answered[0], child)) is None or json.loads(call.result) != told:
            said = [turn.answer for turn in child.turns.values()]
            yield f"{where}: asked {call.input['task']!r}, its sub-agent said {said}, the model reads {call.result}"
    elif ended and call.outcome == "never_started":
        yield f"{where}: never started by the journal, but had {len(ended)} sub-agents"
    elif answered and account.turns[call.turn].end != "cancelled":
        yield f"{where}: is {call.outcome}, though {answered[0]['child']} answered"


def _told(call: Call, record: Record, child: Account) -> Record | None:
    """The result of a call by what its sub-agent did; None where that is not what it was to do."""
    said = next((turn.answer for turn in child.turns.values() if turn.end == "finished"), "")
    wish = _WISH.search(call.input["task"])
    if wish is None:
        return None
    answer = f"Answered {wish[1]}."
    if record["name"] != RESEARCHER:
        return {"answer": said} if said == answer else None
    runs = [each.result.rpartition(" ")[2] for each in child.calls.values() if each.outcome == "succeeded"]
    sources = [{"id": "trail", "title": "A trail", "locator": "here", "excerpt": run} for run in runs]
    if json.loads(said or "null") != {"source_ids": ["trail"], "planner_reflection": answer}:
        return None
    return {"research_bundle_id": record.get("bundle"), "sources": sources, "planner_reflection": answer}


def bundle_faults(journals: dict[str, Journal], accounts: dict[str, Account], *, blobs: Path) -> Iterator[str]:
    """Bundles that are not those of the sub-agents that answered, or that more than one call was given.

    Args: blobs: the folder of what is stored whole.
    """
    delivered: dict[str, list[str]] = defaultdict(list)
    for path, account in accounts.items():
        left = [record for record in account.children_ended if record.get("bundle")]
        named = sorted(record["bundle"] for record in left)
        if sorted(journals[path].bundles) != named:
            yield f"{path}: the bundles {sorted(journals[path].bundles)} can be had of it, its sub-agents left {named}"
        for record in left:
            where = f"{path} call {record['call_id']}: its bundle {record['bundle']}"
            delivered[record["bundle"]].append(where)
            kept = next((file.read_bytes() for file in blobs.glob(f"*/{record['bundle']}")), b"")
            call = account.calls[record["call_id"]]
            if hashlib.sha256(kept).hexdigest() != record["bundle"]:
                yield f"{where} is not stored"
            elif call.outcome == "succeeded" and _excerpts(kept) != _excerpts(call.result):
                yield f"{where} holds {_excerpts(kept)}, the model reads {_excerpts(call.result)}"
    for bundle, places in delivered.items():
        if len(places) > 1:
            yield f"bundle {bundle} was delivered {len(places)} times: {places}"


def _excerpts(result: bytes | str) -> list[str]:
    return [source["excerpt"] for source in json.loads(result)["sources"]]


def asked_by(journal: Journal, account: Account, started: dict[str, list[Line]]) -> dict[str, list[Line]]:
    """The requests that a journal can stand for, by link: those of a sub-agent are of one process, since another one
    asks for the same after it is lost."""
    replies = [reply for turn in account.turns.values() for reply in turn.replies]
    if not journal.is_child or not replies:
        return started
    process = _process(replies[0]["request_id"])
    return {link: [line for line in lines if _process(line["run"]) == process] for link, lines in started.items()}


def _process(run: str) -> str:
    return run.partition("-")[0]


def asking_faults(journals: dict[str, Journal], accounts: dict[str, Account], log: Iterable[Line]) -> Iterator[str]:
    """Requests of sub-agents that are in no journal, or that were made more often than there were sub-agents."""
    asked: dict[str, list[str]] = defaultdict(list)
    for line in log:
        if line["what"] == "started" and line.get("purpose") in {"child", "grandchild"}:
            asked[line["link"]].append(line["run"])
    known = set[str]()
    lost = 0
    # Also under another sub-agent, where the one that had it work was lost as well.
    told = Counter(_task_of(account, record) for account in accounts.values() for record in account.children_begun)
    for path, account in accounts.items():
        lost += sum(record.get("code") == "lost" for record in account.children_ended)
        if not journals[path].is_child:
            continue
        parent, name = journals[path].parent
        begun = accounts[parent].children_begun if parent in accounts else []
        times = next((told[_task_of(accounts[parent], each)] for each in begun if each["child"] == name), 0)
        for link in (request["link"] for turn in account.turns.values() for request in turn.requests):
            known.add(link)
            if len(asked[link]) > times:
                yield f"{path}: {times} sub-agents asked {asked[link]}"
    # A request goes out beside the commit that announces it, and that commit may be lost with its process.
    unknown = [run for link, runs in asked.items() if link not in known for run in runs]
    if len(unknown) > lost:
        yield f"requests {unknown} are in no journal, {lost} sub-agents were lost"


def _task_of(account: Account, record: Record) -> str:
    """What the sub-agent of a record was told to do, which names the message that it is done for."""
    call = account.calls.get(record["call_id"])
    return str(call.input["task"]) if call is not None else ""
