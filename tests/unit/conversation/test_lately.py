"""What a conversation was offered a short while ago is named when it is back; what was forgotten is stored again."""

from typing import Any

import msgspec
import pytest

from torpor.conversation.fold import fold
from torpor.conversation.lately import FLAGS_MAX, PREAMBLES_MAX, preamble_record, remembered
from torpor.conversation.state import BadHistory, ConversationState
from torpor.conversation.view import Preamble, preamble_of
from torpor.records.journal import (
    ConversationCreated,
    FlagsPinned,
    FlagsReturned,
    JournalRecord,
    PreambleChanged,
    PreambleReturned,
)

OFFERS = tuple(preamble_of({"model": f"m{number}"}) for number in range(PREAMBLES_MAX + 2))


def begun() -> ConversationState:
    return fold(ConversationState(), [ConversationCreated(seq=1, agent="clerk")])


def after(state: ConversationState, record: JournalRecord) -> ConversationState:
    numbered: Any = msgspec.structs.replace(record, seq=state.seq + 1)
    return fold(state, [numbered])


def using(state: ConversationState, *preambles: Preamble) -> ConversationState:
    for preamble in preambles:
        state = after(state, preamble_record(state, preamble))
    return state


def pinned(state: ConversationState, *digests: str) -> ConversationState:
    for digest in digests:
        state = after(state, FlagsPinned(digest=digest, decisions=()))
    return state


def test_a_preamble_that_was_in_use_lately_is_named_and_comes_back_whole() -> None:
    one, two, *_ = OFFERS
    state = using(begun(), one, two)
    record = preamble_record(state, one)
    assert record == PreambleReturned(digest=one.digest)
    back = after(state, record)
    assert (back.preamble, back.preambles) == (one, (two,))


def test_a_preamble_that_nobody_used_yet_is_stored() -> None:
    one, two, *_ = OFFERS
    assert preamble_record(begun(), one) == PreambleChanged(digest=one.digest, body=one.body)
    assert preamble_record(using(begun(), one), two) == PreambleChanged(digest=two.digest, body=two.body)


def test_the_least_recently_used_preamble_is_forgotten_first_and_stored_again() -> None:
    first, second, *others = OFFERS
    state = using(begun(), first, second, first, *others)
    assert [each.digest for each in state.preambles] == [each.digest for each in (first, *others[:-1])]
    assert remembered(state, second.digest) is None
    assert isinstance(preamble_record(state, second), PreambleChanged)
    assert isinstance(preamble_record(state, first), PreambleReturned)


def test_a_journal_that_stores_a_preamble_again_is_read_like_one_that_names_it() -> None:
    one, two, *_ = OFFERS
    state = using(begun(), one, two)
    again = after(state, PreambleChanged(digest=one.digest, body=one.body))
    assert again == after(state, PreambleReturned(digest=one.digest))


def test_a_preamble_that_was_never_in_use_or_is_forgotten_cannot_come_back() -> None:
    with pytest.raises(BadHistory, match="record 2 returns to preamble nobody, which was not in use lately"):
        after(begun(), PreambleReturned(digest="nobody"))
    state = using(begun(), *OFFERS)
    with pytest.raises(BadHistory, match=f"returns to preamble {OFFERS[0].digest}"):
        after(state, PreambleReturned(digest=OFFERS[0].digest))


def test_flags_come_back_by_their_digest_and_the_least_recently_pinned_are_forgotten() -> None:
    digests = [f"f{number}" for number in range(FLAGS_MAX + 1)]
    state = pinned(begun(), *digests)
    assert (state.flags_digest, state.flags) == (digests[-1], tuple(digests[:-1]))
    assert state.event == begun().event
    back = after(state, FlagsReturned(digest=digests[0]))
    assert (back.flags_digest, back.flags) == (digests[0], tuple(digests[1:]))
    assert pinned(back, "new").flags == (*digests[2:], digests[0])


def test_flags_that_were_never_pinned_or_are_pinned_now_cannot_come_back() -> None:
    for digest in ("other", "now"):
        with pytest.raises(BadHistory, match=f"record 3 returns to flags {digest}, which were not pinned lately"):
            after(pinned(begun(), "now"), FlagsReturned(digest=digest))
