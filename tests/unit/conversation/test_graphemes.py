"""Text is cut between characters as people see them."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.graphemes import OPEN_TAIL_MAX, cut, open_tail

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
THUMB = "\U0001f44d\U0001f3fd"
FLAGS = "\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
HANGUL = "\u1112\u1161\u11ab"
KSHI = "\u0915\u094d\u0937\u093f"
ACCENTED = "e\u0301\u0323"
KEYCAP = "1\ufe0f\u20e3"
CLUSTERS = (
    FAMILY,
    THUMB,
    *FLAGS,
    ENGLAND,
    HANGUL,
    KSHI,
    ACCENTED,
    KEYCAP,
    "\r\n",
    "\n",
    "a",
    " ",
    "\u6f22",
    "\u0600" + "1",
)
TEXTS = st.lists(st.sampled_from(CLUSTERS), max_size=12).map("".join) | st.text(
    st.sampled_from("a \r\n\t\u0301\u200d\u0600\u0915\u094d\u1100\u1161\U0001f1e9\U0001f469\U0001f3fd"), max_size=12
)


def bounds(text: str) -> set[int]:
    """Every place where a cluster ends, and the beginning."""
    return {0, *(found.end() for found in regex.finditer(r"\X", text))}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cluster_that_more_text_could_join_is_open_from_its_beginning(cluster: str) -> None:
    if cluster.endswith("\n"):
        assert open_tail(f"so {cluster}") == len(f"so {cluster}")
    else:
        assert open_tail(f"so {cluster}") == len("so ")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_cluster_that_has_only_begun_is_open(cluster: str) -> None:
    for length in range(1, len(cluster)):
        assert open_tail("so " + cluster[:length]) == len("so ")


def test_a_second_flag_does_not_open_the_first_one() -> None:
    assert open_tail("".join(FLAGS)) == len(FLAGS[0])
    assert open_tail(FLAGS[0] + FLAGS[1][0]) == len(FLAGS[0])


@pytest.mark.parametrize(("text", "start"), [("", 0), ("a", 0), ("ab", 1), ("a\t", 2), ("a\r", 1), ("\u6f22a", 1)])
def test_of_plain_text_only_the_last_letter_is_open(text: str, start: int) -> None:
    assert open_tail(text) == start


def test_nobody_waits_for_the_end_of_a_heap_of_accents() -> None:
    heap = "so a" + "\u0301" * (OPEN_TAIL_MAX - 1)
    assert open_tail(heap) == len("so ")
    assert open_tail(heap + "\u0301") == len(heap) + 1


@given(TEXTS, TEXTS)
def test_what_comes_before_an_open_tail_ends_with_a_whole_cluster_whatever_follows(text: str, more: str) -> None:
    assert open_tail(text) in bounds(text + more)


@given(TEXTS, st.integers(0, 40))
def test_a_cut_keeps_as_many_whole_clusters_as_fit(text: str, chars_max: int) -> None:
    kept = cut(text, chars_max=chars_max)
    assert text.startswith(kept)
    assert len(kept) == max(bound for bound in bounds(text) if bound <= chars_max)


@pytest.mark.parametrize(
    ("text", "chars_max", "kept"),
    [
        ("short", 5, "short"),
        ("longer", 5, "longe"),
        ("line\r\nline", 5, "line"),
        ("line\r\nline", 6, "line\r\n"),
        (f"ab{FAMILY}", 6, "ab"),
        (FAMILY, 4, ""),
        ("any", 0, ""),
        ("", 0, ""),
    ],
)
def test_a_cut_never_falls_into_a_cluster(text: str, chars_max: int, kept: str) -> None:
    assert cut(text, chars_max=chars_max) == kept
