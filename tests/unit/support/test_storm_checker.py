"""The judge of the storm finds a message that was lost, doubled, reordered or left without an answer, however neatly
everything else was made to fit, and whatever else a guest must not be told."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.journal_checker import Journal, account_of
from tests.support.storm_checker import storm_faults

PATH = "default/ann/c1"
PUBLIC = {"message_received", "turn_prepared", "model_replied", "turn_finished", "turn_cancelled"}
Line = dict[str, Any]


def text(of: str) -> list[Line]:
    return [{"type": "text", "text": of}]


def received(message: str) -> Line:
    return {"kind": "message_received", "message_id": message, "blocks": text(f"say [{message}]")}


def turn(message: str, answer: str) -> list[Line]:
    """Everything that a turn leaves; what has no number yet gets one from its place."""
    return [
        {"kind": "turn_prepared", "messages": [message]},
        {"kind": "model_requested"},
        {"kind": "model_replied", "blocks": text(answer)},
        {"kind": "turn_finished"},
    ]


class World:
    """Three messages of two writers, each of whom heard everything."""

    def __init__(self) -> None:
        self.turns = [turn(name, f"Answered {name}.") for name in ("m1", "m2", "m3")]
        self.order = [[received("m1")], self.turns[0], [received("m2"), received("m3")], *self.turns[1:]]
        self.events: Callable[[str, list[Line]], list[Line]] = lambda _, events: events
        """What a writer was given of the journal's events."""
        self.more: list[Line] = []
        """At the end of the log."""
        self.accepted: list[tuple[str, int]] = [("m1", 1), ("m2", 5), ("m3", 6)]

    def records(self) -> list[Line]:
        event, number, cause, made = 0, 0, "", []
        for seq, record in enumerate((each for part in self.order for each in part), start=2):
            if record["kind"] == "turn_prepared":
                number, cause = number + 1, record["messages"][0]
            numbered = copy.deepcopy(record) | {"seq": seq, "at_us": seq}
            if record["kind"] in PUBLIC:
                event += 1
                numbered["event"] = event
            if record["kind"] != "message_received":
                numbered |= {"turn": number} | ({"cause": cause} if record["kind"] in PUBLIC else {})
            if record["kind"].startswith("model_"):
                numbered["call"] = f"{number}-1-1"
            made.append(numbered)
        return [{"kind": "conversation_created", "seq": 1, "at_us": 1}, *made]

    def journal(self) -> Journal:
        records = self.records()
        last = max(record.get("event", 0) for record in records)
        return Journal(
            path=PATH,
            records=records,
            receipts={each["message_id"]: each["event"] for each in records if each["kind"] == "message_received"},
            head=(len(records), last),
            batches=[(1, len(records), last, len(records))],
        )

    def lines(self, journal: Journal) -> list[Line]:
        said: list[Line] = []
        for name, _ in self.accepted:
            said.append(line("a", "sent", id=name, text=f"say [{name}]", ends=["finished"], when_busy="queue"))
        said += [line("a", "accepted", id=name, event=event) for name, event in self.accepted]
        events = [event_of(record) for record in journal.records if record.get("event")]
        for client in ("a", "b"):
            given = self.events(client, copy.deepcopy(events))
            said += [line(client, "event", event=event, epoch=1) for event in given]
        return said + self.more

    def faults(self) -> list[str]:
        journal = self.journal()
        return list(storm_faults(journal, account_of(journal), self.lines(journal)))


def line(client: str, what: str, **more: Any) -> Line:
    return {"client": client, "path": PATH, "what": what} | more


def event_of(record: Line) -> Line:
    """As the page of the protocol has it."""
    event = {name: record[name] for name in ("event", "at_us", "turn", "cause", "call", "messages") if name in record}
    said = {"text": record["blocks"][0]["text"]} if "blocks" in record else {}
    match record["kind"]:
        case "message_received":
            message = record["message_id"]
            return event | said | {"type": "message.received", "message_id": message, "cause": message}
        case "turn_prepared":
            return event | {"type": "turn.started"}
        case "model_replied":
            return event | said | {"type": "reply.finished"}
        case kind:
            return event | {"type": kind.replace("_", ".")}


def lost(world: World) -> None:
    """The last one was accepted, and nothing is left of it: neither in the journal nor in what anybody heard."""
    world.order = [[received("m1")], world.turns[0], [received("m2")], world.turns[1]]


def doubled(world: World) -> None:
    """One of them, sent again under its id, was taken for a new one and answered again, in good order."""
    world.order += [[received("m2")], turn("m2", "Answered m2.")]


def answered_twice(world: World) -> None:
    """Nothing is there twice, but an answer is given again, in the turn of another message."""
    world.turns[2][2]["blocks"] = text("Answered m2, m3.")


def reordered_for_one(world: World) -> None:
    """One writer heard two messages in another order, under numbers that fit."""

    def swapped(client: str, events: list[Line]) -> list[Line]:
        if client == "b":
            second, third = events[4], events[5]
            events[4], events[5] = third | {"event": 5}, second | {"event": 6}
        return events

    world.events = swapped


def reordered_on_the_way(world: World) -> None:
    """One writer was given the right events in the wrong order."""
    world.events = lambda client, events: [*events[:4], events[5], events[4], *events[6:]] if client == "b" else events


def unanswered(world: World) -> None:
    """The last one is in the journal and no turn ever took it."""
    world.order = world.order[:-1]


def answered_with_nothing(world: World) -> None:
    """A turn took it, and its answer names nobody."""
    world.turns[2][2]["blocks"] = text("Well.")


def cut(world: World) -> None:
    """One writer never heard the end."""
    world.events = lambda client, events: events[:-1] if client == "b" else events


def cancelled_by_nobody(world: World) -> None:
    world.turns[2][3] = {"kind": "turn_cancelled", "reason": "client"}


def also(what: str, **more: Any) -> Callable[[World], None]:
    return lambda world: world.more.append(line("b", what, **more))


BROKEN: dict[str, tuple[Callable[[World], None], str]] = {
    "an accepted message that is lost": (lost, "'m3'): was accepted and is not in the journal"),
    "a message that is there twice": (doubled, "message m2 was received before"),
    "a message that is answered twice": (answered_twice, "message m2 was answered 2 times"),
    "another order for one of them": (reordered_for_one, "event 5: at_us is"),
    "another order on the way": (reordered_on_the_way, "was given event 6 after 4"),
    "a message that no turn took": (unanswered, "message m3 was never taken by a turn"),
    "a turn that did not answer": (answered_with_nothing, "turn 3 finished without an answer to m3"),
    "an end that somebody never heard": (cut, "was given events up to 11, the journal has 12"),
    "a turn that nobody cancelled": (cancelled_by_nobody, "1 turns were cancelled, 0 at most were to be"),
    "a second receipt that differs": (also("accepted", id="m2", event=6), "was accepted as event 5, then as 6"),
    "a refused message that is there": (also("refused", code="rejected", id="m2"), "m2 is rejected, and it is in"),
    "a failure of the server": (also("refused", code="internal", id=""), "was told internal"),
    "a closing for the server's own faults": (also("closed", code=4500), "was closed with 4500"),
    "a piece of a reply that was never given": (also("heard", call="2-1-1", text="Answered m3"), "call 2-1-1 said"),
    "a head that goes back": (also("resumed", head=9), "was told of head 9 after event 12"),
    "a reload with a gap": (
        also("reloaded", head=12, epoch=1, events=[{"event": 10, "type": "turn.finished"}]),
        "was given events [10] before head 12",
    ),
    "another epoch": (also("reloaded", head=12, epoch=2, events=[]), "was told of epoch 2"),
}


def test_a_storm_that_was_weathered_has_no_faults() -> None:
    assert World().faults() == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_storm_broke_is_found(name: str) -> None:
    world = World()
    breaking, expected = BROKEN[name]
    breaking(world)
    assert any(expected in fault for fault in world.faults()), world.faults()
