"""What comes in between while turns are folded: messages, cancels, deadlines, crashes, kills and sleep."""

import anyio
import pytest

from tests.support.compacting import (
    LONG,
    SMALL,
    always,
    fill,
    fill_until_folded,
    head,
    item,
    next_request,
    summarising,
    summary,
    texts,
    uncounted,
)
from tests.support.doubles import (
    Crash,
    Gate,
    ManualClock,
    Play,
    PlayedModel,
    calls,
    echo,
    fails,
    replies,
    says,
    use,
    waits,
)
from tests.support.engine import AT_ONCE, Engine, running_engine
from torpor.conversation.budget import PROFILES, Profile
from torpor.conversation.fold import fold
from torpor.conversation.snapshot import decode_snapshot
from torpor.conversation.state import ConversationState
from torpor.conversation.summary import CompactionOptions
from torpor.provider_errors import ContextTooLong, Overloaded, ProviderUnavailable
from torpor.records.journal import (
    AttemptStarted,
    CompactionFailed,
    ContextReplaced,
    ModelFailed,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnRefused,
)
from torpor.records.terms import FoldReason, StepKind, WhenBusy
from torpor.store.memory_data import MemoryData

ROOMY = Profile(budget_tokens=8_000, headroom_tokens=500)
"""Between threshold and limit there is room for two turns of ``LONG``."""
GOOD = says(summary(open=[item("denial", "never by mail")]))


@pytest.fixture(name="turns")
async def turns_before_a_fold() -> int:
    """After so many turns of ``LONG`` the next one is folded first."""
    async with running_engine(profile=SMALL, summariser=summarising()) as engine:
        return await fill_until_folded(engine) - 1


class Folding:
    """An engine whose summariser has been asked and waits."""

    def __init__(self, turns: int, *, then: Play = GOOD) -> None:
        self.turns = turns
        self.gate = Gate()
        self.summariser = PlayedModel([waits(self.gate, then), *[GOOD] * 9])

    async def begin(self, engine: Engine) -> None:
        await fill(engine, self.turns)
        await engine.send(f"last {LONG}")
        with anyio.fail_after(5):
            await self.gate.reached.wait()


class TestWhileTheSummariserIsAsked:
    async def test_the_message_is_accepted_and_its_turn_has_started(self, turns: int) -> None:
        folding = Folding(turns)
        async with running_engine(profile=SMALL, summariser=folding.summariser) as engine:
            await folding.begin(engine)
            (attempt,) = await engine.records_of(AttemptStarted)
            assert (attempt.step, attempt.attempt, attempt.turn) == (StepKind.COMPACT, 1, turns + 1)
            folding.gate.opened.set()
            await engine.rested()
            assert len(await engine.records_of(TurnFinished)) == turns + 1

    async def test_a_message_that_queues_is_accepted_and_gets_its_turn(self, turns: int) -> None:
        folding = Folding(turns)
        async with running_engine(profile=SMALL, summariser=folding.summariser) as engine:
            await folding.begin(engine)
            await engine.send("and this")
            folding.gate.opened.set()
            await engine.rested()
            assert texts(engine.model.requests[-1])[-1] == "and this"
            assert len(await engine.records_of(ContextReplaced)) == 1

    async def test_a_message_that_steers_joins_the_call_behind_the_fold(self, turns: int) -> None:
        folding = Folding(turns)
        async with running_engine(profile=SMALL, summariser=folding.summariser) as engine:
            await folding.begin(engine)
            await engine.send("be quick", when_busy=WhenBusy.STEER)
            folding.gate.opened.set()
            await engine.rested()
            assert texts(engine.model.requests[-1])[-2:] == [f"last {LONG}", "be quick"]
            assert head(engine.model.requests[-1])
            assert len(await engine.records_of(TurnFinished)) == turns + 1

    @pytest.mark.parametrize("how", ["cancel", "interrupt"])
    async def test_who_stops_the_turn_stops_the_summariser_and_the_view_is_as_it_was(
        self, turns: int, how: str
    ) -> None:
        folding = Folding(turns)
        async with running_engine(profile=SMALL, summariser=folding.summariser) as engine:
            await folding.begin(engine)
            if how == "cancel":
                await engine.cancel()
                await engine.rested()
                assert texts(await next_request(engine))[0] == f"0 {LONG}"
                await engine.ask("next")
            else:
                await engine.send("next", when_busy=WhenBusy.INTERRUPT)
                await engine.rested()
            (cut,) = await engine.records_of(TurnCancelled)
            (replaced,) = await engine.records_of(ContextReplaced)
            (failed,) = await engine.records_of(CompactionFailed)
            assert texts(engine.model.requests[-1])[-1] == "next"
        assert (cut.turn, replaced.turn) == (turns + 1, turns + 2)
        assert (failed.turn, failed.code, failed.calls) == (turns + 1, "cancelled", 1)

    async def test_a_summary_that_does_not_come_in_time_is_done_without(self, turns: int) -> None:
        folding = Folding(turns)
        options = CompactionOptions(deadline_s=0.01)
        async with running_engine(profile=SMALL, summariser=folding.summariser, compaction=options) as engine:
            await folding.begin(engine)
            await engine.rested()
            (failed,) = await engine.records_of(CompactionFailed)
            assert len(await engine.records_of(TurnFinished)) == turns + 1
            assert texts(engine.model.requests[-1])[0] == f"0 {LONG}"
        assert failed.code == "deadline"


class Killed:
    """What power cuts leave at three moments of one fold."""

    def __init__(self) -> None:
        self.images: dict[str, MemoryData] = {}

    async def live(self, turns: int) -> None:
        asked, answering = Gate(), Gate()
        summariser = PlayedModel([waits(asked, GOOD)])
        plays = [*[echo] * turns, waits(answering, says("answered"))]
        with anyio.fail_after(10):
            async with running_engine(*plays, profile=SMALL, summariser=summariser) as engine:
                heard = engine.watch()
                await fill(engine, turns)
                await engine.send(f"last {LONG}")
                await asked.reached.wait()
                self.images["summariser asked"] = engine.store.image()
                engine.store.hold()
                asked.opened.set()
                await engine.store.holds_one()
                self.images["summary not durable"] = engine.store.image()
                engine.store.let_go()
                await heard.until(ContextReplaced)
                self.images["summary durable"] = engine.store.image()
                answering.opened.set()
                await engine.rested()
                self.images["all over"] = engine.store.image()


class TestAKill:
    @pytest.mark.parametrize(
        ("moment", "attempts", "asked"),
        [("summariser asked", 2, 1), ("summary not durable", 2, 1), ("summary durable", 1, 0), ("all over", 1, 0)],
    )
    async def test_the_turn_goes_on_and_the_view_is_folded_once(
        self, turns: int, moment: str, attempts: int, asked: int
    ) -> None:
        killed, summariser = Killed(), PlayedModel([GOOD])
        await killed.live(turns)
        async with running_engine(profile=SMALL, summariser=summariser, data=killed.images[moment]) as engine:
            await engine.wake()
            await engine.rested()
            begun = [each for each in await engine.records_of(AttemptStarted) if each.step is StepKind.COMPACT]
            (replaced,) = await engine.records_of(ContextReplaced)
            assert [each.attempt for each in begun] == list(range(1, attempts + 1))
            assert len(await engine.records_of(TurnFinished)) == turns + 1
            await engine.ask("and now?")
            assert "- i1-1 (denial, turn 1): never by mail" in head(engine.model.requests[-1])
        assert replaced.reason is FoldReason.SUMMARY
        assert len(summariser.requests) >= asked
        assert (asked == 0) == (summariser.requests == [])

    async def test_a_summary_that_kills_its_process_every_time_is_done_without(self, turns: int) -> None:
        summariser = always(fails(Crash()))
        async with running_engine(profile=SMALL, summariser=summariser) as engine:
            await fill(engine, turns)
            await engine.insist(f"last {LONG}")
            await engine.rested()
            begun = [each for each in await engine.records_of(AttemptStarted) if each.step is StepKind.COMPACT]
            (failed,) = await engine.records_of(CompactionFailed)
            assert len(await engine.records_of(TurnFinished)) == turns + 1
        assert [each.attempt for each in begun] == [1, 2, 3]
        assert failed.code == "crashed"
        assert len(summariser.requests) == 3


class TestSleep:
    async def test_a_conversation_wakes_as_it_went_to_sleep(self) -> None:
        async with running_engine(profile=SMALL, summariser=PlayedModel([GOOD] * 9)) as engine:
            await fill_until_folded(engine, folds=2)
            request, records = await next_request(engine), await engine.records()
            await engine.hibernate()
            (snapshot, image) = engine.store.snapshots[-1], engine.store.image()
        assert decode_snapshot(snapshot.data) == fold(ConversationState(), records[: snapshot.seq])
        async with running_engine(profile=SMALL, summariser=PlayedModel([GOOD]), data=image) as engine:
            await engine.ask("and now?")
            assert texts(engine.model.requests[-1]) == [*texts(request), "and now?"]


class TestFailingSummarisers:
    async def test_one_attempt_a_turn_and_after_some_failures_none_for_a_while(self) -> None:
        clock, summariser = ManualClock(), always(fails(ProviderUnavailable("down")))
        options = CompactionOptions(failures_max=2, cool_down_s=60.0)
        window = Profile(budget_tokens=40_000, headroom_tokens=500)
        looks = [calls(use("look", "a"), text="t" * 9_000), calls(use("look", "b")), says("ok")]
        async with running_engine(
            *[play for _ in range(30) for play in looks],
            profile=window,
            summariser=summariser,
            compaction=options,
            clock=clock,
        ) as engine:
            tried = list[int]()
            for _ in range(30):
                before_it = len(await engine.records_of(CompactionFailed))
                await engine.ask("look")
                tried.append(len(await engine.records_of(CompactionFailed)) - before_it)
                if sum(tried) and len(tried) > tried.index(1) + 4:
                    break
            first = tried.index(1)
            assert tried[first:] == [1, 1, 0, 0, 0]
            untils = [each.left_alone_until_us for each in await engine.records_of(CompactionFailed)]
            assert untils == [0, clock.now_us() + 60_000_000]
            clock.advance(60)
            await engine.ask("look")
            await engine.ask("look")
            assert len(await engine.records_of(CompactionFailed)) == 3
            assert await engine.records_of(TurnFailed) == []

    async def test_one_that_works_again_closes_the_circuit(self) -> None:
        fault = fails(ProviderUnavailable("down"))
        summariser = PlayedModel([fault, fault, *[GOOD] * 9])
        async with running_engine(profile=ROOMY, summariser=summariser) as engine:
            await fill_until_folded(engine)
            assert (await engine.state()).fold_failures == 0
            assert len(await engine.records_of(CompactionFailed)) == 1


class TestProfiles:
    @pytest.mark.parametrize(
        ("profile", "turns"),
        [
            (PROFILES["companion"], 12),
            (Profile(messages_max=10), 5),
            (Profile(conversation_tokens=4_000), 6),
        ],
    )
    async def test_the_limits_of_a_profile_lead_to_the_same_fold(self, profile: Profile, turns: int) -> None:
        async with running_engine(profile=profile, summariser=PlayedModel([GOOD] * 9)) as engine:
            assert await fill_until_folded(engine) == turns + 1
            (replaced,) = await engine.records_of(ContextReplaced)
        assert replaced.reason is FoldReason.SUMMARY
        assert replaced.turns == (1, turns - 2)

    async def test_an_agent_without_a_summariser_folds_without_a_model(self) -> None:
        async with running_engine(profile=PROFILES["companion"]) as engine:
            assert await fill_until_folded(engine) == 13
            (replaced,) = await engine.records_of(ContextReplaced)
        assert (replaced.reason, replaced.model, replaced.calls) == (FoldReason.MECHANICAL, "", 0)


class TestTheTurnThatWasFolded:
    async def test_a_refusal_goes_back_to_the_folded_view(self, turns: int) -> None:
        plays = [*[echo] * turns, uncounted(replies(stop_reason="refusal"))]
        async with running_engine(*plays, profile=SMALL, summariser=PlayedModel([GOOD] * 9)) as engine:
            await fill(engine, turns)
            await engine.ask(f"last {LONG}")
            assert len(await engine.records_of(TurnRefused)) == 1
            request = await next_request(engine)
            assert head(request)
            assert f"last {LONG}" not in texts(request)
            await engine.ask("and now?")
            assert len(await engine.records_of(ContextReplaced)) == 1
            assert texts(engine.model.requests[-1])[-1] == "and now?"

    async def test_a_call_that_is_asked_again_is_asked_with_the_folded_view(self, turns: int) -> None:
        plays = [*[echo] * turns, fails(Overloaded("busy"))]
        async with running_engine(*plays, profile=SMALL, summariser=PlayedModel([GOOD] * 9), retry=AT_ONCE) as engine:
            await fill(engine, turns)
            await engine.ask(f"last {LONG}")
            assert engine.model.requests[-1] == engine.model.requests[-2]
            assert head(engine.model.requests[-1])
            assert len(await engine.records_of(ContextReplaced)) == 1
            assert len(await engine.records_of(ModelFailed)) == 1

    async def test_a_request_too_long_for_its_host_is_folded_by_the_summariser_and_asked_again_once(self) -> None:
        too_long = fails(ContextTooLong("300000 tokens, 200000 fit"))
        summariser = PlayedModel([GOOD])
        async with running_engine(*[echo] * 5, too_long, summariser=summariser) as engine:
            await fill(engine, 6)
            (failed,) = await engine.records_of(ModelFailed)
            (replaced,) = await engine.records_of(ContextReplaced)
            assert len(await engine.records_of(TurnFinished)) == 6
        assert (replaced.reason, failed.next_model) == (FoldReason.SUMMARY, "")
        assert failed.retry_at_us > 0

    async def test_a_first_message_too_long_for_its_host_is_not_asked_again(self) -> None:
        async with running_engine(fails(ContextTooLong("300000 tokens, 200000 fit"))) as engine:
            await engine.ask("hello")
            (failed,) = await engine.records_of(TurnFailed)
            assert await engine.records_of(ContextReplaced) == []
            assert len(engine.model.requests) == 1
        assert failed.code == ContextTooLong.code
