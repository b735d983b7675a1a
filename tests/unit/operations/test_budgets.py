"""Where the tokens of a request went."""

from torpor.operations.budgets import BAR_CHARS, bars, budget_of
from torpor.records.journal import ModelRequested, TurnFinished


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
