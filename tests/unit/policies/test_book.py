"""The policies of a home, searched within a budget."""

from pathlib import Path

import pytest

from torpor.policies.book import CUT_MARK, PolicyBook, tokens_of
from torpor.policies.options import PolicyOptions

VISITS = """---
id: visits
version: 1
---
# Late
Whoever is late waits for a doctor.
# Missed
A missed visit costs 40 euros.
"""
RECORDS = """---
id: records
version: 7
---
# Copies
A copy of a record takes 30 days.
# Lost
What was lost is found.
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with two policies."""
    write(tmp_path, "visits.md", VISITS)
    write(tmp_path, "records.md", RECORDS)
    return tmp_path


def write(home: Path, name: str, text: str) -> None:
    file = home / "config" / "policies" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def book_of(home: Path, *, options: PolicyOptions | None = None) -> PolicyBook:
    book = PolicyBook(home, options=options or PolicyOptions())
    book.load()
    return book


def headings(book: PolicyBook, text: str, *, limit: int = 5, budget_tokens: int = 1_000) -> list[str]:
    return [excerpt.heading for excerpt in book.search(text, limit=limit, budget_tokens=budget_tokens)]


def test_excerpt_comes_with_id_and_version(home: Path) -> None:
    (excerpt,) = book_of(home).search("I lost it", limit=5, budget_tokens=1_000)

    assert (excerpt.id, excerpt.version, excerpt.heading) == ("records", "7", "Lost")
    assert excerpt.text == "What was lost is found."


def test_policies_are_listed_in_the_order_of_their_files(home: Path) -> None:
    assert [policy.id for policy in book_of(home).policies] == ["records", "visits"]


def test_home_without_policies_finds_nothing(tmp_path: Path) -> None:
    book = book_of(tmp_path)

    assert book.search("late", limit=5, budget_tokens=1_000) == ()
    assert (book.policies, book.problems) == ((), ())


def test_no_more_than_the_limit_are_given(home: Path) -> None:
    text = "a missed visit, and a copy"

    assert len(headings(book_of(home), text)) == 2
    assert len(headings(book_of(home), text, limit=1)) == 1
    assert headings(book_of(home), text, limit=0) == []


def test_what_fits_far_worse_than_the_best_is_left_out(home: Path) -> None:
    write(
        home, "others.md", "---\nid: others\nversion: 1\n---\n" + "\n".join(f"# Part {n}\nText {n}" for n in range(9))
    )
    text = "missed visits cost euros, a record too"

    assert headings(book_of(home), text) == ["Missed"]
    assert headings(book_of(home, options=PolicyOptions(score_share=0)), text)[:2] == ["Missed", "Copies"]


def test_what_is_below_the_floor_is_left_out_also_where_it_is_the_best(home: Path) -> None:
    text = "missed visits cost euros, a record too"
    best = book_of(home).found(text)[0].score

    assert headings(book_of(home, options=PolicyOptions(score_min=best)), text) == ["Missed"]
    assert book_of(home, options=PolicyOptions(score_min=best + 0.1)).search(text, limit=4, budget_tokens=900) == ()


def test_excerpts_that_do_not_fit_any_more_are_passed_over(tmp_path: Path) -> None:
    long = "late " * 20 + "and so on " * 40
    write(tmp_path, "p.md", f"---\nid: p\nversion: 1\n---\n# Late\nlate\n# Wordy\n{long}\n# End\nbe late\n# Other\nx\n")
    book = book_of(tmp_path, options=PolicyOptions(score_share=0))

    given = book.search("late", limit=5, budget_tokens=40)

    assert headings(book, "late") == ["Late", "Wordy", "End"]
    assert [excerpt.heading for excerpt in given] == ["Late", "End"]
    assert sum(map(tokens_of, given)) <= 40


def test_best_excerpt_that_is_too_large_alone_is_cut_between_characters_and_says_so(tmp_path: Path) -> None:
    family = "👩‍👩‍👧"
    write(tmp_path, "p.md", f"---\nid: p\nversion: 1\n---\n# Late\n{family * 20}\n")
    book = book_of(tmp_path)

    for budget_tokens in range(12, 60):
        (excerpt,) = book.search("late", limit=5, budget_tokens=budget_tokens)
        text = excerpt.text.removesuffix(CUT_MARK)
        assert text != excerpt.text
        assert text == family * (len(text) // len(family))
        assert tokens_of(excerpt) <= budget_tokens


def test_budget_without_room_for_a_character_gives_nothing(home: Path) -> None:
    assert headings(book_of(home), "lost", budget_tokens=0) == []
    assert headings(book_of(home), "lost", budget_tokens=5) == []


def test_file_that_is_no_policy_is_told_and_the_others_count(home: Path) -> None:
    write(home, "broken.md", "# Nothing\n")

    book = book_of(home)

    assert [(problem.file, problem.line) for problem in book.problems] == [("broken.md", 1)]
    assert headings(book, "lost") == ["Lost"]


def test_second_file_with_an_id_is_told_and_left_out(home: Path) -> None:
    write(home, "z.md", VISITS.replace("late", "tardy"))

    book = book_of(home)

    assert [(problem.file, problem.message) for problem in book.problems] == [
        ("z.md", "has the id 'visits', which visits.md has already")
    ]
    assert headings(book, "tardy") == []


@pytest.mark.parametrize(
    ("content", "told"), [(b"---\xff", "is not UTF-8"), (b"x" * 2_000, "is larger than 1024 bytes")]
)
def test_file_that_cannot_be_read_is_told(home: Path, content: bytes, told: str) -> None:
    (home / "config" / "policies" / "a.md").write_bytes(content)
    (home / "config" / "policies" / "b.md").mkdir()

    book = book_of(home, options=PolicyOptions(file_max_bytes=1_024))

    assert [problem.file for problem in book.problems] == ["a.md", "b.md"]
    assert told in book.problems[0].message
    assert book.problems[1].message.startswith("cannot be read")


async def test_refresh_takes_edits_additions_and_removals(home: Path) -> None:
    book = book_of(home)
    write(home, "visits.md", VISITS.replace("version: 1", "version: 2"))
    write(home, "fees.md", "---\nid: fees\nversion: 1\n---\n# Fees\nForty euros.\n")
    (home / "config" / "policies" / "records.md").unlink()

    await book.refresh()

    assert [(policy.id, policy.version) for policy in book.policies] == [("fees", "1"), ("visits", "2")]
    assert headings(book, "lost") == []
    assert headings(book, "fees") == ["Fees"]


async def test_broken_edit_keeps_the_last_good_file(home: Path) -> None:
    book = book_of(home)
    write(home, "visits.md", "no policy")

    await book.refresh()

    assert [problem.file for problem in book.problems] == ["visits.md"]
    assert headings(book, "missed visit") == ["Missed"]

    write(home, "visits.md", VISITS)
    await book.refresh()

    assert book.problems == ()


async def test_broken_file_does_not_take_back_an_id_that_another_one_has_now(home: Path) -> None:
    book = book_of(home)
    write(home, "a.md", VISITS.replace("late", "tardy"))
    write(home, "visits.md", "no policy")

    await book.refresh()

    assert [policy.id for policy in book.policies] == ["visits", "records"]
    assert headings(book, "tardy") == ["Late"]
