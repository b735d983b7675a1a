"""What a conversation knows of the sub-agents that work for it."""

from typing import Any

import msgspec
import pytest

from torpor.conversation.fold import fold
from torpor.conversation.number import numbered
from torpor.conversation.snapshot import decode_snapshot, encode_snapshot
from torpor.conversation.state import BadHistory, ChildState, ConversationState
from torpor.conversation.turn_folds import requested_view
from torpor.conversation.view import preamble_of
from torpor.records.blocks import canonical, text_block, tool_result_block
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    ConversationCreated,
    ConversationForked,
    JournalRecord,
    MessageReceived,
    MessageRetracted,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Effect, Outcome, Usage
from torpor.records.told import ToldAs

A, B = CallId("a"), CallId("b")
NOTE = text_block("[note]")
PREAMBLE = preamble_of({"model": "m"})
CHILD = ChildState(call_id=A, name="digger", child="a-1", turn=1, cause=MessageId("m_1"))


def after(state: ConversationState, *drafts: JournalRecord) -> ConversationState:
    return fold(state, numbered(state, drafts, at_us=1))


def turn(state: ConversationState, number: int) -> ConversationState:
    """Turn ``number`` runs."""
    id_ = MessageId(f"m_{number}")
    received = MessageReceived(message_id=id_, principal="ann", blocks=(text_block("dig"),))
    return after(state, received, TurnPrepared(turn=number, messages=(id_,)))


def working() -> ConversationState:
    """Call ``a`` runs, a read; call ``b`` was asked for."""
    changed = PreambleChanged(digest=PREAMBLE.digest, body=PREAMBLE.body)
    state = turn(after(ConversationState(), ConversationCreated(agent="clerk"), changed), 1)
    link = requested_view(state, ()).link.hex()
    uses = (canonical({"type": "tool_use", "id": call, "name": "dig", "input": {}}) for call in (A, B))
    return after(
        state,
        ModelRequested(turn=1, call="1-1-1", round=1, preamble=PREAMBLE.digest, link=link, sections={}),
        ModelReplied(turn=1, call="1-1-1", round=1, blocks=tuple(uses), stop_reason="tool_use"),
        ToolStarted(turn=1, call_id=A, name="dig", effect=Effect.READ, idempotency_key="k"),
    )


def started(**fields: Any) -> SubagentStarted:
    return msgspec.structs.replace(SubagentStarted(turn=1, call_id=A, name="digger", child="a-1"), **fields)


def finished(**fields: Any) -> SubagentFinished:
    record = SubagentFinished(turn=1, call_id=A, name="digger", child="a-1", outcome=Outcome.SUCCEEDED)
    return msgspec.structs.replace(record, **fields)


def settled(call_id: CallId) -> ToolFinished:
    block = tool_result_block(call_id, "over", is_error=False)
    return ToolFinished(turn=1, call_id=call_id, name="dig", outcome=Outcome.INTERRUPTED, block=block)


def with_child() -> ConversationState:
    return after(working(), started())


def cancelled() -> ConversationState:
    """The turn has ended before its sub-agent."""
    return after(with_child(), settled(A), settled(B), TurnCancelled(turn=1, reason="client", note=NOTE))


def test_a_sub_agent_works_from_its_start_to_its_end() -> None:
    state = with_child()
    assert state.children == (CHILD,)
    assert after(state, finished()).children == ()


def test_a_sub_agent_ends_by_the_word_that_it_began_with() -> None:
    research = after(working(), started(told_as=ToldAs.RESEARCH))
    with pytest.raises(BadHistory):
        after(research, finished())
    assert after(research, finished(told_as=ToldAs.RESEARCH)).children == ()


def test_a_call_may_have_several_sub_agents_and_each_ends_by_itself() -> None:
    state = after(with_child(), started(child="a-2"), started(child="a-3"), finished(child="a-2"))
    assert [child.child for child in state.children] == ["a-1", "a-3"]


def test_a_sub_agent_that_was_lost_is_started_again_by_the_same_name() -> None:
    state = after(with_child(), finished(outcome=Outcome.FAILED, code="lost"), started())
    assert state.children == (CHILD,)


def test_what_sub_agents_of_the_running_turn_used_is_known() -> None:
    usage = Usage(input_tokens=5, cache_read_input_tokens=3, output_tokens=2)
    state = after(with_child(), started(child="a-2"), finished(usage=usage), finished(child="a-2", usage=usage))
    assert state.turn is not None
    assert state.turn.children_tokens == 20


def test_nothing_that_a_sub_agent_did_is_in_the_view() -> None:
    state = after(working(), started(), finished(findings=3, bundle="b"))
    assert (state.view, state.last_usage) == (working().view, working().last_usage)


def test_a_sub_agent_that_outlives_its_turn_is_known_until_it_ends() -> None:
    state = cancelled()
    assert (state.turn, state.children) == (None, (CHILD,))
    assert after(state, finished(code="cancelled")).children == ()


def test_a_sub_agent_of_a_refused_turn_is_known_until_it_ends() -> None:
    state = after(with_child(), settled(A), settled(B), TurnRefused(turn=1, detail="no", note=NOTE))
    assert state.children == (CHILD,)


def test_a_sub_agent_of_a_turn_that_was_taken_back_is_known_until_it_ends() -> None:
    retracted = MessageRetracted(turn=1, messages=(MessageId("m_1"),), principal="ann", link="")
    assert after(cancelled(), retracted).children == (CHILD,)


def test_a_late_end_names_the_message_of_the_turn_that_it_worked_for() -> None:
    state = cancelled()
    for moment in (state, turn(state, 2)):
        (record,) = numbered(moment, [finished(code="cancelled")], at_us=1)
        assert (record.turn, record.cause) == (1, MessageId("m_1"))


def test_an_end_in_the_batch_of_its_start_names_the_message_too() -> None:
    records = numbered(working(), [started(), finished(), settled(A)], at_us=1)
    assert {record.cause for record in records} == {MessageId("m_1")}


def test_a_fork_has_none_of_the_sub_agents() -> None:
    forked = ConversationForked(source="c_1", before=MessageId("m_2"), principal="ann")
    assert after(cancelled(), forked).children == ()


def test_a_snapshot_holds_those_that_outlive_their_turn() -> None:
    state = cancelled()
    assert decode_snapshot(encode_snapshot(state)) == state
    assert decode_snapshot(encode_snapshot(state)).children == (CHILD,)


CANNOT_FOLLOW: dict[str, tuple[ConversationState, JournalRecord, str]] = {
    "a start outside a turn": (turn(ConversationState(), 1), started(turn=2), "belongs to turn 2"),
    "a start of a call that nobody intended": (working(), started(call_id=CallId("c")), "which is not open"),
    "a start of a call that was not started": (working(), started(call_id=B), "of call 'b', which is not running"),
    "a start of a call that is settled": (after(working(), settled(A)), started(), "which is not open"),
    "a start after the turn": (cancelled(), started(child="a-2"), "running is none"),
    "a second start": (with_child(), started(), "starts sub-agent 'a-1', which is running"),
    "an end without a start": (working(), finished(), "ends sub-agent 'a-1'"),
    "a second end": (after(with_child(), finished()), finished(), "ends sub-agent 'a-1'"),
    "an end of another sub-agent": (with_child(), finished(child="a-2"), "running are \\('a-1',\\)"),
    "an end of one of another call": (with_child(), finished(call_id=B), "of call 'b' in turn 1"),
    "an end of one of another definition": (with_child(), finished(name="planner"), "ends sub-agent"),
    "an end of one of another turn": (turn(cancelled(), 2), finished(turn=2), "in turn 2"),
}


@pytest.mark.parametrize("name", CANNOT_FOLLOW)
def test_a_record_of_a_sub_agent_that_cannot_follow_is_refused(name: str) -> None:
    state, record, reason = CANNOT_FOLLOW[name]
    with pytest.raises(BadHistory, match=reason):
        after(state, record)


def test_a_turn_that_finishes_leaves_its_sub_agents_as_they_are() -> None:
    state = after(with_child(), finished(), settled(A), settled(B))
    link = requested_view(state, ()).link.hex()
    state = after(
        state,
        ModelRequested(turn=1, call="1-2-1", round=2, preamble=PREAMBLE.digest, link=link, sections={}),
        ModelReplied(turn=1, call="1-2-1", round=2, blocks=(text_block("dug"),), stop_reason="end_turn"),
        TurnFinished(turn=1),
    )
    assert (state.turn, state.children) == (None, ())
