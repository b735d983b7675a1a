"""What holds whenever a part of the view was replaced, whatever happened before and whatever happens after."""

import random
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given

from tests.support.histories import Teller, told
from tests.support.history_folds import Firsts, after_fold, said
from tests.unit.conversation.test_histories import histories
from torpor.conversation.compaction import KEPT_TURNS
from torpor.conversation.fold import fold
from torpor.conversation.state import BadHistory, ConversationState
from torpor.conversation.view import View
from torpor.records.blocks import head_of, result_of
from torpor.records.journal import ContextReplaced, JournalRecord, ModelReplied
from torpor.records.terms import FoldReason, Usage

LOSSLESS = (FoldReason.SUMMARY, FoldReason.MECHANICAL)


def steps(teller: Teller) -> Iterator[tuple[ConversationState, JournalRecord, ConversationState, Firsts]]:
    """Every record with the state before and after it, and where the turns began before."""
    state, firsts = ConversationState(), Firsts()
    for record in teller.journal:
        after = fold(state, [record])
        yield state, record, after, firsts
        firsts.see(state, record)
        state = after


def folds(teller: Teller) -> Iterator[tuple[ConversationState, ContextReplaced, ConversationState, Firsts]]:
    for before, record, after, firsts in steps(teller):
        if isinstance(record, ContextReplaced):
            yield before, record, after, firsts


@given(histories())
def test_the_view_is_the_head_and_the_turns_that_stay_block_for_block(teller: Teller) -> None:
    for before, record, after, firsts in folds(teller):
        first = firsts.of(record.kept_from, before.view)
        assert after.view == after_fold(before.view, record, first=first)
        assert before.turn is not None
        assert after.turn is not None
        base = after_fold(before.turn.base, record, first=firsts.of(record.kept_from, before.turn.base))
        assert after.turn.base == base
        if before.turn.kept is None:
            assert after.turn.kept is None
        else:
            assert after.turn.kept == after_fold(before.turn.kept, record, first=first)


@given(histories())
def test_the_last_two_turns_and_the_running_one_stay_block_for_block(teller: Teller) -> None:
    for before, record, after, firsts in folds(teller):
        stay = before.starts[-KEPT_TURNS - 1 :]
        if record.reason in LOSSLESS:
            assert [start.turn for start in after.starts] == [start.turn for start in stay]
            first = firsts.of(stay[0].turn, before.view)
            assert said(after.view)[len(record.head) :] == said(before.view)[first:]
            assert after.turn is not None
            assert before.turn is not None
            assert after.turn.calls == before.turn.calls
        else:
            assert after.starts[-1].turn == before.starts[-1].turn


@given(histories())
def test_turns_begin_where_the_state_says(teller: Teller) -> None:
    for _, record, after, firsts in steps(teller):
        if after.turn is None or not isinstance(record, ContextReplaced):
            continue
        firsts_now = Firsts()
        firsts_now.blocks = {**firsts.blocks}
        gone = firsts.blocks[record.kept_from] - len(record.head)
        blocks = said(after.view)
        for start in after.starts:
            before_it = View()
            for role, block in blocks[: firsts.blocks[start.turn] - gone]:
                before_it = before_it.extended(role, [block])
            assert start.size_bytes == before_it.size_bytes


@given(histories())
def test_what_was_counted_stands_for_the_turns_in_the_view(teller: Teller) -> None:
    for _, _, after, _ in steps(teller):
        assert after.messages == sum(start.messages for start in after.starts)
        assert [start.turn for start in after.starts] == sorted({start.turn for start in after.starts})
        if after.turn is not None:
            assert after.starts[-1].turn == after.turn.number
            assert after.turn.base_starts == after.starts[:-1]


@given(histories())
def test_no_open_item_is_dropped_by_silence(teller: Teller) -> None:
    for before, record, after, _ in folds(teller):
        closed = {closing.id for closing in record.closed}
        assert {item.id for item in before.items} - closed <= {item.id for item in after.items}
        assert closed <= {item.id for item in before.items}
        assert len({item.id for item in after.items}) == len(after.items)
        text = head_of(record.head[0]).text if record.head else ""
        for item in after.items:
            assert f"- {item.id} ({item.kind.value}" in text
            assert item.text in text


@given(histories())
def test_generations_and_ranges_only_grow_and_are_told_in_the_summary(teller: Teller) -> None:
    for before, record, after, _ in folds(teller):
        if record.reason is FoldReason.SHORTENED:
            assert (after.generation, after.covered) == (before.generation, before.covered)
            continue
        assert after.generation == before.generation + 1
        assert before.covered[0] < after.covered[0] < record.kept_from
        assert before.covered[1] < after.covered[1] < record.seq
        assert head_of(record.head[0]).text.startswith(
            f"[Summary of earlier conversation: turns 1 to {after.covered[0]}, records 1 to {after.covered[1]}, "
            f"generation {after.generation}."
        )


@given(histories())
def test_a_fold_is_not_measured_before_a_reply(teller: Teller) -> None:
    for before, record, after, _ in steps(teller):
        if isinstance(record, ContextReplaced):
            assert (after.is_measured, after.last_usage, after.measured_bytes) == (False, Usage(), 0)
        elif isinstance(record, ModelReplied):
            assert after.is_measured
        else:
            assert after.is_measured == before.is_measured


@given(histories())
def test_the_text_of_every_loaded_skill_stands_in_the_view_once(teller: Teller) -> None:
    for _, record, after, _ in steps(teller):
        blocks = [bytes(block) for _, block in said(after.view)]
        results = {result_of(block) for _, block in said(after.view)}
        pending = {call.id for call in after.turn.calls} if after.turn is not None else set()
        for skill in after.skills:
            if skill.head:
                assert blocks.count(bytes(skill.head[0])) == 1
            else:
                assert skill.call_id in results | pending
        if isinstance(record, ContextReplaced):
            assert not {*record.forgotten} & {skill.key for skill in after.skills}


@given(histories())
def test_what_is_for_the_turn_alone_stands_where_it_is_said_to_begin(teller: Teller) -> None:
    for _, _, after, _ in steps(teller):
        turn = after.turn
        if turn is None or not turn.lasting_bytes:
            continue
        begins = after.view.text()[turn.lasting_bytes :]
        assert begins.startswith(b',{"text":"<turn only ')


@pytest.mark.parametrize(
    "block", [b"5", b"null", b'{"type":5}', b"{", b'{"type":"text","text":"\xff"}', b"[" * 100_000]
)
def test_a_reply_that_cannot_be_read_is_bad_history(block: bytes) -> None:
    journal = told(random.Random(0).randbytes(400)).journal
    place = next(place for place, record in enumerate(journal) if isinstance(record, ModelReplied))
    reply = msgspec.structs.replace(journal[place], blocks=(msgspec.Raw(block),))

    with pytest.raises(BadHistory, match=f"record {reply.seq} cannot be read"):
        fold(ConversationState(), [*journal[:place], reply])
