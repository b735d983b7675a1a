"""Older turns folded by a summariser: what it reads, what is made of its answer, and what becomes of its faults."""

import json
from collections.abc import Iterable
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.doubles import Gate, Play, PlayedModel, calls, echo, fails, places_of, replies, says, use, waits
from tests.support.engine import KEY
from tests.support.turns_told import called, plain, told
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Compact
from torpor.conversation.summary import CompactionOptions
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import KeyRefused, Overloaded, ProviderUnavailable
from torpor.records.blocks import canonical, head_of, text_block
from torpor.records.journal import CompactionFailed, ContextReplaced
from torpor.records.summary import Item, ItemKind, Summary
from torpor.records.terms import FoldReason, Usage
from torpor.turn.fold_history import DEFAULT_PROMPT, HistoryFold, Spent, Summariser, SummariserOptions

STATE = told(*(plain(number, text=" and so on" * 20) for number in range(1, 7)))
STEP = Compact(turn=6, round=1, attempt=1, reason=FoldReason.SUMMARY, tokens=1_234)
DENIAL = Item(id="i1-1", kind=ItemKind.DENIAL, text="never by mail", turn=1)
OPTIONS = CompactionOptions(deadline_s=5.0)
GOOD = says('{"facts": ["she counts"], "open": [{"kind": "question", "text": "how far?", "turn": 2}]}')
THINKING = canonical({"type": "thinking", "thinking": "hm", "signature": "s"})


def summariser(plays: Iterable[Play], *, window_tokens: int = 8_000, **options: Any) -> tuple[Summariser, PlayedModel]:
    model = PlayedModel(plays)
    made = Summariser(SummariserOptions(**options), model=model, name="small", window_tokens=window_tokens)
    return made, model


async def fold(
    *plays: Play,
    state: ConversationState = STATE,
    options: CompactionOptions = OPTIONS,
    window_tokens: int = 8_000,
) -> tuple[ContextReplaced | CompactionFailed, PlayedModel]:
    asked, model = summariser(plays, window_tokens=window_tokens)
    places = places_of(1)
    with anyio.fail_after(10):
        fold = HistoryFold(asked, options=options, places=places.of(KEY), skills=frozenset(), spent=Spent())
        record = await fold.record(state, STEP)
    assert places.statistics().taken == 0
    assert model.refused == []
    return record, model


def question(model: PlayedModel, number: int = 0) -> str:
    (message,) = model.requests[number]["messages"]
    (block,) = message["content"]
    return str(block["text"])


def failed(record: ContextReplaced | CompactionFailed) -> CompactionFailed:
    assert isinstance(record, CompactionFailed)
    return record


def replaced(record: ContextReplaced | CompactionFailed) -> ContextReplaced:
    assert isinstance(record, ContextReplaced)
    return record


async def test_the_summariser_is_asked_by_its_own_prompt_and_without_tools() -> None:
    asked, model = summariser([GOOD], prompt="Be short.", max_tokens=99)
    places = places_of(1)
    fold = HistoryFold(asked, options=OPTIONS, places=places.of(KEY), skills=frozenset(), spent=Spent())
    await fold.record(STATE, STEP)
    (request,) = model.requests
    assert (request["model"], request["max_tokens"]) == ("small", 99)
    assert request["system"] == [{"type": "text", "text": "Be short."}]
    assert "tools" not in request
    assert SummariserOptions().prompt == DEFAULT_PROMPT


async def test_it_reads_the_turns_that_go_with_the_summary_and_the_items_so_far() -> None:
    state = told(
        called(1, result="the red one"),
        *(plain(number, text=" and so on" * 20) for number in range(2, 7)),
        summary=Summary(facts=("from before",)),
        items=(DENIAL,),
    )
    _, model = await fold(GOOD, state=state)
    read = question(model)
    assert '{"facts":["from before"]}' in read
    assert "i1-1 (denial): never by mail" in read
    assert "may have 4500 characters" in read
    assert "Turn 1\nuser: question 1\ncalls look({})\nresult: the red one\nassistant: answer 1\n" in read
    assert "Turn 3\n" in read
    assert "question 4" not in read


async def test_its_words_take_the_place_of_the_turns_with_what_it_cost() -> None:
    record, _ = await fold(replies(text_block('{"facts": ["she counts"]}')), state=STATE)
    made = replaced(record)
    assert made.summary == Summary(facts=("she counts",))
    assert (made.reason, made.model, made.calls) == (FoldReason.SUMMARY, "small", 1)
    assert made.usage.input_tokens > 0
    assert made.turns == (1, 3)
    assert "she counts" in head_of(made.head[0]).text


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        pytest.param(says(""), "said nothing", id="empty"),
        pytest.param(says(" \n\t"), "said nothing", id="whitespace"),
        pytest.param(replies(THINKING), "said nothing", id="only thinking"),
        pytest.param(replies(), "said nothing", id="no block"),
        pytest.param(replies(stop_reason="refusal"), "stopped for 'refusal'", id="refused"),
        pytest.param(replies(text_block("so"), stop_reason="max_tokens"), "'max_tokens'", id="cut off"),
        pytest.param(replies(text_block("so"), stop_reason="pause_turn"), "'pause_turn'", id="paused"),
        pytest.param(calls(use("look", "a")), "stopped for 'tool_use'", id="a tool call"),
        pytest.param(replies(use("look", "a")), "called a tool", id="a tool call that does not say so"),
        pytest.param(says("x" * 6_001), "expected at most 1500", id="too long"),
        pytest.param(says("{}"), "holds no fact", id="nothing in it"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_asked_for_once_more_and_never_stored(bad: Play, why: str) -> None:
    record, model = await fold(bad, bad)
    made = failed(record)
    assert (made.turn, made.code, made.calls) == (6, "bad_summary", 2)
    assert why in made.detail
    assert len(model.requests) == 2
    assert question(model, 0) == question(model, 1)
    record, model = await fold(bad, GOOD)
    assert replaced(record).summary == Summary(facts=("she counts",))
    assert replaced(record).calls == 2


async def test_a_summary_that_does_not_make_the_request_smaller_is_a_failure() -> None:
    record, model = await fold(says("x" * 2_000))
    assert failed(record).code == "bad_summary"
    assert "expected less" in failed(record).detail
    assert len(model.requests) == 1


@pytest.mark.parametrize("fault", [ProviderUnavailable("down"), Overloaded("busy"), KeyRefused("no")])
async def test_a_fault_of_its_host_is_met_once_more_and_then_told(
    fault: ProviderUnavailable | Overloaded | KeyRefused,
) -> None:
    record, _ = await fold(fails(fault), fails(fault))
    assert (failed(record).code, failed(record).detail, failed(record).calls) == (fault.code, str(fault), 2)
    record, _ = await fold(fails(fault), GOOD)
    assert replaced(record).calls == 2


async def test_a_bug_of_the_adapter_is_not_taken_for_a_fault() -> None:
    with pytest.raises(ZeroDivisionError):
        await fold(fails(ZeroDivisionError()))


async def test_usage_is_summed_over_all_calls_whatever_came_of_them() -> None:
    def costs(text: str, tokens: int) -> Play:
        async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
            usage = Usage(input_tokens=tokens, cache_read_input_tokens=1, output_tokens=2)
            return ModelReply(blocks=(text_block(text),), stop_reason="end_turn", usage=usage)

        return play

    record, _ = await fold(costs("", 10), costs("good", 30))
    assert replaced(record).usage == Usage(input_tokens=40, cache_read_input_tokens=2, output_tokens=4)
    record, _ = await fold(costs("", 10), costs("", 30))
    assert failed(record).usage == Usage(input_tokens=40, cache_read_input_tokens=2, output_tokens=4)


async def test_a_history_beyond_its_window_is_read_in_pieces_each_with_what_came_of_those_before() -> None:
    texts = [f"{number} " + "naïve \U0001f600 " * 60 for number in range(1, 9)]
    state = told(*(plain(number, text=text) for number, text in enumerate(texts, 1)), items=(DENIAL,), generation=1)
    answers = [
        says(
            json.dumps(
                {
                    "facts": [f"piece {number}"],
                    "open": [{"kind": "question", "text": f"{number}?", "turn": 1}],
                    "closed": [{"id": "i1-1", "turn": 2}] if number == 2 else [],
                }
            )
        )
        for number in range(1, 40)
    ]
    record, model = await fold(*answers, state=state, window_tokens=800)
    made, reads = replaced(record), [question(model, number) for number in range(len(model.requests))]
    assert len(reads) > 2
    assert all(len(read.encode()) <= 800 * 4 for read in reads)
    for number in range(1, 6):
        assert any(f"user: question {number}" in read for read in reads)
    assert all("Turn " in read for read in reads)
    assert '{"facts":["piece 1"]}' in reads[1]
    assert "i1-1 (denial)" in reads[1]
    assert "i1-1 (denial)" not in reads[2]
    assert "i2-1 (question): 1?" in reads[1]
    assert made.summary == Summary(facts=(f"piece {len(reads)}",))
    assert [item.text for item in made.items] == [f"{number}?" for number in range(1, len(reads) + 1)]
    assert made.calls == len(reads)


async def test_a_turn_too_long_for_its_window_is_cut_into_parts_and_nothing_is_left_out() -> None:
    words = [f"word{number}" for number in range(600)]
    state = told(plain(1, text=" " + " ".join(words)), *map(plain, range(2, 5)))
    record, model = await fold(*[says("so far")] * 40, state=state, window_tokens=1)
    reads = [question(model, number).partition("Turns to fold:\n\n")[2] for number in range(len(model.requests))]
    assert all(len(read.encode()) <= 400 for read in reads)
    assert all(read.startswith("Turn 1, continued\n") for read in reads[1:])
    whole = "".join(read.partition("\n")[2].removesuffix("\n\n") for read in reads)
    assert all(whole.count(word + " ") >= 1 for word in words[:-1])
    assert replaced(record).calls == len(reads)


async def test_what_it_reads_leaves_room_for_what_is_known_so_far_and_for_its_answer() -> None:
    items = tuple(Item(id=f"i1-{n}", kind=ItemKind.DENIAL, text='"no" ' * 40, turn=1) for n in range(20))
    known = Summary(facts=("f" * 200,) * 20)
    state = told(
        *(plain(number, text=' "so"' * 800) for number in range(1, 9)), summary=known, items=items, generation=1
    )
    answer = says(json.dumps({"facts": known.facts}))
    asked, model = summariser([answer] * 60, window_tokens=5_000, max_tokens=500)
    fold = HistoryFold(asked, options=OPTIONS, places=places_of(1).of(KEY), skills=frozenset(), spent=Spent())
    made = replaced(await fold.record(state, STEP))
    assert made.calls == len(model.requests) > 3
    sizes = [len(json.dumps(request)) / 4 for request in model.requests]
    assert 4_000 < max(sizes) <= 4_500


async def test_a_piece_that_fails_twice_fails_the_whole() -> None:
    state = told(*(plain(number, text=" and so on" * 40) for number in range(1, 9)))
    record, _ = await fold(says("one"), says(""), says(""), state=state, window_tokens=400)
    assert (failed(record).code, failed(record).calls) == ("bad_summary", 3)


async def test_a_summary_has_a_deadline_for_all_its_calls() -> None:
    record, _ = await fold(waits(Gate(), GOOD), options=CompactionOptions(deadline_s=0.01))
    assert (failed(record).code, failed(record).detail) == ("deadline", "no summary within 0.01 s")


async def test_the_deadline_counts_while_other_calls_hold_all_places() -> None:
    asked, model = summariser([GOOD])
    places = places_of(1)
    options = CompactionOptions(deadline_s=0.01)
    async with places.of(KEY), anyio.create_task_group() as tasks:  # another borrower than this task

        async def other() -> None:
            fold = HistoryFold(asked, options=options, places=places.of(KEY), skills=frozenset(), spent=Spent())
            assert failed(await fold.record(STATE, STEP)).code == "deadline"

        tasks.start_soon(other)
    assert model.requests == []


async def test_a_cancel_leaves_nothing_behind() -> None:
    gate, done = Gate(), list[object]()
    asked, _ = summariser([waits(gate, GOOD)])
    places = places_of(1)

    async def attempt() -> None:
        fold = HistoryFold(asked, options=OPTIONS, places=places.of(KEY), skills=frozenset(), spent=Spent())
        done.append(await fold.record(STATE, STEP))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attempt)
            await gate.reached.wait()
            tasks.cancel_scope.cancel()
    assert done == []
    assert places.statistics().taken == 0


async def test_one_that_repeats_what_it_was_asked_has_made_no_summary_of_it() -> None:
    before = msgspec.structs.replace(STATE, summary=Summary(facts=("she counts",)))

    record, _ = await fold(echo, echo, state=before)

    assert failed(record).detail == "the summariser repeated what it was asked, with the summary before in it"
