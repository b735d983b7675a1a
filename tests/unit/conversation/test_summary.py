"""What is carried on whatever a summariser says, and how a summary reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.summary import (
    Carried,
    CompactionOptions,
    Proposal,
    carried,
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


def test_new_items_beyond_the_cap_are_counted_and_old_ones_stay() -> None:
    opened = tuple((ItemKind.QUESTION, f"{number}?", 1) for number in range(4))
    after = carry(Proposal(summary=Summary(), opened=opened), options=SHORT)
    assert (len(after.items), after.opened, after.left_out) == (3, 1, 3)
    many = Carried(items=tuple(Item(id=f"i1-{n}", kind=ItemKind.DENIAL, text=str(n)) for n in range(9)))
    assert carry(Proposal(summary=Summary(), opened=opened), before=many, options=SHORT).items == many.items


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
    """Whatever the pieces of a fold say one after the other."""
    options = CompactionOptions(items_max=items_max, item_tokens=5)
    now = Carried(items=tuple(items))
    for proposal in proposals:
        before, now = now, carried(now, proposal, generation=2, last_turn=9, options=options)
        closings = {closing.id: closing for closing in now.closed[len(before.closed) :]}
        for item in before.items:
            assert (item in now.items) != (item.id in closings)
            if item.id in closings:
                assert closings[item.id] in proposal.closed
                assert max(item.turn, 1) <= closings[item.id].turn <= 9
        new = now.items[len(before.items) - len(closings) :]
        assert len(now.items) <= max(len(before.items), items_max)
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
        "1 more open items found no room here; read the turns again for them.\n"
        "Skills loaded: refunds (aaaaaaaaaaaa), visits (bbbbbbbbbbbb).\n"
        "Where this differs from what a tool says, the tool is right. read_earlier shows the exact words.]"
    )


def test_a_summary_of_nothing_says_what_it_covers() -> None:
    text = rendered(Summary(), (), generation=1, turns=(1, 1), seqs=(1, 9))
    assert text.splitlines()[1:] == [
        "Where this differs from what a tool says, the tool is right. read_earlier shows the exact words.]"
    ]
