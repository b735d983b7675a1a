"""The judges of the kill test find what is wrong with the work of sub-agents: a sound one, and one broken in each way.

In it a sub-agent is lost with its process in the middle of its turn, with one that works for it; the next one answers,
as does the one that works for that.
"""

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.child_checker import accounts_of, asked_by, asking_faults, bundle_faults, child_faults
from tests.support.effects_checker import deeds_of, effect_faults
from tests.support.journal_checker import Journal, journal_faults

PATH = "default/ann/c1"
LOST, DONE = f"{PATH}/s1", f"{PATH}/s2"
LOST_BELOW, DONE_BELOW = f"{LOST}/t1", f"{DONE}/t2"
SOURCE = {"id": "trail", "title": "A trail", "locator": "here", "excerpt": "run=r4"}
KEPT = json.dumps({"sources": [SOURCE]}).encode()
BUNDLE = hashlib.sha256(KEPT).hexdigest()
TOLD = json.dumps({"research_bundle_id": BUNDLE, "sources": [SOURCE], "planner_reflection": "Answered mcc1."})
FOUND = json.dumps({"source_ids": ["trail"], "planner_reflection": "Answered mcc1."})
PUBLIC = {"message_received", "turn_prepared", "model_replied", "tool_started", "tool_finished", "turn_finished"}
Record = dict[str, Any]


def say(text: str) -> Record:
    return {"type": "text", "text": text}


def use(id_: str, name: str, **arguments: Any) -> Record:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def replied(call: str, *blocks: Record, run: str) -> Record:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"kind": "model_replied", "turn": 1, "call": call, "blocks": [*blocks], "request_id": run, "usage": usage}


def requested(call: str, link: str) -> Record:
    return {"kind": "model_requested", "turn": 1, "call": call, "link": link}


def began(id_: str, name: str) -> Record:
    return {"kind": "tool_started", "turn": 1, "call_id": id_, "name": name, "idempotency_key": f"k-{id_}"}


def settled(id_: str, name: str, text: str) -> Record:
    block = {"type": "tool_result", "tool_use_id": id_, "content": text}
    return {"kind": "tool_finished", "turn": 1, "call_id": id_, "name": name, "outcome": "succeeded", "block": block}


def of_child(kind: str, child: str, **other: Any) -> Record:
    return {"kind": kind, "turn": 1, "call_id": "a", "name": "scout", "child": child, **other}


def of_tracker(kind: str, child: str, **other: Any) -> Record:
    return of_child(kind, child, **{"call_id": "c", "name": "tracker", **other})


def opening(agent: str, message: str, text: str) -> list[Record]:
    return [
        {"kind": "conversation_created", "agent": agent},
        {"kind": "message_received", "message_id": message, "blocks": [say(text)]},
        {"kind": "turn_prepared", "turn": 1, "messages": [message]},
    ]


def numbered(path: str, records: list[Record], message: str) -> Journal:
    event = 0
    for seq, record in enumerate(records, start=1):
        record["seq"] = seq
        record.setdefault("at_us", 0)
        if record["kind"] in PUBLIC or record["kind"].startswith("subagent_"):
            record["event"] = event = event + 1
            if record["kind"] not in {"message_received", "turn_prepared"}:
                record["cause"] = message
    receipts = {"m1": 1} if path == PATH else {}
    bundles = [BUNDLE] if path == DONE else []
    return Journal(path=path, records=records, receipts=receipts, head=(len(records), event), bundles=bundles)


class World:
    """Journals by path, the tools' book and the model's log."""

    def __init__(self) -> None:
        task, errand = "Do as it says [mc1: look_up, track_down]", "Do as it says [mcc1: track]"
        twice, four = ({"input_tokens": tokens, "output_tokens": tokens} for tokens in (2, 4))
        uses = use("b", "look_up"), use("c", "tracker", task=errand)
        self.records: dict[str, list[Record]] = {
            PATH: [
                *opening("keeper", "m1", "[m1: scout]"),
                requested("1-1-1", "A"),
                replied("1-1-1", use("a", "scout", task=task), run="p1-1"),
                began("a", "scout"),
                of_child("subagent_started", "s1"),
                of_child("subagent_finished", "s1", outcome="failed", code="lost", rounds=1, usage=twice),
                of_child("subagent_started", "s2"),
                of_child("subagent_finished", "s2", outcome="succeeded", rounds=2, usage=four, child_seq=14),
                settled("a", "scout", '{"answer":"Answered mc1."}'),
                requested("1-2-1", "B"),
                replied("1-2-1", say("Answered m1."), run="p2-3"),
                {"kind": "turn_finished", "turn": 1},
            ],
            LOST: [
                *opening("scout", "task_1", task),
                requested("1-1-1", "C"),
                replied("1-1-1", *uses, run="p1-2"),
                began("b", "look_up") | {"idempotency_key": "k-lost"},
                began("c", "tracker"),
                of_tracker("subagent_started", "t1"),
            ],
            LOST_BELOW: [
                *opening("tracker", "task_1", errand),
                requested("1-1-1", "E"),
                replied("1-1-1", use("d", "track"), run="p1-3"),
            ],
            DONE: [
                *opening("scout", "task_1", task),
                requested("1-1-1", "C"),
                replied("1-1-1", *uses, run="p2-1"),
                began("b", "look_up"),
                began("c", "tracker"),
                of_tracker("subagent_started", "t2"),
                settled("b", "look_up", "found run=r2"),
                of_tracker(
                    "subagent_finished", "t2", outcome="succeeded", rounds=2, usage=twice, child_seq=10, bundle=BUNDLE
                ),
                settled("c", "tracker", TOLD),
                requested("1-2-1", "D"),
                replied("1-2-1", say("Answered mc1."), run="p2-2"),
                {"kind": "turn_finished", "turn": 1},
            ],
            DONE_BELOW: [
                *opening("tracker", "task_1", errand),
                requested("1-1-1", "E"),
                replied("1-1-1", use("d", "track"), run="p2-4"),
                began("d", "track"),
                settled("d", "track", "found trail run=r4"),
                requested("1-2-1", "F"),
                replied("1-2-1", say(FOUND), run="p2-5"),
                {"kind": "turn_finished", "turn": 1},
            ],
        }
        self.book: list[Record] = [
            {"what": what, "tool": tool, "key": key, "run": run, "path": path}
            for what, tool, key, run, path in (
                ("started", "look_up", "k-lost", "r1", LOST),
                ("started", "look_up", "k-b", "r2", DONE),
                ("ended", "look_up", "k-b", "r2", DONE),
                ("started", "track", "k-d", "r4", DONE_BELOW),
                ("ended", "track", "k-d", "r4", DONE_BELOW),
            )
        ]
        self.log: list[Record] = [
            {"what": "started", "purpose": "grandchild" if link in "EF" else "child", "run": run, "link": link}
            for run, link in (
                *(("p1-2", "C"), ("p1-3", "E")),
                *(("p2-1", "C"), ("p2-4", "E"), ("p2-5", "F"), ("p2-2", "D")),
            )
        ]
        self.kept = KEPT
        """What is stored under the name of the one bundle."""

    def find(self, path: str, kind: str, nth: int = 0) -> Record:
        return [record for record in self.records[path] if record["kind"] == kind][nth]

    def journals(self) -> dict[str, Journal]:
        return {
            path: numbered(path, records, "m1" if path == PATH else "task_1") for path, records in self.records.items()
        }

    def faults(self, blobs: Path) -> list[str]:
        journals = self.journals()
        accounts = accounts_of(journals)
        (blobs / "ann").mkdir()
        (blobs / "ann" / BUNDLE).write_bytes(self.kept)
        return [
            *(fault for path in journals for fault in journal_faults(journals[path], accounts[path])),
            *effect_faults(accounts, deeds_of(self.book)),
            *child_faults(journals, accounts),
            *asking_faults(journals, accounts, self.log),
            *bundle_faults(journals, accounts, blobs=blobs),
        ]


Change = Callable[[World], None]


def alter(path: str, kind: str, nth: int = 0, **fields: Any) -> Change:
    return lambda world: world.find(path, kind, nth).update(fields)


def drop(path: str, kind: str, nth: int = 0) -> Change:
    return lambda world: world.records[path].remove(world.find(path, kind, nth))


def asked(run: str, link: str) -> Change:
    return lambda world: world.log.append(world.log[0] | {"run": run, "link": link})


def asked_by_nobody(world: World) -> None:
    for run, link in (("p2-8", "G"), ("p2-9", "H")):
        asked(run, link)(world)


def orphan(world: World) -> None:
    """A journal of a sub-agent that was never started."""
    world.records[f"{PATH}/s3"] = copy.deepcopy(world.records[DONE])


def answered_by_both(world: World) -> None:
    """The first one came to an end as well."""
    world.records[LOST] = copy.deepcopy(world.records[DONE])
    world.records[f"{LOST}/t2"] = copy.deepcopy(world.records[DONE_BELOW])
    del world.records[LOST_BELOW]
    ended = world.find(PATH, "subagent_finished", 1)
    world.find(PATH, "subagent_finished").update(ended | {"child": "s1"})
    del world.find(PATH, "subagent_finished")["code"]


def drop_bundle(world: World) -> None:
    del world.find(DONE, "subagent_finished")["bundle"]


def delivered_twice(world: World) -> None:
    """One that was lost is said to have left it as well."""
    world.records[LOST].append(copy.deepcopy(world.find(DONE, "subagent_finished")) | {"child": "t1"})


BROKEN: dict[str, tuple[Change, str]] = {
    "one that nobody started": (orphan, "s3: nobody had it work"),
    "one that nobody ended": (drop(PATH, "subagent_finished", 1), "sub-agent s2 never ended"),
    "a turn of it left open": (drop(DONE, "turn_finished"), "turn 1 never ended"),
    "a call of it left open": (drop(DONE, "tool_finished"), "call b has no result"),
    "a result of one that was lost": (
        alter(PATH, "subagent_finished", 1, code="lost", outcome="failed"),
        "succeeded by [('s1', 'lost'), ('s2', 'lost')]",
    ),
    "two that answered one call": (answered_by_both, "succeeded by [('s1', ''), ('s2', '')]"),
    "one that was cut while its turn went on": (
        alter(PATH, "subagent_finished", code="cancelled"),
        "was cancelled, its turn has finished",
    ),
    "one that failed": (alter(PATH, "subagent_finished", code="failed"), "ended with 'failed'"),
    "one that succeeded by its code only": (
        alter(PATH, "subagent_finished", 1, outcome="failed"),
        "has failed, its code is ''",
    ),
    "another result": (
        alter(PATH, "tool_finished", block={"type": "tool_result", "tool_use_id": "a", "content": '{"answer":"No."}'}),
        'the model reads {"answer":"No."}',
    ),
    "another answer": (alter(DONE, "model_replied", 1, blocks=[say("Answered mc2.")]), "said ['Answered mc2.']"),
    "another task": (alter(LOST, "message_received", blocks=[say("[mc2: look_up]")]), "was told ['[mc2: look_up]']"),
    "another agent": (alter(DONE, "conversation_created", agent="keeper"), "made for ['keeper']"),
    "tokens that nobody counted": (alter(PATH, "subagent_finished", usage={}), "used {}, by its journal"),
    "replies that nobody counted": (alter(PATH, "subagent_finished", 1, rounds=1), "had 1 replies"),
    "records behind its end": (alter(PATH, "subagent_finished", 1, child_seq=9), "its journal ends at 14"),
    "an answer that never came out": (
        alter(PATH, "tool_finished", outcome="interrupted"),
        "is interrupted, though s2 answered",
    ),
    "a call that never started": (alter(PATH, "tool_finished", outcome="never_started"), "but had 2 sub-agents"),
    "a tool that ran for another": (lambda world: world.book[1].update(path=LOST), f"ran for ['{LOST}']"),
    "a tool that never ran": (lambda world: world.book.__delitem__(slice(1, 3)), "its result names run ['r2']"),
    "a request made once more": (asked("p2-9", "C"), "2 sub-agents asked ['p1-2', 'p2-1', 'p2-9']"),
    "a request made once more below": (asked("p2-9", "E"), "2 sub-agents asked ['p1-3', 'p2-4', 'p2-9']"),
    "tokens below that nobody counted": (
        alter(PATH, "subagent_finished", 1, usage={"input_tokens": 2, "output_tokens": 2}),
        "by its journal {'input_tokens': 4, 'output_tokens': 4}",
    ),
    "one below that outlives it": (alter(DONE_BELOW, "turn_finished", at_us=9), f"{DONE_BELOW} went on with records"),
    "one below that outlives one that was lost": (
        alter(LOST_BELOW, "model_replied", at_us=9),
        f"{LOST_BELOW} went on with records [5]",
    ),
    "one below that nobody ended": (drop(DONE, "subagent_finished"), "sub-agent t2 never ended"),
    "a result of another bundle": (
        alter(DONE, "tool_finished", 1, block=settled("c", "tracker", TOLD.replace(BUNDLE, "b"))["block"]),
        'the model reads {"research_bundle_id": "b"',
    ),
    "sources that it did not find": (
        alter(DONE_BELOW, "tool_finished", block=settled("d", "track", "found trail run=r5")["block"]),
        'the model reads {"research_bundle_id"',
    ),
    "a bundle that was not left": (drop_bundle, "left the bundle None"),
    "a bundle that cannot be had": (drop_bundle, f"the bundles ['{BUNDLE}'] can be had of it, its sub-agents left []"),
    "a bundle of one that was lost": (
        lambda world: world.find(PATH, "subagent_finished").update(bundle="half"),
        "left the bundle 'half'",
    ),
    "a bundle that is not stored": (lambda world: setattr(world, "kept", b""), f"its bundle {BUNDLE} is not stored"),
    "a bundle that is delivered twice": (delivered_twice, f"bundle {BUNDLE} was delivered 2 times"),
    "requests in no journal": (
        asked_by_nobody,
        "are in no journal, 1 sub-agents were lost",
    ),
}


def test_sub_agents_that_were_lost_and_some_that_answered_are_sound(tmp_path: Path) -> None:
    assert World().faults(tmp_path) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str, tmp_path: Path) -> None:
    world = World()
    breaking, expected = BROKEN[name]
    breaking(world)
    faults = world.faults(tmp_path)
    assert any(expected in fault for fault in faults), faults


@pytest.mark.parametrize(("path", "runs"), [(PATH, ["p1-2", "p2-1"]), (LOST, ["p1-2"]), (DONE, ["p2-1"])])
def test_a_sub_agent_stands_for_the_requests_of_its_own_process(path: str, runs: list[str]) -> None:
    world = World()
    journals = world.journals()
    started = {line["link"]: [each for each in world.log if each["link"] == line["link"]] for line in world.log}
    found = asked_by(journals[path], accounts_of(journals)[path], started)
    assert [line["run"] for line in found["C"]] == runs
