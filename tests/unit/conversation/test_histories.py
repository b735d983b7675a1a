"""What holds for every history, whatever was cancelled, crashed, steered or interleaved."""

import random
from collections.abc import Iterable
from itertools import pairwise
from typing import get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.histories import OPTIONS, Request, Teller, told
from tests.support.history_folds import COMPACTION, Firsts, after_fold
from tests.support.request_rules import violations
from torpor.conversation.compaction import Window
from torpor.conversation.fold import fold
from torpor.conversation.publish import event_of
from torpor.conversation.snapshot import decode_snapshot, encode_snapshot
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Folding, Lane, Rest, Step, StepOptions, next_step
from torpor.conversation.view import View
from torpor.records.blocks import canonical, text_block
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    PUBLIC_RECORDS,
    ContextChanged,
    ContextReplaced,
    JournalRecord,
    LiveContextReplaced,
    MessageRetracted,
    ModelRequested,
    SkillLoaded,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import FoldReason, WhenBusy
from torpor.store.codec import StoredBatch, encode_records, records_after
from torpor.store.contract import Head

TINY = Folding(window=Window(budget_tokens=200, has_summariser=True), options=COMPACTION)
"""A few turns are too much for it."""
KEY = ConversationKey("acme", "ann", "c_1")


def reread(records: Iterable[JournalRecord], *, after: ConversationState | None = None) -> tuple[JournalRecord, ...]:
    """The records as a store would give them back."""
    records, before = tuple(records), after or ConversationState()
    if not records:
        return ()
    head = Head(seq=records[-1].seq, event=before.event + sum(isinstance(record, PUBLIC_RECORDS) for record in records))
    batch = StoredBatch(records[0].seq, head.seq, head.event, encode_records(records))
    return records_after(KEY, [batch], seq=before.seq, head=head)


def texts_of(state: ConversationState) -> list[str]:
    """Every text in the view, in order."""
    messages = msgspec.json.decode(state.view.messages())
    return [block["text"] for message in messages for block in message["content"] if block["type"] == "text"]


def turns_of_messages(journal: Iterable[JournalRecord]) -> dict[MessageId, int]:
    """By message: the turn that took it last."""
    turns: dict[MessageId, int] = {}
    for record in journal:
        if isinstance(record, TurnPrepared):
            turns |= dict.fromkeys(record.messages, record.turn)
        elif isinstance(record, ModelRequested):
            turns |= dict.fromkeys(record.joined, record.turn)
    return turns


def histories(*, max_choices: int = 300) -> st.SearchStrategy[Teller]:
    """Long ones as often as short ones, which a plain ``binary`` would not give."""
    sizes = st.integers(1, max_choices)
    return sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(told)


def test_histories_hold_every_kind_of_record_and_step() -> None:
    kinds: set[type] = set()
    reasons: set[FoldReason] = set()
    for seed in range(20):
        state = ConversationState()
        for record in told(random.Random(seed).randbytes(300)).journal:
            state = fold(state, [record])
            kinds |= {type(record), type(next_step(state, Lane.TURN, OPTIONS, 0))}
            kinds.add(type(next_step(state, Lane.TURN, OPTIONS, 0, folding=TINY)))
            reasons |= {record.reason} if isinstance(record, ContextReplaced) else set()
    assert kinds == {*get_args(JournalRecord), *get_args(Step)}
    assert reasons == {*FoldReason} - {FoldReason.WITHDRAWN}  # of attachments, which these have none of


@given(histories())
def test_what_is_read_back_folds_to_what_was_folded_live(teller: Teller) -> None:
    assert fold(ConversationState(), reread(teller.journal)) == teller.state


@given(histories(), st.floats(0, 1))
def test_any_prefix_folds_and_the_rest_leads_from_it_to_the_same_state(teller: Teller, share: float) -> None:
    cut = round(share * len(teller.journal))
    prefix = fold(ConversationState(), reread(teller.journal[:cut]))
    assert fold(prefix, reread(teller.journal[cut:], after=prefix)) == teller.state


@given(histories(), st.binary(max_size=30), st.binary(max_size=30))
def test_two_futures_of_one_state_do_not_touch_it_or_each_other(teller: Teller, one: bytes, two: bytes) -> None:
    now, text = teller.state, teller.state.view.text()
    futures = [teller.fork(one), teller.fork(two)]
    while any(future.has_choices for future in futures):
        for future in futures:
            future.go_on()
    assert teller.state == now
    assert teller.state.view.text() == text
    for future in futures:
        assert fold(ConversationState(), reread(future.journal)) == future.state


@given(histories())
def test_snapshot_and_tail_agree_with_the_whole_journal_at_every_moment_of_rest(teller: Teller) -> None:
    teller.rest()
    state, snapshots = ConversationState(), 0
    for record in teller.journal:
        state = fold(state, [record])
        if state.turn is None and not state.queued:
            snapshots += 1
            thawed = decode_snapshot(encode_snapshot(state))
            assert thawed == state
            assert fold(thawed, reread(teller.journal[state.seq :], after=state)) == teller.state
    assert snapshots


@given(histories())
def test_every_request_is_valid(teller: Teller) -> None:
    teller.rest()
    for request in teller.requests:
        assert violations(request.body, after_pause=request.after_pause) == []


@given(histories())
def test_what_was_asked_can_be_told_from_the_journal_alone(teller: Teller) -> None:
    records = reread(teller.journal)
    for request in teller.requests:
        state = fold(ConversationState(), records[: request.seq])
        asked = records[request.seq - 1]
        assert isinstance(asked, ModelRequested)
        assert state.view.text() == request.text
        assert (state.view.link.hex(), state.preamble.digest) == (asked.link, asked.preamble)


@given(histories())
def test_a_request_begins_with_the_one_before_it_in_its_turn(teller: Teller) -> None:
    teller.rest()
    for earlier, later in pairwise(teller.requests):
        if earlier.turn == later.turn and earlier.folds == later.folds:
            assert later.text.startswith(earlier.text)


@given(histories())
def test_a_request_begins_with_what_lasts_of_an_earlier_turn_unless_that_was_refused(teller: Teller) -> None:
    teller.rest()
    kept = [request for request in teller.requests if request.turn not in teller.refused | teller.retracted]
    for earlier, later in pairwise(kept):
        turn_only = teller.beside[earlier.turn].turn_only
        if earlier.turn != later.turn and earlier.folds == later.folds:
            lasting = earlier.text.partition(bytes(text_block(turn_only[0])))[0] if turn_only else earlier.text
            assert later.text.startswith(lasting.removesuffix(b","))
            said, before = _but(_texts(later), turn_only), _but(_texts(earlier), turn_only)
            assert said[: len(before)] == before


@given(histories())
def test_what_is_for_a_turn_alone_is_in_every_request_of_it_and_nowhere_else(teller: Teller) -> None:
    teller.rest()
    for request in teller.requests:
        said = _texts(request)
        for turn, beside in teller.beside.items():
            for text in beside.turn_only:
                assert said.count(text) == (turn == request.turn)
    assert not {text for beside in teller.beside.values() for text in beside.turn_only} & {*texts_of(teller.state)}


@given(histories())
def test_signal_messages_and_what_is_for_the_turn_stand_behind_each_other_and_the_first_two_stay(
    teller: Teller,
) -> None:
    teller.rest()
    words = {message.id: message.text for message in teller.messages}
    prepared = {record.turn: record for record in teller.journal if isinstance(record, TurnPrepared)}
    for request in teller.requests:
        said = _texts(request)
        for turn, beside in teller.beside.items():
            lasting = [*beside.signal, *(words[id_] for id_ in prepared[turn].messages)]
            if turn == request.turn:
                assert _holds(said, [*lasting, *beside.turn_only])
            elif turn in request.turns:
                assert _holds(said, lasting)
            else:
                assert not _holds(said, lasting)


@given(histories())
def test_the_chain_goes_on_from_the_last_link_before_what_is_for_a_turn_alone(teller: Teller) -> None:
    state = ConversationState()
    for record in teller.journal:
        state = fold(state, [record])
        turn = state.turn
        kept = state.view if turn is None or turn.kept is None else turn.kept
        turn_only = teller.beside[turn.number].turn_only if turn is not None else ()
        assert (turn is not None and turn.kept is not None) == bool(turn_only)
        chained = View()
        for message in msgspec.json.decode(state.view.messages()):
            blocks = [canonical(block) for block in message["content"] if block.get("text") not in turn_only]
            chained = chained.extended(message["role"], blocks)
        assert kept == chained


def _texts(request: Request) -> list[str]:
    """What its messages say, results and calls by their ids."""
    blocks = (block for message in request.body["messages"] for block in message["content"])
    return [str(block.get("text") or block.get("tool_use_id") or block.get("id") or block["type"]) for block in blocks]


def _but(said: list[str], these: tuple[str, ...]) -> list[str]:
    return [text for text in said if text not in these]


def _holds(said: list[str], run: list[str]) -> bool:
    """Whether ``run`` stands in ``said`` in one piece."""
    return any(said[place : place + len(run)] == run for place in range(len(said) - len(run) + 1))


@given(histories())
def test_skills_are_those_that_were_loaded_in_turns_that_were_not_refused(teller: Teller) -> None:
    gone = teller.refused | teller.retracted
    loaded = [record for record in teller.journal if isinstance(record, SkillLoaded) and record.turn not in gone]
    latest = {record.skill: record for record in loaded}
    in_order = sorted(latest.values(), key=lambda record: record.seq)
    known = {(skill.key, skill.digest) for skill in teller.state.skills}
    assert [(skill.key, skill.digest) for skill in teller.state.skills] == [
        named for record in in_order if (named := (record.skill, record.digest)) in known
    ]
    if not teller.folds:
        assert len(known) == len(in_order)


@given(histories())
def test_a_request_holds_one_live_context_behind_its_system_prompt_or_none(teller: Teller) -> None:
    """The latest before its turn, whatever came since."""
    teller.rest()
    prepared = {record.turn: record for record in teller.journal if isinstance(record, TurnPrepared)}
    for request in teller.requests:
        before = teller.journal[: prepared[request.turn].seq]
        latest = next((record for record in reversed(before) if isinstance(record, LiveContextReplaced)), None)
        live = prepared[request.turn].live
        assert live in (0, latest.seq if latest else 0)
        told = request.body["system"][1:]
        assert told == ([msgspec.json.decode(latest.block)] if latest is not None and live else [])


@given(histories())
def test_a_context_lasts_until_the_next_one_and_another_record_raises_its_version(teller: Teller) -> None:
    told = [record for record in teller.journal if isinstance(record, ContextChanged)]
    assert teller.state.context == (told[-1].context if told else None)
    assert teller.state.context_version == (told[-1].version if told else 0)
    for earlier, later in pairwise(told):
        is_another = earlier.context.selection != later.context.selection
        assert later.version == earlier.version + is_another


@given(histories())
def test_a_refused_turn_leaves_the_view_as_it_was_and_a_note_for_the_next_one(teller: Teller) -> None:
    """As it was, or as it was made of that since."""
    state = ConversationState()
    before, view = state, state.view
    firsts = Firsts()
    for record in teller.journal:
        if isinstance(record, TurnPrepared):
            before, view = state, state.view
        if isinstance(record, ContextReplaced):
            view = after_fold(view, record, first=firsts.of(record.kept_from, view))
        firsts.see(state, record)
        is_over = isinstance(record, TurnRefused)
        state = fold(state, [record])
        if is_over:
            assert state.view == view
            assert state.notes[: len(before.notes)] == before.notes
            assert state.notes[-1] == text_block("[refused]")


@given(histories())
def test_a_retracted_turn_leaves_the_view_as_it_was_and_tells_what_was_executed(teller: Teller) -> None:
    state = ConversationState()
    before, view = state, state.view
    firsts = Firsts()
    for record in teller.journal:
        if isinstance(record, TurnPrepared):
            before, view = state, state.view
        if isinstance(record, ContextReplaced):
            view = after_fold(view, record, first=firsts.of(record.kept_from, view))
        firsts.see(state, record)
        state = fold(state, [record])
        if isinstance(record, MessageRetracted) and record.turn:
            assert state.view == view
            assert state.notes[: len(before.notes)] == before.notes
            assert state.notes[len(state.notes) - len(record.note) :] == record.note
            assert state.messages == sum(start.messages for start in state.starts)
            if not state.queued:
                assert decode_snapshot(encode_snapshot(state)) == state


@given(histories())
def test_no_message_is_lost_or_said_twice(teller: Teller) -> None:
    waiting = {message.id for message in teller.state.queued}
    said, standing = texts_of(teller.state), {start.turn for start in teller.state.starts}
    turns = turns_of_messages(teller.journal)
    for message in teller.messages:
        is_said = message.id not in waiting | teller.taken_out and turns[message.id] in standing
        assert said.count(message.text) == is_said


@given(histories())
def test_messages_that_queue_are_said_in_the_order_of_their_arrival(teller: Teller) -> None:
    teller.rest()
    said = texts_of(teller.state)
    queued = [message for message in teller.messages if message.when_busy is WhenBusy.QUEUE]
    standing, turns = {start.turn for start in teller.state.starts}, turns_of_messages(teller.journal)
    stay = [message for message in queued if message.id not in teller.taken_out and turns[message.id] in standing]
    places = [said.index(message.text) for message in stay]
    assert places == sorted(places)


@given(histories())
def test_there_is_always_one_next_step_and_it_leads_to_rest(teller: Teller) -> None:
    state = ConversationState()
    for record in teller.journal:
        step = next_step(state, Lane.TURN, OPTIONS, 0)
        assert isinstance(step, Rest) == (state.turn is None and not state.queued)
        next_step(state, Lane.TURN, StepOptions(step_limit=1, attempts_max=1), 0)
        state = fold(state, [record])
    teller.rest()
    assert teller.is_at_rest


@given(histories())
def test_events_are_numbered_without_gap_and_belong_to_public_records(teller: Teller) -> None:
    public = [record for record in reread(teller.journal) if isinstance(record, PUBLIC_RECORDS)]
    assert [record.event for record in public] == list(range(1, teller.state.event + 1))
    events = [event for record in teller.journal if (event := event_of(record)) is not None]
    assert [event.event for event in events] == [record.event for record in public]
