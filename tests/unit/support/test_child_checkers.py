"""Both readings of a journal find what is wrong with sub-agents in it: a sound one, and one broken in each way."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.client_checker import client_faults
from tests.support.journal_checker import PUBLIC_KINDS as EVENT_TYPES
from tests.support.journal_checker import Journal, account_of
from tests.support.oracle import judge_store
from tests.support.oracle_case import Case
from tests.support.oracle_clients import event_of
from tests.support.oracle_evidence import Evidence, Row
from tests.support.oracle_evidence import Journal as Stored
from tests.support.oracle_kinds import PUBLIC_KINDS
from tests.support.oracle_wholes import judge_wholes

PATH = "default/ann/c1"
Record = dict[str, Any]
OF_CHILD: Record = {"turn": 1, "call_id": "a", "name": "digger", "child": "a-1"}
SAID = {"type": "text", "text": "dig"}


def started(**other: Any) -> Record:
    return {"kind": "subagent_started", **OF_CHILD, **other}


def finished(**other: Any) -> Record:
    told = {"code": "steps", "rounds": 3, "bundle": "b", "findings": 2, "dropped": ["e-9"], "link": "ab"}
    return {"kind": "subagent_finished", **OF_CHILD, "outcome": "succeeded", **told, **other}


class World:
    """A turn whose call ``a`` has a sub-agent at work, which ends behind the turn; ``b`` is asked for and not begun."""

    def __init__(self) -> None:
        uses: list[Record] = [{"type": "tool_use", "id": id_, "name": "dig", "input": {}} for id_ in ("a", "b")]
        self.records: list[Record] = [
            {"kind": "conversation_created", "agent": "clerk"},
            {"kind": "message_received", "message_id": "m1", "principal": "ann", "blocks": [SAID]},
            {"kind": "turn_prepared", "turn": 1, "messages": ["m1"]},
            {"kind": "model_requested", "turn": 1, "call": "1-1-1", "round": 1, "preamble": "", "link": ""},
            {
                "kind": "model_replied",
                "turn": 1,
                "call": "1-1-1",
                "round": 1,
                "blocks": uses,
                "stop_reason": "tool_use",
            },
            {
                "kind": "tool_started",
                "turn": 1,
                "call_id": "a",
                "name": "dig",
                "effect": "read",
                "idempotency_key": "k",
            },
            started(),
            *(
                {
                    "kind": "tool_finished",
                    "turn": 1,
                    "call_id": id_,
                    "name": "dig",
                    "outcome": "interrupted",
                    "block": {"type": "tool_result", "tool_use_id": id_, "content": "cut"},
                }
                for id_ in ("a", "b")
            ),
            {"kind": "turn_cancelled", "turn": 1, "reason": "client", "note": SAID},
            finished(),
        ]

    def place(self, kind: str) -> int:
        return next(place for place, record in enumerate(self.records) if record["kind"] == kind)

    def number(self) -> list[Record]:
        event = 0
        for seq, record in enumerate(self.records, start=1):
            record |= {"seq": seq, "at_us": 5}
            if record["kind"] in PUBLIC_KINDS:
                record["event"] = event = event + 1
                if record["kind"] not in {"message_received", "turn_prepared"}:
                    record.setdefault("cause", "m1")
        return self.records

    def kinds(self) -> set[str]:
        """What the oracle finds of sub-agents."""
        records = self.number()
        last_event = max(record.get("event", 0) for record in records)
        row = Row(1, len(records), last_event, json.dumps(records).encode())
        journal = Stored(conversation="c1", rows=[row], is_due=False, quarantine="", receipts={})
        evidence = Evidence(journals=[journal], blobs=frozenset({"b"}))
        case = Case(journal, evidence)
        found = [*case.story.violations, *judge_store(case), *judge_wholes(evidence, [case])]
        return {violation.kind for violation in found if violation.kind.startswith(("child_", "blob_"))}

    def faults(self) -> list[str]:
        """What the other reading finds."""
        return account_of(Journal(path=PATH, records=self.number())).faults


def insert(before: str, *records: Record) -> Callable[[World], None]:
    def change(world: World) -> None:
        place = world.place(before)
        world.records[place:place] = records

    return change


def append(record: Record) -> Callable[[World], None]:
    return lambda world: world.records.append(record)


def drop(kind: str) -> Callable[[World], None]:
    return lambda world: world.records.__delitem__(world.place(kind))


def alter(kind: str, **fields: Any) -> Callable[[World], None]:
    return lambda world: world.records[world.place(kind)].update(fields)


BROKEN: dict[str, tuple[Callable[[World], None], str, str]] = {
    "started before its call": (insert("tool_started", started(child="a-2")), "child_unasked", "call a does not run"),
    "started for a call that was not begun": (
        insert("tool_finished", started(call_id="b", child="b-1"), finished(call_id="b", child="b-1")),
        "child_unasked",
        "call b does not run",
    ),
    "started for a call that nobody asked for": (
        insert("tool_finished", started(call_id="x", child="x-1"), finished(call_id="x", child="x-1")),
        "child_unasked",
        "call x does not run",
    ),
    "started for a call that is over": (
        insert("turn_cancelled", started(child="a-2"), finished(child="a-2")),
        "child_unasked",
        "call a does not run",
    ),
    "started twice": (insert("tool_finished", started()), "child_twice", "sub-agent a-1 has not ended"),
    "finished twice": (append(finished()), "child_twice", "sub-agent a-1 does not run"),
    "finished without a start": (drop("subagent_started"), "child_twice", "sub-agent a-1 does not run"),
    "outlives its turn without a record": (drop("subagent_finished"), "child_outlives", "sub-agent a-1 never ended"),
    "ends as another call's": (alter("subagent_finished", call_id="b"), "child_differs", "was another one's"),
    "ends in another turn": (alter("subagent_finished", turn=2), "child_differs", "was another one's"),
    "ends for another message": (alter("subagent_finished", cause="m0"), "child_differs", "was another one's"),
}


def test_a_sub_agent_may_end_behind_its_turn() -> None:
    assert World().kinds() == set()
    assert World().faults() == []


def test_a_sub_agent_that_was_lost_may_be_started_again_by_the_same_name() -> None:
    world = World()
    insert("tool_finished", finished(code="lost"), started())(world)
    assert world.kinds() == set()
    assert world.faults() == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_a_sub_agent_is_found(name: str) -> None:
    breaking, kind, fault = BROKEN[name]
    world = World()
    breaking(world)
    assert kind in world.kinds()
    assert any(fault in found for found in world.faults()), world.faults()


def test_a_bundle_that_is_not_kept_is_found() -> None:
    world = World()
    alter("subagent_finished", bundle="gone")(world)
    assert world.kinds() == {"blob_lost"}


@pytest.mark.parametrize(("kind", "field"), [("subagent_started", "name"), ("subagent_finished", "findings")])
def test_an_event_of_a_sub_agent_that_says_another_thing_is_found(kind: str, field: str) -> None:
    world = World()
    journal = Journal(path=PATH, records=world.number())
    shown: list[Record] = [
        {"what": "event", "path": PATH, "event": event_of(record)} for record in world.records if record.get("event")
    ]
    assert not any(field in fault for fault in client_faults({PATH: journal}, {PATH: account_of(journal)}, shown))
    event = next(line["event"] for line in shown if line["event"]["type"] == EVENT_TYPES[kind])
    event[field] = "other"
    faults = client_faults({PATH: journal}, {PATH: account_of(journal)}, shown)
    assert any(f"{field} is 'other'" in fault for fault in faults)
