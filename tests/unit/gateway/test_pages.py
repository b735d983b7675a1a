"""Parts of a journal for one answer: what fits into it, however large the messages are, and little more is read."""

from typing import Any

import pytest

from tests.support.gateway_world import World
from torpor.gateway.pages import PAGE_BYTES, following, newest
from torpor.records.blocks import text_block
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord, MessageReceived

KEY = ConversationKey("default", "alice", "c1")


class Measured(World):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    async def _records(self, *args: Any, **asked: Any) -> tuple[JournalRecord, ...]:
        found = await super()._records(*args, **asked)
        self.read += len(found)
        return found

    def say_all(self, *sizes: int) -> None:
        for number, size in enumerate(sizes):
            blocks = (text_block("x" * size),)
            self.commit(KEY, MessageReceived(message_id=MessageId(f"m{number}"), principal="alice", blocks=blocks))


def number_of(record: JournalRecord) -> int:
    return record.event


def text_of(record: JournalRecord) -> str:
    assert isinstance(record, MessageReceived)
    return bytes(record.blocks[0]).decode()


@pytest.mark.parametrize("sizes", [[10] * 300, [PAGE_BYTES] * 20, [10] * 50 + [PAGE_BYTES] + [10] * 50, [10]])
@pytest.mark.parametrize("limit", [1, 7, 500])
async def test_the_newest_events_are_read_whatever_their_size(sizes: list[int], limit: int) -> None:
    world = Measured()
    world.say_all(*sizes)
    head = len(sizes)

    numbers = await newest(world, KEY, last=head, limit=limit, size_bytes=1_000_000, made=number_of)
    assert numbers == tuple(range(max(head - limit, 0) + 1, head + 1))
    seqs = await following(world, KEY, seq=0, limit=limit, size_bytes=1_000_000, made=number_of)
    assert seqs == tuple(range(1, min(limit, head) + 1))


async def test_no_more_is_read_than_fits_but_a_page() -> None:
    world = Measured()
    world.say_all(*[PAGE_BYTES] * 100)

    texts = await newest(world, KEY, last=100, limit=100, size_bytes=3 * PAGE_BYTES + 1_000, made=text_of)
    assert len(texts) == 3
    assert world.read < 15
    world.read = 0
    texts = await following(world, KEY, seq=0, limit=100, size_bytes=3 * PAGE_BYTES + 1_000, made=text_of)
    assert len(texts) == 3
    assert world.read == 4


@pytest.mark.parametrize("least", [0, 1])
async def test_one_that_fits_nowhere_is_given_where_one_must_be(least: int) -> None:
    world = Measured()
    world.say_all(5, 500)

    assert len(await newest(world, KEY, last=2, limit=9, size_bytes=100, made=text_of, least=least)) == least


async def test_of_a_conversation_that_is_gone_nothing_is_read() -> None:
    assert await newest(World(), KEY, last=40, limit=40, size_bytes=100, made=number_of) == ()
    assert await following(World(), KEY, seq=0, limit=40, size_bytes=100, made=number_of) == ()
