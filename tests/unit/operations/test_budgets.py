"""Where the tokens of a request went."""

from torpor.operations.budgets import BAR_CHARS, bars, budget_of
from torpor.records.journal import ModelRequested, TurnFinished


def requested(turn: int, *, budget_tokens: int = 1_000, over: tuple[str, ...] = (), **sections: int) -> ModelRequested:
    return ModelRequested(
        turn=turn,
        call=f"{turn}-1-1",
        round=1,
        preamble="d",
        link="l",
        sections=sections,
        budget_tokens=budget_tokens,
        over=over,
    )


def test_the_last_request_counts_or_the_last_one_of_a_turn() -> None:
    records = (requested(1, history=10), requested(2, history=20), TurnFinished(turn=2))
    last, first = budget_of(records), budget_of(records, turn=1)
    assert last is not None
    assert first is not None
    assert (last.turn, first.turn) == (2, 1)
    assert budget_of(records, turn=3) is None


def test_a_request_of_before_budgets_were_recorded_is_passed_over() -> None:
    assert budget_of([requested(1, budget_tokens=0, history=10)]) is None


def test_every_section_is_told_and_an_allotment_that_is_exceeded_marks_all_that_draw_on_it() -> None:
    budget = budget_of([requested(1, over=("conversation", "headroom"), history=900, tools=300, headroom=-200)])
    assert budget is not None
    told = {each.section: (each.tokens, each.is_over) for each in budget.sections}
    assert told["history"] == (900, True)
    assert told["memories"] == (0, True)
    assert told["tools"] == (300, False)
    assert told["headroom"] == (-200, True)
    assert told["instructions"] == (0, False)


def test_bars_are_as_long_as_their_share_and_never_longer_than_the_whole() -> None:
    budget = budget_of([requested(1, over=("fixed",), history=1, tools=2_000, headroom=500)])
    assert budget is not None
    lines = {line.split()[0]: line for line in bars(budget)[1:]}
    assert lines["tools"].count("#") == BAR_CHARS
    assert lines["history"].count("#") == 1
    assert lines["headroom"].count("#") == BAR_CHARS // 2
    assert lines["summary"].count("#") == 0
    assert lines["tools"].endswith("over its allotment")
    assert bars(budget)[0] == "turn 1, call 1-1-1: 1,000 tokens"
