"""Bugs, each a patch to the engine that is switched on alone, and the broken promise by which it must be found.

What finds none of them proves nothing by finding nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from tests.simulation.faults import Fault
from tests.simulation.planted_children import PLANTED_CHILDREN
from tests.simulation.planted_files import PLANTED_FILES
from tests.simulation.planted_folds import PLANTED_FOLDS
from tests.simulation.planted_wholes import PLANTED_WHOLES
from tests.simulation.planting import Planted
from torpor.actor import commit
from torpor.actor.commit import Journal
from torpor.actor.mailbox import Mailbox
from torpor.conversation import fold, turn_folds
from torpor.conversation.state import ConversationState, TurnState
from torpor.conversation.steps import Rest, RunTools
from torpor.flags.contract import Decided
from torpor.records.commands import Receipt
from torpor.records.journal import MessageReceived, TurnRefused
from torpor.records.terms import Effect, WhenBusy
from torpor.store.memory_data import MemoryCore
from torpor.store.requests import PutSnapshot
from torpor.turn import prepare
from torpor.turn.model_call import ReplySoFar
from torpor.turn.permits import Permits
from torpor.turn.skills import TurnSkills
from torpor.turn.tool_batch import ToolBatch


def ack_before_commit() -> AbstractContextManager[object]:
    """Effects that wait for a commit run at once."""

    def after_commit(self: Journal, effect: Callable[[], None]) -> None:
        effect()

    return patch.object(Journal, "after_commit", after_commit)


def publish_before_commit() -> AbstractContextManager[object]:
    """Events go out with the append, not behind it."""
    hand_over = Journal._hand_over

    def published(self: Journal) -> None:
        hand_over(self)
        flight = self._flight
        assert flight is not None
        self._bus.publish(self._key, flight.public)
        flight.public = ()

    return patch.object(Journal, "_hand_over", published)


def unfenced_snapshot() -> AbstractContextManager[object]:
    """The store takes a snapshot from anybody."""

    def put_snapshot(self: MemoryCore, request: PutSnapshot) -> None:
        self._data.of(request.key).snapshot = request.snapshot

    return patch.object(MemoryCore, "_put_snapshot", put_snapshot)


def no_dedupe() -> AbstractContextManager[object]:
    """No receipt is kept, so that a resend is a new message."""

    def remember(self: Journal, receipt: Receipt) -> None:
        pass

    return patch.object(Journal, "remember", remember)


def write_without_tool_started() -> AbstractContextManager[object]:
    """Writes start with their record on its way, as reads may."""
    run = ToolBatch.run

    async def hasty(self: ToolBatch, step: RunTools) -> None:
        if step.attempt == 1:
            usable = (call for call in self._turn.open_calls if not call.unusable)
            self._start(call for call in usable if self._effect(call) is Effect.WRITE)
        await run(self, step)

    return patch.object(ToolBatch, "run", hasty)


def result_lost_on_cancel() -> AbstractContextManager[object]:
    """What ended between the cancel and the end of its grace is forgotten."""
    abandon = ToolBatch.abandon

    def forgetful(self: ToolBatch) -> None:
        self._ended.clear()
        abandon(self)

    return patch.object(ToolBatch, "abandon", forgetful)


def event_number_reused() -> AbstractContextManager[object]:
    """A commit whose outcome is unknown is taken for one that happened, and its numbers are given out."""

    async def is_durable(self: Journal, *_: object) -> bool:
        return True

    return patch.object(Journal, "_is_durable", is_durable)


def mailbox_not_checked_on_hibernate() -> AbstractContextManager[object]:
    """An actor closes its mailbox whatever is in it."""

    def close(self: Mailbox) -> bool:
        self._closed = True
        return True

    return patch.object(Mailbox, "close_if_empty", close)


def due_mark_missing() -> AbstractContextManager[object]:
    """Every append says that nothing is left to do."""
    return patch.object(commit, "next_step", lambda *_: Rest())


@contextmanager
def steer_placed_by_seq() -> Iterator[None]:
    """A message that steers stands in the view where it arrived, not behind the results of the round it joins."""
    received, asked = fold._FOLDS[MessageReceived], turn_folds._asked

    def at_once(state: ConversationState, record: Any) -> ConversationState:
        after = received(state, record)
        if state.turn is None or record.when_busy is not WhenBusy.STEER:
            return after
        return msgspec.structs.replace(after, view=state.view.extended("user", record.blocks))

    def without(state: ConversationState, turn: TurnState, joined: Any, what: str) -> Any:
        view, _, _ = asked(state, turn, (), what)
        return view, *asked(state, turn, joined, what)[1:]

    with patch.dict(fold._FOLDS, {MessageReceived: at_once}), patch.object(turn_folds, "_asked", without):
        yield


def retried_after_text() -> AbstractContextManager[object]:
    """A reply that was lost is asked for again, whoever has read a part of it."""
    return patch.object(ReplySoFar, "has_shown", False)


def refusal_stays_in_view() -> AbstractContextManager[object]:
    """What was refused is asked again with every later request."""

    def refused(state: ConversationState, record: Any) -> ConversationState:
        return turn_folds._turn_over(state, state.view, (record.note,))

    return patch.dict(fold._FOLDS, {TurnRefused: refused})


def turn_only_stays_in_view() -> AbstractContextManager[object]:
    """What was for one turn alone is asked again with every later request."""

    def left_behind(state: ConversationState, turn: TurnState, what: str) -> Any:
        return turn_folds._round_closed(state.view, turn, what)

    return patch.object(turn_folds, "_left_behind", left_behind)


def tool_runs_though_off() -> AbstractContextManager[object]:
    """What a turn offers may be called until it ends."""
    return patch.object(Decided, "is_on", lambda self, key: key.startswith("tool.") or key not in self._off)


def skill_loads_twice() -> AbstractContextManager[object]:
    """Nobody looks whether the conversation has the text already."""
    made = TurnSkills.__init__

    def forgetful(self: TurnSkills, **named: Any) -> None:
        made(self, **{**named, "loaded": ()})

    return patch.object(TurnSkills, "__init__", forgetful)


def skill_is_no_restriction() -> AbstractContextManager[object]:
    """What a skill says of tools is advice, whatever the agent's definition says."""
    made = Permits.__init__

    def lenient(self: Permits, **named: Any) -> None:
        made(self, **{**named, "is_restricted": False})

    return patch.object(Permits, "__init__", lenient)


def context_of_before() -> AbstractContextManager[object]:
    """A new context is for the turn after the next one."""
    told = prepare._signal

    def stale(state: ConversationState, *rest: Any, **named: Any) -> Any:
        version = max(state.context_version - 1, 0)
        return told(msgspec.structs.replace(state, context_version=version), *rest, **named)

    return patch.object(prepare, "_signal", stale)


_SNAPSHOTS: Final = {"snapshot_min_bytes": 1, "snapshot_share": 0.0, "clients": 3, "conversations": 1}
_TALK: Final = {"clients": 3, "conversations": 1, "sends": 6, "step_limit": 25}
_RESTRICTED: Final = {**_TALK, "is_restricted": True}
_GRACE: Final = {**_TALK, "cancel_grace_s": 2.0}
_PAUSES: Final = {"weight": {Fault.PAUSED: 1.0}, "misfortune_every_s": 2.0}

PLANTED: Final = {
    "ack_before_commit": Planted(ack_before_commit, "ack_before_commit", 10),
    "publish_before_commit": Planted(publish_before_commit, "event_before_commit", 10),
    "unfenced_snapshot": Planted(unfenced_snapshot, "stale_snapshot", 150, dwells={**_SNAPSHOTS, **_PAUSES}),
    "no_dedupe": Planted(no_dedupe, "message_twice", 30),
    "write_without_tool_started": Planted(write_without_tool_started, "write_before_started", 30),
    "result_lost_on_cancel": Planted(result_lost_on_cancel, "result_lost", 200, dwells=_GRACE),
    "event_number_reused": Planted(event_number_reused, "event_number_reused", 60),
    "mailbox_not_checked_on_hibernate": Planted(mailbox_not_checked_on_hibernate, "no_answer", 150, dwells=_SNAPSHOTS),
    "due_mark_missing": Planted(due_mark_missing, "due_mark", 10),
    "steer_placed_by_seq": Planted(steer_placed_by_seq, "view", 30),
    "retried_after_text": Planted(retried_after_text, "retried_after_text", 100),
    "refusal_stays_in_view": Planted(refusal_stays_in_view, "view", 30),
    "turn_only_stays_in_view": Planted(turn_only_stays_in_view, "view", 10),
    "tool_runs_though_off": Planted(tool_runs_though_off, "tool_off", 60),
    "skill_loads_twice": Planted(skill_loads_twice, "skill_twice", 100, dwells=_TALK),
    "skill_is_no_restriction": Planted(skill_is_no_restriction, "tool_not_allowed", 100, dwells=_RESTRICTED),
    "context_of_before": Planted(context_of_before, "context", 50),
    **PLANTED_FOLDS,
    **PLANTED_WHOLES,
    **PLANTED_CHILDREN,
    **PLANTED_FILES,
}
