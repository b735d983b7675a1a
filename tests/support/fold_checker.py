"""Whether folds lost nothing: what stays, what stands for the rest, what is open, and what the model got of it.

Shares no code with the engine. The summariser of the kill test names each message that it was told of, once; see
``tests.support.side_model``.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.support.journal_checker import Account, Record, Turn

KEPT_TURNS = 2
"""Before the running one."""
FAILURES = frozenset({"bad_summary", "crashed", "cancelled"})
ATTEMPTS_MAX = 3
_MESSAGE = re.compile(r"\bm\d+\b")
Said = tuple[str, str]
"""A role, and a block as canonical JSON."""


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fold_before(account: Account, seq: int) -> Record:
    """The last fold before record ``seq``; one that folds nothing when there is none."""
    folds = [fold for fold in account.folds if fold["seq"] < seq]
    return folds[-1] if folds else {"seq": 0, "kept_from": 0, "head": []}


def fold_faults(path: str, account: Account) -> Iterator[str]:
    """Every fold that took or left too much, and every failure of one that is no failure."""
    before: Record = {}
    for fold in account.folds:
        where = f"{path} record {fold['seq']}"
        yield from (f"{where}: {fault}" for fault in _tail_faults(account, fold))
        yield from (f"{where}: {fault}" for fault in _head_faults(account, fold, before))
        yield from (f"{where}: {fault}" for fault in _item_faults(fold, before))
        before = fold
    failed = Counter(record["turn"] for record in account.folds_failed)
    for record in account.folds_failed:
        where = f"{path} record {record['seq']}"
        if record["code"] not in FAILURES:
            yield f"{where}: the summary failed with {record['code']}: {record['detail']}"
        turn = account.turns[record["turn"]]
        if record["code"] == "cancelled" and turn.end != "cancelled":
            yield f"{where}: the summary was cut, its turn has {turn.end}"
        attempts = turn.fold_attempts_max
        if record["code"] == "crashed" and attempts < ATTEMPTS_MAX:
            yield f"{where}: the summary was given up after {attempts} attempts"
        if failed[record["turn"]] > 1:
            yield f"{where}: the summariser was asked again in a turn in which it failed"


def _seen_before(account: Account, fold: Record) -> list[Turn]:
    """Turns that the view may hold at that moment, the running one last."""
    return [
        turn
        for turn in account.turns.values()
        if turn.number <= fold["turn"] and not (turn.end == "refused" and turn.number < fold["turn"])
    ]


def _tail_faults(account: Account, fold: Record) -> Iterator[str]:
    expected = _seen_before(account, fold)[-KEPT_TURNS - 1 :][0].number
    if fold["reason"] != "summary":
        yield f"a fold for {fold['reason']}, expected a summary"
    elif fold["kept_from"] != expected:
        yield f"turns from {fold['kept_from']} stay, expected those from {expected}"


def _head_faults(account: Account, fold: Record, before: Record) -> Iterator[str]:
    gone = [turn for turn in _seen_before(account, fold) if turn.number < fold["kept_from"]]
    expected = Counter(message for turn in gone for message in turn.messages)
    facts = fold.get("summary", {}).get("facts", [])
    if (told := Counter(_MESSAGE.findall(" ".join(facts)))) != expected:
        yield f"the summary stands for {sorted(told.items())}, expected {sorted(expected)}, each once"
    text = fold["head"][0]["text"]
    if missing := [fact for fact in facts if fact not in text]:
        yield f"the model cannot read {missing}"
    if fold["generation"] != before.get("generation", 0) + 1:
        yield f"generation {fold['generation']} follows {before.get('generation', 0)}"
    skills = {loaded["skill"] for loaded in account.skills if loaded["turn"] < fold["kept_from"]}
    if set(fold.get("skills", [])) != skills or len(fold["head"]) != 1 + len(skills):
        yield f"texts of the skills {fold.get('skills')} stay, expected {sorted(skills)}"


def _item_faults(fold: Record, before: Record) -> Iterator[str]:
    """The summariser closes what was open and opens one question."""
    were = {item["id"]: item for item in before.get("items", [])}
    are = {item["id"]: item for item in fold.get("items", [])}
    closed = {closing["id"] for closing in fold.get("closed", [])}
    if closed != were.keys():
        yield f"{sorted(closed)} were closed, open were {sorted(were)}"
    if len(are) != 1 or are.keys() & were.keys():
        yield f"{sorted(are)} are open, expected one that is new"
    for item in are.values():
        if item["id"] not in fold["head"][0]["text"] or item["text"] not in fold["head"][0]["text"]:
            yield f"the model cannot read that {item} is open"


def view_faults(account: Account, request: Record, said: list[Said]) -> Iterator[str]:
    """Where a request is not the head of the last fold and, word for word, what was said since."""
    fold = fold_before(account, request["seq"])
    head = [("user", canonical(block)) for block in fold["head"]]
    if said[: len(head)] != head:
        yield f"does not begin with the summary of record {fold['seq']}"
    rest = iter(said[len(head) :])
    for turn, block in _words(account, request, first=fold["kept_from"]):
        if block not in rest:  # looks on from the one before, so this is about the order as well
            yield f"lacks words of turn {turn}, or has them in another place: {block[1][:80]}"
            return
    for message, record in account.messages.items():
        held = {("user", canonical(block)) for block in record["blocks"]}
        if account.turn_of.get(message, fold["kept_from"]) < fold["kept_from"] and held & set(said):
            yield f"holds message {message}, which record {fold['seq']} folded"


def _words(account: Account, request: Record, *, first: int) -> Iterator[tuple[int, Said]]:
    """What users and the model said in the turns that stay, up to the request, in the order of the view."""
    for turn in account.turns.values():
        is_gone = turn.number < first or (turn.end == "refused" and turn.number < request["turn"])
        if is_gone or turn.number > request["turn"]:
            continue
        spoken = [
            (account.taken_at[message], 0, ("user", block))
            for message in turn.messages
            for block in account.messages[message]["blocks"]
        ]
        spoken += [(reply["seq"], 1, ("assistant", block)) for reply in turn.replies for block in reply["blocks"]]
        for seq, _, (role, block) in sorted(spoken, key=lambda each: each[:2]):
            if seq < request["seq"] or (seq == request["seq"] and role == "user"):
                yield turn.number, (role, canonical(block))
