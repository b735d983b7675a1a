"""Where the tokens of a request went."""

from torpor.operations.budgets import BAR_CHARS, WorkUsed, bars, budget_of, work_in_words
from torpor.records.ids import CallId
from torpor.records.journal import (
    CompactionFailed,
    ConversationCreated,
    ModelReplied,
    ModelRequested,
    SubagentFinished,
    TurnFinished,
)
from torpor.records.terms import Outcome, Usage
from torpor.records.work_budget import WorkBudget


def requested(
    turn: int,
    *,
    budget_tokens: int = 1_000,
    estimated_tokens: int = 0,
    over: tuple[str, ...] = (),
    **sections: int,
) -> ModelRequested:
    return ModelRequested(
        turn=turn,
        call=f"{turn}-1-1",
        round=1,
        preamble="d",
        link="l",
        sections=sections,
        budget_tokens=budget_tokens,
        estimated_tokens=estimated_tokens,
        over=over,
    )


def test_the_last_request_counts_or_the_last_one_of_a_turn() -> None:
    records = (requested(1, history=10), requested(2, history=20), TurnFinished(turn=2))
    last, first = budget_of(records), budget_of(records, turn=1)
    assert last is not None
    assert first is not None
    assert (last.turn, first.turn) == (2, 1)
    assert budget_of(records, turn=3) is None
    named = budget_of(records, call="1-1-1")
    assert named is not None
    assert (named.turn, named.call) == (1, "1-1-1")
    assert budget_of(records, turn=2, call="1-1-1") is None


def test_a_request_of_before_budgets_were_recorded_is_passed_over() -> None:
    assert budget_of([requested(1, budget_tokens=0, history=10)]) is None


def test_every_section_is_told_and_an_allotment_that_is_exceeded_marks_all_that_draw_on_it() -> None:
    budget = budget_of([requested(1, over=("conversation", "headroom"), history=900, tools=300, headroom=-200)])
    assert budget is not None
    told = {each.section: (each.tokens, each.is_over) for each in budget.sections}
    assert told["history"] == (900, True)
    assert told["memories"] == (0, False)
    assert told["tools"] == (300, False)
    assert told["headroom"] == (-200, True)
    assert told["instructions"] == (0, False)


def test_rows_add_up_to_what_the_request_was_expected_to_be_counted_as() -> None:
    budget = budget_of([requested(1, estimated_tokens=130, history=60, tools=40, headroom=900)])
    assert budget is not None
    told = {each.section: each.tokens for each in budget.sections}
    assert (told["correction"], told["headroom"]) == (30, 870)
    assert sum(told.values()) == budget.budget_tokens
    assert sum(told.values()) - told["headroom"] == budget.request_tokens == 130
    assert round(sum(each.share_of_request for each in budget.sections), 9) == 1


def test_bars_say_which_parts_are_over_an_allotment_together_and_that_headroom_is_short() -> None:
    budget = budget_of([requested(1, over=("conversation", "headroom"), history=700, summary=200, headroom=100)])
    assert budget is not None
    told = {line.split()[0]: line.partition("%  ")[2].partition("%  ")[2] for line in bars(budget)[2:]}
    assert {name: over for name, over in told.items() if over} == {
        "history": "conversation is over its allotment",
        "summary": "conversation is over its allotment",
    }
    assert bars(budget)[-1].endswith("%  less than its allotment")


def test_bars_are_as_long_as_their_share_of_the_request_in_any_window() -> None:
    budget = budget_of([requested(1, over=("fixed",), budget_tokens=200_000, history=1, tools=500, envelope=499)])
    assert budget is not None
    head, columns, *rows = bars(budget)
    lines = {line.split()[0]: line for line in rows}
    assert head == "turn 1, call 1-1-1: about 1,000 of 200,000 tokens"
    assert columns.split() == ["SECTION", "OF", "THE", "REQUEST", "TOKENS", "REQUEST", "BUDGET"]
    assert lines["tools"].count("#") == BAR_CHARS // 2
    assert lines["history"].count("#") == 1
    assert lines["summary"].count("#") == 0
    assert lines["headroom"].split() == ["headroom", "199,000", "99.5%"]
    assert lines["tools"].endswith("500    50.0%    0.2%  fixed is over its allotment")


def test_a_request_of_nothing_has_empty_bars() -> None:
    budget = budget_of([requested(1)])
    assert budget is not None
    assert not any("#" in line for line in bars(budget))


def test_what_a_sub_agent_used_of_its_own_budget_is_all_that_counts_against_it() -> None:
    below = SubagentFinished(
        call_id=CallId("a"), name="deep", child="x", outcome=Outcome.SUCCEEDED, usage=Usage(output_tokens=4_000)
    )
    records = (
        ConversationCreated(at_us=1_000_000, agent="scout", budget=WorkBudget(steps=12, tokens=100_000, seconds=60.0)),
        requested(1, history=10),
        ModelReplied(
            turn=1,
            call="1-1-1",
            round=1,
            blocks=(),
            stop_reason="end_turn",
            usage=Usage(input_tokens=100, output_tokens=5),
        ),
        CompactionFailed(turn=1, code="c", detail="d", usage=Usage(cache_read_input_tokens=20)),
        below,
        TurnFinished(at_us=3_500_000, turn=1),
    )
    budget = budget_of(records)
    assert budget is not None
    assert budget.work == WorkUsed(
        steps=1, steps_max=12, tokens=4_125, tokens_max=100_000, seconds=2.5, seconds_max=60.0
    )
    assert work_in_words(budget.work) == "of its own budget: 1 of 12 steps, 4,125 of 100,000 tokens, 2.5 of 60.0 s"


def test_where_tokens_have_no_limit_none_is_told_and_a_conversation_has_no_budget_of_its_own() -> None:
    begun = ConversationCreated(agent="scout", budget=WorkBudget(steps=12, seconds=60.0))
    budget = budget_of((begun, requested(1, history=10)))
    assert budget is not None
    assert budget.work is not None
    assert work_in_words(budget.work) == "of its own budget: 0 of 12 steps, 0 tokens, 0.0 of 60.0 s"
    of_a_conversation = budget_of((ConversationCreated(agent="clerk"), requested(1, history=10)))
    assert of_a_conversation is not None
    assert of_a_conversation.work is None
