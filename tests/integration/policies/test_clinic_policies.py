"""What messages to the clinic find among its own policies, and what they do not."""

from pathlib import Path

import pytest

from torpor.policies.book import PolicyBook
from torpor.policies.options import PolicyOptions

ROOT = Path(__file__).parents[3]
OPTIONS = PolicyOptions()


@pytest.fixture(scope="module")
def book() -> PolicyBook:
    book = PolicyBook(ROOT, options=OPTIONS)
    book.load()
    return book


def found(book: PolicyBook, message: str) -> list[str]:
    chosen = book.search(message, limit=OPTIONS.excerpts_max, budget_tokens=OPTIONS.budget_tokens)
    return [f"{excerpt.id}: {excerpt.heading}" for excerpt in chosen]


@pytest.mark.parametrize(
    "message",
    [
        "Good morning",
        "Good evening, thanks",
        "Thank you, that is all for today",
        "When are you open on Thursday?",
        "Something slow",
        "Please fail at once",
        "How are you today?",
        "What can you do for me?",
        "My name is Ada Lovelace",
        "I have time in the afternoon",
    ],
)
def test_words_that_say_nothing_of_a_rule_find_none(book: PolicyBook, message: str) -> None:
    assert found(book, message) == []


@pytest.mark.parametrize(
    ("message", "best"),
    [
        ("Can I cancel my visit tomorrow?", "cancellations: Cancelling in time"),
        ("I missed my appointment, what does it cost?", "cancellations: Missed visits"),
        ("Who can waive the fee?", "cancellations: Who may waive a fee"),
        ("I want to complain about the doctor", "complaints: Complaints about treatment"),
        ("I lost my prescription", "medication-requests: Lost prescriptions"),
        ("Can my wife collect my prescription?", "medication-requests: Collecting for somebody else"),
        ("I need sleeping tablets", "medication-requests: What needs a visit"),
        ("Can I take ibuprofen together with aspirin?", "medication-requests: Questions about medicines"),
        ("Can I get a copy of my record?", "records-and-privacy: Copies of a record"),
        ("My daughter is 15, may I see her record?", "records-and-privacy: Children"),
        ("I have chest pain", "appointments: Urgent visits"),
        ("Is there something free this morning?", "appointments: Urgent visits"),
        ("I will be ten minutes late", "appointments: Arriving late"),
        ("May I move my visit a third time?", "appointments: Moving a visit"),
    ],
)
def test_what_a_rule_is_about_finds_it_first(book: PolicyBook, message: str, best: str) -> None:
    assert found(book, message)[0] == best


def test_a_weak_word_brings_nothing_along_with_what_fits(book: PolicyBook) -> None:
    assert found(book, "Record a payment of 45.50 from Ada Lovelace") == ["cancellations: Who may waive a fee"]
    assert found(book, "May I move my visit a third time?") == ["appointments: Moving a visit"]
