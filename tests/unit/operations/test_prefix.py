"""How much of a request the one before it had sent, and what broke the rest."""

import json
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.histories import Teller, told
from torpor.conversation.fold import fold
from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState
from torpor.conversation.turn_folds import requested_view
from torpor.conversation.view import View, preamble_of
from torpor.operations.prefix import PrefixSummary, RequestPrefix, common_view_bytes, prefixes, summary_of
from torpor.operations.requests import rebuilt
from torpor.records.blocks import text_block
from torpor.records.ids import MessageId
from torpor.records.journal import (
    JournalRecord,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Usage

_CLOSERS = {"user": b'],"role":"user"}]', "assistant": b'],"role":"assistant"}]'}


def cached_part(body: bytes) -> bytes:
    """Tools, system and messages as a host reads them, up to the last block."""
    request: dict[str, Any] = json.loads(body)

    def encoded(value: Any) -> bytes:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    messages = encoded(request["messages"])
    messages = messages[1:].removesuffix(_CLOSERS[request["messages"][-1]["role"]])
    return encoded(request["tools"]) + b"".join(map(encoded, request["system"])) + messages


@given(st.binary(min_size=1, max_size=250).map(told))
def test_what_both_begin_with_is_what_their_bytes_begin_with(teller: Teller) -> None:
    found, requests = list(prefixes(teller.journal)), list(rebuilt(teller.journal))
    assert [each.seq for each in found] == [request.seq for request in requests]
    for before, request, each in zip(requests, requests[1:], found[1:], strict=False):
        old, new = cached_part(before.body()), cached_part(request.body())
        equal = takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
        common = 0 if before.record.model != request.record.model else sum(1 for _ in equal)
        assert (each.size_bytes, each.common_bytes, each.share) == (len(new), common, common / len(old))


@given(st.binary(min_size=1, max_size=250).map(told))
def test_every_break_has_a_cause_and_within_a_turn_only_another_model_is_one(teller: Teller) -> None:
    for each in list(prefixes(teller.journal))[1:]:
        assert each.share is not None
        assert (each.share < 1) == bool(each.cause)
        assert each.cause in {"", "model", "instructions", "turn-only blocks", "refusal", "compaction"}
        assert each.is_first_of_turn or each.cause in {"", "model", "compaction"}


class Story:
    """Turns of one question and one answer."""

    def __init__(self) -> None:
        self.journal: list[JournalRecord] = []
        self.state = ConversationState()

    def add(self, *drafts: JournalRecord) -> None:
        records = numbered(self.state, drafts, at_us=1)
        self.state = fold(self.state, records)
        self.journal += records

    def preamble(self, **fields: Any) -> None:
        system = [{"type": "text", "text": "be brief"}]
        changed = preamble_of({"model": "m", "max_tokens": 9, "system": system, "tools": [{"name": "look"}]} | fields)
        self.add(PreambleChanged(digest=changed.digest, body=changed.body))

    def turn(self, *turn_only: str, is_refused: bool = False, usage: Usage | None = None) -> None:
        number, message = self.state.turns + 1, MessageId(f"m{self.state.turns + 1}")
        said = (text_block(f"question {number}"),)
        self.add(MessageReceived(message_id=message, principal="ada", blocks=said))
        self.add(TurnPrepared(turn=number, messages=(message,), turn_only=tuple(map(text_block, turn_only))))
        self.ask()
        reply = () if is_refused else (text_block("answer"),)
        call = f"{number}-1-1"
        self.add(
            ModelReplied(turn=number, call=call, round=1, blocks=reply, stop_reason="end_turn", usage=usage or Usage())
        )
        note = text_block("[refused]")
        self.add(TurnRefused(turn=number, detail="no", note=note) if is_refused else TurnFinished(turn=number))

    def ask(self) -> None:
        turn = self.state.turns
        self.add(
            ModelRequested(
                turn=turn,
                call=f"{turn}-1-1",
                round=1,
                preamble=self.state.preamble.digest,
                link=requested_view(self.state, ()).link.hex(),
                sections={},
            )
        )

    def found(self) -> list[RequestPrefix]:
        return list(prefixes(self.journal))


@pytest.fixture
def story() -> Story:
    begun = Story()
    begun.preamble()
    begun.turn()
    return begun


def test_history_that_is_only_appended_to_is_sent_again_whole(story: Story) -> None:
    story.turn()

    first, second = story.found()

    assert (first.share, first.cause) == (None, "")
    assert (second.share, second.common_bytes, second.cause) == (1.0, first.size_bytes, "")
    assert second.size_bytes > first.size_bytes


def test_what_was_for_one_turn_alone_breaks_the_next_one_where_it_stood(story: Story) -> None:
    story.turn("only now " * 10)
    story.turn()

    *_, with_it, after = story.found()

    assert with_it.cause == ""
    assert after.cause == "turn-only blocks"
    assert after.common_bytes < with_it.size_bytes


def test_a_refused_turn_breaks_the_next_one(story: Story) -> None:
    story.turn(is_refused=True)
    story.turn()

    assert [each.cause for each in story.found()] == ["", "", "refusal"]


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"model": "other"}, "model"),
        ({"tools": [{"name": "book"}, {"name": "look"}]}, "tools"),
        ({"system": [{"type": "text", "text": "be kind"}]}, "instructions"),
        ({"system": []}, "instructions"),
        (
            {"system": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "<available_skills>"}]},
            "skills index",
        ),
        (
            {"system": [{"type": "text", "text": "be brief"}, {"type": "text", "text": "<live_context>"}]},
            "live context",
        ),
        ({"max_tokens": 10}, "preamble"),
    ],
)
def test_what_changed_before_the_messages_is_named(story: Story, fields: dict[str, Any], cause: str) -> None:
    story.preamble(**fields)
    story.turn()

    assert story.found()[-1].cause == cause


def test_a_summary_tells_medians_causes_and_what_the_host_read(story: Story) -> None:
    story.turn("once", usage=Usage(input_tokens=10, cache_read_input_tokens=30))
    story.turn(usage=Usage(input_tokens=40))

    found = story.found()
    summary = summary_of(found)

    assert [(each.input_tokens, each.cache_read_tokens) for each in found] == [(0, 0), (40, 30), (40, 0)]
    assert found[2].share is not None
    assert summary == PrefixSummary(
        requests=2,
        within_turns=None,
        across_turns=(1.0 + found[2].share) / 2,
        breaks={"turn-only blocks": 1},
        cache_read_share=30 / 80,
    )


def test_a_conversation_without_requests_has_nothing_to_summarise() -> None:
    assert summary_of([]) == PrefixSummary(
        requests=0, within_turns=None, across_turns=None, breaks={}, cache_read_share=None
    )


def test_pieces_that_two_views_share_are_not_looked_at() -> None:
    class Unread(bytes):
        """Bytes that may not be compared."""

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = bytes.__hash__

    shared = Unread(b"shared")
    old, new = (View([shared, end], 2, "user", b"", len(shared) + len(end), 2) for end in (b"abc", b"abd"))

    assert common_view_bytes(old, new) == len("sharedab")
