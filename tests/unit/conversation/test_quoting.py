"""Earlier turns are quoted word for word, within bounds, and what is left out is said."""

import pytest

from torpor.conversation.earlier import EarlierTurn, Part, Voice
from torpor.conversation.quoting import (
    EXCERPT_CHARS,
    Found,
    found_in,
    lookback_of,
    mark_for,
    page,
    places,
    prefix,
    query_of,
)

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
E_ACUTE = "e\u0301"


def turn(number: int, user: str = "hello", assistant: str = "hi", **fields: object) -> EarlierTurn:
    parts = (Part(Voice.USER, "user ann", user), Part(Voice.ASSISTANT, "assistant", assistant))
    return EarlierTurn(number=number, parts=parts, **fields)  # type: ignore[arg-type]  # fields of the turn


def shown(*turns: EarlierTurn, last_turn: int = 0, offset: int = 0, bytes_max: int = 4_096) -> list[str]:
    last = last_turn or turns[-1].number
    return page(turns, last_turn=last, of=9, offset=offset, bytes_max=bytes_max).split("\n")


class TestPage:
    def test_tells_turns_part_by_part(self) -> None:
        assert shown(turn(1, "a\r", "b"), turn(2, ending="cancelled (client)")) == [
            "[Turns 1 to 2 of 9, word for word; who speaks stands in the lines that begin like the next.]",
            "=== turn 1, 1970-01-01 00:00 UTC",
            "=== user ann",
            "a\r",
            "=== assistant",
            "b",
            "=== turn 2, 1970-01-01 00:00 UTC, cancelled (client)",
            "=== user ann",
            "hello",
            "=== assistant",
            "hi",
        ]

    def test_says_of_a_refused_turn_that_it_is_left_out(self) -> None:
        refused = EarlierTurn(number=3, ending="refused by the model", is_refused=True)
        assert shown(refused)[1:] == [
            "=== turn 3, 1970-01-01 00:00 UTC: left out, it was refused by the model and is no part of the conversation"
        ]

    def test_leaves_whole_turns_for_the_next_page(self) -> None:
        lines = shown(turn(1), turn(2, "x" * 400), last_turn=5, bytes_max=640)
        assert lines[0].endswith("The rest is left out for want of room: read on with first_turn=2, last_turn=5.]")
        assert len(lines) == 6

    def test_says_that_turns_behind_those_that_were_read_follow(self) -> None:
        assert "read on with first_turn=2, last_turn=5." in shown(turn(1), last_turn=5)[0]

    @pytest.mark.parametrize("letter", ["x", "\u00fc", FAMILY, E_ACUTE, "\r\n"])
    def test_is_cut_between_characters_and_goes_on_there(self, letter: str) -> None:
        long = turn(1, letter * 800, "end")
        offset, texts = 0, []
        for _ in range(200):
            head, _, rest = page([long], last_turn=1, of=9, offset=offset, bytes_max=1_024).partition("\n")
            first, _, body = rest.partition("\n")
            assert first.startswith("=== turn 1")
            texts.append(body)
            assert len(head.encode()) + len(rest.encode()) < 1_024
            if "offset=" not in head:
                break
            offset = int(head.partition("offset=")[2].partition(".")[0])
        whole = f"=== user ann\n{letter * 800}\n=== assistant\nend"
        assert "".join(texts) == whole
        assert all(text.startswith(letter) for text in texts[1:-1])

    def test_that_begins_within_a_turn_goes_on_with_the_next_one(self) -> None:
        lines = shown(turn(1, "abc"), turn(2), offset=14)
        assert lines[1:3] == ["=== turn 1, 1970-01-01 00:00 UTC, from character 14 on", "bc"]
        assert "=== turn 2, 1970-01-01 00:00 UTC" in lines


class TestMark:
    @pytest.mark.parametrize(
        ("texts", "mark"),
        [
            (["a == b"], "==="),
            (["===", "b"], "=#1="),
            (["=== =#1= =#2=", "=#4="], "=#3="),
            (["===", f"=#{'9' * 5_000}="], "=#1="),
        ],
    )
    def test_is_in_none_of_the_texts(self, texts: list[str], mark: str) -> None:
        assert mark_for(texts) == mark
        assert not any(mark in text for text in texts)


class TestPrefix:
    def test_takes_whole_characters(self) -> None:
        assert prefix(f"ab{FAMILY}", bytes_max=12) == "ab"
        assert prefix("abc", bytes_max=3) == "abc"
        assert prefix("abc", bytes_max=-1) == ""

    def test_cuts_within_one_that_alone_is_too_long(self) -> None:
        assert prefix(FAMILY, bytes_max=8) == FAMILY[:2]


STRASSE_S = "\u00df"


class TestSearch:
    @pytest.mark.parametrize(
        "query", ["DOSE 5", "dose hi", "stra\u00dfe", "STRASSE", "caf\u00e9", f"caf{E_ACUTE}", FAMILY]
    )
    def test_finds_words_in_any_case_order_and_composition(self, query: str) -> None:
        words = query_of(query)
        assert words is not None
        found = found_in(turn(4, f"5 mg, the Dose in Stra\u00dfe 1, Caf{E_ACUTE} {FAMILY}"), words)
        assert found is not None
        assert (found.turn, found.title) == (4, "user ann")

    @pytest.mark.parametrize("query", ["dose", "hello dose", ".*", "hello|dose"])
    def test_finds_nothing_where_a_word_is_missing(self, query: str) -> None:
        words = query_of(query)
        assert words is not None
        assert found_in(turn(1), words) is None

    def test_shows_the_place_also_behind_characters_that_grow_without_case(self) -> None:
        words = query_of("needle")
        assert words is not None
        found = found_in(turn(1, f"{STRASSE_S * 1_000} the needle"), words)
        assert found is not None
        assert found.excerpt == f"\u2026{STRASSE_S * 95} the needle"

    def test_finds_nothing_in_a_refused_turn(self) -> None:
        words = query_of("a")
        assert words is not None
        assert found_in(EarlierTurn(number=1, is_refused=True), words) is None

    def test_finds_a_file_by_its_name(self) -> None:
        words = query_of("SCAN.png")
        assert words is not None
        parts = (Part(Voice.USER, "user ann", "see this"), Part(Voice.USER, "user ann, attachment", "", "my scan.png"))
        found = found_in(EarlierTurn(number=3, parts=parts), words)
        assert found == Found(3, "user ann, attachment", "my scan.png")

    def test_without_words_looks_for_nothing(self) -> None:
        assert query_of(" \n") is None

    def test_shows_the_part_with_most_of_the_words_around_the_first_of_them(self) -> None:
        words = query_of("needle hi")
        assert words is not None
        found = found_in(turn(1, f"{'a' * 500}{FAMILY} hi needle {'b' * 500}"), words)
        assert found is not None
        assert found.excerpt.startswith("\u2026aa")
        assert "hi needle" in found.excerpt
        assert found.excerpt.endswith("b\u2026")
        assert len(found.excerpt) <= EXCERPT_CHARS + 2

    def test_tells_places_and_where_it_stopped(self) -> None:
        found = [Found(9, "user ann", "x"), Found(7, "assistant", "y")]
        assert places(found, turns=(7, 9), stopped="since 2 had been found", bytes_max=1_024).split("\n") == [
            "[2 found in turns 7 to 9, the newest first; first_turn and last_turn show a turn whole. Earlier turns "
            "were not searched, since 2 had been found: search on with last_turn=6.]",
            "=== turn 9, user ann",
            "x",
            "=== turn 7, assistant",
            "y",
        ]

    def test_says_when_there_is_nothing(self) -> None:
        assert places([], turns=(1, 1), stopped="", bytes_max=1_024) == (
            "[Nothing found in turn 1; every word must occur in one turn, so fewer or other words may help; "
            "of files the names are searched, not what is in them.]"
        )

    def test_tells_no_more_places_than_there_is_room_for(self) -> None:
        found = [Found(number, "user ann", "x" * 300) for number in (9, 7, 5)]
        text = places(found, turns=(1, 9), stopped="", bytes_max=1_024)
        assert len(text.encode()) <= 1_024
        assert text.startswith("[1 found in turns 8 to 9, ")
        assert "there is no room for more: search on with last_turn=7.]" in text


class TestLookback:
    def test_quotes_exchanges_with_their_markup_escaped(self) -> None:
        lookback = lookback_of([turn(1, "<b> & \u00fc\nline"), turn(2, ending="cancelled (client)")], bytes_max=4_096)
        assert lookback.text.split("\n") == [
            '<lookback note="earlier parts of this conversation, quoted because the user asked for them">',
            '<exchange turn="1"><user>&lt;b&gt; &amp; \u00fc',
            "line</user><assistant>hi</assistant></exchange>",
            '<exchange turn="2" ended="cancelled (client)"><user>hello</user><assistant>hi</assistant></exchange>',
            "</lookback>",
        ]
        assert lookback.turns == (1, 2)
        assert lookback.tokens == -(-len(lookback.text.encode()) // 4)

    @pytest.mark.parametrize("bytes_max", range(0, 700, 10))
    def test_leaves_out_the_oldest_whole_and_says_how_many(self, bytes_max: int) -> None:
        turns = [turn(number, "\u00fc" * 40) for number in range(1, 5)]
        lookback = lookback_of(turns, bytes_max=bytes_max)
        assert len(lookback.text.encode()) <= bytes_max
        left_out = 4 - len(lookback.turns)
        assert lookback.turns == tuple(range(1 + left_out, 5))
        assert not lookback.turns or lookback.text
        assert ("earlier_left_out" in lookback.text) == bool(lookback.text and left_out)
        if lookback.turns:
            assert lookback.text.count("<exchange ") == len(lookback.turns)

    def test_of_nothing_is_nothing(self) -> None:
        assert lookback_of([], bytes_max=100).text == ""
