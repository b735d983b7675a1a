"""Whatever happens in a window that is far too small, each request is valid, fits, and keeps the last two turns."""

import collections
from collections.abc import Sequence

import pytest

from tests.support.compacted_lives import LIMIT_TOKENS, Life
from tests.support.history_folds import Firsts, said
from torpor.conversation.compaction import KEPT_TURNS
from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.conversation.view import Role, request_body
from torpor.operations.requests import rebuilt
from torpor.records.blocks import Block, canonical, head_of
from torpor.records.journal import CompactionFailed, ContextReplaced, JournalRecord, ModelRequested, TurnFailed
from torpor.records.terms import FoldReason

CHUNK = 10
"""Seeds of one test."""
SAMPLE = 20
ALL = 1_000
LOSSY = (FoldReason.SHORTENED, FoldReason.EVERYTHING)
Said = list[tuple[Role, Block]]


def chunks(begin: int, end: int) -> list[int]:
    return list(range(begin, end, CHUNK))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "begin", [*chunks(0, SAMPLE), *(pytest.param(each, marks=pytest.mark.soak) for each in chunks(SAMPLE, ALL))]
)
async def test_no_conversation_breaks_a_promise(begin: int) -> None:
    met = collections.Counter[str]()
    for seed in range(begin, begin + CHUNK):
        life = Life(seed)
        await life.live()
        assert life.host.refused == [], f"seed {seed}"
        assert life.summariser.refused == [], f"seed {seed}"
        requests_fit(life.records, seed)
        bodies_are_those_of_the_journal(life, seed)
        turns_stay(life.records, seed)
        items_stay(life.records, seed)
        assert fold(ConversationState(), life.records).turn is None, f"seed {seed}"
        met.update(record.reason.value for record in life.records if isinstance(record, ContextReplaced))
        met.update(record.code for record in life.records if isinstance(record, CompactionFailed | TurnFailed))
    of_attachments = {FoldReason.WITHDRAWN.value}  # which nobody sends in these lives
    assert {*met} >= {reason.value for reason in FoldReason} - of_attachments | {"bad_summary"}


def requests_fit(records: Sequence[JournalRecord], seed: int) -> None:
    """By the engine's estimate and by a count of its bytes; a few tokens are lost to rounding."""
    for request in rebuilt(records):
        assert request.record.estimated_tokens <= LIMIT_TOKENS, f"seed {seed}, record {request.seq}"
        assert len(request.body()) / 4 <= LIMIT_TOKENS * 1.05, f"seed {seed}, record {request.seq}"


def bodies_are_those_of_the_journal(life: Life, seed: int) -> None:
    """Each that the model was sent can be rebuilt, byte for byte."""
    known = {bytes(request_body(each.preamble, each.view, live=each.live)) for each in rebuilt(life.records)}
    for number, body in enumerate(life.host.requests):
        assert number in life.lost or bytes(canonical(body)) in known, f"seed {seed}"


def turns_stay(records: Sequence[JournalRecord], seed: int) -> None:
    """The last two turns before the running one are in each request as they ended, unless a last resort is on record
    since."""
    state, firsts, ended = ConversationState(), Firsts(), dict[int, Said]()
    for record in records:
        before, state = state, fold(state, [record])
        if isinstance(record, ContextReplaced) and record.reason in LOSSY:
            ended.clear()
        if before.turn is not None and state.turn is None and before.turn.number in firsts.blocks:
            ended[before.turn.number] = said(state.view)[firsts.blocks[before.turn.number] :]
        firsts.see(before, record)
        if isinstance(record, ModelRequested):
            blocks = said(state.view)
            for turn in [number for number in firsts.blocks if number < record.turn][-KEPT_TURNS:]:
                if turn in ended:
                    first = firsts.blocks[turn]
                    stays = blocks[first : first + len(ended[turn])]
                    assert stays == ended[turn], f"seed {seed}, turn {turn} at record {record.seq}"


def items_stay(records: Sequence[JournalRecord], seed: int) -> None:
    """An open item is in the summary until a record closes it."""
    state = ConversationState()
    for record in records:
        before, state = state, fold(state, [record])
        if isinstance(record, ContextReplaced):
            closed = {closing.id for closing in record.closed}
            assert {item.id for item in before.items} <= {item.id for item in state.items} | closed, f"seed {seed}"
            text = head_of(record.head[0]).text if record.head else ""
            assert all(f"- {item.id} (" in text and item.text in text for item in state.items), f"seed {seed}"
