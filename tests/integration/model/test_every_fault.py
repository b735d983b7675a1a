"""Every fault at every position of a two-step turn: one defined end, and nothing that a later request trips over."""

from functools import partial
from typing import Final, TypeVar

import anyio
import pytest

from tests.integration.model.real_host import ANSWER, ORDINARY, TOOL_ROUND, refused, talking_to, two_steps
from tests.support.engine import Engine
from torpor.conversation.graphemes import open_tail
from torpor.conversation.publish import event_of, text_of
from torpor.records.blocks import head_of
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    JournalRecord,
    ModelFailed,
    ModelReplied,
    Offer,
    ToolFinished,
    TurnFailed,
    TurnFinished,
    TurnRefused,
)
from torpor_fake_api.scripting.catalogue import CATALOGUE, every, misbehave
from torpor_fake_api.scripting.replies import Reply
from torpor_fake_api.scripting.script import Asked
from torpor_fake_api.server import FakeApi, serving

Kind = TypeVar("Kind", bound=JournalRecord)
RETRY, NOTHING = (Offer.RETRY,), ()
FAILED: Final[dict[str, tuple[str, tuple[Offer, ...]]]] = {
    "invalid_request": ("model_request_invalid", NOTHING),
    "prompt_too_long": ("model_context_too_long", NOTHING),
    "spend_limit": ("model_request_invalid", NOTHING),
    "not_authenticated": ("model_key_refused", RETRY),
    "billing": ("model_billing_refused", RETRY),
    "billing_forbidden": ("model_billing_refused", RETRY),
    "forbidden": ("model_key_refused", RETRY),
    "model_not_found": ("model_unknown", RETRY),
    "too_large": ("model_request_too_large", NOTHING),
    "too_large_at_edge": ("model_request_too_large", NOTHING),
    "unknown_stop_reason": ("unknown_stop_reason", (Offer.CONTINUE, Offer.RETRY)),
}
"""Ends the turn at once, wherever it happens."""
PASSING: Final = {
    "conflict": "model_unavailable",
    "rate_limited": "model_rate_limited",
    "rate_limited_date": "model_rate_limited",
    "rate_limited_ms": "model_rate_limited",
    "rate_limited_hours": "model_rate_limited",
    "rate_limited_bare": "model_rate_limited",
    "server_error": "model_unavailable",
    "bad_gateway": "model_unavailable",
    "unavailable": "model_unavailable",
    "gateway_timeout": "model_unavailable",
    "overloaded": "model_overloaded",
    "overloaded_event": "model_overloaded",
    "api_error_event": "model_unavailable",
    "cut": "model_stream_lost",
    "reset": "model_stream_lost",
    "clean_end": "model_stream_lost",
    "half_event": "model_stream_lost",
    "stall": "model_stream_lost",
    "stall_with_pings": "model_stream_lost",
    "bad_json": "model_stream_lost",
    "bad_utf8": "model_stream_lost",
    "length_too_short": "model_stream_lost",
}
"""Is asked again while nothing was shown; ends the turn with what was said as partial otherwise."""
REFUSED: Final = {"refusal", "refusal_after_text"}
STALLS: Final = {"stall", "stall_with_pings"}
EVERY: Final = [("asyncio", name, at) for name, at in every()]
FIRST: Final = [("trio", name, row.positions[0]) for name, row in CATALOGUE.items()]
"""What differs between the backends is how a connection ends, which one position shows."""
HARMLESS: Final = {
    *("length_too_long", "trickle", "unknown_event", "unknown_delta", "unknown_block", "empty_reply", "empty_text"),
    *("max_tokens", "max_tokens_in_call", "pause_turn"),
    *("call_with_bad_json", "call_with_list", "call_with_string", "call_with_null"),
    *("unknown_tool", "illegal_tool_name", "reused_tool_id", "duplicate_tool_ids"),
    *("split_characters", "split_escapes", "duplicate_event"),
}
"""The turn finishes, be it with results that are errors or after another question."""


def code_of(name: str, at: str) -> str:
    """``name`` as the code of the fault; a broken connection before the headers is a host that cannot be reached."""
    is_before = at == "before_headers" and name != "length_too_short"
    return "model_unavailable" if is_before and PASSING[name] == "model_stream_lost" else PASSING[name]


def test_the_table_names_every_fault() -> None:
    assert {name for name, _ in every()} == {*FAILED, *PASSING, *REFUSED, *HARMLESS}


@pytest.mark.parametrize(("anyio_backend", "name", "at"), [*EVERY, *FIRST])
async def test_a_fault_has_one_defined_end_and_leaves_a_conversation_that_works(name: str, at: str) -> None:
    deadline_s = 0.4 if name in STALLS else 10.0
    async with serving(profile="strict") as api, talking_to(api, progress_deadline_s=deadline_s) as engine:
        for place, over in enumerate((TOOL_ROUND, ANSWER), start=1):
            met = Met(api, engine, conversation=f"c_{place}")
            api.otherwise(partial(met.replies, number=place, with_=misbehave(name, at=at, over=over)))
            await met.turn("do it")
            met.judge(name, at)
            await met.turn(ORDINARY)
            met.judge_ordinary()
        assert refused(api) == []


class Met:
    """One conversation that meets a fault."""

    def __init__(self, api: FakeApi, engine: Engine, *, conversation: str) -> None:
        self._engine = engine
        self._key = ConversationKey("acme", "ann", conversation)
        self._requests = 0
        self._heard = engine.watch(self._key)
        self._records: tuple[JournalRecord, ...] = ()

    def replies(self, asked: Asked, *, number: int, with_: Reply) -> Reply:
        """A turn in two steps, of whose requests the ``number``-th gets another reply."""
        self._requests += 1
        return with_ if self._requests == number else two_steps(asked)

    async def turn(self, text: str) -> None:
        with anyio.fail_after(20):
            await self._engine.ask(text, key=self._key)
        self._records = await self._engine.records(self._key)

    def judge(self, name: str, at: str) -> None:
        """The turn has ended as the tables say."""
        over, failed = self._records[-1], self._of(ModelFailed)
        if name in FAILED:
            assert isinstance(over, TurnFailed)
            assert (over.code, over.offers, over.partial) == (*FAILED[name], ())
            assert [record.retry_at_us for record in failed] == [0] * (name != "unknown_stop_reason")
        elif name in REFUSED:
            assert isinstance(over, TurnRefused)
            assert failed == []
        elif failed:
            self._judge_failure(failed, over, code="model_stream_lost" if name in HARMLESS else code_of(name, at))
        else:
            assert isinstance(over, TurnFinished)
            assert name in HARMLESS or at == "before_message_stop"

    def _judge_failure(self, failed: list[ModelFailed], over: JournalRecord, *, code: str) -> None:
        said = self._heard.said().get(failed[0].call, "")
        assert [record.code for record in failed] == [code]
        assert bool(failed[0].retry_at_us) == (not said)
        if said:
            assert isinstance(over, TurnFailed)
            kept = text_of(over.partial)
            assert (over.code, said in {kept, kept[: open_tail(kept)]}) == (code, True)
            assert over.offers == (Offer.CONTINUE, Offer.RETRY)
        else:
            assert isinstance(over, TurnFinished)

    def judge_ordinary(self) -> None:
        """The turn behind it is an ordinary one, each call has one result, and events follow the journal."""
        assert self._of(TurnFinished)[-1].turn == 2
        replies = self._of(ModelReplied)
        assert text_of(replies[-1].blocks) == "It rains today."
        calls = [block for reply in replies for block in reply.blocks if head_of(block).type == "tool_use"]
        assert len(calls) == len(self._of(ToolFinished))
        told = [event for record in self._records if (event := event_of(record)) is not None]
        assert [event_of(record) for record in self._heard.records] == told

    def _of(self, kind: type[Kind]) -> list[Kind]:
        return [record for record in self._records if isinstance(record, kind)]
