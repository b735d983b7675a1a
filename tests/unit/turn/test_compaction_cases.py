"""Compactions that went wrong elsewhere, one by one."""

import json
from typing import Any

import msgspec
import pytest

from tests.support.compacting import (
    LONG,
    SMALL,
    always,
    blocks,
    counted,
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
from tests.support.doubles import Gate, Play, PlayedModel, calls, echo, reads, replies, says, use, waits
from tests.support.engine import SMALL_WINDOW_TOKENS, Engine, running_engine
from tests.support.skills import catalogue_of
from torpor.conversation.earlier import READ_EARLIER
from torpor.conversation.summary import CompactionOptions
from torpor.errors import ToolFailed
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.blocks import Block, canonical, text_block
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    ModelRequested,
    SkillLoaded,
    TurnFailed,
    TurnFinished,
)
from torpor.records.terms import FoldReason, Usage
from torpor.skillbook.catalogue import Catalogue
from torpor.toolhost.contract import ToolContext
from torpor.turn.prepare import Surroundings


async def folds(engine: Engine) -> list[FoldReason]:
    return [record.reason for record in await engine.records_of(ContextReplaced)]


class TestFixedPartsThatAreTooLarge:
    async def test_above_the_threshold_no_summary_is_ever_asked_for_and_the_conversation_answers(self) -> None:
        summariser = summarising()
        async with running_engine(profile=SMALL, summariser=summariser, system="s" * 4 * 5_000) as engine:
            for number in range(30):
                await engine.ask(f"hi {number}")
            failed = await engine.records_of(TurnFailed)
            reasons = await folds(engine)
        assert summariser.requests == []
        assert failed == []
        assert {*reasons} == {FoldReason.MECHANICAL}

    async def test_above_the_limit_every_turn_says_so_and_nobody_is_asked(self) -> None:
        summariser = summarising()
        async with running_engine(profile=SMALL, summariser=summariser, system="s" * 4 * 5_600) as engine:
            for number in range(5):
                await engine.ask(f"hi {number}")
            failed = await engine.records_of(TurnFailed)
            assert await folds(engine) == []
            assert engine.model.requests == []
        assert [record.code for record in failed] == ["fixed_context_too_large"] * 5
        assert "5500 fit" in failed[0].detail
        assert summariser.requests == []


class TestWhatIsMeasured:
    async def test_a_fold_is_not_repeated_before_a_reply_has_measured_it(self) -> None:
        """Whatever asks in between: a cancel, a sleep, another message."""
        async with running_engine(host=always(counted), profile=SMALL, summariser=summarising()) as engine:
            turns = await fill_until_folded(engine)
        summariser, gate = summarising(), Gate()
        plays = [*[counted] * (turns - 1), waits(gate, counted), *[counted] * 9]
        async with running_engine(*plays, profile=SMALL, summariser=summariser) as engine:
            await fill(engine, turns - 1)
            await engine.send(LONG)
            await gate.reached.wait()
            await engine.cancel()
            await engine.rested()
            assert (await engine.state()).is_measured is False
            await engine.hibernate()
            image = engine.store.image()
        async with running_engine(*plays[-9:], profile=SMALL, summariser=summariser, data=image) as engine:
            await engine.ask(LONG)
            state, requested = await engine.state(), (await engine.records_of(ModelRequested))[-1]
            assert len(await folds(engine)) == 1
        assert state.is_measured
        assert requested.estimated_tokens < 0.8 * SMALL.budget_tokens
        assert len(summariser.requests) == 1

    async def test_what_the_host_counted_before_a_fold_does_not_count_after_it(self) -> None:
        async with running_engine(host=always(counted), profile=SMALL, summariser=summarising()) as engine:
            await fill_until_folded(engine)
            (replaced,) = await engine.records_of(ContextReplaced)
            requested = (await engine.records_of(ModelRequested))[-1]
        assert requested.estimated_tokens == pytest.approx(replaced.after_tokens, rel=0.02)
        assert replaced.after_tokens < replaced.before_tokens / 2

    async def test_what_a_cache_has_read_counts_like_everything_else(self) -> None:
        async def cached(request: ModelRequest, sink: ReplySink) -> ModelReply:
            reply = await counted(request, sink)
            usage = Usage(input_tokens=3, cache_read_input_tokens=reply.usage.input_tokens)
            return msgspec.structs.replace(reply, usage=usage)

        async with running_engine(host=always(cached), profile=SMALL, summariser=summarising()) as engine:
            assert await fill_until_folded(engine, turns_max=12)


class TestASummariserOfASmallWindow:
    async def test_a_history_of_many_times_its_window_is_read_in_pieces_and_the_journal_stays(self) -> None:
        async with running_engine() as engine:
            await fill(engine, 40)
            before, image = await engine.records(), engine.store.image()
        summariser = summarising()
        async with running_engine(profile=SMALL, summariser=summariser, data=image) as engine:
            await engine.ask("and now?")
            (replaced,) = await engine.records_of(ContextReplaced)
            after = await engine.records()
            requested = (await engine.records_of(ModelRequested))[-1]
        assert after[: len(before)] == before
        assert (replaced.reason, replaced.turns) == (FoldReason.SUMMARY, (1, 38))
        assert replaced.calls == len(summariser.requests) > 1
        read = [len(json.dumps(request)) for request in summariser.requests]
        assert max(read) < SMALL_WINDOW_TOKENS * 4
        assert requested.estimated_tokens <= 0.8 * SMALL.budget_tokens


class TestASummariserThatSaysNothing:
    @pytest.mark.parametrize(
        "bad",
        [
            pytest.param(says(""), id="empty"),
            pytest.param(says(" \n"), id="whitespace"),
            pytest.param(replies(canonical({"type": "thinking", "thinking": "hm", "signature": "s"})), id="thinking"),
            pytest.param(calls(use("look", "a")), id="a tool call"),
            pytest.param(replies(stop_reason="refusal"), id="a refusal"),
        ],
    )
    async def test_it_is_asked_once_more_and_the_turn_goes_on_with_the_history_as_it_was(self, bad: Play) -> None:
        summariser = PlayedModel([bad, bad, *[says(summary())] * 9])
        async with running_engine(profile=SMALL, summariser=summariser) as engine:
            for number in range(9):
                await engine.ask(f"{number} {LONG}")
                if summariser.requests:
                    break
            (failed,) = await engine.records_of(CompactionFailed)
            assert await folds(engine) == []
            assert head(engine.model.requests[-1]) == ""
            assert texts(engine.model.requests[-1])[0] == f"0 {LONG}"
            assert len(await engine.records_of(TurnFinished)) == number + 1
            await engine.ask("once more")
            assert await folds(engine) == [FoldReason.SUMMARY]
        assert (failed.code, failed.calls) == ("bad_summary", 2)
        assert len(summariser.requests) > 2


class TestWhatMayNotBeLost:
    async def test_denials_corrections_and_proposals_survive_a_lazy_summariser_many_times(self) -> None:
        opened = [
            item("denial", "never email the client", 3),
            item("correction", "the deadline is Friday, not Monday", 3),
            item("proposal", "refund order 7", 2),
            item("question", "which account?", 1),
        ]
        summariser = PlayedModel([says(summary(open=opened)), *[says("ok.")] * 10])
        async with running_engine(profile=SMALL, summariser=summariser) as engine:
            for folded in range(1, 12):
                await fill_until_folded(engine, folds=folded)
                told = head(engine.model.requests[-1])
                assert f"generation {folded}." in told
                for number, each in enumerate(opened, 1):
                    assert f"- i1-{number} ({each['kind']}, turn {each['turn']}): {each['text']}" in told
        assert len(summariser.requests) == 11

    async def test_an_item_leaves_by_the_turn_that_closed_it_and_no_other_way(self) -> None:
        answers = [
            summary(open=[item("denial", "never by mail"), item("question", "which dose?")]),
            summary("still", closed=[{"id": "i1-1", "turn": 99}, {"id": "i1-2"}, {"id": "i7-7", "turn": 1}]),
            summary("done", closed=[{"id": "i1-2", "turn": 4}]),
        ]
        async with running_engine(profile=SMALL, summariser=PlayedModel(map(says, answers))) as engine:
            await fill_until_folded(engine, folds=2)
            assert "i1-1" in head(engine.model.requests[-1])
            assert "i1-2" in head(engine.model.requests[-1])
            await fill_until_folded(engine, folds=3)
            assert "i1-1" in head(engine.model.requests[-1])
            assert "i1-2" not in head(engine.model.requests[-1])

    async def test_the_mechanical_fold_keeps_them_as_well(self) -> None:
        summariser = PlayedModel([says(summary(open=[item("denial", "never by mail")])), *[says("")] * 99])
        async with running_engine(profile=SMALL, summariser=summariser) as engine:
            await fill_until_folded(engine, folds=3)
            assert {*(await folds(engine))[1:]} == {FoldReason.MECHANICAL}
            assert "- i1-1 (denial, turn 1): never by mail" in head(engine.model.requests[-1])


class Shelf:
    """Implements ``turn.prepare.SkillShelf``."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.current = catalogue


async def load(arguments: dict[str, Any], context: ToolContext) -> str:
    assert context.skills is not None
    return context.skills.load(arguments["name"])


def loads(call_id: str) -> Play:
    return calls(use("load_skill", call_id, name="refunds"))


class TestSkillsThatWereLoaded:
    RULE = "Never refund more than 40 crowns without asking."

    async def test_the_text_of_a_skill_is_in_every_request_once_after_a_fold_and_is_not_loaded_twice(self) -> None:
        shelf = Shelf(catalogue_of(refunds=self.RULE))
        plays = [loads("a"), says("ready"), *[echo] * 12, loads("b")]
        async with running_engine(
            *plays,
            tools=(reads("load_skill", load),),
            profile=SMALL,
            summariser=summarising(),
            surroundings=Surroundings(skills=shelf),
        ) as engine:
            await engine.ask("learn")
            while len(await folds(engine)) < 1:
                await fill(engine, 1)
            (loaded,) = await engine.records_of(SkillLoaded)
            assert json.dumps(engine.model.requests[-1]).count(self.RULE) == 1
            mark = f"[Skill refunds, version {loaded.digest[:12]}, loaded earlier:]"
            assert mark in texts(engine.model.requests[-1])[1]
            assert f"Skills loaded: refunds ({loaded.digest[:12]})." in head(engine.model.requests[-1])
            engine.model.plays.clear()
            engine.model.plays.extend([loads("b"), says("I know")])
            await engine.ask("learn again")
            assert "is already loaded" in json.dumps(engine.model.requests[-1])
            assert json.dumps(engine.model.requests[-1]).count(self.RULE) == 1
            await fill_until_folded(engine, folds=2)
            assert json.dumps(engine.model.requests[-1]).count(self.RULE) == 1

    async def test_a_skill_that_was_taken_away_meanwhile_is_forgotten_and_can_be_loaded_when_it_is_back(self) -> None:
        shelf = Shelf(catalogue_of(refunds=self.RULE))
        async with running_engine(
            loads("a"),
            says("ready"),
            tools=(reads("load_skill", load),),
            profile=SMALL,
            summariser=summarising(),
            surroundings=Surroundings(skills=shelf),
        ) as engine:
            await engine.ask("learn")
            shelf.current = catalogue_of("visits")
            await fill_until_folded(engine)
            (replaced,) = await engine.records_of(ContextReplaced)
            assert (replaced.skills, replaced.forgotten) == ((), ("refunds",))
            assert self.RULE not in json.dumps(engine.model.requests[-1])
            shelf.current = catalogue_of(refunds=self.RULE)
            engine.model.plays.extend([loads("b"), says("ready")])
            await engine.ask("learn again")
            assert len(await engine.records_of(SkillLoaded)) == 2
            assert json.dumps(engine.model.requests[-1]).count(self.RULE) == 1


THINKING: tuple[Block, ...] = tuple(
    canonical({"type": "thinking", "thinking": f"hm {number} \u00e9", "signature": f"c2ln{number}=="})
    for number in range(3)
)


class TestTheTurnsThatStay:
    async def test_thinking_and_tool_rounds_of_the_last_turns_stay_byte_for_byte_also_through_a_sleep(self) -> None:
        rounds = [
            uncounted(
                replies(THINKING[0], text_block("one"), use("look", "a"), use("look", "b"), stop_reason="tool_use")
            ),
            uncounted(replies(THINKING[1], use("look", "c"), stop_reason="tool_use")),
            uncounted(replies(THINKING[2], text_block("done"))),
        ]
        async with running_engine(profile=SMALL, summariser=summarising()) as engine:
            turns = await fill_until_folded(engine)
        async with running_engine(*[echo] * (turns - 2), *rounds, profile=SMALL, summariser=summarising()) as engine:
            await fill(engine, turns - 2)
            await engine.ask("think")
            before = await next_request(engine)
            await engine.hibernate()
            image = engine.store.image()
        async with running_engine(profile=SMALL, summariser=summarising(), data=image) as engine:
            await engine.ask("z" * 2 * len(LONG))
            assert await folds(engine) == [FoldReason.SUMMARY]
            after = engine.model.requests[-1]
            assert engine.model.refused == []
        kept = before["messages"][-8:]
        place = after["messages"].index(kept[-1])
        said = after["messages"][place - len(kept) + 1 : place + 1]
        assert json.dumps(said[1:]) == json.dumps(kept[1:])
        assert said[0]["content"][-1:] == kept[0]["content"][-1:]
        assert [block["type"] for block in blocks(after)].count("thinking") == 3

    async def test_a_cut_never_goes_between_a_call_and_its_result(self) -> None:
        """The model refuses a request in which it does, whatever the number of tool turns."""
        for tool_turns in range(1, 9):
            plays: list[Play] = []
            for number in range(tool_turns):
                uses = (use("look", f"a{number}"), use("look", f"b{number}"))
                plays += [calls(*uses, text=LONG), replies(text_block(LONG))]
            async with running_engine(*plays, profile=SMALL, summariser=summarising()) as engine:
                for _ in range(tool_turns + 1):
                    await engine.ask(LONG)
                await engine.ask("and now?")
                assert len(await engine.records_of(TurnFinished)) == tool_turns + 2
                assert engine.model.refused == []
                ids = [block["tool_use_id"] for block in blocks(engine.model.requests[-1]) if "tool_use_id" in block]
                assert len(ids) == len({*ids}) <= 4


def looks(*call_ids: str) -> Play:
    return calls(*(use("look", call_id) for call_id in call_ids))


class TestResultsThatAreHuge:
    @pytest.mark.parametrize("batch", [1, 30])
    async def test_a_batch_of_huge_results_is_shortened_and_the_conversation_goes_on(self, batch: int) -> None:
        async def answers(arguments: dict[str, Any], context: ToolContext) -> str:
            return "begin " + "m" * (6_000_000 // batch) + " end"

        async with running_engine(
            looks(*(f"c{number}" for number in range(batch))), tools=(reads("look", answers),), table=LARGE
        ) as engine:
            await engine.ask("look")
            await engine.ask("and now?")
            assert len(await engine.records_of(TurnFinished)) == 2
            (replaced,) = await engine.records_of(ContextReplaced)
            requested = await engine.records_of(ModelRequested)
            results = [block for block in blocks(engine.model.requests[1]) if block["type"] == "tool_result"]
        assert replaced.reason is FoldReason.SHORTENED
        assert len(replaced.shortened) == len(results) == batch
        assert all(result["content"].startswith("begin mmm") for result in results)
        assert all(result["content"].endswith("mmm end") for result in results)
        assert all(len(result["content"]) < 2 * CompactionOptions().result_bytes for result in results)
        assert all(request.estimated_tokens <= 200_000 for request in requested)

    @pytest.mark.parametrize("is_offered", [False, True])
    async def test_what_was_shortened_stays_an_error_and_says_where_the_rest_is_if_it_can_be_read(
        self, is_offered: bool
    ) -> None:
        async def fails_at_length(arguments: dict[str, Any], context: ToolContext) -> str:
            raise ToolFailed("e" * 40_000)

        tools = [reads(name, fails_at_length) for name in ("look", *[READ_EARLIER] * is_offered)]
        async with running_engine(looks("a"), tools=tools, profile=SMALL) as engine:
            await engine.ask("look")
            (result,) = (block for block in blocks(engine.model.requests[-1]) if block["type"] == "tool_result")
        assert result["is_error"] is True
        assert "left out here to make room" in result["content"]
        assert ("read_earlier shows all of turn 1]" in result["content"]) == is_offered

    async def test_last_resorts_follow_one_another(self) -> None:
        """Long results first, then all turns but the running one, then the end of the turn; once each."""

        async def answers(arguments: dict[str, Any], context: ToolContext) -> str:
            return "r" * 8_000

        async with running_engine(
            uncounted(looks("a")),
            says("ok"),
            uncounted(looks("b")),
            says("ok"),
            tools=(reads("look", answers),),
            profile=SMALL,
        ) as engine:
            await engine.ask("one")
            await engine.ask("two")
            await engine.ask("y" * 4 * 5_100)
            assert await folds(engine) == [FoldReason.SHORTENED, FoldReason.EVERYTHING]
            assert head(engine.model.requests[-1]).count("turn ") >= 2
            await engine.ask("y" * 4 * 5_600)
            failed = await engine.records_of(TurnFailed)
            await engine.ask("thanks")
            finished = await engine.records_of(TurnFinished)
        assert [record.code for record in failed] == ["context_too_long"]
        assert len(finished) == 4


LARGE = {"kind": "played", "window_tokens": 200_000}
