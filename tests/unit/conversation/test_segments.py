"""Views cut at the beginnings of turns, and built anew."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.segments import Said, TurnStart, blocks_of, rebuilt, said_in, shortening
from torpor.conversation.view import Role, View
from torpor.records.blocks import Block, canonical, text_block, tool_result_block

HEAD = text_block("[Summary]")
TRICKY = ('],"role":"assistant"},{"content":[', "plain", ',"', "[]")

Turn = list[tuple[Role, list[Block]]]


def answered(name: str) -> Turn:
    return [("user", [text_block(name)]), ("assistant", [text_block(f"{name}!")])]


def unanswered(name: str) -> Turn:
    return [("user", [text_block(name)])]


def called(name: str) -> Turn:
    use = canonical({"type": "tool_use", "id": name, "name": "look", "input": {}})
    result = canonical({"type": "tool_result", "tool_use_id": name, "content": "x"})
    return [("user", [text_block(name)]), ("assistant", [use]), ("user", [result]), ("assistant", [text_block("so")])]


def told(turns: list[Turn]) -> tuple[View, tuple[TurnStart, ...]]:
    view, starts = View(), []
    for number, turn in enumerate(turns, 1):
        starts.append(TurnStart(number, number, view.size_bytes, 2))
        for role, blocks in turn:
            view = view.extended(role, blocks)
    return view, tuple(starts)


def straight(turns: list[Turn], *, head: list[Block]) -> View:
    view = View().extended("user", head)
    for turn in turns:
        for role, blocks in turn:
            view = view.extended(role, blocks)
    return view


TURNS = st.lists(
    st.builds(
        lambda make, name: make(name),
        st.sampled_from([answered, unanswered, called]),
        st.sampled_from(TRICKY) | st.text(max_size=5).filter(lambda text: text.isprintable() and text != ""),
    ),
    min_size=1,
    max_size=6,
)


@given(turns=TURNS, cut=st.integers(0, 5))
def test_what_stays_reads_as_if_it_had_been_said_behind_the_head(turns: list[Turn], cut: int) -> None:
    view, starts = told(turns)
    cut = min(cut, len(turns) - 1)
    new, moved = rebuilt(view, starts[cut:], head=[HEAD])
    assert new == straight(turns[cut:], head=[HEAD])
    again, _ = rebuilt(new, moved, head=[])
    assert again == straight(turns[cut:], head=[])
    assert [start.turn for start in moved] == [start.turn for start in starts[cut:]]


@given(turns=TURNS)
def test_the_pieces_of_a_view_are_what_its_turns_said(turns: list[Turn]) -> None:
    view, starts = told(turns)
    for turn, pieces in zip(turns, said_in(view, starts), strict=True):
        said = [(role, bytes(block)) for role, block in blocks_of(pieces)]
        assert said == [(role, bytes(block)) for role, blocks in turn for block in blocks]


def test_a_turn_that_said_nothing_has_no_piece() -> None:
    view, starts = told([answered("a")])
    empty = TurnStart(2, 2, view.size_bytes, 0)
    assert said_in(view, (*starts, empty))[1] == ()
    assert said_in(View(), ()) == ()


def test_a_view_without_turns_is_its_head() -> None:
    assert rebuilt(View(), (), head=[HEAD]) == (View().extended("user", [HEAD]), ())


def test_neighbours_of_one_role_are_one_message_in_what_is_said() -> None:
    view, starts = told([unanswered("a"), answered("b")])
    assert said_in(view, starts[:1]) == (
        (Said("user", (text_block("a"), text_block("b"))), Said("assistant", (text_block("b!"),))),
    )


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_blocks_that_stay_can_be_changed(role: Role) -> None:
    view, starts = told([called("a")])

    def change(who: Role, block: Block) -> Block:
        fields: dict[str, Any] = json.loads(bytes(block))
        return canonical({**fields, "seen": True}) if who == role else block

    new, _ = rebuilt(view, starts, head=[], change=change)
    messages = json.loads(new.messages())
    assert all(("seen" in block) == (message["role"] == role) for message in messages for block in message["content"])


def test_shorter_results_take_the_place_of_long_ones_and_nothing_else_changes() -> None:
    view, starts = told([called("a"), called("b")])
    short = tool_result_block("a", "-", is_error=False)
    new, _ = rebuilt(view, starts, head=[], change=shortening({"a": short}))
    before = [block for said in said_in(view, starts) for _, block in blocks_of(said)]
    after = [block for said in said_in(new, [TurnStart(1, 1, 0, 0)]) for _, block in blocks_of(said)]
    assert after == [short if b'"tool_use_id":"a"' in bytes(block) else block for block in before]
    assert shortening({}) is None
