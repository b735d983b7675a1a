"""Which part of a file a request wants, and whether it has the file already."""

import pytest

from torpor.gateway.ranges import has_it, wanted_part

ETAG = '"abc"'


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("bytes=0-0", range(1)),
        ("bytes=0-9", range(10)),
        ("bytes=0-99", range(10)),
        (f"bytes=0-{'9' * 40}", range(10)),
        ("bytes=3-5", range(3, 6)),
        (" BYTES=3- ", range(3, 10)),
        ("bytes=9-", range(9, 10)),
        ("bytes=-1", range(9, 10)),
        ("bytes=-10", range(10)),
        ("bytes=-11", range(10)),
        ("bytes=10-", range(0)),
        ("bytes=10-12", range(0)),
        (f"bytes={'9' * 40}-", range(0)),
        ("bytes=-0", range(0)),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
        ("bytes=1", None),
        ("bytes=+1-2", None),
        ("bytes=٣-", None),
        (f"bytes={'9' * 41}-", None),
        ("bytes=0-1,3-4", None),
        ("bytes=0-1,", None),
        ("lines=0-1", None),
        ("", None),
    ],
)
def test_a_part_is_the_one_that_is_asked_for_or_the_whole(asked: str, wanted: range | None) -> None:
    assert wanted_part([asked], conditions=[], etag=ETAG, size_bytes=10) == wanted


def test_nobody_and_who_asks_twice_gets_the_whole() -> None:
    for asked in ([], ["bytes=0-1", "bytes=0-1"]):
        assert wanted_part(asked, conditions=[], etag=ETAG, size_bytes=10) is None


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [(ETAG, range(2)), (f" {ETAG} ", range(2)), (f"W/{ETAG}", None), ('"other"', None), ("Mon, 30 Nov 2026", None)],
)
def test_the_rest_of_another_file_is_not_given(condition: str, wanted: range | None) -> None:
    assert wanted_part(["bytes=0-1"], conditions=[condition], etag=ETAG, size_bytes=10) == wanted


def test_an_empty_file_has_no_parts() -> None:
    for asked in ("bytes=0-", "bytes=-1"):
        assert wanted_part([asked], conditions=[], etag=ETAG, size_bytes=0) == range(0)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ([], False),
        ([ETAG], True),
        ([f"W/{ETAG}"], True),
        ([f'"x", {ETAG}'], True),
        (['"x"', ETAG], True),
        (["*"], True),
        (['"x"'], False),
        (["abc"], False),
    ],
)
def test_who_has_the_file_is_known_by_its_tag(tags: list[str], found: bool) -> None:
    assert has_it(tags, etag=ETAG) is found
