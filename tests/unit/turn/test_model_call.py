"""One model call: a free place, a deadline, and the host's faults as values."""

import anyio
import pytest

from tests.support.doubles import Crash, Gate, Play, PlayedModel, fails, places_of, replies, says, waits
from tests.support.engine import KEY
from torpor.conversation.view import View, preamble_of
from torpor.model.contract import ModelReply, ModelRequest
from torpor.provider_errors import ModelTimedOut, ProviderError, ProviderUnavailable, RequestInvalid
from torpor.records.blocks import canonical, text_block
from torpor.records.events import Delta
from torpor.turn.model_call import ModelCall, ReplySoFar
from torpor.turn.places import FairPlaces

DEADLINE_S = 10


def a_call(*, places: FairPlaces | None = None, deadline_s: float = DEADLINE_S) -> tuple[ModelCall, ReplySoFar]:
    sink = ReplySoFar("1-1-1", publish=lambda delta: None)
    preamble = preamble_of(
        {"model": "m", "max_tokens": 1, "tools": [{"name": "pay", "input_schema": {"type": "object"}}]}
    )
    request = ModelRequest(call="1-1-1", preamble=preamble, view=View().extended("user", [text_block("hi")]))
    return ModelCall(request, sink=sink, places=(places or places_of(1)).of(KEY), deadline_s=deadline_s), sink


async def answer(play: Play, *, places: FairPlaces | None = None) -> ModelReply | ProviderError:
    call, _ = a_call(places=places)
    return await call.answer(PlayedModel([play]))


async def test_a_reply_comes_back_as_it_may_be_stored() -> None:
    nameless = canonical({"type": "tool_use", "id": "", "name": "pay"})
    reply = await answer(replies(text_block(" "), text_block("yes"), nameless, stop_reason="tool_use"))
    assert isinstance(reply, ModelReply)
    stored = canonical({"type": "tool_use", "id": "call_1-1-1_2", "name": "pay", "input": {}})
    assert reply.blocks == (text_block("yes"), stored)


@pytest.mark.parametrize("error", [ProviderUnavailable("overloaded"), RequestInvalid("too odd")])
async def test_a_fault_of_the_host_comes_back_as_a_value_and_what_it_said_is_kept(error: ProviderError) -> None:
    call, sink = a_call()
    assert await call.answer(PlayedModel([fails(error, said=("so ", "far"))])) is error
    assert sink.partial() == (text_block("so far"),)


@pytest.mark.parametrize("bug", [Crash("bug"), TimeoutError("of the adapter's own making")])
async def test_a_bug_of_the_adapter_is_not_a_fault_of_the_host(bug: Exception) -> None:
    places = places_of(1)
    with pytest.raises(type(bug)):
        await answer(fails(bug), places=places)
    assert places.statistics().taken == 0


async def test_a_reply_that_does_not_come_in_time_is_a_fault_of_the_host() -> None:
    call, sink = a_call(deadline_s=0)
    fault = await call.answer(PlayedModel([waits(Gate(), says("never"), said=("so far",))]))
    assert isinstance(fault, ModelTimedOut)
    assert str(fault) == "no complete reply within 0 s"
    assert sink.partial() == (text_block("so far"),)


async def test_calls_wait_for_a_free_place_and_the_wait_does_not_count_against_the_deadline() -> None:
    places, gate = places_of(1), Gate()
    answers: list[ModelReply | ProviderError] = []

    async def ask(play: Play) -> None:
        answers.append(await answer(play, places=places))

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, waits(gate, says("one")))
            await gate.reached.wait()
            tasks.start_soon(ask, says("two"))
            await anyio.wait_all_tasks_blocked()
            assert places.statistics().waiting == 1
            gate.opened.set()
    assert [reply.blocks for reply in answers if isinstance(reply, ModelReply)] == [
        (text_block("one"),),
        (text_block("two"),),
    ]


async def test_a_cancelled_call_gives_its_place_back_and_one_that_waits_leaves_the_queue() -> None:
    places, gate = places_of(1), Gate()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: answer(waits(gate, says("never")), places=places))
            await gate.reached.wait()
            tasks.start_soon(lambda: answer(says("never"), places=places))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    statistics = places.statistics()
    assert (statistics.taken, statistics.waiting) == (0, 0)


def test_offsets_count_characters_as_people_do_not_bytes() -> None:
    shown: list[Delta] = []
    sink = ReplySoFar("1-1-1", publish=shown.append)
    sink.release()
    for piece in ("naïve ", "\U0001f600", "!\n", "."):
        sink.text(piece)
    sink.block(text_block("naïve \U0001f600!\n."))
    assert [delta.offset for delta in shown] == [0, 5, 6, 9]
