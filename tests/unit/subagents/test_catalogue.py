"""The interventions of a home: a file with a fault is none, and the same search finds the same."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.nasty_text import nasty_text
from tests.unit.subagents.plan_parts import CATALOGUE, SHIPPED, TABLES
from torpor.errors import ConfigError
from torpor.subagents.catalogue import CATALOGUE_FILE, InterventionCatalogue, catalogue_from, load_catalogue


def found(query: str, *, limit: int = 10) -> list[str]:
    return [entry.id for entry in CATALOGUE.search(query, limit=limit)]


def test_the_shipped_catalogue_has_an_intervention_for_every_problem_and_a_use_for_every_contraindication() -> None:
    assert len(SHIPPED) >= 30
    assert {code for entry in SHIPPED for code in entry.applies_to} == set(SHIPPED.problems)
    assert {id_ for entry in SHIPPED for id_ in entry.contraindications} == set(SHIPPED.contraindications)


def test_entries_are_had_by_id_and_told_in_the_order_of_ids() -> None:
    entry = CATALOGUE.get("short-nights")
    assert entry is not None
    strict = entry.dose("strict")
    assert strict is not None
    assert strict.text == "Five hours"
    assert entry.dose("daily") is None
    assert CATALOGUE.get("nights") is None
    assert CATALOGUE.ids == tuple(entry.id for entry in CATALOGUE) == ("cycling", "short-nights", "sleep-diary")
    assert repr(CATALOGUE) == "<InterventionCatalogue entries=3 problems=3>"


def with_first(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda tables: tables["intervention"][0].update(changes)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            with_first(id="cycling"),
            "intervention[2].id is 'cycling', expected another id, since intervention[0] has it",
        ),
        (with_first(id="Sleep diary"), "intervention[0].id is 'Sleep diary', expected an id of small letters, digits"),
        (with_first(id="x" * 65), f"intervention[0].id is '{'x' * 65}', expected str of length <= 64"),
        (
            with_first(applies_to=["insomnai"]),
            "intervention[0].applies_to[0] is 'insomnai', expected a key of [problems], perhaps 'insomnia'",
        ),
        (
            with_first(contraindications=["zzz"]),
            "intervention[0].contraindications[0] is 'zzz', expected a key of [contraindications]",
        ),
        (
            with_first(applies_to=["insomnia", "insomnia"]),
            "intervention[0].applies_to[1] is 'insomnia', expected each id",
        ),
        (
            with_first(dose_options=[{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]),
            "intervention[0].dose_options[1] is 'a', expected each id once",
        ),
        (
            with_first(dose_options=[{"id": "A", "text": "x"}]),
            "intervention[0].dose_options[0].id is 'A', expected an id",
        ),
        (
            with_first(dose_options=[]),
            "intervention[0].dose_options is [], expected a list of length >= 1, as in [[intervention.dose_options]]",
        ),
        (with_first(title=" \u200b"), "intervention[0].title is ' \\u200b', expected visible text"),
        (with_first(cautions=["fine", " "]), "intervention[0].cautions[1] is ' ', expected visible text"),
        (with_first(title=7), "intervention[0].title is 7, expected str"),
        (with_first(dose="much"), "intervention[0].dose is unknown, expected one of applies_to, cautions,"),
        (lambda tables: tables["intervention"][0].pop("title"), "intervention[0].title is missing, expected a value"),
        (lambda tables: tables.pop("problems"), "problems is missing, expected a value"),
        (lambda tables: tables["problems"].update({"Odd one": "x"}), "problems is 'Odd one', expected an id"),
        (lambda tables: tables["contraindications"].update({"é": "x"}), "contraindications is 'é', expected an id"),
        (
            lambda tables: tables["problems"].update({"insomnia": " "}),
            "problems.insomnia is ' ', expected visible text",
        ),
        (
            lambda tables: tables.update(intervention=[]),
            "intervention is [], expected a list of length >= 1, as in [[intervention]]",
        ),
    ],
)
def test_a_fault_is_told_with_its_file_its_place_and_what_is_expected(
    spoil: Callable[[dict[str, Any]], object], said: str
) -> None:
    tables = copy.deepcopy(TABLES)
    spoil(tables)
    with pytest.raises(ConfigError) as caught:
        catalogue_from(tables, where="interventions.toml")
    assert str(caught.value).startswith(f"interventions.toml: {said}")


def test_a_home_without_the_file_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config/interventions\.toml: file is missing, expected the interventions"):
        load_catalogue(tmp_path)


def test_what_is_no_toml_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / CATALOGUE_FILE
    file.parent.mkdir()
    file.write_text("[problems\n")
    with pytest.raises(ConfigError, match=r"config/interventions\.toml: content is not TOML"):
        load_catalogue(tmp_path)


def test_a_word_of_the_title_counts_more_than_one_of_the_summary() -> None:
    assert found("diary") == ["sleep-diary", "short-nights"]


def test_having_more_of_the_words_counts_most() -> None:
    assert found("nights in bed and a diary")[0] == "short-nights"


def test_other_forms_of_a_word_and_the_problem_that_it_is_for_are_found() -> None:
    assert found("cyclist") == ["cycling"]
    assert found("knee") == ["cycling"]
    assert found("depressed") == ["short-nights"]


def test_of_equal_ones_the_first_in_the_order_of_ids_comes_first() -> None:
    assert found("insomnia") == ["short-nights", "sleep-diary"]
    assert found("insomnia", limit=1) == ["short-nights"]


@pytest.mark.parametrize("query", ["", "   ", "and the of", "volcano", "kn"])
def test_what_shares_no_word_is_not_found(query: str) -> None:
    assert found(query) == []


def test_the_nearest_of_an_unknown_id_are_written_alike_or_else_found_by_its_words() -> None:
    assert CATALOGUE.nearest("Sleep-Dairy") == ("sleep-diary",)
    assert CATALOGUE.nearest("exercises-for-the-hurting-knee") == ("cycling",)
    assert CATALOGUE.nearest("zzz") == ()


@given(query=nasty_text(), limit=st.integers(1, 20))
def test_any_query_finds_at_most_so_many_and_again_the_same(query: str, limit: int) -> None:
    again = InterventionCatalogue(
        reversed(list(SHIPPED)), problems=SHIPPED.problems, contraindications=SHIPPED.contraindications
    )
    hits = SHIPPED.search(query, limit=limit)
    assert len(hits) <= limit
    assert hits == again.search(query, limit=limit)
    assert set(SHIPPED.nearest(query)) <= set(SHIPPED.ids)
