"""Earlier turns of one conversation, read from its journal while it goes on.

Above: the tool ``read_earlier``, and the interpreter where a message asks for a look-back. Below: the pages of a store,
which may be asked beside the writer. The key is the conversation's own; nothing that a model says is part of it.

A journal is read in pages: a turn is found by guessing and by halving, since turns grow with the numbers of records. A
search goes from the newest page to older ones until it has enough, has looked at enough, or has taken long enough.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import anyio
import anyio.lowlevel
import structlog

from torpor.conversation.earlier import Backwards, EarlierTurn, named_in, turn_of
from torpor.conversation.quoting import BadQuery, Found, Query, found_in, page, places, query_of
from torpor.conversation.state import ConversationState
from torpor.errors import StoreError, ToolFailed
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord, MessageReceived, TurnPrepared
from torpor.toolhost.contract import EarlierBounds

PAGE: Final = 256
"""Records that are read at once."""
_LOOKBACK_RECORDS_MAX: Final = 8_192
"""How far back the turns of exchanges are looked for; their messages are found wherever they are."""
OFFSET_MAX: Final = 100_000_000
"""In characters; more than any turn has."""
_log = structlog.get_logger()


Exchanges = tuple[EarlierTurn, ...]
"""In order, none refused."""


class Pages(Protocol):
    """Implemented by ``store.contract.Store``."""

    async def records_after(self, key: ConversationKey, *, seq: int, limit: int) -> tuple[JournalRecord, ...]: ...


class EarlierTurns:
    """Implements ``toolhost.contract.EarlierAccess``."""

    def __init__(self, key: ConversationKey, *, pages: Pages, state: ConversationState) -> None:
        """Args: state: as it is when the call begins."""
        self._key = key
        self._pages = pages
        self._state = state

    async def read(self, *, first_turn: int, last_turn: int, offset: int, bounds: EarlierBounds) -> str:
        """See the contract."""
        turns_max = self._state.turns
        if offset > OFFSET_MAX:
            raise ToolFailed(f"offset is {offset}, expected at most {OFFSET_MAX}, and what a shortened answer said")
        if first_turn > turns_max:
            raise ToolFailed(f"turn {first_turn} does not exist, the last one is {turns_max}")
        if last_turn < first_turn:
            raise ToolFailed(f"turn {last_turn} is before turn {first_turn}, expected last_turn from {first_turn} on")
        last_turn = min(last_turn, turns_max)
        turns: list[EarlierTurn] = []
        try:
            with anyio.fail_after(bounds.deadline_s):
                turns = await self._range(
                    first_turn, last_turn, enough=bounds.size_bytes + offset, records_max=bounds.records_max
                )
        except TimeoutError:
            raise ToolFailed(f"turn {first_turn} was not found within {bounds.deadline_s:g} s") from None
        except StoreError as exc:
            raise _unreadable(exc) from exc
        if not turns:
            raise ToolFailed(f"turn {first_turn} was not found")
        return page(turns, last_turn=last_turn, of=turns_max, offset=offset, bytes_max=bounds.size_bytes)

    async def search(self, query: str, *, first_turn: int, last_turn: int, limit: int, bounds: EarlierBounds) -> str:
        """See the contract."""
        try:
            words = query_of(query)
        except BadQuery as exc:
            raise ToolFailed(str(exc)) from exc
        folded = self._state.covered[0]
        first_turn, last_turn = max(first_turn, 1), min(last_turn or folded, folded)
        if words is None or last_turn < first_turn:
            where = f"folded are turns 1 to {folded}" if folded else "no turn is folded, all of them can be seen"
            raise ToolFailed(f"there is nothing to search, {where}")
        search = _Search(words, first_turn=first_turn, last_turn=last_turn, limit=limit)
        try:
            with anyio.move_on_after(bounds.deadline_s) as scope:
                seq = await self._end_of(last_turn)
                await self._search(search, seq, records_max=bounds.records_max)
        except StoreError as exc:
            raise _unreadable(exc) from exc
        if scope.cancelled_caught:
            search.stopped = f"since {bounds.deadline_s:g} s had passed"
        if search.stopped and search.reached > last_turn:
            raise ToolFailed(f"turn {last_turn} could not be searched, {search.stopped}")
        searched = (search.reached if search.stopped else first_turn, last_turn)
        return places(search.found, turns=searched, stopped=search.stopped, bytes_max=bounds.size_bytes)

    async def exchanges(self, count: int, *, deadline_s: float) -> Exchanges:
        """The last ``count`` turns that are folded and were not refused, in order.

        Fewer when they cannot be read, or not within ``deadline_s``: a turn does not fail for want of a quotation.
        """
        turns: list[EarlierTurn] = []
        try:
            with anyio.move_on_after(deadline_s) as scope:
                await self._exchanges(turns, count)
            if scope.cancelled_caught:
                _log.warning("lookback.timed_out", conversation=self._key.path, found=len(turns))
        except StoreError as exc:
            _log.warning("lookback.unread", conversation=self._key.path, found=len(turns), why=str(exc))
        return tuple(reversed(turns[:count]))

    async def _exchanges(self, turns: list[EarlierTurn], count: int) -> None:
        backwards, seq = Backwards(), self._state.covered[1]
        end = max(seq - _LOOKBACK_RECORDS_MAX, 0)
        while seq > 0 and len(turns) < count and (seq > end or backwards.is_waiting):
            seq, records = await self._before(seq)
            found = backwards.take(records)
            turns.extend(turn for turn in found if not turn.is_refused)

    async def _search(self, search: "_Search", seq: int, *, records_max: int) -> None:
        backwards, looked_at = Backwards(), 0
        while seq > 0:
            if looked_at >= records_max:
                search.stopped = f"since {looked_at:,} records had been looked at"
                return
            seq, records = await self._before(seq)
            looked_at += len(records)
            if await search.take(backwards.take(records)):
                return
        await search.take(backwards.rest())

    async def _range(self, first_turn: int, last_turn: int, *, enough: int, records_max: int) -> list[EarlierTurn]:
        """Whole turns from ``first_turn`` on, until they hold ``enough`` characters."""
        begin = await self._start_of(first_turn)
        if begin is None:
            return []
        groups, size, seq = list[list[JournalRecord]](), 0, begin - 1
        while True:
            found = await self._pages.records_after(self._key, seq=seq, limit=PAGE)
            seq += len(found)
            for record in found:
                if not isinstance(record, TurnPrepared):
                    if groups:
                        groups[-1].append(record)
                    continue
                size += _size_of(groups[-1]) if groups else 0
                if record.turn > last_turn:
                    return await self._turns(groups, begin=begin)
                groups.append([record])
            if len(found) < PAGE:
                return await self._turns(groups, begin=begin)
            if len(groups) > 1 and (size > enough or seq - begin > records_max):
                return await self._turns(groups[:-1], begin=begin)

    async def _turns(self, groups: Sequence[Sequence[JournalRecord]], *, begin: int) -> list[EarlierTurn]:
        """With their messages, some of which may have been recorded before record ``begin``."""
        missing = {message for group in groups for message in named_in(group)}
        messages: dict[MessageId, MessageReceived] = {}

        def meet(records: Sequence[JournalRecord]) -> None:
            for record in records:
                if isinstance(record, MessageReceived) and record.message_id in missing:
                    missing.remove(record.message_id)
                    messages[record.message_id] = record

        for group in groups:
            meet(group)
        seq = begin - 1
        while missing and seq > 0:  # they are there, as far back as they waited
            seq, records = await self._before(seq)
            meet(records)
        return [turn_of(group, messages) for group in groups]

    async def _before(self, seq: int) -> tuple[int, tuple[JournalRecord, ...]]:
        """The page that ends with record ``seq``, and the number of the record before it."""
        begin = max(seq - PAGE, 0)
        return begin, await self._pages.records_after(self._key, seq=begin, limit=seq - begin)

    async def _end_of(self, turn: int) -> int:
        """A record behind all of ``turn``, which is folded."""
        last_turn, last_seq = self._state.covered
        after = await self._start_of(turn + 1) if turn < last_turn else None
        return last_seq if after is None else after - 1

    async def _start_of(self, turn: int) -> int | None:
        """The record that begins ``turn``; None when there is none."""
        for start in self._state.starts:
            if start.turn == turn:
                return start.seq
        low, high = _Place(0, 0), _Place(self._state.covered[1] + 1, self._state.covered[0] + 1)
        is_guess = True
        while low.seq + 1 < high.seq:
            middle = _between(low, high, turn) if is_guess else (low.seq + high.seq - 1) // 2
            is_guess = not is_guess  # by turns, since turns may be of any length
            records = await self._turn_records(after=middle, until=high.seq - 1)
            for record in records:
                if isinstance(record, TurnPrepared) and record.turn == turn:
                    return record.seq
            if records and records[-1].turn < turn:
                low = _Place(records[-1].seq, records[-1].turn)
            else:
                high = _Place(middle + 1, records[0].turn if records else high.turn)
        return None

    async def _turn_records(self, *, after: int, until: int) -> list[JournalRecord]:
        """Records of turns from the first page behind record ``after``, and up to ``until``, that has any."""
        seq, found = after, list[JournalRecord]()
        while seq < until and not found:
            records = await self._pages.records_after(self._key, seq=seq, limit=min(PAGE, until - seq))
            if not records:
                break
            seq, found = seq + len(records), [record for record in records if record.turn]
        return found


class _Place(NamedTuple):
    """A record, and the turn that it is of or follows."""

    seq: int
    turn: int


def _between(low: _Place, high: _Place, turn: int) -> int:
    """A record some way before where ``turn`` begins if all turns are of one length."""
    share = (turn - low.turn) / max(high.turn - low.turn, 1)
    guess = low.seq + int(share * (high.seq - low.seq)) - PAGE // 2
    return min(max(guess, low.seq), high.seq - 2)


class _Search:
    """What was found so far."""

    def __init__(self, query: Query, *, first_turn: int, last_turn: int, limit: int) -> None:
        self._query = query
        self._turns = range(first_turn, last_turn + 1)
        self._limit = limit
        self.found: list[Found] = []
        self.reached = last_turn + 1
        """The oldest turn that was searched."""
        self.stopped = ""
        """Why those before it were not."""

    async def take(self, turns: Sequence[EarlierTurn]) -> bool:
        """Search these, the newest first, others in between; whether that is all."""
        for turn in turns:
            await anyio.lowlevel.checkpoint()
            if turn.number < self._turns.start:
                return True
            if turn.number not in self._turns:
                continue
            self.reached = turn.number
            if (found := found_in(turn, self._query)) is not None:
                self.found.append(found)
            if len(self.found) == self._limit and turn.number > self._turns.start:
                self.stopped = f"since {self._limit} had been found"
                return True
        return False


def _size_of(group: Sequence[JournalRecord]) -> int:
    """In characters, without what users said."""
    return sum(len(part.text) for part in turn_of(group, {}).parts)


def _unreadable(error: StoreError) -> ToolFailed:
    _log.warning("earlier.unread", why=str(error))
    return ToolFailed("the earlier turns cannot be read now, try again later")
