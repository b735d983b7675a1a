"""What is said of a record, and what is not."""

import typing

import msgspec

from tests.unit.operations.example import PAY, SECRET, journal
from torpor.operations.descriptions import Facts, describe
from torpor.records.blocks import canonical, text_block, tool_result_block
from torpor.records.context import WorkingContext
from torpor.records.ids import MessageId
from torpor.records.journal import (
    CompactionFailed,
    ContextChanged,
    ContextReplaced,
    ConversationCreated,
    FlagsPinned,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import Effect, FoldReason
from torpor.records.work_budget import WorkBudget


def of_kind(kind: type[JournalRecord]) -> JournalRecord:
    return next(record for record in journal() if type(record) is kind)


def summary_of(record: JournalRecord) -> str:
    return describe(record)[0]


def facts_of(record: JournalRecord) -> Facts:
    return describe(record)[1]


def content_of(record: JournalRecord) -> str:
    return describe(record)[2]


def test_example_holds_every_kind_of_record() -> None:
    assert {type(record) for record in journal()} == set(typing.get_args(JournalRecord))


def test_a_sub_agent_is_told_with_its_budget() -> None:
    begun = ConversationCreated(agent="scout", budget=WorkBudget(steps=12, tokens=100_000, seconds=60.0))

    assert facts_of(begun) == {"agent": "scout", "budget": {"steps": 12, "tokens": 100_000, "seconds": 60.0}}


def test_every_record_is_told_in_one_line() -> None:
    assert [summary_of(record) for record in journal()] == [
        "conversation created for agent 'rehearsal'",
        "message 'm1' from 'ada' (17 bytes, steer when busy, 2 characters replaced)",
        "context version 1 from 'ada': record, screen (142 bytes)",
        "flags pinned, 1 of 2 off: memory",
        "flags eeeeeeeeeeeeeeee pinned again",
        "preamble aaaaaaaaaaaa: model 'scripted', 1 tool",
        "preamble bbbbbbbbbbbb again",
        "turn begun with 'm1', beside them envelope 20 tokens, policy_excerpts 60 tokens, policies refunds@3,"
        " personal withheld",
        "model asked, round 1 (about 42 tokens)",
        "model replied, tool_use, asks for pay (42 tokens in, 32 of them cached, 5 out)",
        "tool pay started (write)",
        "attempt 2 at run_tools of round 1",
        "tool pay ended with its outcome unknown (17 bytes, cut to fit)",
        "skill refunds loaded (about 300 tokens)",
        "sub-agent digger started as call_1-1",
        "sub-agent digger as call_1-1 succeeded with what it had when its steps were used up (3 model calls"
        " of its own, 700 tokens in, 20 out in all, 2 findings, 1 unknown id dropped)",
        "turns 1 to 1 folded, by the summariser, generation 2, 1 open item (about 900 tokens before, 300 after)",
        "no summary, bad_summary: the summariser said nothing",
        "model failed, model_unavailable: no route, asked again in 2 s as model 'other'",
        "turn failed, model_unavailable: no route",
        "tool pay of turn 1 succeeded after all",
        "live context ordered by hand as live-2 (after 4 messages)",
        "live context replaced by live-2 (4 words)",
        "no live context by live-3, bad_live_context: the answer has no words",
        "turn cancelled by client",
        "turn finished",
        "turn refused and taken out of the view: the model refused to answer",
        "'m3' retracted by 'ada', turn 3 taken out of the view with it, the model is told what was executed",
        "conversation renamed by 'ada'",
        "conversation archived by 'ada'",
        "conversation listed again by 'ada'",
        "forked by 'ada' from 'c_0' before message 'm1', without 'm1', 'm2'",
    ]


def test_what_is_ordinary_is_not_mentioned() -> None:
    said = (text_block("hello"),)

    assert summary_of(MessageReceived(message_id=MessageId("m"), principal="ada", blocks=said)) == (
        "message 'm' from 'ada' (5 bytes)"
    )
    assert summary_of(ModelReplied(call="c", round=1, blocks=said, stop_reason="end_turn")) == (
        "model replied, end_turn (0 tokens in, 0 out)"
    )
    assert summary_of(TurnPrepared(turn=1, messages=(MessageId("m"),))) == "turn begun with 'm'"
    several = TurnPrepared(turn=1, messages=(MessageId("m"),), policies=("fees@2", "visits@1", "fees@2", "fees@2"))
    assert summary_of(several) == "turn begun with 'm', policies fees@2 x3, visits@1"
    assert summary_of(FlagsPinned(digest="d", decisions=())) == "flags pinned, 0 of 0 off"
    assert summary_of(ContextChanged(context=WorkingContext(), version=2, principal="ada")) == (
        "context version 2 from 'ada': nothing (2 bytes)"
    )
    assert (
        summary_of(PreambleChanged(digest="d" * 64, body=canonical({}))) == "preamble dddddddddddd: model '', 0 tools"
    )


def test_messages_that_join_a_turn_are_named() -> None:
    asked = ModelRequested(
        call="c", round=2, preamble="p", link="l", sections={"history": 3}, joined=(MessageId("m2"), MessageId("m3"))
    )

    assert summary_of(asked) == "model asked, round 2 (about 3 tokens, joined by 'm2', 'm3')"


def test_a_look_back_is_told_by_its_message_and_with_what_was_quoted_or_that_nothing_fitted() -> None:
    asked = MessageReceived(message_id=MessageId("m"), principal="ada", blocks=(text_block("and?"),), lookback=2)
    quoted = TurnPrepared(turn=9, messages=(MessageId("m"),), sections={"lookback": 70}, lookback=(3, 4))
    nothing = TurnPrepared(turn=9, messages=(MessageId("m"),), sections={"lookback": 35})

    assert summary_of(asked) == "message 'm' from 'ada' (4 bytes, looks back 2)"
    assert summary_of(quoted) == "turn begun with 'm', beside them lookback 70 tokens, turns 3, 4 quoted"
    assert summary_of(nothing) == "turn begun with 'm', beside them lookback 35 tokens, no room to quote a turn"
    assert (facts_of(asked)["lookback"], facts_of(quoted)["lookback"]) == (2, [3, 4])


def test_a_summariser_that_is_left_alone_is_told_with_its_last_failure() -> None:
    failed = CompactionFailed(code="deadline", detail="too late", at_us=5, left_alone_until_us=600_000_005)

    assert summary_of(failed) == "no summary, deadline: too late; the summariser is left alone for 600 s"


def test_a_request_that_exceeds_its_profile_says_where() -> None:
    asked = ModelRequested(
        call="c", round=1, preamble="p", link="l", sections={"history": 3}, budget_tokens=8_000, over=("conversation",)
    )

    assert summary_of(asked) == "model asked, round 1 (about 3 tokens, over its allotment of conversation)"
    assert (facts_of(asked)["budget_tokens"], facts_of(asked)["over"]) == (8_000, ["conversation"])


def test_neither_line_nor_facts_hold_what_was_said() -> None:
    told = [(summary_of(record), facts_of(record)) for record in journal()]

    assert SECRET not in msgspec.json.encode(told).decode()


def test_content_holds_what_was_said() -> None:
    assert {type(record).__name__ for record in journal() if SECRET in content_of(record)} == {
        "ConversationRenamed",
        "MessageReceived",
        "MessageRetracted",
        "ContextChanged",
        "TurnPrepared",
        "ModelReplied",
        "ToolFinished",
        "ContextReplaced",
        "LateResult",
        "LiveContextReplaced",
        "SubagentFinished",
        "TurnCancelled",
    }


def test_calls_are_told_with_their_arguments() -> None:
    assert content_of(of_kind(ModelReplied)) == f'{SECRET}\npay {{"to":"{SECRET}"}}'


def test_result_of_many_parts_and_unknown_blocks_are_told_as_far_as_they_can_be() -> None:
    parts = canonical({"type": "tool_result", "tool_use_id": PAY, "content": [{"type": "text", "text": "ok"}]})
    finished = typing.cast("ToolFinished", of_kind(ToolFinished))
    thought = ModelReplied(call="c", round=1, blocks=(canonical({"type": "thinking"}),), stop_reason="end_turn")

    assert content_of(msgspec.structs.replace(finished, block=parts)) == '[{"text":"ok","type":"text"}]'
    assert content_of(thought) == "(thinking)"


def test_facts_say_the_same_for_machines() -> None:
    assert facts_of(of_kind(ToolStarted)) == {
        "call_id": "call_1",
        "name": "pay",
        "effect": Effect.WRITE.value,
        "idempotency_key": "k",
    }
    assert facts_of(of_kind(ModelReplied))["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 32,
        "output_tokens": 5,
    }
    assert facts_of(TurnFinished()) == {}


def test_a_last_resort_says_what_it_cost() -> None:
    shortened = ContextReplaced(
        turn=4,
        reason=FoldReason.SHORTENED,
        generation=1,
        kept_from=2,
        head=(),
        link="l",
        shortened={"a": tool_result_block("a", SECRET, is_error=False)},
        before_tokens=900,
        after_tokens=300,
    )
    everything = msgspec.structs.replace(shortened, reason=FoldReason.EVERYTHING, turns=(1, 3), shortened={})

    assert summary_of(shortened) == "1 long result shortened (about 900 tokens before, 300 after)"
    assert content_of(shortened) == SECRET
    assert SECRET not in str(facts_of(shortened))
    assert summary_of(everything) == (
        "turns 1 to 3 folded, without a model, all but the running turn, generation 1, 0 open items"
        " (about 900 tokens before, 300 after)"
    )
