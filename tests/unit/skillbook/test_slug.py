"""What a model calls a skill by is safe whatever its author wrote."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.skillbook.slug import NAME_CHARS_MAX, slug


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("taking-payments", "taking-payments"),
        ("Taking Payments", "taking-payments"),
        ("taking_payments", "taking-payments"),
        ("vendor/skills:taking.payments", "vendor-skills-taking-payments"),
        ("--taking--payments--", "taking-payments"),
        ("Café", "cafe"),
        ("ﬁle", "file"),
        ("\uff11\uff12", "12"),
        ("yes", "yes"),
        ("null", "null"),
        ("1e3", "1e3"),
        ("con", "con"),
        ("claude-api", "claude-api"),
    ],
)
def test_name_becomes_its_key(name: str, key: str) -> None:
    assert slug(name) == key


def test_composed_and_decomposed_letters_are_one_name() -> None:
    name = "Pâte à modeler"
    assert slug(unicodedata.normalize("NFC", name)) == slug(unicodedata.normalize("NFD", name)) == "pate-a-modeler"


def test_look_alikes_stay_apart() -> None:
    cyrillic = "p\u0430yments"
    assert slug(cyrillic) != slug("payments")
    assert slug(cyrillic).startswith("p-yments-")


@pytest.mark.parametrize(("one", "other"), [("合同审查", "发票"), ("🐙", "🦑"), ("..", ".")])
def test_names_without_latin_letters_have_keys_of_their_own(one: str, other: str) -> None:
    assert slug(one).startswith("skill-")
    assert slug(one) != slug(other)


def test_long_names_are_cut_and_stay_apart() -> None:
    assert len(slug("a" * 94)) == NAME_CHARS_MAX
    assert slug("a" * 94) != slug("a" * 95)
    assert slug("a" * NAME_CHARS_MAX) == "a" * NAME_CHARS_MAX


@given(st.text())
def test_every_text_has_a_safe_key_that_is_its_own_key(name: str) -> None:
    key = slug(name)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", key)
    assert len(key) <= NAME_CHARS_MAX
    assert slug(key) == key
