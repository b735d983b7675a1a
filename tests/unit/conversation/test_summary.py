"""What is carried on whatever a summariser says, and how a summary reads."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.summary import (
    PRIORITY,
    Carried,
    CompactionOptions,
    Proposal,
    carried,
    held,
    rendered,
)
from torpor.records.summary import Closing, Item, ItemKind, Summary

OPTIONS = CompactionOptions()
SHORT = CompactionOptions(items_max=3, item_tokens=5)
DENIAL = Item(id="i1-1", kind=ItemKind.DENIAL, text="never by mail", turn=3)
QUESTION = Item(id="i1-2", kind=ItemKind.QUESTION, text="which dose?", turn=5)
SAID = Proposal(summary=Summary(facts=("ok.",)))


def carry(proposal: Proposal, *, before: Carried | None = None, options: CompactionOptions = OPTIONS) -> Carried:
    before = before or Carried(items=(DENIAL, QUESTION))
    return carried(before, proposal, generation=2, last_turn=9, options=options)


def test_items_are_carried_on_by_a_summariser_that_says_nothing_of_them() -> None:
    assert carry(SAID) == Carried(items=(DENIAL, QUESTION))


def test_new_items_are_numbered_by_the_generation_and_come_last() -> None:
    proposal = Proposal(summary=Summary(), opened=((ItemKind.PROPOSAL, "  pay\n Ann ", 4), (ItemKind.DENIAL, "no", 99)))
    after = carry(proposal)
    assert after.items == (
        DENIAL,
        QUESTION,
        Item(id="i2-1", kind=ItemKind.PROPOSAL, text="pay Ann", turn=4),
        Item(id="i2-2", kind=ItemKind.DENIAL, text="no", turn=9),
    )
    again = carry(Proposal(summary=Summary(), opened=((ItemKind.QUESTION, "when?", 1),)), before=after)
    assert again.items[-1].id == "i2-3"


def test_an_item_is_not_carried_twice() -> None:
    proposal = Proposal(
        summary=Summary(), opened=((ItemKind.DENIAL, "never by mail", 8), (ItemKind.QUESTION, "never by mail", 8))
    )
    assert [item.kind for item in carry(proposal).items] == [ItemKind.DENIAL, ItemKind.QUESTION, ItemKind.QUESTION]


@pytest.mark.parametrize(("turn", "is_closed"), [(0, False), (2, False), (3, True), (9, True), (10, False)])
def test_an_item_is_closed_by_a_turn_from_its_own_to_the_last_that_is_folded(turn: int, is_closed: bool) -> None:
    closing = Closing(id=DENIAL.id, turn=turn)
    after = carry(Proposal(summary=Summary(), closed=(closing,)))
    assert after.items == ((QUESTION,) if is_closed else (DENIAL, QUESTION))
    assert after.closed == ((closing,) if is_closed else ())


def test_an_item_of_no_known_turn_needs_a_turn_that_closed_it() -> None:
    before = Carried(items=(Item(id="i1-1", kind=ItemKind.DENIAL, text="a"),))
    assert carry(Proposal(summary=Summary(), closed=(Closing(id="i1-1", turn=0),)), before=before).items
    assert not carry(Proposal(summary=Summary(), closed=(Closing(id="i1-1", turn=1),)), before=before).items


def test_an_id_that_is_not_open_closes_nothing() -> None:
    assert carry(Proposal(summary=Summary(), closed=(Closing(id="i7-1", turn=5),))) == Carried(items=(DENIAL, QUESTION))


def items_of(*said: tuple[ItemKind, str, int]) -> tuple[Item, ...]:
    return tuple(Item(id=f"i1-{n}", kind=kind, text=text, turn=turn) for n, (kind, text, turn) in enumerate(said, 1))


def test_what_has_no_room_is_counted_with_its_turns_whatever_kind_it_is_and_over_all_generations() -> None:
    before = Carried(items=items_of(*((ItemKind.DENIAL, str(n), n) for n in range(1, 5))))
    opened = ((ItemKind.QUESTION, "when?", 7),)
    after = carry(Proposal(summary=Summary(), opened=opened), before=before, options=SHORT)
    assert [item.text for item in after.items] == ["2", "3", "4"]
    assert (after.left_out, after.left_out_turns) == (2, (1, 7))
    later = carry(SAID, before=after, options=SHORT)
    assert later == after
    last = carry(Proposal(summary=Summary(), opened=((ItemKind.DENIAL, "5", 0),)), before=later, options=SHORT)
    assert [item.text for item in last.items] == ["3", "4", "5"]
    assert (last.left_out, last.left_out_turns) == (3, (1, 7))


def test_refusals_keep_their_place_then_corrections_then_proposals_and_of_one_kind_the_newest() -> None:
    kinds = (ItemKind.QUESTION, ItemKind.PROPOSAL, ItemKind.CORRECTION, ItemKind.DENIAL)
    full = Carried(items=items_of(*((kind, f"{kind.value} {age}", 1) for kind in kinds for age in ("old", "new"))))

    def kept(items_max: int) -> list[str]:
        return [item.text for item in held(full, CompactionOptions(items_max=items_max)).items]

    assert kept(1) == ["denial new"]
    assert kept(3) == ["correction new", "denial old", "denial new"]
    assert kept(5) == ["proposal new", "correction old", "correction new", "denial old", "denial new"]
    assert kept(7) == [item.text for item in full.items if item.text != "question old"]
    assert held(full, CompactionOptions(items_max=8)) == full


def test_a_new_refusal_takes_the_place_of_old_questions() -> None:
    full = Carried(items=items_of(*((ItemKind.QUESTION, f"{n}?", 1) for n in range(40))))
    opened = ((ItemKind.DENIAL, "never call my mother", 2),)
    after = carry(Proposal(summary=Summary(), opened=opened), before=full)
    assert after.items[-1].text == "never call my mother"
    assert (len(after.items), after.left_out, after.left_out_turns) == (40, 1, (1, 1))


def test_items_are_bounded_by_what_they_take_in_a_request_together() -> None:
    many = Carried(items=items_of(*((ItemKind.DENIAL, f"no {n}", 1) for n in range(100))))
    options = CompactionOptions(items_max=100, items_tokens=500)
    assert 50 < len(held(many, options).items) < 70
    quotes = Carried(items=items_of(*((ItemKind.DENIAL, '"' * 230, 1) for _ in range(100))))
    after = held(quotes, options)
    text = rendered(Summary(), after.items, generation=1, turns=(1, 9), seqs=(1, 9))
    frame = rendered(Summary(), (), generation=1, turns=(1, 9), seqs=(1, 9))
    assert len(json.dumps(text)) - len(json.dumps(frame)) <= 4 * 500 + len("Open, until closed:\\n")
    assert (len(after.items), after.left_out) == (4, 96)
    assert held(quotes, CompactionOptions(items_tokens=1)).items == ()


def test_an_item_is_cut_between_characters() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    proposal = Proposal(summary=Summary(), opened=((ItemKind.QUESTION, f"who {family}{family}", 1),))
    (item,) = carry(proposal, before=Carried(items=()), options=SHORT).items
    assert item.text == "who …"
    roomy = CompactionOptions(item_tokens=7)
    (item,) = carry(proposal, before=Carried(items=()), options=roomy).items
    assert item.text == f"who {family}…"


ITEMS = st.lists(
    st.builds(
        Item,
        id=st.integers(1, 99).map(lambda number: f"i1-{number}"),
        kind=st.sampled_from(ItemKind),
        text=st.text(min_size=1, max_size=30),
        turn=st.integers(0, 9),
    ),
    max_size=6,
    unique_by=lambda item: item.id,
)
PROPOSALS = st.builds(
    Proposal,
    summary=st.just(Summary()),
    opened=st.lists(
        st.tuples(st.sampled_from(ItemKind), st.text(min_size=1, max_size=300), st.integers(0, 99)), max_size=6
    ).map(tuple),
    closed=st.lists(
        st.builds(Closing, id=st.integers(1, 99).map(lambda number: f"i1-{number}"), turn=st.integers(0, 12)),
        max_size=6,
    ).map(tuple),
)


@given(ITEMS, st.lists(PROPOSALS, max_size=4), st.integers(1, 12))
def test_an_item_leaves_only_by_a_closing_that_counts(
    items: list[Item], proposals: list[Proposal], items_max: int
) -> None:
    """Or makes way to others, and is counted; whatever the pieces of a fold say one after the other."""
    options = CompactionOptions(items_max=items_max, item_tokens=5, items_tokens=100)
    now = Carried(items=tuple(items))
    for proposal in proposals:
        before, now = now, carried(now, proposal, generation=2, last_turn=9, options=options)
        closings = {closing.id: closing for closing in now.closed[len(before.closed) :]}
        gone = [item for item in before.items if item not in now.items and item.id not in closings]
        assert len(gone) <= now.left_out - before.left_out
        assert not gone or len(now.items) <= items_max
        for item in gone:
            assert all(PRIORITY.index(kept.kind) <= PRIORITY.index(item.kind) for kept in now.items)
        for item in before.items:
            if item.id in closings:
                assert item not in now.items
                assert closings[item.id] in proposal.closed
                assert max(item.turn, 1) <= closings[item.id].turn <= 9
        new = [item for item in now.items if item not in before.items]
        assert len(now.items) <= items_max
        assert all(len(item.text.encode()) <= 20 and item.turn <= 9 for item in new)
        assert len({item.id for item in now.items}) == len(now.items)


def test_a_summary_is_rendered_with_its_range_and_generation() -> None:
    text = rendered(
        Summary(facts=("one",), decisions=("two",), entities=("Ann: a patient",)),
        (DENIAL, Item(id="i2-1", kind=ItemKind.PROPOSAL, text="pay")),
        generation=2,
        turns=(1, 9),
        seqs=(1, 80),
        left_out=1,
        left_out_turns=(2, 4),
        skills={"visits": "b" * 64, "refunds": "a" * 64},
    )
    assert text == (
        "[Summary of earlier conversation: turns 1 to 9, records 1 to 80, generation 2.\n"
        "Facts:\n"
        "- one\n"
        "Decisions:\n"
        "- two\n"
        "Names:\n"
        "- Ann: a patient\n"
        "Open, until closed:\n"
        "- i1-1 (denial, turn 3): never by mail\n"
        "- i2-1 (proposal): pay\n"
        "1 more items of turns 2 to 4 found no room here; they may be open still.\n"
        "Skills loaded: refunds (aaaaaaaaaaaa), visits (bbbbbbbbbbbb).\n"
        "Where this differs from what a tool says, the tool is right. read_earlier shows the exact words.]"
    )


def test_a_summary_of_nothing_says_what_it_covers() -> None:
    text = rendered(Summary(), (), generation=1, turns=(1, 1), seqs=(1, 9))
    assert text.splitlines()[1:] == [
        "Where this differs from what a tool says, the tool is right. read_earlier shows the exact words.]"
    ]
