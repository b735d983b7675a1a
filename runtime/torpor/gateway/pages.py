"""Parts of a journal for one answer, read in small pages: a journal may hold little but large messages.

Above: the functions that answer ``history`` and ``inspect``, and a subscription that begins over. Below: the journals.
Nothing is read that does not fit into the answer, but for a page.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from torpor.gateway.status import Journals
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord

PAGE_BYTES: Final = 131_072
"""Of what is stored; decoding it holds nobody up. A larger record makes a page of its own."""
_PAGE_FIRST: Final = 8
_PAGE_MAX: Final = 64
"""Events; backwards it has to be guessed how many make a page."""

_Made = TypeVar("_Made")


async def newest(
    journals: Journals,
    key: ConversationKey,
    *,
    last: int,
    limit: int,
    size_bytes: int,
    made: Callable[[JournalRecord], _Made],
    least: int = 1,
) -> tuple[_Made, ...]:
    """What ``made`` makes of the events up to number ``last``, oldest first.

    The latest ones, at most ``limit`` and at most ``size_bytes`` as JSON together, but ``least`` of them in any case.

    Raises: JournalCorrupt.
    """
    taken: list[_Made] = []
    page = _PAGE_FIRST
    while (count := min(page, limit - len(taken), last)) > 0:
        records = await journals.events_after(key, event=last - count, limit=count, size_bytes=PAGE_BYTES)
        if len(records) < count:
            if count == 1:
                break  # it was deleted meanwhile
            page = count // 2
            continue
        for record in reversed(records):
            size_bytes -= _take(record, taken, made=made, size_bytes=size_bytes, least=least)
            if size_bytes < 0:
                return tuple(reversed(taken))
        last -= count
        page = min(2 * page, _PAGE_MAX)
    return tuple(reversed(taken))


async def following(
    journals: Journals,
    key: ConversationKey,
    *,
    seq: int,
    limit: int,
    size_bytes: int,
    made: Callable[[JournalRecord], _Made],
) -> tuple[_Made, ...]:
    """What ``made`` makes of the records behind ``seq``, in order: at most ``limit`` and at most ``size_bytes`` as JSON
    together, but one of them in any case.

    Raises: JournalCorrupt.
    """
    taken: list[_Made] = []
    while len(taken) < limit:
        left = limit - len(taken)
        records = await journals.records_after(key, seq=seq + len(taken), limit=left, size_bytes=PAGE_BYTES)
        if not records:
            break
        for record in records:
            size_bytes -= _take(record, taken, made=made, size_bytes=size_bytes, least=1)
            if size_bytes < 0:
                return tuple(taken)
    return tuple(taken)


def _take(
    record: JournalRecord,
    taken: list[_Made],
    *,
    made: Callable[[JournalRecord], _Made],
    size_bytes: int,
    least: int,
) -> int:
    """Add what is made of ``record`` if there is room for it. Returns: its size in any case."""
    one = made(record)
    one_bytes = len(msgspec.json.encode(one))
    if one_bytes <= size_bytes or len(taken) < least:
        taken.append(one)
    return one_bytes
