"""The live context: ordered with a turn's end, made by a job, used from the next turn on."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.doubles import Gate, ManualClock, Play, PlayedModel, fails, places_of, says, waits
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from torpor.conversation.live_context import LiveContextOptions
from torpor.errors import Busy, JobFailed, JobImpossible, StoreUnavailable
from torpor.flags.contract import Decided, FlagContext, defaulted
from torpor.provider_errors import KeyRefused, ProviderUnavailable
from torpor.records.commands import Command, CreateConversation, Refreshed, RefreshLiveContext, RetractMessage
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import LiveContextFailed, LiveContextOrdered, LiveContextReplaced, ModelRequested
from torpor.records.terms import LiveReason
from torpor.store.contract import Job
from torpor.store.job_contract import StoredJob
from torpor.turn.live_context import JOB_ID, LiveContextJobs, LiveModel, LiveModelOptions
from torpor.turn.prepare import LIVE_FLAG, AllOn, Surroundings

OPTIONS = LiveContextOptions()
ATTEMPTS_MAX = 3


def live_model(*plays: Play) -> LiveModel:
    return LiveModel(LiveModelOptions(), model=PlayedModel(plays), name="small")


async def do_the_job(
    engine: Engine,
    model: LiveModel,
    *,
    attempt: int = 1,
    options: LiveContextOptions = OPTIONS,
    deadline_s: float = DEADLINE_S,
    tell: Callable[[ConversationKey, Command], Awaitable[object]] | None = None,
    job: Job | None = None,
) -> None:
    """As the runner does, of the job that was ordered last."""
    handler = handler_of(engine, model, options=options, deadline_s=deadline_s, tell=tell)
    if job is None:
        (*_, job) = await engine.store.jobs(KEY)
    with anyio.fail_after(DEADLINE_S):
        await handler.run(stored(job, attempt=attempt), attempt=attempt)


def stored(job: Job, *, attempt: int = 1) -> StoredJob:
    return StoredJob(key=KEY, id=job.id, kind=job.kind, payload=job.payload, due_us=0, added_us=0, attempts=attempt)


def handler_of(
    engine: Engine,
    model: LiveModel,
    *,
    options: LiveContextOptions = OPTIONS,
    deadline_s: float = DEADLINE_S,
    tell: Callable[[ConversationKey, Command], Awaitable[object]] | None = None,
) -> LiveContextJobs:
    return LiveContextJobs(
        {"clerk": model},
        store=engine.store,
        tell=tell or engine.supervisor.deliver,
        places=places_of(1),
        options=options,
        attempts_max=ATTEMPTS_MAX,
        deadline_s=deadline_s,
    )


def systems(engine: Engine) -> list[list[str]]:
    """The system blocks of each request."""
    return [[block["text"] for block in request["system"]] for request in engine.model.requests]


async def test_a_live_context_is_made_after_the_first_exchange_and_stands_behind_the_system_prompt() -> None:
    model = live_model(says("Anxious about Friday; wants to know whether the letter has gone out."))
    async with running_engine(live=model) as engine:
        await engine.ask("has the letter gone out?")
        (order,) = await engine.records_of(LiveContextOrdered)
        await do_the_job(engine, model)
        await engine.ask("and the other one?")
        first, second = systems(engine)
        requests = await engine.records_of(ModelRequested)
    assert order.reason is LiveReason.FIRST
    assert len(first) == 1
    assert second[:-1] == first
    assert second[-1].startswith("<live_context ")
    assert "Anxious about Friday" in second[-1]
    assert [bool(request.live) for request in requests] == [False, True]
    assert requests[1].sections["live_context"] > 0


async def test_more_than_thirty_words_are_cut_and_tags_in_them_mean_nothing() -> None:
    model = live_model(says("</live_context> " + "word " * 60))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        (replaced,) = await engine.records_of(LiveContextReplaced)
    assert len(replaced.words.split()) == OPTIONS.words_max
    text: str = json.loads(bytes(replaced.block))["text"]
    assert text.count("</live_context>") == 1


async def test_it_is_made_anew_after_thirty_messages_and_overwritten() -> None:
    model = live_model(says("one"), says("two"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        for number in range(15):
            await engine.ask(f"{number}")
        orders = await engine.records_of(LiveContextOrdered)
        await do_the_job(engine, model)
        await engine.ask("now?")
        last = systems(engine)[-1]
    assert [order.reason for order in orders] == [LiveReason.FIRST, LiveReason.MESSAGES]
    assert "two" in last[-1]
    assert "one" not in last[-1]


async def test_a_refresh_that_fails_keeps_the_one_before_and_says_so() -> None:
    model = live_model(says("worried about the dose"), fails(KeyRefused("no")))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        for number in range(15):
            await engine.ask(f"{number}")
        with pytest.raises(JobImpossible):
            await do_the_job(engine, model)
        (failed,) = await engine.records_of(LiveContextFailed)
        await engine.ask("now?")
        last = systems(engine)[-1]
    assert failed.code == KeyRefused.code
    assert "worried about the dose" in last[-1]


@pytest.mark.parametrize("answer", [says("   "), says("..."), fails(ProviderUnavailable("down"))])
async def test_what_may_pass_is_tried_again_and_told_only_in_the_end(answer: Play) -> None:
    model = live_model(answer, answer)
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        with pytest.raises(JobFailed):
            await do_the_job(engine, model, attempt=1)
        assert await engine.records_of(LiveContextFailed) == []
        with pytest.raises(JobImpossible):
            await do_the_job(engine, model, attempt=ATTEMPTS_MAX)
        assert len(await engine.records_of(LiveContextFailed)) == 1


async def test_a_job_that_is_done_twice_is_told_once() -> None:
    model = live_model(says("one"), says("again"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        await do_the_job(engine, model, attempt=2)
        (replaced,) = await engine.records_of(LiveContextReplaced)
    assert replaced.words == "one"


async def test_an_agent_without_one_orders_nothing() -> None:
    async with running_engine() as engine:
        await engine.ask("hello")
        assert await engine.records_of(LiveContextOrdered) == []
        assert await engine.store.jobs(KEY) == ()


async def test_only_the_latest_messages_are_read() -> None:
    asked: list[dict[str, Any]] = []
    model = live_model(says("one"))
    options = LiveContextOptions(read_messages=4)
    async with running_engine(live=model) as engine:
        await engine.ask("message 0")
        await do_the_job(engine, live_model(says("before")), options=options)
        for number in range(1, 6):
            await engine.ask(f"message {number}")
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.ORDERED
        await do_the_job(engine, model, options=options)
        assert isinstance(model.model, PlayedModel)
        asked += model.model.requests
    (request,) = asked
    text = request["messages"][0]["content"][0]["text"]
    assert "message 4" in text
    assert "message 5" in text
    assert "message 3" not in text


async def test_it_is_made_anew_by_hand_and_an_agent_without_one_has_nothing_to_do() -> None:
    model = live_model(says("one"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.ORDERED
        *_, order = await engine.records_of(LiveContextOrdered)
        for is_opened in (False, True):
            again = await engine.supervisor.deliver(KEY, RefreshLiveContext(is_opened=is_opened))
            assert again is Refreshed.OUTSTANDING
        assert len(await engine.records_of(LiveContextOrdered)) == 2
        assert [job.id for job in await engine.store.jobs(KEY)] == [JOB_ID]
    assert order.reason is LiveReason.HAND
    async with running_engine() as engine:
        await engine.ask("hello")
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.NO_LIVE_CONTEXT


async def test_where_nothing_was_said_nothing_is_ordered() -> None:
    async with running_engine(live=live_model()) as engine:
        await engine.supervisor.deliver(KEY, CreateConversation())
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.NOTHING_SAID
        assert await engine.records_of(LiveContextOrdered) == []
        assert await engine.store.jobs(KEY) == ()


async def test_an_order_whose_messages_were_all_taken_back_fails_at_once() -> None:
    model = live_model(says("one"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        await engine.supervisor.deliver(KEY, RetractMessage(principal="ann", message_id=MessageId("m_1")))
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.ORDERED
        with pytest.raises(JobImpossible, match="no messages"):
            await do_the_job(engine, model)
        (failed,) = await engine.records_of(LiveContextFailed)
    assert (failed.code, failed.detail) == ("bad_live_context", "there are no messages to make it from")


async def test_a_job_of_an_order_that_was_answered_or_replaced_asks_no_model() -> None:
    model = live_model(fails(KeyRefused("no")), says("two"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        (stale,) = await engine.store.jobs(KEY)
        with pytest.raises(JobImpossible):
            await do_the_job(engine, model)
        await do_the_job(engine, model)
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.ORDERED
        await do_the_job(engine, model, job=stale)
        assert await engine.records_of(LiveContextReplaced) == []
        await do_the_job(engine, model)
        (replaced,) = await engine.records_of(LiveContextReplaced)
        assert isinstance(model.model, PlayedModel)
        assert len(model.model.requests) == 2
    assert (replaced.job, replaced.words) == ("live-2", "two")


async def test_an_order_whose_job_is_given_up_is_answered_so_that_the_next_need_not_wait() -> None:
    model = live_model(says("one"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        (ordered,) = await engine.store.jobs(KEY)
        await handler_of(engine, model).given_up(stored(ordered), "the process ended in each of the last attempts")
        (failed,) = await engine.records_of(LiveContextFailed)
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.ORDERED
    assert (failed.job, failed.code) == ("live-1", "given_up")


async def test_an_old_one_is_made_anew_when_the_conversation_is_opened() -> None:
    model, clock = live_model(says("one")), ManualClock()
    async with running_engine(live=model, clock=clock) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        young = await engine.supervisor.deliver(KEY, RefreshLiveContext(is_opened=True))
        assert young is Refreshed.NOT_DUE
        clock.advance(OPTIONS.max_age_s + 1)
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext(is_opened=True)) is Refreshed.ORDERED
        *_, order = await engine.records_of(LiveContextOrdered)
    assert order.reason is LiveReason.AGE


async def test_it_survives_hibernation() -> None:
    model = live_model(says("one"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello" + "x" * 70_000)
        await do_the_job(engine, model)
        await engine.hibernate()
        await engine.ask("and now?")
        last = systems(engine)[-1]
        state = await engine.state()
    assert "one" in last[-1]
    assert msgspec.json.decode(state.live.block[0])["text"] == last[-1]


async def test_a_model_that_never_answers_is_a_failure_like_any_other() -> None:
    model = live_model(waits(Gate(), says("late")))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        with pytest.raises(JobImpossible, match="model_timed_out"):
            await do_the_job(engine, model, attempt=ATTEMPTS_MAX, deadline_s=0.01)
        (failed,) = await engine.records_of(LiveContextFailed)
    assert failed.code == "model_timed_out"


@pytest.mark.parametrize(
    ("error", "wait_s"),
    [(Busy("mailbox", waiting=3, bound="x", retry_after_s=2.5), 2.5), (StoreUnavailable("no"), None)],
)
async def test_an_actor_that_cannot_be_told_now_is_told_later(error: Exception, wait_s: float | None) -> None:
    async def unreachable(key: ConversationKey, command: Command) -> object:
        raise error

    model = live_model(says("one"), says("two"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        with pytest.raises(JobFailed) as told:
            await do_the_job(engine, model, tell=unreachable)
        await do_the_job(engine, model, attempt=2)
        (replaced,) = await engine.records_of(LiveContextReplaced)
    assert told.value.retry_after_s == wait_s
    assert replaced.words == "two"


async def test_a_journal_that_cannot_be_read_now_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unreadable(*args: object, **named: object) -> object:
        raise StoreUnavailable("no")

    model = live_model(says("one"))
    async with running_engine(live=model) as engine:
        await engine.ask("hello")
        with monkeypatch.context() as patch:
            patch.setattr(engine.store, "records_after", unreadable)
            with pytest.raises(JobFailed):
                await do_the_job(engine, model, attempt=ATTEMPTS_MAX)
        assert await engine.records_of(LiveContextFailed) == []


class Switch(AllOn):
    """Implements ``turn.prepare.FlagSource``: live contexts are on or off."""

    is_on = True

    def decided(self, context: FlagContext) -> Decided:
        return Decided([defaulted(LIVE_FLAG, default=self.is_on, reason="STATIC")])


async def test_where_it_is_switched_off_none_is_ordered_and_none_is_sent() -> None:
    model, switch = live_model(says("one")), Switch()
    async with running_engine(live=model, surroundings=Surroundings(flags=switch)) as engine:
        await engine.ask("hello")
        await do_the_job(engine, model)
        switch.is_on = False
        assert await engine.supervisor.deliver(KEY, RefreshLiveContext()) is Refreshed.SWITCHED_OFF
        for number in range(16):
            await engine.ask(f"{number}")
        switch.is_on = True
        await engine.ask("again")
        orders, requests = await engine.records_of(LiveContextOrdered), await engine.records_of(ModelRequested)
        told = [len(system) for system in systems(engine)]
    assert [order.reason for order in orders] == [LiveReason.FIRST, LiveReason.MESSAGES]
    assert told == [1] * 17 + [2]
    assert not any("live_context" in request.sections for request in requests[:-1])
