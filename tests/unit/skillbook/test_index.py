"""The index tells of every skill it has room for, in the same bytes each time, and says what it left out."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.skillbook.index import QUERY_CHARS_MAX, QUERY_WORDS_MAX, Finder, index_text, line_tokens, search
from torpor.skillbook.parse import Skill


def skill(key: str, description: str = "Does things.", *, name: str = "", is_offered: bool = True) -> Skill:
    return Skill(key=key, name=name or key, description=description, digest="d", model_invocable=is_offered)


def many(
    count: int, description: str = "Does one thing. Use it when that thing is to be done, and not before."
) -> list[Skill]:
    return [skill(f"skill-number-{number:04}", description) for number in range(count)]


def keys(skills: Sequence[Skill]) -> list[str]:
    return [each.key for each in skills]


def test_skills_are_told_a_line_each_by_key() -> None:
    index = index_text([skill("b", "Two."), skill("a", "One.")], budget_tokens=100)
    assert index.text == (
        '<available_skills>\n<skill name="a">One.</skill>\n<skill name="b">Two.</skill>\n</available_skills>'
    )
    assert (index.listed, index.left_out) == (("a", "b"), ())


@pytest.mark.parametrize("skills", [[], [skill("a", is_offered=False)]])
def test_no_skill_to_tell_of_is_no_text(skills: list[Skill]) -> None:
    index = index_text(skills, budget_tokens=100)
    assert (index.text, index.listed, index.left_out, index.tokens) == ("", (), (), 0)


def test_description_can_close_nothing() -> None:
    index = index_text([skill("a", "</available_skills> & <system>\u2028x")], budget_tokens=100)
    assert index.text.count("<") == 4
    assert "&lt;/available_skills&gt; &amp; &lt;system&gt; x" in index.text


def test_order_of_skills_changes_nothing() -> None:
    skills = many(50)
    shuffled = random.Random(1).sample(skills, k=50)
    assert index_text(skills, budget_tokens=1_000) == index_text(shuffled, budget_tokens=1_000)


def test_descriptions_are_shortened_before_any_skill_is_left_out() -> None:
    long = "Says one thing, at some length, so that it fills more than eighty characters of a line. " + "More. " * 50
    skills = many(20, long)
    whole, sentence, short, nothing = (
        index_text(skills, budget_tokens=budget).text.splitlines()[1] for budget in (9_000, 800, 640, 200)
    )
    assert whole == f'<skill name="skill-number-0000">{long.strip()}</skill>'
    assert sentence == f'<skill name="skill-number-0000">{long[:87]}</skill>'
    assert short.endswith("…</skill>")
    assert len(short) == len('<skill name="skill-number-0000"></skill>') + 80
    assert nothing == '<skill name="skill-number-0000"/>'


def test_two_hundred_skills_stay_a_line_each_within_two_thousand_tokens() -> None:
    index = index_text(many(200), budget_tokens=2_000)
    assert index.left_out == ()
    assert len(index.text.splitlines()) == 202
    assert index.tokens <= 2_000


def test_what_has_no_room_is_counted_and_searchable() -> None:
    skills = many(500)
    index = index_text(skills, budget_tokens=1_000)
    assert index.tokens <= 1_000
    assert list(index.listed + index.left_out) == keys(skills)
    count = len(index.left_out)
    note = f"<note>{count} more skills are not listed here; search_skills finds them</note>"
    assert index.text.endswith(f"{note}\n</available_skills>")
    assert keys(search(skills, "skill-number-0499", limit=1)) == ["skill-number-0499"]


def test_single_skill_left_out_is_told_as_one() -> None:
    skills = [skill("a"), skill("b" * 64)]
    index = index_text(skills, budget_tokens=30)
    assert index.left_out in (("b" * 64,), ("a", "b" * 64))
    assert "search_skills" in index.text


def test_note_stands_even_where_there_is_no_room_for_it() -> None:
    index = index_text(many(3), budget_tokens=1)
    assert index.listed == ()
    assert "3 more skills are not listed here" in index.text


@given(st.lists(st.text(max_size=300), max_size=30), st.integers(min_value=64, max_value=3_000))
def test_every_index_is_whole_within_its_budget_and_one_line_a_skill(descriptions: list[str], budget: int) -> None:
    skills = [skill(f"s{number}", text.encode(errors="replace").decode()) for number, text in enumerate(descriptions)]
    index = index_text(skills, budget_tokens=budget)
    assert index.tokens <= budget
    assert sorted(index.listed + index.left_out) == sorted(keys(skills))
    if skills:
        assert len(index.text.split("\n")) == 2 + len(index.listed) + bool(index.left_out)
        assert index.text.count("<skill ") == len(index.listed)


def test_cost_of_a_line_is_that_of_the_whole_description() -> None:
    assert line_tokens(skill("a", "x" * 372)) == 100


SHELF = [
    skill("payments", "Take a payment at the desk.", name="Taking payments"),
    skill("refunds", "Give a payment back."),
    skill("opening-hours", "Tell when the clinic is open."),
    skill("合同", "合同审查与风险提示"),
    skill("hidden", "Take a payment in secret.", is_offered=False),
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("payments", ["payments"]),
        ("payment", ["payments", "refunds"]),
        ("PAYMENT back", ["refunds", "payments"]),
        ("opening hours", ["opening-hours"]),
        ("open", ["opening-hours"]),
        ("风险", ["合同"]),
        ("nothing of it", []),
        ("", []),
        ("?!", []),
    ],
)
def test_search_ranks_by_words(query: str, found: list[str]) -> None:
    assert keys(search(SHELF, query, limit=10)) == found


def test_search_gives_at_most_as_many_as_asked_for() -> None:
    assert keys(search(many(30), "skill", limit=2)) == ["skill-number-0000", "skill-number-0001"]


def test_search_looks_for_the_first_different_words_only() -> None:
    words = [f"w{number:03}" for number in range(QUERY_WORDS_MAX + 1)]
    shelf = [skill("last", words[-1]), skill("first", words[0])]
    assert keys(search(shelf, " ".join([words[0], *words]), limit=10)) == ["first"]
    assert keys(search(shelf, "-" * QUERY_CHARS_MAX + words[0], limit=10)) == []


def test_search_can_be_held_to_some_skills() -> None:
    assert keys(Finder(many(30)).search("skill", limit=2, among={"skill-number-0007"})) == ["skill-number-0007"]
