"""Evidence is read from files, checked line by line, and found by words."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.graphemes import open_tail
from torpor.errors import ConfigError
from torpor.subagents.evidence import (
    EVIDENCE_FOLDER,
    EXCERPT_CHARS,
    EvidenceIndex,
    Kind,
    Strength,
    excerpt_of,
    read_evidence,
)

HOME = Path(__file__).parents[3]


def line(id_: str, **fields: Any) -> str:
    entry = {"id": id_, "title": "T", "year": 2020, "kind": "trial", "strength": "low", "abstract": "A.", **fields}
    return json.dumps(entry, ensure_ascii=False)


def a_home(home: Path, **files: str | bytes) -> Path:
    folder = home / EVIDENCE_FOLDER
    folder.mkdir(parents=True)
    for topic, content in files.items():
        (folder / f"{topic}.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    return home


def an_index(home: Path, *lines: str) -> EvidenceIndex:
    return EvidenceIndex(read_evidence(a_home(home, sleep="\n".join(lines))))


def ids(index: EvidenceIndex, query: str, limit: int = 9, **filters: Any) -> list[str]:
    return [found.id for found in index.search(query, limit=limit, **filters)]


def test_entries_are_read_in_order_with_the_place_where_they_stand(tmp_path: Path) -> None:
    home = a_home(tmp_path, sleep=f"\ufeff{line('s1')}\r\n\n{line('s2')}\n", pain=line("p1"))

    assert [(placed.entry.id, placed.locator) for placed in read_evidence(home)] == [
        ("p1", "pain.jsonl:1"),
        ("s1", "sleep.jsonl:1"),
        ("s2", "sleep.jsonl:3"),
    ]


def test_a_home_without_evidence_has_none(tmp_path: Path) -> None:
    index = EvidenceIndex(read_evidence(tmp_path))

    assert (len(index), ids(index, "sleep")) == (0, [])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "line 2 is not JSON, expected one JSON object with id, title, year, kind, strength and abstract"),
        ("[" * 100_000, "line 2 is not JSON, expected one JSON object"),
        ("[]", "line 2 is [], expected one JSON object with id, title, year, kind, strength and abstract"),
        ('{"id": "x"}', "line 2, title is missing, expected a value"),
        (line("x", strength="strong"), "line 2, strength is 'strong', expected one of 'high', 'low', 'moderate'"),
        (line("x", kind="story"), "line 2, kind is 'story', expected one of 'audit', 'cohort', 'consensus'"),
        (line("x", year="2020"), "line 2, year is '2020', expected int"),
        (line("x", year=3000), "line 2, year is 3000, expected int <= 2199"),
        (line("x", author="somebody"), "line 2, author is unknown, expected one of abstract, id, kind"),
        (line("X!"), "line 2, id is 'X!', expected 1 to 64 characters among a-z, 0-9, '_', '-'"),
        (line("a"), "line 2, id is 'a', expected another one, since sleep.jsonl:1 has it already"),
    ],
)
def test_a_line_that_is_no_entry_is_told_with_its_place(tmp_path: Path, bad: str, said: str) -> None:
    home = a_home(tmp_path, sleep=f"{line('a')}\n{bad}\n")

    with pytest.raises(ConfigError) as raised:
        read_evidence(home)

    assert str(raised.value).startswith(f"config/evidence/sleep.jsonl: {said}")


def test_an_id_is_refused_though_the_other_file_has_it(tmp_path: Path) -> None:
    home = a_home(tmp_path, pain=line("a"), sleep=line("a"))

    with pytest.raises(ConfigError, match=r"sleep\.jsonl: line 1, id is 'a', expected .* pain\.jsonl:1 has it"):
        read_evidence(home)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    home = a_home(tmp_path, sleep=b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"sleep\.jsonl: content is not UTF-8, expected UTF-8"):
        read_evidence(home)

    (home / EVIDENCE_FOLDER / "sleep.jsonl").unlink()
    (home / EVIDENCE_FOLDER / "sleep.jsonl").mkdir()
    with pytest.raises(ConfigError, match=r"sleep\.jsonl: file is unreadable"):
        read_evidence(home)


def test_an_entry_is_found_by_title_topic_and_abstract_in_any_form_of_the_word(tmp_path: Path) -> None:
    index = an_index(tmp_path, line("a", title="Waking early"), line("b", abstract="Caféine at night."))

    assert ids(index, "wakes EARLIER") == ["a"]
    assert ids(index, "cafeine nights") == ["b"]
    assert ids(index, "sleeping") == ["a", "b"]
    assert ids(index, "nothing of the kind") == ids(index, "what is the") == ids(index, "") == []


def test_the_title_counts_most_and_equals_stand_in_their_order(tmp_path: Path) -> None:
    index = an_index(
        tmp_path,
        line("a", abstract="Only a walk."),
        line("b", abstract="Only a walk."),
        line("c", title="A walk"),
        line("d", title="Else"),
    )

    assert ids(index, "walk") == ids(index, "walk") == ["c", "a", "b"]
    assert ids(index, "walk", limit=2) == ["c", "a"]


def test_a_search_can_be_narrowed(tmp_path: Path) -> None:
    index = an_index(
        tmp_path,
        line("a", kind="guideline", year=2019, strength="high"),
        line("b", kind="trial", year=2021, strength="moderate"),
        line("c", kind="trial", year=2023, strength="very_low"),
    )

    assert ids(index, "sleep", kinds=frozenset({Kind.TRIAL})) == ["b", "c"]
    assert ids(index, "sleep", kinds=frozenset()) == []
    assert ids(index, "sleep", year_min=2021) == ["b", "c"]
    assert ids(index, "sleep", strength_min=Strength.MODERATE) == ["a", "b"]
    assert ids(index, "sleep", limit=1, year_min=2022) == ["c"]


def test_what_is_found_says_where_it_stands_and_shows_the_words(tmp_path: Path) -> None:
    abstract = "Nothing of it. " * 30 + "Then melatonin is named, " + "and much follows. " * 30
    index = an_index(tmp_path, line("a", abstract=abstract), line("b", title="Melatonin", abstract="Short."))

    by_title, by_abstract = index.search("melatonin", limit=9)

    assert (by_title.locator, by_title.excerpt) == ("sleep.jsonl:2", "Short.")
    assert (by_abstract.locator, by_abstract.year, by_abstract.kind, by_abstract.strength) == (
        "sleep.jsonl:1",
        2020,
        "trial",
        "low",
    )
    assert "melatonin is named" in by_abstract.excerpt
    assert by_abstract.excerpt.startswith("…")
    assert by_abstract.excerpt.endswith("…")
    assert len(by_abstract.excerpt) <= EXCERPT_CHARS + 2


@given(st.text(max_size=80), st.integers(0, 80), st.integers(1, 40))
def test_an_excerpt_is_whole_characters_of_the_text(text: str, at: int, chars_max: int) -> None:
    excerpt = excerpt_of(text, at=min(at, len(text)), chars_max=chars_max).removesuffix("…").removeprefix("…")

    assert excerpt in text
    assert len(excerpt) <= chars_max
    if excerpt != text:
        end = text.find(excerpt) + len(excerpt)
        assert text[end : end + 1] in ("", " ") or open_tail(text[:end]) <= end


def test_a_family_of_emoji_is_not_cut_apart() -> None:
    family = "👩‍👩‍👧‍👦"
    assert excerpt_of(f"ab{family}", at=0, chars_max=5) == "ab…"
    assert excerpt_of(family * 3, at=0, chars_max=10) == f"{family}…"


@pytest.mark.parametrize("query", ['"walk', "walk AND", "NEAR(walk", "title:walk", "walk\0", "walk \ud800", "-walk*"])
def test_query_syntax_is_only_text(tmp_path: Path, query: str) -> None:
    assert ids(an_index(tmp_path, line("a", abstract="A walk.")), query) == ["a"]


def test_an_index_says_how_much_it_holds(tmp_path: Path) -> None:
    index = an_index(tmp_path, line("a"))
    assert repr(index) == "<EvidenceIndex entries=1>"
    index.close()


def test_the_evidence_of_this_home_is_sound_and_enough() -> None:
    entries = read_evidence(HOME)

    assert len(entries) >= 160
    assert len({placed.entry.title for placed in entries}) == len(entries)
    for placed in entries:
        assert placed.entry.id.startswith(f"ev-{placed.topic}-")
        assert 100 <= len(placed.entry.abstract) <= 600


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("behavioural therapy for insomnia", "ev-sleep-001"),
        ("text message reminders for missed appointments", "ev-appointments-001"),
        ("teach-back misunderstandings", "ev-communication-001"),
        ("salt and blood pressure", "ev-hypertension-001"),
        ("how to treat low blood sugar", "ev-diabetes-006"),
        ("nicotine replacement patch", "ev-smoking-002"),
        ("balance training to prevent falls", "ev-falls-001"),
        ("asthma inhaler technique", "ev-breathing-002"),
        ("back pain stay active", "ev-pain-001"),
    ],
)
def test_the_evidence_of_this_home_is_found_by_what_one_would_ask(query: str, expected: str) -> None:
    assert expected in ids(EvidenceIndex(read_evidence(HOME)), query, 3)
