"""What a journal says happened, and whether that can be: read from the database as rows of JSON.

Shares no code with the engine. A conversation's journal is walked once into an account of its messages, turns and tool
calls; ``journal_faults`` tells every way in which that account is not one that a sound engine leaves behind when it
rests. What the journal promised to clients and what it did to the world is judged elsewhere, from this account.
"""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = dict[str, Any]

PUBLIC_KINDS = {
    "conversation_renamed": "conversation.renamed",
    "conversation_archived": "conversation.archived",
    "conversation_unarchived": "conversation.unarchived",
    "conversation_forked": "conversation.forked",
    "message_received": "message.received",
    "message_retracted": "message.retracted",
    "turn_prepared": "turn.started",
    "model_replied": "reply.finished",
    "model_failed": "model.failed",
    "tool_started": "tool.started",
    "tool_finished": "tool.finished",
    "context_changed": "context.changed",
    "skill_loaded": "skill.loaded",
    "subagent_started": "subagent.started",
    "subagent_finished": "subagent.finished",
    "context_replaced": "context.replaced",
    "compaction_failed": "compaction.failed",
    "live_context_replaced": "live_context.replaced",
    "live_context_failed": "live_context.failed",
    "late_result": "tool.late",
    "turn_finished": "turn.finished",
    "turn_cancelled": "turn.cancelled",
    "turn_failed": "turn.failed",
    "turn_refused": "turn.refused",
}
"""Records that clients see, and the type of the event that each becomes, where nothing in it says another word."""
TURN_ENDS = {
    "turn_finished": "finished",
    "turn_cancelled": "cancelled",
    "turn_failed": "failed",
    "turn_refused": "refused",
}
OUTSIDE_TURNS = frozenset(
    {
        "conversation_created",
        "conversation_renamed",
        "conversation_archived",
        "conversation_unarchived",
        "preamble_changed",
        "preamble_returned",
        "context_changed",
        "flags_pinned",
        "flags_returned",
        "live_context_ordered",
        "live_context_replaced",
        "live_context_failed",
    }
)
"""Records that belong to no turn."""
_OF_CHILD = ("call_id", "name", "turn", "cause", "told_as")
"""What the records of one sub-agent have in common."""
_NAMED = re.compile(r"\bm\d+\b")


@dataclass(kw_only=True)
class Journal:
    """One conversation as the database holds it."""

    path: str
    records: list[Record]
    batches: list[tuple[int, int, int, int]] = field(default_factory=list)
    """first_seq, last_seq, last_event of each row, and how many records it holds."""
    receipts: dict[str, int] = field(default_factory=dict)
    """Message id to event number, from the index of receipts."""
    head: tuple[int, int] | None = None
    """Last seq and last event by the directory."""
    due_us: int | None = None
    quarantine: str = ""
    snapshot_seq: int = 0
    jobs: list[str] = field(default_factory=list)
    """Ids of those that are not done, dead letters among them."""
    bundles: list[str] = field(default_factory=list)
    """Names of those that can be had of it."""

    @property
    def is_child(self) -> bool:
        """Whether it is a sub-agent's."""
        return self.path.count("/") > 2

    @property
    def parent(self) -> tuple[str, str]:
        """Of a sub-agent: the path of whom it works for, and its name there."""
        path, _, name = self.path.rpartition("/")
        return path, name


@dataclass(kw_only=True)
class Call:
    """One tool call."""

    id: str
    name: str
    turn: int
    input: Record = field(default_factory=dict)
    started: Record | None = None
    finished: Record | None = None
    late: Record | None = None

    @property
    def outcome(self) -> str:
        return str(self.finished["outcome"]) if self.finished else ""

    @property
    def was_not_stored(self) -> bool:
        """Whether storage did not take a result in time, its own or one of its sub-agent's, as it may in a storm."""
        return "StoreUnavailable: a tool result of" in self.result

    @property
    def result(self) -> str:
        """The text that the model reads."""
        return _text(self.finished["block"]["content"]) if self.finished else ""


@dataclass(kw_only=True)
class Turn:
    """One turn."""

    number: int
    messages: list[str]
    """Those it began with and those that joined."""
    end: str = ""
    code: str = ""
    replies: list[Record] = field(default_factory=list)
    requests: list[Record] = field(default_factory=list)
    attempts_max: int = 1
    fold_attempts_max: int = 0
    live: int = 0
    """Sequence number of the record whose live context its requests hold; 0 for none."""

    @property
    def answer(self) -> str:
        """The text of the last reply."""
        return text_of(self.replies[-1]["blocks"]) if self.replies else ""

    @property
    def answered(self) -> set[str]:
        """The messages that the last reply names."""
        return named_in(self.answer)


@dataclass(kw_only=True)
class Account:
    """What one journal says happened."""

    messages: dict[str, Record] = field(default_factory=dict)
    turns: dict[int, Turn] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    turn_of: dict[str, int] = field(default_factory=dict)
    """Message id to the turn that took it."""
    retracted: set[str] = field(default_factory=set)
    """Messages that were taken back."""
    taken_at: dict[str, int] = field(default_factory=dict)
    """Message id to the seq of the record that took it."""
    folds: list[Record] = field(default_factory=list)
    folds_failed: list[Record] = field(default_factory=list)
    skills: list[Record] = field(default_factory=list)
    """Of each that was loaded."""
    children: dict[str, Record] = field(default_factory=dict)
    """First records of the sub-agents that have not ended, by their names below the conversation."""
    children_begun: list[Record] = field(default_factory=list)
    children_ended: list[Record] = field(default_factory=list)
    is_cut: bool = False
    """Of a sub-agent whose process ended: nobody goes on with it, so its journal ends anywhere."""
    faults: list[str] = field(default_factory=list)


def named_in(answer: str) -> set[str]:
    """The messages that an answer names."""
    return set(_NAMED.findall(answer))


def event_type(record: Record) -> str:
    """Of the event that a public record becomes."""
    return PUBLIC_KINDS[record["kind"]].replace("subagent", record.get("told_as", "subagent"))


def text_of(blocks: list[dict[str, Any]]) -> str:
    """What people read of blocks."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def _text(content: Any) -> str:
    return content if isinstance(content, str) else text_of(content)


def read_journals(database: Path) -> dict[str, Journal]:
    """Every conversation of a database that no server holds, by path.

    Raises: ValueError: the database itself is damaged.
    """
    connection = sqlite3.connect(database)
    connection.row_factory = sqlite3.Row
    try:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            raise ValueError(f"{database} is damaged: {verdict}")
        rows = connection.execute("SELECT * FROM conversations").fetchall()
        return {journal.path: journal for journal in (_read(connection, row) for row in rows)}
    finally:
        connection.close()


def _read(connection: sqlite3.Connection, row: sqlite3.Row) -> Journal:
    number = (row["number"],)
    batches = connection.execute("SELECT * FROM journal WHERE number = ? ORDER BY position", number).fetchall()
    records = [json.loads(batch["records"]) for batch in batches]
    receipts = connection.execute("SELECT message_id, receipt FROM receipts WHERE number = ?", number)
    snapshot = connection.execute("SELECT seq FROM snapshots WHERE number = ?", number).fetchone()
    return Journal(
        path=f"{row['tenant']}/{row['owner']}/{row['conversation']}",
        records=[record for batch in records for record in batch],
        batches=[
            (batch["first_seq"], batch["last_seq"], batch["last_event"], len(held))
            for batch, held in zip(batches, records, strict=True)
        ],
        receipts={message: json.loads(receipt)["event"] for message, receipt in receipts},
        head=(row["seq"], row["event"]),
        due_us=row["due_us"],
        quarantine=row["quarantine"],
        snapshot_seq=snapshot["seq"] if snapshot else 0,
        jobs=[job["id"] for job in connection.execute("SELECT id FROM jobs WHERE number = ?", number)],
        bundles=[
            row["handle"]
            for row in connection.execute("SELECT handle FROM handles WHERE number = ? AND is_bundle = 1", number)
        ],
    )


def account_of(journal: Journal, *, is_cut: bool = False) -> Account:
    """Walk the journal; what cannot be is noted on the way."""
    account = Account(is_cut=is_cut)
    open_turn: Turn | None = None
    for record in journal.records:
        kind, where = record["kind"], f"{journal.path} record {record['seq']} ({record['kind']})"
        if kind == "message_received":
            if record["message_id"] in account.messages:
                account.faults.append(f"{where}: message {record['message_id']} was received before")
            account.messages[record["message_id"]] = record
        elif kind == "turn_prepared":
            if open_turn is not None:
                account.faults.append(f"{where}: turn {open_turn.number} has not ended")
            open_turn = Turn(number=record["turn"], messages=[], live=record.get("live", 0))
            if record["turn"] != len(account.turns) + 1:
                account.faults.append(f"{where}: turn {record['turn']} follows {len(account.turns)} turns")
            account.turns[record["turn"]] = open_turn
            _take(account, open_turn, record, record["messages"])
        elif kind == "late_result":
            _late(account, record, where)
        elif kind == "subagent_finished":
            _child_finished(account, record, where)
        elif kind == "message_retracted":
            _retract(account, open_turn, record, where)
        elif kind == "conversation_forked":
            if open_turn is not None:
                account.faults.append(f"{where}: turn {open_turn.number} runs")
            _retract(account, open_turn, record | {"messages": record.get("messages", [])}, where)
            account.children.clear()
        elif kind not in OUTSIDE_TURNS:
            if open_turn is None or open_turn.number != record.get("turn", 0):
                account.faults.append(f"{where}: belongs to turn {record.get('turn', 0)}, which is not open")
                continue
            _in_turn(account, open_turn, record, where)
            cause = next(iter(open_turn.messages), "") if kind in PUBLIC_KINDS else ""
            if record.get("cause", "") != cause:
                account.faults.append(f"{where}: its cause is {record.get('cause')!r}, expected {cause!r}")
            open_turn = None if kind in TURN_ENDS else open_turn
    if not is_cut:
        account.faults += [f"{journal.path}: turn {turn.number} never ended" for turn in (open_turn,) if turn]
        account.faults += [f"{journal.path}: sub-agent {child} never ended" for child in account.children]
    return account


def _retract(account: Account, open_turn: Turn | None, record: Record, where: str) -> None:
    """Messages that wait, or those of the last turn while none runs; either only once."""
    messages, number = record["messages"], record.get("turn", 0)
    if again := account.retracted & set(messages):
        account.faults.append(f"{where}: messages {sorted(again)} were retracted before")
    account.retracted.update(messages)
    if number and (open_turn is not None or number != len(account.turns) or messages != account.turns[number].messages):
        account.faults.append(f"{where}: turn {number} of {messages} is not the last one, or one runs")
    for message in messages if not number else ():
        if message not in account.messages or message in account.turn_of:
            account.faults.append(f"{where}: message {message} does not wait")


def _take(account: Account, turn: Turn, record: Record, messages: list[str]) -> None:
    for message in messages:
        if message not in account.messages:
            account.faults.append(f"record {record['seq']} takes message {message}, which was not received")
        if message in account.turn_of or message in account.retracted:
            account.faults.append(f"record {record['seq']} takes message {message} again, or though it was retracted")
        account.turn_of[message], account.taken_at[message] = turn.number, record["seq"]
        turn.messages.append(message)


def _in_turn(account: Account, turn: Turn, record: Record, where: str) -> None:
    match record["kind"]:
        case "model_requested":
            _all_settled(account, turn, where)
            turn.requests.append(record)
            _take(account, turn, record, record.get("joined", []))
        case "model_replied":
            if not turn.requests or turn.requests[-1]["call"] != record["call"]:
                account.faults.append(f"{where}: replies to call {record['call']}, which was not the last one")
            if any(reply["call"] == record["call"] for reply in turn.replies):
                account.faults.append(f"{where}: call {record['call']} has a reply already")
            turn.replies.append(record)
            for block in record["blocks"]:
                if block["type"] == "tool_use":
                    _intend(account, turn, block, where)
        case "tool_started":
            _once(account, record, "started", where)
        case "tool_finished":
            _once(account, record, "finished", where)
        case "attempt_started" if record["step"] == "compact":
            turn.fold_attempts_max = max(turn.fold_attempts_max, record["attempt"])
        case "attempt_started":
            turn.attempts_max = max(turn.attempts_max, record["attempt"])
        case "context_replaced":
            account.folds.append(record)
        case "compaction_failed":
            account.folds_failed.append(record)
        case "skill_loaded":
            account.skills.append(record)
        case "subagent_started":
            _child_started(account, record, where)
        case "turn_finished" | "turn_cancelled" | "turn_failed" | "turn_refused":
            _all_settled(account, turn, where)
            turn.end, turn.code = TURN_ENDS[record["kind"]], record.get("code", "")


def _intend(account: Account, turn: Turn, block: dict[str, Any], where: str) -> None:
    if block["id"] in account.calls:
        account.faults.append(f"{where}: call {block['id']} was asked for before")
    account.calls[block["id"]] = Call(id=block["id"], name=block["name"], turn=turn.number, input=block["input"])


def _once(account: Account, record: Record, what: str, where: str) -> None:
    call = account.calls.get(record["call_id"])
    if call is None or call.turn != record["turn"]:
        account.faults.append(f"{where}: call {record['call_id']} was not asked for in this turn")
    elif getattr(call, what) is not None or call.finished is not None:
        account.faults.append(f"{where}: call {record['call_id']} has {what} before, or has ended")
    else:
        setattr(call, what, record)
    if what == "finished" and record["block"]["tool_use_id"] != record["call_id"]:
        account.faults.append(f"{where}: its result names call {record['block']['tool_use_id']}")


def _child_started(account: Account, record: Record, where: str) -> None:
    call, child = account.calls.get(record["call_id"]), record["child"]
    if call is None or call.turn != record["turn"] or call.started is None or call.finished is not None:
        account.faults.append(f"{where}: call {record['call_id']} does not run")
    if child in account.children:
        account.faults.append(f"{where}: sub-agent {child} has not ended")
    account.children[child] = record
    account.children_begun.append(record)


def _child_finished(account: Account, record: Record, where: str) -> None:
    """In its turn or behind it."""
    account.children_ended.append(record)
    begun = account.children.pop(record["child"], None)
    if begun is None:
        account.faults.append(f"{where}: sub-agent {record['child']} does not run")
    elif [record.get(name) for name in _OF_CHILD] != [begun.get(name) for name in _OF_CHILD]:
        account.faults.append(f"{where}: sub-agent {record['child']} was another one's")


def _late(account: Account, record: Record, where: str) -> None:
    call = account.calls.get(record["call_id"])
    if call is None or call.outcome != "unknown" or call.late is not None:
        account.faults.append(f"{where}: call {record['call_id']} was not lost, or its end was told before")
    else:
        call.late = record


def _all_settled(account: Account, turn: Turn, where: str) -> None:
    for call in account.calls.values():
        if call.turn == turn.number and call.finished is None:
            account.faults.append(f"{where}: call {call.id} has no result")


def journal_faults(journal: Journal, account: Account) -> Iterator[str]:
    """Everything about the journal of a conversation at rest that cannot be, or of a sub-agent, which nobody asks for
    receipts."""
    yield from account.faults
    yield from _number_faults(journal)
    yield from _batch_faults(journal)
    if journal.due_us is not None:
        yield f"{journal.path}: is still due"
    if journal.quarantine:
        yield f"{journal.path}: is quarantined: {journal.quarantine}"
    if journal.snapshot_seq > len(journal.records):
        yield f"{journal.path}: its snapshot is at {journal.snapshot_seq}, the journal ends at {len(journal.records)}"
    received = account.messages.items() if not journal.is_child else ()
    if journal.receipts != {message: record["event"] for message, record in received}:
        yield f"{journal.path}: its receipts are {journal.receipts}, which its messages are not"
    for message in account.messages.keys() - account.turn_of.keys() - account.retracted if not account.is_cut else ():
        yield f"{journal.path}: message {message} was never taken by a turn"


def _number_faults(journal: Journal) -> Iterator[str]:
    event = 0
    for seq, record in enumerate(journal.records, start=1):
        is_public = record["kind"] in PUBLIC_KINDS
        event += is_public
        if record["seq"] != seq:
            yield f"{journal.path}: record {seq} carries the number {record['seq']}"
        if record.get("event", 0) != (event if is_public else 0):
            yield f"{journal.path}: record {seq} carries event {record.get('event', 0)}, expected {event}"
    if journal.records and journal.records[0]["kind"] != "conversation_created":
        yield f"{journal.path}: begins with {journal.records[0]['kind']}"
    if journal.head is not None and journal.head != (len(journal.records), event):
        yield f"{journal.path}: the directory says {journal.head}, the journal ends at {(len(journal.records), event)}"


def _batch_faults(journal: Journal) -> Iterator[str]:
    end = 0
    for first_seq, last_seq, last_event, size in journal.batches:
        if first_seq != end + 1 or last_seq - first_seq + 1 != size:
            yield f"{journal.path}: row {first_seq} to {last_seq} with {size} records follows record {end}"
        end = last_seq
        if last_event != max((record.get("event", 0) for record in journal.records[:end]), default=0):
            yield f"{journal.path}: row {first_seq} says its last event is {last_event}"


def answer_faults(path: str, account: Account) -> Iterator[str]:
    """Where answers name messages: a turn that finished answers its own, and no other finished turn does it again."""
    named = Counter[str]()
    for turn in account.turns.values():
        if turn.end == "finished":
            named.update(turn.answered)
            for message in set(turn.messages) - turn.answered:
                yield f"{path}: turn {turn.number} finished without an answer to {message}: {turn.answer!r}"
        elif turn.code == "crashed" and turn.attempts_max < 3:
            yield f"{path}: turn {turn.number} was given up after {turn.attempts_max} attempts"
    for message, count in named.items():
        taken = account.turns.get(account.turn_of.get(message, 0))
        if count > 1 or taken is None:
            yield f"{path}: message {message} was answered {count} times"
        elif taken.end == "finished" and message not in taken.answered:
            yield f"{path}: message {message} of turn {taken.number} was answered elsewhere"
