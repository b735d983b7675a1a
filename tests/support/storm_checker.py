"""What a storm over one conversation left behind, judged: from its journal and the logs of all who took part.

Shares no code with the engine. Beside what the other judges find, that nobody was told of an end that is none, that
what was heard of a reply is the beginning of it, that only what somebody cancelled was cancelled, and that what was
refused is not there.
"""

from collections.abc import Iterator
from typing import Any

from tests.support.client_checker import client_faults
from tests.support.journal_checker import Account, Journal, answer_faults, event_type, journal_faults, text_of

Line = dict[str, Any]
REFUSALS = frozenset(
    {
        "busy",
        "unavailable",
        "rejected",
        "nothing_to_cancel",
        "too_many_frames",
        "too_many_connections",
        "unknown_conversation",
    }
)
"""The last one to whoever reads back in a conversation in which nobody has said anything yet."""
CLOSINGS = frozenset({1000, 1001, 1006, 1011, 1012, 4429, 4430, 4431})
"""1006 is a connection that was cut; 1011 one that did not answer a ping in time, as a guest that reads nothing."""


def storm_faults(journal: Journal, account: Account, lines: list[Line]) -> Iterator[str]:
    """Everything that cannot be, once everybody is at rest."""
    yield from journal_faults(journal, account)
    yield from answer_faults(journal.path, account)
    yield from client_faults({journal.path: journal}, {journal.path: account}, lines)
    yield from _reload_faults(journal, lines)
    yield from _cancel_faults(journal, lines)
    replies = {reply["call"]: text_of(reply["blocks"]) for turn in account.turns.values() for reply in turn.replies}
    for line in lines:
        where = f"{journal.path}: {line['client']}"
        match line["what"]:
            case "refused" if line["code"] not in REFUSALS:
                yield f"{where} was told {line['code']} (message {line['id'] or 'none'})"
            case "refused" if line["code"] == "rejected" and line["id"] in account.messages:
                yield f"{where} was told that {line['id']} is rejected, and it is in the journal"
            case "closed" if line["code"] not in CLOSINGS:
                yield f"{where} was closed with {line['code']}"
            case "heard" if not replies.get(line["call"], "").startswith(line["text"]):
                yield f"{where} heard {line['text']!r}, call {line['call']} said {replies.get(line['call'])!r}"
            case "event" | "reloaded" if line["epoch"] != 1:
                yield f"{where} was told of epoch {line['epoch']}, expected 1"


def _reload_faults(journal: Journal, lines: list[Line]) -> Iterator[str]:
    """A head that lies behind what was seen, or events that are not the last ones before it."""
    facts = {record["event"]: record for record in journal.records if record.get("event")}
    seen: dict[str, int] = {}
    for line in lines:
        client, where = line["client"], f"{journal.path}: {line['client']}"
        if line["what"] == "event":
            seen[client] = line["event"]["event"]
        elif line["what"] in {"resumed", "reloaded"}:
            head, before = line["head"], seen.get(client, 0)
            if head < before or head > len(facts):
                yield f"{where} was told of head {head} after event {before}, the journal has {len(facts)}"
            if line["what"] == "reloaded":
                seen[client] = head
                told = [event["event"] for event in line["events"]]
                if told != list(range(head - len(told) + 1, head + 1)):
                    yield f"{where} was given events {told} before head {head}"
                for event in line["events"]:
                    if event["type"] != event_type(facts[event["event"]]):
                        yield f"{where} was given {event['type']} as event {event['event']}"


def _cancel_faults(journal: Journal, lines: list[Line]) -> Iterator[str]:
    """More turns that were cancelled than somebody wished to be."""
    wished = sum(line["what"] == "cancelled" or line.get("when_busy") == "interrupt" for line in lines)
    cancelled = sum(record["kind"] == "turn_cancelled" for record in journal.records)
    if cancelled > wished:
        yield f"{journal.path}: {cancelled} turns were cancelled, {wished} at most were to be"
