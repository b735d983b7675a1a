"""Whether what tools and model did to the world agrees with the journal: from the tools' own book and the model's log.

Shares no code with the engine. The tools wrote into their book when they began, when they acted and when they ended,
whatever became of the process; the model wrote down every request it was given.
"""

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.aside_checker import digest_of, live_block
from tests.support.child_checker import asked_by
from tests.support.fold_checker import canonical, fold_before, view_faults
from tests.support.journal_checker import Account, Call, Journal
from tests.support.request_rules import violations

WITHOUT_A_BOOK = frozenset({"load_skill", "read_earlier", "scout", "tracker"})
"""Reads of the engine's own; what a sub-agent does is in its journal, see ``child_checker``."""
READS = frozenset({"look_up", "dig_out", "track"}) | WITHOUT_A_BOOK
OF_JOURNALS = frozenset({"model", "child", "grandchild"})
"""Purposes of requests that a journal announces."""
ASKED_OR_KEYED = frozenset({"pay_keyed", "pay_probed"})
"""Writes whose interrupted calls have a way to be settled: they are never left unknown by a crash."""


@dataclass(kw_only=True)
class Deeds:
    """What the book says of one idempotency key."""

    started: list[str] = field(default_factory=list)
    """Runs, in order."""
    effects: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    tools: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    """Of the conversations for which it was done, where the tools say it."""


def lines_of(log: Path) -> list[dict[str, Any]]:
    """The lines of a log; one cut short by a kill is left out, whether or not another process wrote on behind it."""
    if not log.exists():
        return []
    whole = log.read_bytes()
    lines: list[dict[str, Any]] = []
    for line in whole[: whole.rfind(b"\n") + 1].splitlines():
        with contextlib.suppress(ValueError):  # also of an empty one, which every writer begins with
            lines.append(json.loads(line))
    return lines


def deeds_of(book: Iterable[dict[str, Any]]) -> dict[str, Deeds]:
    """By idempotency key."""
    deeds: dict[str, Deeds] = defaultdict(Deeds)
    for line in book:
        what = {"started": "started", "effect": "effects", "ended": "ended"}[line["what"]]
        getattr(deeds[line["key"]], what).append(line["run"])
        deeds[line["key"]].tools.add(line["tool"])
        deeds[line["key"]].paths |= {line["path"]} if "path" in line else set()
    return dict(deeds)


def effect_faults(accounts: dict[str, Account], deeds: dict[str, Deeds]) -> Iterator[str]:
    """Every call that acted twice, without leave, or otherwise than the journal tells."""
    known = set()
    for path, account in accounts.items():
        for call in account.calls.values():
            key = call.started["idempotency_key"] if call.started else ""
            known.add(key)
            given_up = account.turns[call.turn].code == "crashed"
            did = deeds.get(key, Deeds())
            if others := did.paths - {path}:
                yield f"{path} call {call.id}: its tool ran for {sorted(others)}"
            if call.finished is not None or not account.is_cut:
                yield from _call_faults(f"{path} call {call.id}", call, did, given_up=given_up)
    for key in deeds.keys() - known:
        # A read may begin beside the commit that announces it, and that commit may be lost.
        if deeds[key].tools - READS:
            yield f"a tool ran under key {key}, of which no journal knows"


def _call_faults(where: str, call: Call, did: Deeds, *, given_up: bool) -> Iterator[str]:
    if len(did.effects) > 1:
        yield f"{where}: took effect {len(did.effects)} times"
    run = call.result.partition("run=")[2].split()[:1]
    expected = {"succeeded", "never_started", "interrupted" if call.name in READS else "unknown"}
    if call.outcome not in expected and not (call.outcome == "failed" and call.was_not_stored):
        yield f"{where}: is {call.outcome}, expected one of {sorted(expected)}"
    if call.outcome == "succeeded" and call.name not in WITHOUT_A_BOOK:
        if not run or run[0] not in did.started:
            yield f"{where}: its result names run {run}, the book knows {did.started}"
        elif did.started[-1] != run[0]:
            yield f"{where}: ran again after the run whose result is in the journal"
        if call.name not in READS and len(did.effects) != 1:
            yield f"{where}: succeeded with {len(did.effects)} effects"
    elif call.outcome == "never_started":
        if did.started:
            yield f"{where}: never started by the journal, but ran {len(did.started)} times"
    elif call.outcome == "unknown":
        if "unknown" not in call.result.lower():
            yield f"{where}: the model is not told that the outcome is unknown: {call.result!r}"
        if call.name in READS | ASKED_OR_KEYED and not given_up:
            yield f"{where}: is unknown, though there was a way to tell"
    if call.name not in READS | ASKED_OR_KEYED and len(did.started) > 1:
        yield f"{where}: ran {len(did.started)} times, though it keeps no key and cannot be asked"
    if call.late is not None and not did.ended:
        yield f"{where}: ended late by the journal, and never by the book"


def model_faults(
    journals: dict[str, Journal], accounts: dict[str, Account], log: Iterable[dict[str, Any]]
) -> Iterator[str]:
    """Every request that was made again after its reply was durable, that differs from the journal, or is invalid.

    What works beside conversations is in no journal as it was sent; its requests have to be valid, and no more.
    """
    started: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ended = set()
    for line in log:
        if line["what"] == "ended":
            ended.add(line["run"])
            continue
        if line.get("purpose", "model") in OF_JOURNALS:
            started[line["link"]].append(line)
        for violation in violations(_with_files(line["body"])):
            yield f"request {line['run']}: {violation}"
        for blob in _files_in(line["body"]):
            if line["attached"].get(blob) != blob:
                yield f"request {line['run']}: what was sent for the file {blob} has the digest {line['attached']}"
        if _link_of(line["body"]["messages"]) != line["link"]:
            yield f"request {line['run']}: what was sent is not what its link names"
    for path, account in accounts.items():
        asked = asked_by(journals[path], account, started)
        bodies = {record["digest"]: record["body"] for record in _of_kind(journals[path], "preamble_changed")}
        for turn in account.turns.values():
            for reply in turn.replies:
                yield from _reply_faults(f"{path} call {reply['call']}", turn.requests, reply, asked, ended)
            for request in turn.requests:
                yield from _request_faults(journals[path], request, account, started, bodies)


def _files_in(body: dict[str, Any]) -> Iterator[str]:
    """Digests of what its markers stand for."""
    for message in body["messages"]:
        yield from (block["attachment"]["blob"] for block in message["content"] if block["type"] == "attachment")


def _with_files(body: dict[str, Any]) -> dict[str, Any]:
    """As a host reads it, with some text for each file."""
    source = {"type": "text", "media_type": "text/plain", "data": "What a file says."}
    messages = [
        message
        | {
            "content": [
                {"type": "document", "source": source} if block["type"] == "attachment" else block
                for block in message["content"]
            ]
        }
        for message in body["messages"]
    ]
    return body | {"messages": messages}


def _reply_faults(
    where: str,
    requests: list[dict[str, Any]],
    reply: dict[str, Any],
    started: dict[str, list[dict[str, Any]]],
    ended: set[str],
) -> Iterator[str]:
    link = next(request["link"] for request in requests if request["call"] == reply["call"])
    runs = [line["run"] for line in started.get(link, ())]
    if reply["request_id"] not in ended or reply["request_id"] not in runs:
        yield f"{where}: its reply is from {reply['request_id']}, the model knows {runs}"
    elif runs[-1] != reply["request_id"]:
        yield f"{where}: the model was asked again after its reply was durable: {runs}"


def _request_faults(
    journal: Journal,
    request: dict[str, Any],
    account: Account,
    started: dict[str, list[dict[str, Any]]],
    bodies: dict[str, dict[str, Any]],
) -> Iterator[str]:
    fold = fold_before(account, request["seq"])
    live = live_block(journal, account, request)
    if request.get("live", "") != digest_of(live):
        yield f"{journal.path} call {request['call']}: names another live context than its turn"
    for line in started.get(request["link"], ()):
        body = bodies.get(line["preamble"], {})
        rest = {name: value for name, value in line["body"].items() if name != "messages"}
        lived = rest.get("system", [])[len(body.get("system", [])) :]
        if line["preamble"] != request["preamble"] or digest_of(lived) != request.get("live", ""):
            continue  # asked while its commit was under way, which a kill undid
        where = f"{journal.path} request {line['run']}"
        if rest != body | ({"system": [*body.get("system", []), *live]} if live else {}):
            yield f"{where}: what stands before the messages is not what the journal holds"
        said = [
            (message["role"], canonical(block)) for message in line["body"]["messages"] for block in message["content"]
        ]
        yield from (f"{where}: {fault}" for fault in view_faults(account, request, said))
        for message, seq in account.taken_at.items():
            turn = account.turns[account.turn_of[message]]
            if (turn.end == "refused" and turn.number != request["turn"]) or turn.number < fold["kept_from"]:
                continue  # taken out of the view with its turn, or folded
            held = {("user", canonical(block)) for block in account.messages[message]["blocks"]}
            if seq <= request["seq"] and not held <= set(said):
                yield f"{where}: lacks message {message}"
        for call in account.calls.values():
            if call.finished is None or call.finished["seq"] > request["seq"]:
                continue
            expected = 0 if call.turn < fold["kept_from"] else 1
            if said.count(("user", canonical(call.finished["block"]))) != expected:
                yield f"{where}: does not hold the result of call {call.id} {expected} times, as it is in the journal"


def _of_kind(journal: Journal, kind: str) -> list[dict[str, Any]]:
    return [record for record in journal.records if record["kind"] == kind]


def _link_of(messages: list[dict[str, Any]]) -> str:
    """The hash chain over every block, from its definition: each link covers the one before, the role and the block."""
    link = b""
    for message in messages:
        for block in message["content"]:
            link = hashlib.sha256(link + canonical([message["role"], block]).encode()).digest()
    return link.hex()
