"""Excerpts found by words; what people write is never query syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.policies.index import PolicyIndex
from torpor.policies.parse import Excerpt, PolicyFile


def policy(identity: str, **texts: str) -> PolicyFile:
    excerpts = tuple(
        Excerpt(id=identity, version="1", heading=heading.replace("_", " "), text=text)
        for heading, text in texts.items()
    )
    return PolicyFile(id=identity, version="1", title=identity, excerpts=excerpts)


INDEX = PolicyIndex(
    [
        policy(
            "visits",
            Late="Whoever arrives late waits. The café is open meanwhile.",
            Missed="A missed visit costs 40 euros, unless somebody was ill.",
            Length="A vaccination takes ten minutes.",
        ),
        policy(
            "records",
            Copies="Copies of a record are sent within 30 days.",
            Prescriptions="A prescription that was lost is written again once.",
            Late="Requests that come late are answered all the same.",
        ),
    ]
)


def found(text: str, *, words_max: int = 20, ids: frozenset[str] | None = None) -> list[str]:
    hits = INDEX.search(text, words_max=words_max, ids=ids)
    return [f"{hit.excerpt.id}/{hit.excerpt.heading}" for hit in hits]


def test_excerpt_is_found_by_another_form_of_its_word() -> None:
    assert found("I lost my prescriptions") == ["records/Prescriptions"]
    assert found("vaccinations") == ["visits/Length"]


def test_case_and_accents_do_not_matter() -> None:
    assert found("CAFE") == found("café") == found("cafe\u0301") == ["visits/Late"]


def test_excerpt_that_shares_more_comes_first() -> None:
    assert found("What does a missed visit cost when I come late?")[0] == "visits/Missed"


def test_heading_counts_more_than_text() -> None:
    index = PolicyIndex(
        [policy("p", One="fees for copies", Fees="what one pays", Two="nothing", Three="else", Four="here")]
    )

    assert [hit.excerpt.heading for hit in index.search("fees", words_max=5)] == ["Fees", "One"]


def test_scores_fall_and_are_positive() -> None:
    scores = [hit.score for hit in INDEX.search("missed visit, late record", words_max=20)]

    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)


@pytest.mark.parametrize("text", ["", "  ", "?!", "what is the", "hello, can you please", "Wetter", "🙂", "_"])
def test_nothing_is_found_where_nothing_is_shared(text: str) -> None:
    assert found(text) == []


def test_word_of_nearly_every_excerpt_finds_nothing() -> None:
    texts = {f"Part_{number}": f"clinic {'abcdefghijk'[number]}" for number in range(10)}

    assert PolicyIndex([policy("p", **texts)]).search("clinic", words_max=5) == []


def test_among_few_excerpts_every_word_counts() -> None:
    assert len(PolicyIndex([policy("p", One="clinic")]).search("clinic", words_max=5)) == 1


def test_policies_can_be_left_out() -> None:
    assert found("late", ids=frozenset({"records"})) == ["records/Late"]
    assert found("late", ids=frozenset()) == []


def test_only_the_first_words_are_looked_for() -> None:
    assert found("vaccination prescription", words_max=1) == ["visits/Length"]


@pytest.mark.parametrize(
    "text",
    ['"lost', 'lost" OR "', "lost AND", "NEAR(lost", "lost*", "title:lost", "-lost", "^lost", "lost;--", "lost\0"],
)
def test_query_syntax_is_only_text(text: str) -> None:
    assert found(text) == ["records/Prescriptions"]


@given(st.text(max_size=200))
def test_any_text_can_be_searched_for(text: str) -> None:
    assert isinstance(found(text), list)


def test_half_of_a_character_can_be_searched_for() -> None:
    assert found("lost \ud800") == ["records/Prescriptions"]


def test_empty_index_finds_nothing() -> None:
    assert PolicyIndex([]).search("late", words_max=5) == []
