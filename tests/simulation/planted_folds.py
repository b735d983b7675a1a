"""Bugs of folds, of live contexts and of the jobs that make them; see ``planted``."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from tests.simulation.faults import Fault
from tests.simulation.planting import Planted
from torpor.actor import recorder
from torpor.actor.commit import Journal
from torpor.conversation import (
    compaction,
    fold,
    folding,
    live_context,
    reckoning,
    replacing,
    steps,
    summary,
    turn_folds,
)
from torpor.conversation.segments import TurnStart, rebuilt
from torpor.conversation.state import ConversationState
from torpor.conversation.summary import Carried
from torpor.conversation.view import Role, View
from torpor.records.blocks import Block, canonical, head_of
from torpor.records.ids import MessageId
from torpor.records.journal import AttemptStarted, CompactionFailed, JournalRecord, LiveContextFailed, ModelReplied
from torpor.records.summary import ItemKind, Summary
from torpor.records.terms import StepKind, WhenBusy
from torpor.store.memory_jobs import MemoryJobs
from torpor.store.requests import ClaimJob, JobRequest
from torpor.turn import fold_history, opening, prepare
from torpor.turn.fold_history import HistoryFold
from torpor.turn.sparing import NOTHING


@contextmanager
def pair_split_at_cut() -> Iterator[None]:
    """What stays begins behind the first calls in it, and so with their results."""

    def cut_late(view: View, starts: tuple[TurnStart, ...], **named: Any) -> Any:
        new, moved = rebuilt(view, starts, **named)
        messages = msgspec.json.decode(new.messages(), type=list[dict[str, Any]])
        asking = [place for place, message in enumerate(messages) if any(map(_is_call, message["content"]))]
        kept = View()
        for place, message in enumerate(messages):
            if place not in asking[:1]:
                kept = kept.extended(message["role"], map(canonical, message["content"]))
        return kept, moved

    with patch.object(folding, "rebuilt", cut_late), patch.object(replacing, "rebuilt", cut_late):
        yield


def _is_call(block: dict[str, Any]) -> bool:
    return bool(block["type"] == "tool_use")


def summary_drops_denial() -> AbstractContextManager[object]:
    """Who summarises may forget what was denied."""
    carried = summary.carried

    def forgetful(*args: Any, **named: Any) -> Carried:
        after = carried(*args, **named)
        items = tuple(item for item in after.items if item.kind is not ItemKind.DENIAL)
        return msgspec.structs.replace(after, items=items)

    return patch.object(fold_history, "carried", forgetful)


def trigger_not_rearmed() -> AbstractContextManager[object]:
    """After the first fold no reply tells what the view costs."""
    replied = fold._FOLDS[ModelReplied]

    def unmeasured(state: ConversationState, record: Any) -> ConversationState:
        return msgspec.structs.replace(replied(state, record), is_measured=state.is_measured)

    return patch.dict(fold._FOLDS, {ModelReplied: unmeasured})


def trigger_rearmed_at_once() -> AbstractContextManager[object]:
    """Nobody waits for a reply before the next fold."""
    replaced = replacing.replaced

    def measured(*args: Any) -> ConversationState:
        return msgspec.structs.replace(replaced(*args), is_measured=True)

    return patch.object(turn_folds, "replaced", measured)


def previous_summary_dropped() -> AbstractContextManager[object]:
    """The summariser is not told what the summary before said."""
    question = HistoryFold._question

    def without(self: HistoryFold, before: Summary, *rest: Any) -> str:
        del before
        return question(self, Summary(), *rest)

    return patch.object(HistoryFold, "_question", without)


@contextmanager
def thinking_edited() -> Iterator[None]:
    """Thoughts in what stays are made shorter."""

    def shorter(role: Role, block: Block) -> Block:
        if head_of(block).type != "thinking":
            return block
        return canonical({**json.loads(bytes(block)), "thinking": "h"})

    def edited(view: View, starts: tuple[TurnStart, ...], **named: Any) -> Any:
        change = named.pop("change", None)
        both = shorter if change is None else lambda role, block: shorter(role, change(role, block))
        return rebuilt(view, starts, **named, change=both)

    with patch.object(folding, "rebuilt", edited), patch.object(replacing, "rebuilt", edited):
        yield


def tail_short_by_one() -> AbstractContextManager[object]:
    """One turn less stays as it was said."""
    return patch.object(compaction, "KEPT_TURNS", 1)


def turn_only_kept_over_fold() -> AbstractContextManager[object]:
    """A fold forgets what of the running turn is for that turn alone."""
    replaced = replacing.replaced

    def forgetful(*args: Any) -> ConversationState:
        state = replaced(*args)
        assert state.turn is not None
        return msgspec.structs.replace(state, turn=msgspec.structs.replace(state.turn, kept=None))

    return patch.object(turn_folds, "replaced", forgetful)


def steer_joins_whatever_its_size() -> AbstractContextManager[object]:
    """Every message that steers joins the next request, also one that makes it fail."""

    def all_of_them(state: ConversationState, **_: Any) -> tuple[MessageId, ...]:
        return tuple(message.id for message in state.queued if message.when_busy is WhenBusy.STEER)

    return patch.object(steps, "joining", all_of_them)


def steer_never_joins_a_small_window() -> AbstractContextManager[object]:
    """Where requests have a limit, messages that steer wait for the next turn."""
    return patch.object(steps, "joining", lambda *_, **__: ())


def turn_told_whatever_its_room() -> AbstractContextManager[object]:
    """Policy excerpts and context are told also where they leave no room for the message."""
    return patch.object(opening, "sparing", lambda _, *, begin, **__: begin(NOTHING))


def fold_forgets_who_joins() -> AbstractContextManager[object]:
    """What a fold comes to is told without the messages that join the request after it."""
    return patch.object(reckoning, "joining", lambda *_, **__: ())


def fold_forgets_what_is_offered() -> AbstractContextManager[object]:
    """What a fold comes to is told by what was offered before it."""
    follows = reckoning.follows

    def as_before(state: ConversationState, record: Any, **_: Any) -> ConversationState:
        return follows(state, record, preamble=state.preamble)

    return patch.object(reckoning, "follows", as_before)


def skill_lost_at_fold() -> AbstractContextManager[object]:
    """The texts of skills go with the turns that loaded them."""
    return patch.object(folding, "_skill_texts", lambda *_, **__: {})


def fold_unannounced() -> AbstractContextManager[object]:
    """A fold begins without a word."""
    add = Journal.add

    def silent(self: Journal, *records: JournalRecord) -> None:
        add(self, *(record for record in records if not _begins_fold(record)))

    return patch.object(Journal, "add", silent)


def _begins_fold(record: JournalRecord) -> bool:
    return isinstance(record, AttemptStarted) and record.step is StepKind.COMPACT


def summariser_asked_again() -> AbstractContextManager[object]:
    """A failure of the summariser is no reason to leave it alone for the turn."""
    failed = fold._FOLDS[CompactionFailed]

    def forgetful(state: ConversationState, record: Any) -> ConversationState:
        after = failed(state, record)
        assert after.turn is not None
        turn = msgspec.structs.replace(after.turn, has_fold_failed=False)
        return msgspec.structs.replace(after, turn=turn, fold_failures=0)

    return patch.dict(fold._FOLDS, {CompactionFailed: forgetful})


def live_context_accumulates() -> AbstractContextManager[object]:
    """What was said of the conversation before stays beside the new words."""
    told = list[str]()
    block_of = live_context.live_block

    def grown(words: str) -> Block:
        told.append(words)
        return block_of(" ".join(told))

    return patch.object(recorder, "live_block", grown)


def live_context_though_off() -> AbstractContextManager[object]:
    """Nobody asks whether live contexts are switched off."""
    return patch.object(prepare, "LIVE_FLAG", "another flag")


def failed_refresh_takes_live_context() -> AbstractContextManager[object]:
    """Where the next one fails, there is none."""
    failed = fold._FOLDS[LiveContextFailed]

    def emptied(state: ConversationState, record: Any) -> ConversationState:
        after = failed(state, record)
        return msgspec.structs.replace(after, live=msgspec.structs.replace(after.live, block=(), seq=0))

    return patch.dict(fold._FOLDS, {LiveContextFailed: emptied})


def job_lost_at_crash() -> AbstractContextManager[object]:
    """A job is taken out when it is claimed, not when it is done."""
    carry_out = MemoryJobs.carry_out

    def hasty(self: MemoryJobs, request: JobRequest) -> None:
        carry_out(self, request)
        if isinstance(request, ClaimJob):
            del self._held[request.key, request.id]

    return patch.object(MemoryJobs, "carry_out", hasty)


_FOLDING: Final = {"room_tokens": 300, "has_summariser": True, "clients": 3, "conversations": 1, "sends": 6}
_FAILING: Final = {**_FOLDING, "exchanges_max": 3}
_CROWDED: Final = {**_FOLDING, "room_tokens": 100}
_LIVE: Final = {"clients": 3, "conversations": 1, "sends": 6, "live_every": 3}
_CRASHES: Final = {**_LIVE, "weight": {Fault.CRASH_AT_PORT: 1.0, Fault.CRASH_AT_STEP: 1.0}, "misfortune_every_s": 2.0}

PLANTED_FOLDS: Final = {
    "pair_split_at_cut": Planted(pair_split_at_cut, "request_invalid", 40, dwells=_FOLDING),
    "summary_drops_denial": Planted(summary_drops_denial, "item_lost", 60, dwells=_FOLDING),
    "trigger_not_rearmed": Planted(trigger_not_rearmed, "not_folded", 250, dwells=_FOLDING),
    "trigger_rearmed_at_once": Planted(trigger_rearmed_at_once, "fold_not_measured", 40, dwells=_FAILING),
    "previous_summary_dropped": Planted(previous_summary_dropped, "summary_forgotten", 20, dwells=_FOLDING),
    "thinking_edited": Planted(thinking_edited, "view", 20, dwells=_FOLDING),
    "tail_short_by_one": Planted(tail_short_by_one, "fold_tail", 20, dwells=_FOLDING),
    "turn_only_kept_over_fold": Planted(turn_only_kept_over_fold, "view", 10, dwells=_FOLDING),
    "steer_joins_whatever_its_size": Planted(steer_joins_whatever_its_size, "failed_with_room", 60, dwells=_CROWDED),
    "steer_never_joins_a_small_window": Planted(steer_never_joins_a_small_window, "steer_left", 20, dwells=_FOLDING),
    "turn_told_whatever_its_room": Planted(turn_told_whatever_its_room, "failed_with_room", 20, dwells=_CROWDED),
    "fold_forgets_who_joins": Planted(fold_forgets_who_joins, "fold_misreckoned", 60, dwells=_FOLDING),
    "fold_forgets_what_is_offered": Planted(fold_forgets_what_is_offered, "fold_misreckoned", 60, dwells=_FOLDING),
    "skill_lost_at_fold": Planted(skill_lost_at_fold, "skill_lost", 20, dwells=_FOLDING),
    "fold_unannounced": Planted(fold_unannounced, "attempt_unrecorded", 10, dwells=_FOLDING),
    "summariser_asked_again": Planted(summariser_asked_again, "fold_retried", 50, dwells=_FAILING),
    "live_context_accumulates": Planted(live_context_accumulates, "live_words", 10, dwells=_LIVE),
    "live_context_though_off": Planted(live_context_though_off, "live_off", 50, dwells=_LIVE),
    "failed_refresh_takes_live_context": Planted(failed_refresh_takes_live_context, "live_stale", 180, dwells=_LIVE),
    "job_lost_at_crash": Planted(job_lost_at_crash, "job_lost", 60, dwells=_CRASHES),
}
