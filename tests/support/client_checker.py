"""Whether clients were told the truth, all of it, once and in order: from their logs and the journals.

Shares no code with the engine. A client's log has a line for each message it sent, each answer to one, and each event
it was given, with the name of the client, over all its connections.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tests.support.journal_checker import Account, Journal, Record, event_type, text_of

Line = dict[str, Any]


def client_faults(journals: dict[str, Journal], accounts: dict[str, Account], log: Iterable[Line]) -> Iterator[str]:
    """Every lie, gap, repetition and loss."""
    lines = list(log)
    yield from _message_faults(accounts, lines)
    yield from _event_faults(journals, lines)


def _message_faults(accounts: dict[str, Account], lines: list[Line]) -> Iterator[str]:
    sent = {(line["path"], line["id"]): line for line in lines if line["what"] == "sent"}
    accepted: dict[tuple[str, str], int] = {}
    for line in lines:
        if line["what"] != "accepted":
            continue
        name = line["path"], line["id"]
        if accepted.setdefault(name, line["event"]) != line["event"]:
            yield f"{name}: was accepted as event {accepted[name]}, then as {line['event']}"
    for name, line in sent.items():
        path, message = name
        account = accounts.get(path, Account())
        record = account.messages.get(message)
        if record is None:
            if name in accepted:
                yield f"{name}: was accepted and is not in the journal"
            continue
        if text_of(record["blocks"]) != line["text"]:
            yield f"{name}: is not in the journal as it was sent"
        if accepted.get(name, record["event"]) != record["event"]:
            yield f"{name}: was accepted as event {accepted[name]}, and is event {record['event']}"
        turn = account.turns.get(account.turn_of.get(message, 0))
        if turn is None or not _ended_as_wished(turn.end, turn.code, line["ends"]):
            yield f"{name}: ended as {turn and (turn.end, turn.code)}, expected one of {line['ends']}"
    for path, account in accounts.items():
        for message in account.messages:
            if (path, message) not in sent:
                yield f"{path}: holds message {message}, which nobody sent"


def _ended_as_wished(end: str, code: str, ends: list[str]) -> bool:
    """Giving up is judged by the number of attempts, elsewhere."""
    return end in ends or (end == "failed" and code == "crashed")


def _event_faults(journals: dict[str, Journal], lines: list[Line]) -> Iterator[str]:
    seen: dict[tuple[str, str], int] = defaultdict(int)
    facts = {
        path: {record["event"]: record for record in journal.records if record.get("event")}
        for path, journal in journals.items()
    }
    for line in lines:
        viewer = line.get("client", ""), line["path"]
        if line["what"] == "reloaded":
            seen[viewer] = line["head"]
        elif line["what"] == "event":
            event = line["event"]
            if event["event"] != seen[viewer] + 1:
                yield f"{viewer}: was given event {event['event']} after {seen[viewer]}"
            seen[viewer] = event["event"]
            record = facts.get(line["path"], {}).get(event["event"])
            if record is None:
                yield f"{viewer}: was given event {event['event']}, which is not in the journal"
            else:
                yield from (f"{viewer} event {event['event']}: {fault}" for fault in _projection_faults(event, record))
    for viewer, number in seen.items():
        if number != len(facts.get(viewer[1], ())):
            yield f"{viewer}: was given events up to {number}, the journal has {len(facts.get(viewer[1], ()))}"


def _projection_faults(event: Line, record: Record) -> Iterator[str]:
    """Where the event does not tell what its record says."""
    expected: dict[str, Any] = {
        "type": event_type(record),
        "at_us": record["at_us"],
        "turn": record.get("turn", 0),
        "cause": record.get("cause", ""),
    }
    match record["kind"]:
        case "message_received":
            message = record["message_id"]
            expected |= {"message_id": message, "text": text_of(record["blocks"]), "cause": message}
        case "turn_prepared":
            expected |= {"messages": record["messages"], "cause": next(iter(record["messages"]), "")}
        case "model_replied":
            expected |= {"call": record["call"], "text": text_of(record["blocks"])}
        case "model_failed":
            expected |= {"call": record["call"], "code": record["code"]}
        case "tool_started":
            expected |= {"call_id": record["call_id"], "name": record["name"], "effect": record["effect"]}
        case "tool_finished" | "late_result":
            expected |= {"call_id": record["call_id"], "name": record["name"], "outcome": record["outcome"]}
        case "context_changed":
            expected |= {"version": record["version"], "context": record["context"]}
        case "skill_loaded":
            expected |= {"skill": record["skill"]}
        case "subagent_started":
            expected |= {"call_id": record["call_id"], "name": record["name"]}
        case "subagent_finished":
            expected |= {name: record[name] for name in ("call_id", "name", "outcome")}
            expected |= {name: record[name] for name in ("code", "rounds", "bundle", "findings") if name in record}
        case "context_replaced":
            expected |= {name: record[name] for name in ("reason", "generation", "turns")}
        case "compaction_failed" | "live_context_failed":
            expected |= {"code": record["code"], "detail": record["detail"]}
        case "live_context_replaced":
            expected |= {"words": record["words"]}
        case "turn_cancelled":
            expected |= {"reason": record["reason"], "text": text_of(record.get("partial", []))}
        case "turn_failed":
            expected |= {"code": record["code"], "text": text_of(record.get("partial", []))}
    for name, value in expected.items():
        default = 0 if name == "turn" else "" if name in {"text", "cause"} else None
        if event.get(name, default) != value:
            yield f"{name} is {event.get(name)!r}, the journal says {value!r}"
