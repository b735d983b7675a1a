"""What a record may hold: blocks by their place, ids, numbers, and what it says of itself."""

import random
from typing import Any

import msgspec
import pytest

from tests.support.histories import told
from torpor.conversation.live_context import live_block
from torpor.flags.contract import Decided, Decision
from torpor.operations.soundness import flaw_of
from torpor.records.blocks import Block, canonical, text_block, tool_result_block
from torpor.records.bounds import MOMENT_MAX_US, NUMBER_MAX
from torpor.records.flag_decision import FlagDecision
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    ContextReplaced,
    ConversationCreated,
    ConversationRenamed,
    FlagsPinned,
    JournalRecord,
    LateResult,
    LiveContextFailed,
    LiveContextReplaced,
    MessageReceived,
    ModelFailed,
    ModelReplied,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnPrepared,
)
from torpor.records.terms import FoldReason, Outcome, Usage

TEXT = text_block("hello")
CALL = canonical({"type": "tool_use", "id": "call_1", "name": "pay", "input": {}})
RESULT = tool_result_block("call_1", "paid", is_error=False)
THOUGHT = canonical({"type": "thinking", "thinking": "", "signature": "s"})
IMAGE = canonical({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}})


def raw(text: str) -> Block:
    return msgspec.Raw(text.encode())


def received(*blocks: Block, message_id: str = "m_1") -> MessageReceived:
    return MessageReceived(message_id=MessageId(message_id), principal="ann", blocks=blocks)


def replied(*blocks: Block, **fields: Any) -> ModelReplied:
    return ModelReplied(call="1-1-1", round=1, blocks=blocks, stop_reason="end_turn", **fields)


def finished(block: Block) -> ToolFinished:
    return ToolFinished(call_id=CallId("call_1"), name="pay", outcome=Outcome.SUCCEEDED, block=block)


def noted(note: Block) -> LateResult:
    return LateResult(call_id=CallId("call_1"), name="pay", of_turn=1, outcome=Outcome.FAILED, note=note)


def replaced(head: Block, *, shortened: Block = RESULT) -> ContextReplaced:
    return ContextReplaced(
        reason=FoldReason.SUMMARY, generation=1, kept_from=2, head=(head,), link="", shortened={"call_1": shortened}
    )


def test_whatever_an_engine_writes_is_sound() -> None:
    for seed in range(20):
        for record in told(random.Random(seed).randbytes(400)).journal:
            assert flaw_of(record) == ""


@pytest.mark.parametrize(
    "record",
    [
        received(TEXT, IMAGE),
        replied(THOUGHT, TEXT, CALL, note=(TEXT,)),
        finished(canonical({"type": "tool_result", "tool_use_id": "call_1"})),
        finished(
            canonical({"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "x"}]})
        ),
        replaced(TEXT),
        TurnCancelled(reason="client", note=TEXT, partial=(TEXT,)),
        ConversationRenamed(title="Zoë's \N{FAMILY}", principal="ann"),
    ],
)
def test_blocks_where_they_belong_are_sound(record: JournalRecord) -> None:
    assert flaw_of(record) == ""


@pytest.mark.parametrize("block", [raw("5"), raw('"x"'), raw("null"), raw("[]"), raw("{}"), raw('{"type":5}')])
def test_what_is_no_block_is_told_wherever_it_stands(block: Block) -> None:
    for record in (
        received(block),
        replied(block),
        finished(block),
        noted(block),
        replaced(block),
        replaced(TEXT, shortened=block),
        TurnPrepared(messages=(), signal=(block,)),
        TurnPrepared(messages=(), turn_only=(block,)),
        TurnFailed(code="c", detail="", note=TEXT, partial=(block,)),
        TurnFailed(code="c", detail="", note=block),
    ):
        assert flaw_of(record), record


@pytest.mark.parametrize(
    ("record", "flaw"),
    [
        (received(RESULT), "a block of it is 'tool_result', which a message cannot hold"),
        (received(CALL), "a block of it is 'tool_use', which a message cannot hold"),
        (received(canonical({"type": "text", "text": ""})), "a text of it says nothing"),
        (received(text_block(" \n")), "a text of it says nothing"),
        (received(canonical({"type": "text", "text": "x", "z": [1]})), "a text of it has other fields than its text"),
        (received(canonical({"type": "text", "text": 5})), "a text of it says nothing"),
        (received(canonical({"type": "image"})), "a block of it, 'image', has no source"),
        (noted(IMAGE), "a block of it is 'image', which what the engine says cannot hold"),
        (replied(RESULT), "a block of it is no 'tool_result' of a reply"),
        (replied(IMAGE), "a block of it is no 'image' of a reply"),
        (replied(text_block(" ")), "a text of it says nothing"),
        (replied(canonical({"type": "thinking", "thinking": "x", "signature": ""})), "its thinking is not signed"),
        (
            replied(canonical({"type": "tool_use", "id": "", "name": "pay", "input": {}})),
            "a call of it cannot be sent again",
        ),
        (
            replied(canonical({"type": "tool_use", "id": "a", "name": "pay", "input": 5})),
            "a call of it cannot be sent again",
        ),
        (finished(TEXT), "its block is 'text', expected a tool_result"),
        (
            finished(tool_result_block("other", "x", is_error=False)),
            "the result of call 'call_1' names call 'other'",
        ),
        (
            finished(canonical({"type": "tool_result", "tool_use_id": "call_1", "content": "", "is_error": True})),
            "its result is an error that says nothing",
        ),
        (
            finished(canonical({"type": "tool_result", "tool_use_id": "call_1", "content": 5})),
            "its result is neither text nor blocks",
        ),
        (
            finished(canonical({"type": "tool_result", "tool_use_id": "call_1", "content": [5]})),
            "a part of its result is no object",
        ),
    ],
)
def test_a_block_that_requests_cannot_hold_at_its_place_is_told(record: JournalRecord, flaw: str) -> None:
    assert flaw_of(record) == flaw


@pytest.mark.parametrize("message_id", ["", "a\0b", "\x1b[31mX", "z" * 300_000, "a/b", "a b"])
def test_a_message_id_that_no_client_could_give_is_told(message_id: str) -> None:
    assert "message" in flaw_of(received(TEXT, message_id=message_id))


@pytest.mark.parametrize(
    "record",
    [
        ConversationCreated(agent=""),
        ConversationCreated(agent="\x1b[2J"),
        ConversationCreated(agent="clinic", title="a\nb"),
        ConversationCreated(agent="clinic", title="y" * 5_000),
        ConversationRenamed(title="x", principal="\x1b[2Jroot"),
        TurnPrepared(messages=(MessageId("\0"),)),
        TurnPrepared(messages=(), cause=MessageId("\0")),
        LiveContextFailed(job="a job", code="c", detail=""),
        LateResult(call_id=CallId("\0"), name="pay", of_turn=1, outcome=Outcome.FAILED, note=TEXT),
        SubagentStarted(call_id=CallId("a"), name="digger", child="../c_2"),
        SubagentStarted(call_id=CallId("\0"), name="digger", child="a-1"),
        SubagentFinished(call_id=CallId("a"), name="\x1b[2J", child="a-1", outcome=Outcome.FAILED),
    ],
)
def test_a_name_that_is_none_is_told(record: JournalRecord) -> None:
    assert flaw_of(record)


@pytest.mark.parametrize("at_us", [-1, -(2**63), MOMENT_MAX_US + 1, 2**63, 2**70])
def test_a_moment_that_no_calendar_has_is_told(at_us: int) -> None:
    assert flaw_of(msgspec.structs.replace(received(TEXT), at_us=at_us)).startswith("its at_us is")
    assert flaw_of(ModelFailed(call="1", round=1, code="c", retry_at_us=at_us)).startswith("its retry_at_us is")


def test_a_number_that_no_store_holds_is_told_at_any_depth() -> None:
    assert flaw_of(msgspec.structs.replace(received(TEXT), at_us=MOMENT_MAX_US)) == ""
    assert flaw_of(replied(TEXT, usage=Usage(input_tokens=NUMBER_MAX))) == ""
    assert flaw_of(replied(TEXT, usage=Usage(input_tokens=2**70))) == (
        f"its input_tokens is one of 71 bits, expected 0 to {NUMBER_MAX}"
    )
    assert flaw_of(replied(TEXT, usage=Usage(output_tokens=-5))).startswith("its output_tokens is -5")
    assert flaw_of(TurnPrepared(messages=(), sections={"history": -5})) == ""
    assert flaw_of(TurnPrepared(messages=(), sections={"history": -(2**70)})).startswith("its sections is one of")


def test_decisions_are_those_that_their_digest_names() -> None:
    decided = Decided([Decision(key="tool.pay", value=True, variant="default", reason="STATIC")])
    told_so = FlagDecision(key="tool.pay", value=True, variant="default", reason="STATIC")

    assert flaw_of(FlagsPinned(digest=decided.digest, decisions=(told_so,))) == ""
    lies = msgspec.structs.replace(told_so, value=False)
    assert flaw_of(FlagsPinned(digest=decided.digest, decisions=(lies,))).startswith(
        f"it names digest {decided.digest}"
    )


def test_the_block_of_a_live_context_holds_its_words() -> None:
    record = LiveContextReplaced(job="live-1", words="all is well", block=live_block("all is well"), messages=2)

    assert flaw_of(record) == ""
    assert flaw_of(msgspec.structs.replace(record, words="else")) == "its block does not hold its words"
