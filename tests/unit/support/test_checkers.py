"""The judges of the kill test find what they are there to find: a sound world, and one broken in each way."""

import copy
import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_checker import client_faults
from tests.support.effects_checker import deeds_of, effect_faults, lines_of, model_faults
from tests.support.journal_checker import Journal, account_of, answer_faults, journal_faults, read_journals

PATH = "default/ann/c1"
PREAMBLE = {"model": "m", "max_tokens": 9, "tools": [{"name": "pay_keyed", "input_schema": {"type": "object"}}]}
ASKED = {"type": "text", "text": "pay [m1: pay_keyed]"}
CALL = {"type": "tool_use", "id": "m1-pay_keyed", "name": "pay_keyed", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "m1-pay_keyed", "content": "paid 3 run=r1"}
ANSWER = {"type": "text", "text": "Answered m1."}


def link_of(*blocks: tuple[str, dict[str, Any]]) -> str:
    link = b""
    for pair in blocks:
        link = hashlib.sha256(link + json.dumps(pair, sort_keys=True, separators=(",", ":")).encode()).digest()
    return link.hex()


FIRST_LINK = link_of(("user", ASKED))
SECOND_LINK = link_of(("user", ASKED), ("assistant", CALL), ("user", RESULT))


class World:
    """What a turn with one payment leaves behind: journal, book, model log, client log."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = [
            {"kind": "conversation_created", "seq": 1, "agent": "clerk"},
            {"kind": "message_received", "seq": 2, "event": 1, "message_id": "m1", "blocks": [ASKED]},
            {"kind": "preamble_changed", "seq": 3, "digest": "d1", "body": PREAMBLE},
            {"kind": "turn_prepared", "seq": 4, "event": 2, "turn": 1, "messages": ["m1"]},
            {"kind": "model_requested", "seq": 5, "turn": 1, "call": "1-1-1", "link": FIRST_LINK, "preamble": "d1"},
            {"kind": "model_replied", "seq": 6, "event": 3, "turn": 1, "call": "1-1-1", "blocks": [CALL]},
            {"kind": "tool_started", "seq": 7, "event": 4, "turn": 1, "call_id": CALL["id"], "name": "pay_keyed"},
            {"kind": "tool_finished", "seq": 8, "event": 5, "turn": 1, "call_id": CALL["id"], "name": "pay_keyed"},
            {"kind": "model_requested", "seq": 9, "turn": 1, "call": "1-2-1", "link": SECOND_LINK, "preamble": "d1"},
            {"kind": "model_replied", "seq": 10, "event": 6, "turn": 1, "call": "1-2-1", "blocks": [ANSWER]},
            {"kind": "turn_finished", "seq": 11, "event": 7, "turn": 1},
        ]
        self.record(6)["request_id"] = "q1"
        self.record(10)["request_id"] = "q2"
        self.record(7).update(effect="write", idempotency_key="k1")
        self.record(8).update(outcome="succeeded", block=RESULT)
        for record in self.records:
            record["at_us"] = 5
            if record.get("event", 0) > 2:
                record["cause"] = "m1"
        self.book = [
            {"what": what, "tool": "pay_keyed", "key": "k1", "run": "r1"} for what in ("started", "effect", "ended")
        ]
        first = [{"role": "user", "content": [ASKED]}]
        second = [*first, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [RESULT]}]
        self.model: list[dict[str, Any]] = [
            {
                "what": "started",
                "run": "q1",
                "preamble": "d1",
                "link": FIRST_LINK,
                "body": PREAMBLE | {"messages": first},
            },
            {"what": "ended", "run": "q1"},
            {
                "what": "started",
                "run": "q2",
                "preamble": "d1",
                "link": SECOND_LINK,
                "body": PREAMBLE | {"messages": second},
            },
            {"what": "ended", "run": "q2"},
        ]
        self.model = copy.deepcopy(self.model)
        self.client: list[dict[str, Any]] = [
            {"what": "sent", "path": PATH, "id": "m1", "text": ASKED["text"], "ends": ["finished"]},
            {"what": "accepted", "path": PATH, "id": "m1", "event": 1},
            *({"what": "event", "path": PATH, "client": "a", "event": event | {"cause": "m1"}} for event in EVENTS),
        ]
        self.journal = Journal(path=PATH, records=self.records, receipts={"m1": 1}, head=(11, 7))
        self.journal.batches = [(1, 5, 2, 5), (6, 7, 4, 2), (8, 11, 7, 4)]

    def record(self, seq: int) -> dict[str, Any]:
        return self.records[seq - 1]

    def faults(self) -> list[str]:
        journals = {PATH: self.journal}
        accounts = {PATH: account_of(self.journal)}
        return [
            *journal_faults(self.journal, accounts[PATH]),
            *answer_faults(PATH, accounts[PATH]),
            *effect_faults(accounts, deeds_of(self.book)),
            *model_faults(journals, accounts, self.model),
            *client_faults(journals, accounts, self.client),
        ]


EVENTS: list[dict[str, Any]] = [
    {"event": 1, "type": "message.received", "message_id": "m1", "text": ASKED["text"], "at_us": 5},
    {"event": 2, "type": "turn.started", "messages": ["m1"], "turn": 1, "at_us": 5},
    {"event": 3, "type": "reply.finished", "call": "1-1-1", "turn": 1, "at_us": 5},
    {
        "event": 4,
        "type": "tool.started",
        "call_id": CALL["id"],
        "name": "pay_keyed",
        "effect": "write",
        "turn": 1,
        "at_us": 5,
    },
    {
        "event": 5,
        "type": "tool.finished",
        "call_id": CALL["id"],
        "name": "pay_keyed",
        "outcome": "succeeded",
        "turn": 1,
        "at_us": 5,
    },
    {"event": 6, "type": "reply.finished", "call": "1-2-1", "text": ANSWER["text"], "turn": 1, "at_us": 5},
    {"event": 7, "type": "turn.finished", "turn": 1, "at_us": 5},
]


def test_a_sound_world_has_no_faults() -> None:
    assert World().faults() == []


def set_record(seq: int, **fields: Any) -> Callable[[World], None]:
    return lambda world: world.record(seq).update(fields)


def set_client(index: int, **fields: Any) -> Callable[[World], None]:
    return lambda world: world.client[index].update(fields)


def set_event(index: int, **fields: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.client[1 + index]["event"] = world.client[1 + index]["event"] | fields

    return change


def set_journal(**fields: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        for name, value in fields.items():
            setattr(world.journal, name, value)

    return change


def drop_record(seq: int) -> Callable[[World], None]:
    return lambda world: world.records.__delitem__(seq - 1)


def add_line(log: str, index: int, **fields: Any) -> Callable[[World], None]:
    """The line at ``index`` once more, changed, at the end."""

    def change(world: World) -> None:
        lines = getattr(world, log)
        lines.append(copy.deepcopy(lines[index]) | fields)

    return change


def drop_line(log: str, index: int) -> Callable[[World], None]:
    return lambda world: getattr(world, log).__delitem__(index)


def unsettled(world: World) -> None:
    """The call never got its result."""
    del world.records[7]


def unknown(world: World) -> None:
    """A write with a key is given up as unknown."""
    world.record(8).update(outcome="unknown")


def accepted_and_lost(world: World) -> None:
    """A second message, acknowledged."""
    world.client += [line | {"id": "m2"} for line in world.client[:2]]


BROKEN: dict[str, tuple[Callable[[World], None], str]] = {
    "a lost record": (drop_record(7), "carries the number"),
    "a reused event number": (set_record(6, event=2), "carries event 2, expected 3"),
    "a record of another cause": (set_record(6, cause="m0"), "its cause is 'm0', expected 'm1'"),
    "an event of another cause": (set_event(5, cause="m0"), "cause is 'm0'"),
    "a row that covers other numbers": (set_journal(batches=[(1, 6, 3, 6), (8, 11, 7, 4)]), "follows record 6"),
    "a row with another last event": (set_journal(batches=[(1, 11, 6, 11)]), "says its last event is 6"),
    "a stale head": (set_journal(head=(10, 6)), "the directory says (10, 6)"),
    "a due mark at rest": (set_journal(due_us=7), "is still due"),
    "a quarantine": (set_journal(quarantine="why"), "is quarantined"),
    "a snapshot ahead": (set_journal(snapshot_seq=12), "its snapshot is at 12"),
    "a lost receipt": (set_journal(receipts={}), "its receipts are"),
    "a turn left open": (drop_record(11), "turn 1 never ended"),
    "a message nobody took": (set_record(4, messages=[]), "message m1 was never taken"),
    "a message taken twice": (set_record(5, joined=["m1"]), "takes message m1 again"),
    "an unanswered message": (set_record(10, blocks=[{"type": "text", "text": "Hm."}]), "without an answer to m1"),
    "half a pair": (unsettled, "call m1-pay_keyed has no result"),
    "a reply to another call": (set_record(10, call="1-1-1"), "which was not the last one"),
    "a turn given up too early": (
        set_record(11, kind="turn_failed", code="crashed"),
        "was given up after 1 attempts",
    ),
    "a payment made twice": (add_line("book", 1), "took effect 2 times"),
    "a tool run again": (add_line("book", 0, run="r2"), "ran again after the run whose result"),
    "a payment that never was": (drop_line("book", 1), "succeeded with 0 effects"),
    "a result from nowhere": (drop_line("book", 0), "its result names run"),
    "a write before its record": (add_line("book", 0, key="k2"), "of which no journal knows"),
    "a keyed write left unknown": (unknown, "though there was a way to tell"),
    "a write said to be merely interrupted": (set_record(8, outcome="interrupted"), "is interrupted, expected one of"),
    "a call that ran and never started": (set_record(8, outcome="never_started"), "never started by the journal"),
    "an unknown outcome that is not told": (unknown, "the model is not told"),
    "a model asked again": (add_line("model", 2, run="q3"), "asked again after its reply was durable"),
    "a reply the model never gave": (drop_line("model", 3), "its reply is from q2"),
    "a request with another history": (
        lambda world: world.model[2]["body"]["messages"][0]["content"][0].update(text="else"),
        "what was sent is not what its link names",
    ),
    "an accepted message that is lost": (accepted_and_lost, "was accepted and is not in the journal"),
    "a message nobody sent": (drop_line("client", 0), "which nobody sent"),
    "a message changed": (set_client(0, text="other"), "not in the journal as it was sent"),
    "two receipts": (add_line("client", 1, event=3), "was accepted as event 1, then as 3"),
    "an end nobody wished": (set_client(0, ends=["cancelled"]), "expected one of ['cancelled']"),
    "an event lost on the way": (drop_line("client", 4), "was given event 4 after 2"),
    "an event given twice": (add_line("client", 8), "was given event 7 after 7"),
    "the last event not given": (drop_line("client", 8), "up to 6, the journal has 7"),
    "an event that says another thing": (set_event(6, text="Answered m2."), "text is 'Answered m2.'"),
    "an event of another kind": (set_event(7, type="turn.failed"), "type is 'turn.failed'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str) -> None:
    world = World()
    breaking, expected = BROKEN[name]
    breaking(world)
    assert any(expected in fault for fault in world.faults()), world.faults()


def test_a_journal_is_read_as_other_programs_read_it(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "torpor.db")
    database.executescript(
        """
        CREATE TABLE conversations (number, tenant, owner, conversation, seq, event, due_us, quarantine);
        CREATE TABLE journal (position INTEGER PRIMARY KEY, number, first_seq, last_seq, last_event, records);
        CREATE TABLE receipts (number, message_id, receipt);
        CREATE TABLE snapshots (number, seq);
        CREATE TABLE jobs (number, id);
        CREATE TABLE handles (number, handle, is_bundle);
        INSERT INTO conversations VALUES (1, 'default', 'ann', 'c1', 2, 1, NULL, '');
        INSERT INTO journal VALUES (1, 1, 1, 2, 1, '[{"seq":1},{"seq":2}]');
        INSERT INTO receipts VALUES (1, 'm1', '{"event":1}');
        INSERT INTO snapshots VALUES (1, 2);
        INSERT INTO jobs VALUES (1, 'live');
        INSERT INTO handles VALUES (1, 'whole', 0), (1, 'bundle', 1);
        """
    )
    database.commit()
    database.close()
    (journal,) = read_journals(tmp_path / "torpor.db").values()
    assert (journal.path, journal.head, journal.batches) == (PATH, (2, 1), [(1, 2, 1, 2)])
    assert journal.bundles == ["bundle"]
    assert (journal.records, journal.receipts) == ([{"seq": 1}, {"seq": 2}], {"m1": 1})
    assert (journal.due_us, journal.quarantine, journal.snapshot_seq) == (None, "", 2)
    assert journal.jobs == ["live"]


def test_a_line_of_a_log_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "book.jsonl"
    log.write_bytes(b'\n{"run":1}\n\n{"run":\n{"run":3}\n\n{"ru')
    assert lines_of(log) == [{"run": 1}, {"run": 3}]
