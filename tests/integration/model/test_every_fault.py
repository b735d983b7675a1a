"""Every fault at every position of a two-step turn: one defined end, and nothing that a later request trips over."""

import re
from collections.abc import Sequence
from typing import Final, TypeVar

import anyio
import pytest

from tests.integration.model.real_host import ANSWER, ORDINARY, TOOL_ROUND, host_of, refused, talking_to, two_steps
from tests.support.doubles import ManualClock
from tests.support.engine import Engine
from torpor.conversation.graphemes import open_tail
from torpor.conversation.publish import event_of, text_of
from torpor.model.circuit import Circuit, CircuitOptions
from torpor.records.blocks import head_of
from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    JournalRecord,
    ModelFailed,
    ModelReplied,
    ToolFinished,
    TurnFailed,
    TurnFinished,
    TurnRefused,
)
from torpor.records.terms import Offer, Outcome
from torpor.turn.options import TurnOptions
from torpor_fake_api.scripting.catalogue import CATALOGUE, every, misbehave
from torpor_fake_api.scripting.replies import Reply
from torpor_fake_api.scripting.script import Asked
from torpor_fake_api.server import serving

Kind = TypeVar("Kind", bound=JournalRecord)
RETRY, NOTHING = (Offer.RETRY,), ()
FAILED: Final[dict[str, tuple[str, tuple[Offer, ...]]]] = {
    "invalid_request": ("model_request_invalid", NOTHING),
    "prompt_too_long": ("model_context_too_long", NOTHING),
    "spend_limit": ("model_billing_refused", RETRY),
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
STALLS_S: Final = 1.0
"""Long for a fault that is waited for, and for everything else that happens meanwhile."""
EVERYWHERE: Final = [("asyncio", name, row.positions) for name, row in CATALOGUE.items()]
FIRST: Final = [("trio", name, row.positions[:1]) for name, row in CATALOGUE.items()]
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


@pytest.mark.parametrize(
    ("anyio_backend", "name", "positions"),
    [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in (*EVERYWHERE, *FIRST)],
)
async def test_a_fault_has_one_defined_end_and_leaves_a_conversation_that_works(
    name: str, positions: tuple[str, ...]
) -> None:
    """At every position of the first reply of a turn and of the one behind its tool round, side by side."""
    clock = ManualClock()
    circuit = Circuit(CircuitOptions(failures_max=1_000), clock=clock)
    deadline_s = STALLS_S if name in STALLS else 10.0
    async with serving(profile="strict") as api:
        host = host_of(api, clock=clock, circuit=circuit, progress_deadline_s=deadline_s)
        async with talking_to(api, host=host, turn=TurnOptions(model_calls_max=64, cancel_grace_s=0.0)) as engine:
            met = {
                f"c_{place}_{number}": Met(
                    engine, f"c_{place}_{number}", number=number, fault=misbehave(name, at=at, over=over)
                )
                for place, at in enumerate(positions)
                for number, over in enumerate((TOOL_ROUND, ANSWER), start=1)
            }
            api.otherwise(lambda asked: met[conversation_of(asked)].reply(asked))
            async with anyio.create_task_group() as tasks:
                for conversation, one in met.items():
                    tasks.start_soon(one.go_through, name, positions[int(conversation.split("_")[1])])
            done = [record.outcome for one in met.values() for record in one.of(ToolFinished)]
            assert len(engine.ledger.of("started")) == done.count(Outcome.SUCCEEDED)
        assert refused(api) == []


def conversation_of(asked: Asked) -> str:
    """The user names it in every message."""
    named = re.search(r"c_\d+_\d+", str(asked.body["messages"]))
    assert named is not None
    return named[0]


class Ends:
    """Implements ``bus.contract.Subscriber``: tells when a turn is over."""

    def __init__(self) -> None:
        self.is_over = anyio.Event()

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        if any(isinstance(record, TurnFinished | TurnFailed | TurnRefused) for record in records):
            self.is_over.set()

    def on_delta(self, key: ConversationKey, delta: Delta) -> None: ...

    def on_standing(self, key: ConversationKey) -> None: ...

    def on_gone(self, key: ConversationKey) -> None: ...

    def on_progress(self, key: ConversationKey, progress: Progress) -> None: ...


class Met:
    """One conversation that meets a fault."""

    def __init__(self, engine: Engine, conversation: str, *, number: int, fault: Reply) -> None:
        """Args: number: of the request that gets ``fault``; the others get a turn in two steps."""
        self._engine = engine
        self._conversation = conversation
        self._number = number
        self._fault = fault
        self._key = ConversationKey("acme", "ann", conversation)
        self._requests = 0
        self._heard = engine.watch(self._key)
        self._records: tuple[JournalRecord, ...] = ()

    def reply(self, asked: Asked) -> Reply:
        self._requests += 1
        return self._fault if self._requests == self._number else two_steps(asked)

    async def go_through(self, name: str, at: str) -> None:
        await self.turn("do it")
        self.judge(name, at)
        await self.turn(ORDINARY)
        self.judge_ordinary()

    async def turn(self, text: str) -> None:
        ends = Ends()
        self._engine.bus.subscribe(self._key, ends)
        with anyio.fail_after(20):
            await self._engine.send(f"{text} in {self._conversation}", key=self._key)
            await ends.is_over.wait()
            await self._engine.rested(self._key)
        self._engine.bus.unsubscribe(self._key, ends)
        self._records = await self._engine.records(self._key)

    def judge(self, name: str, at: str) -> None:
        """The turn has ended as the tables say."""
        over, failed = self._records[-1], self.of(ModelFailed)
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
        assert self.of(TurnFinished)[-1].turn == 2
        replies = self.of(ModelReplied)
        assert text_of(replies[-1].blocks) == "It rains today."
        calls = [reply for reply in replies for block in reply.blocks if head_of(block).type == "tool_use"]
        assert {reply.stop_reason for reply in calls} <= {"tool_use"}
        assert len(calls) == len(self.of(ToolFinished))
        told = [event for record in self._records if (event := event_of(record)) is not None]
        assert [event_of(record) for record in self._heard.records] == told

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [record for record in self._records if isinstance(record, kind)]
