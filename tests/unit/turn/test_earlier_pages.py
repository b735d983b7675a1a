"""Long journals are read in a few pages, within bounds, whatever stands between the turns."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from torpor.conversation.earlier import EarlierTurn, Voice, turn_of
from torpor.conversation.number import numbered
from torpor.conversation.segments import TurnStart
from torpor.conversation.state import ConversationState
from torpor.errors import JournalCorrupt, StoreUnavailable, ToolFailed
from torpor.records.blocks import text_block
from torpor.records.context import WorkingContext
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    ContextChanged,
    ConversationCreated,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.toolhost.contract import EarlierBounds
from torpor.turn import earlier
from torpor.turn.earlier import OFFSET_MAX, EarlierTurns

KEY = ConversationKey("acme", "ann", "c_1")
KEPT = 2
"""Turns at the end that are not folded."""


class Pages:
    """A journal in memory, which counts what is asked of it; what is asked after ``calls_max`` waits for ever, or
    raises ``fault``."""

    def __init__(self, records: Sequence[JournalRecord]) -> None:
        self.records = tuple(records)
        self.calls = 0
        self.read = 0
        self.calls_max = 10**9
        self.fault: Exception | None = None

    async def records_after(self, key: ConversationKey, *, seq: int, limit: int) -> tuple[JournalRecord, ...]:
        await anyio.lowlevel.checkpoint()
        assert key == KEY
        assert seq >= 0
        assert 0 < limit <= 512
        self.calls += 1
        if self.calls > self.calls_max:
            if self.fault is None:
                await anyio.sleep_forever()
            else:
                raise self.fault
        found = self.records[seq : seq + limit]
        self.read += len(found)
        return found


def turn(number: int, *, message: str = "", text: str = "", is_refused: bool = False) -> list[JournalRecord]:
    reply = text_block(text or f"reply {number}")
    end = TurnRefused(turn=number, detail="", note=reply) if is_refused else TurnFinished(turn=number)
    return [
        TurnPrepared(turn=number, messages=(MessageId(message or f"m{number}"),)),
        ModelReplied(turn=number, call="c", round=1, blocks=(reply,), stop_reason="end_turn"),
        end,
    ]


def received(message: str) -> JournalRecord:
    return MessageReceived(message_id=MessageId(message), principal="ann", blocks=(text_block(f"say {message}"),))


def changed() -> JournalRecord:
    return ContextChanged(context=WorkingContext(), version=1, principal="ann")


def journal(turns: int, **fields: Any) -> list[JournalRecord]:
    records: list[JournalRecord] = [ConversationCreated(agent="clerk")]
    for number in range(1, turns + 1):
        records += [received(f"m{number}"), *turn(number, **fields)]
    return records


def reading(records: Sequence[JournalRecord]) -> tuple[EarlierTurns, Pages]:
    """Of a conversation in which all but the last turns are folded."""
    pages = Pages(numbered(ConversationState(), records, at_us=1))
    begun = [record for record in pages.records if isinstance(record, TurnPrepared)]
    state = ConversationState(
        turns=len(begun),
        seq=len(records),
        starts=tuple(TurnStart(record.turn, record.seq, 0, 1) for record in begun[-KEPT:]),
        generation=1,
        covered=(len(begun) - KEPT, begun[-KEPT].seq - 1),
    )
    return EarlierTurns(KEY, pages=pages, state=state), pages


def bounds(*, size_bytes: int = 8_192, records_max: int = 20_000, deadline_s: float = 10.0) -> EarlierBounds:
    return EarlierBounds(size_bytes=size_bytes, records_max=records_max, deadline_s=deadline_s)


async def read(turns: EarlierTurns, first: int, last: int = 0, **fields: Any) -> str:
    return await turns.read(first_turn=first, last_turn=last or first, offset=0, bounds=bounds(**fields))


async def search(
    turns: EarlierTurns, query: str, *, first: int = 0, last: int = 0, limit: int = 5, **fields: Any
) -> str:
    return await turns.search(query, first_turn=first, last_turn=last, limit=limit, bounds=bounds(**fields))


def assert_is(text: str, number: int, *, message: str = "") -> None:
    """One turn and no other."""
    assert text.startswith(f"[Turn {number} of ")
    assert f"=== user ann\nsay {message or f'm{number}'}\n" in text
    assert text.endswith(f"=== assistant\nreply {number}")


async def test_a_turn_in_a_long_journal_is_found_in_a_few_looks() -> None:
    turns, pages = reading(journal(25_000))
    assert_is(await read(turns, 12_345), 12_345)
    assert pages.calls <= 4
    assert pages.read < 1_024


@pytest.mark.parametrize("number", [1, 2, 3, 250, 498, 499, 500])
async def test_every_turn_is_found_the_first_and_those_in_view_among_them(number: int) -> None:
    turns, _ = reading(journal(500))
    assert_is(await read(turns, number), number)


async def test_a_turn_is_found_where_turns_are_of_very_different_lengths() -> None:
    records: list[JournalRecord] = [ConversationCreated(agent="clerk")]
    for number in range(1, 201):
        records += [received(f"m{number}"), *turn(number)]
        long = ModelReplied(turn=number, call="c", round=1, blocks=(), stop_reason="pause_turn")
        records[-1:-1] = [long] * (3_000 if number in {2, 3, 190} else 0)
    turns, pages = reading(records)
    for number in (1, 2, 3, 4, 100, 189, 190, 191, 200):
        pages.calls = 0
        text = await read(turns, number, records_max=100_000)
        assert f"say m{number}\n" in text
        assert pages.calls <= 40  # a long turn is read whole


async def test_turns_are_found_between_thousands_of_records_that_belong_to_none() -> None:
    between = Random(7)
    records: list[JournalRecord] = [ConversationCreated(agent="clerk")]
    for number in range(1, 41):
        records += [received(f"m{number}"), *turn(number)]
        records += [changed() for _ in range(between.choice((0, 1, 20, 300, 700)))]
    turns, _ = reading(records)
    for number in range(1, 41):
        assert_is(await read(turns, number), number)


async def test_a_message_that_waited_for_many_turns_is_found() -> None:
    records: list[JournalRecord] = [ConversationCreated(agent="clerk"), received("late")]
    records += journal(200)[1:]
    records += [*turn(201, message="late"), *(record for number in (202, 203) for record in turn(number))]
    turns, _ = reading(records)
    assert_is(await read(turns, 201), 201, message="late")


async def test_a_message_is_found_however_long_it_waited() -> None:
    records: list[JournalRecord] = [ConversationCreated(agent="clerk"), received("late")]
    records += journal(1_000)[1:]
    records += [*turn(1_001, message="late"), *(record for number in (1_002, 1_003) for record in turn(number))]
    turns, _ = reading(records)
    assert_is(await read(turns, 1_001), 1_001, message="late")


async def test_a_long_range_is_put_together_once_however_many_pages_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(records: Sequence[JournalRecord], messages: Mapping[MessageId, MessageReceived]) -> EarlierTurn:
        made.append(records[0].turn)
        return turn_of(records, messages)

    monkeypatch.setattr(earlier, "turn_of", counted)
    turns, _ = reading(journal(1_000))
    await turns.read(first_turn=1, last_turn=1_000, offset=OFFSET_MAX, bounds=bounds())
    assert len(made) <= 2 * 1_000


async def test_an_offset_past_any_turn_is_refused_before_anything_is_read() -> None:
    turns, pages = reading(journal(10))
    with pytest.raises(ToolFailed, match="offset is 100000001, expected at most 100000000"):
        await turns.read(first_turn=1, last_turn=9, offset=OFFSET_MAX + 1, bounds=bounds())
    assert pages.calls == 0


async def test_others_run_between_the_turns_that_a_search_looks_at() -> None:
    turns, pages = reading(journal(80))
    ran = 0

    async def others() -> None:
        nonlocal ran
        while True:
            await anyio.lowlevel.checkpoint()
            ran += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        await turns.search("nowhere", first_turn=0, last_turn=0, limit=5, bounds=bounds())
        tasks.cancel_scope.cancel()
    assert pages.calls < 10
    assert ran >= 70


@pytest.mark.parametrize(
    ("query", "why"),
    [("x" * 1_025, "1,025 characters"), (" ".join(map(str, range(17))), "17 words"), ("x" * 129, "a word of 129")],
)
async def test_a_query_that_asks_for_too_much_is_refused(query: str, why: str) -> None:
    turns, pages = reading(journal(10))
    with pytest.raises(ToolFailed, match=f"query has {why}"):
        await turns.search(query, first_turn=0, last_turn=0, limit=5, bounds=bounds())
    assert pages.calls == 0


async def test_a_range_is_read_as_far_as_there_is_room_and_no_further() -> None:
    turns, pages = reading(journal(10_000, text="x" * 100))
    text = await read(turns, 5_000, 9_000)
    assert len(text.encode()) <= 8_192
    assert "read on with first_turn=50" in text
    assert pages.read < 2_048


async def test_a_range_goes_on_past_refused_turns() -> None:
    records: list[JournalRecord] = [ConversationCreated(agent="clerk")]
    for number in range(1, 400):
        records += [received(f"m{number}"), *turn(number, is_refused=number % 2 == 0)]
    turns, _ = reading(records)
    text = await read(turns, 1, 3)
    assert "turn 2, 1970-01-01 00:00 UTC: left out, it was refused by the model" in text
    assert "reply 3" in text


async def test_a_journal_that_lacks_the_turn_is_no_crash() -> None:
    turns, pages = reading(journal(10))
    pages.records = pages.records[:1]
    with pytest.raises(ToolFailed, match="turn 3 was not found"):
        await read(turns, 3)


@pytest.mark.parametrize("fault", [StoreUnavailable("the disk is gone"), JournalCorrupt(KEY.path, reason="a hole")])
async def test_a_journal_that_cannot_be_read_is_said(fault: Exception) -> None:
    turns, pages = reading(journal(10))
    pages.calls_max, pages.fault = 0, fault
    for asked in (read(turns, 3), search(turns, "reply")):
        with pytest.raises(ToolFailed, match="cannot be read now"):
            await asked
    assert await turns.exchanges(3, deadline_s=10.0) == ()


async def test_a_journal_that_does_not_answer_is_not_waited_for() -> None:
    turns, pages = reading(journal(5_000))
    pages.calls_max = 0
    with pytest.raises(ToolFailed, match=r"turn 3 was not found within 0\.01 s"):
        await read(turns, 3, deadline_s=0.01)
    with pytest.raises(ToolFailed, match=r"turn 4998 could not be searched, since 0\.01 s had passed"):
        await search(turns, "reply", deadline_s=0.01)


async def test_a_search_goes_from_the_newest_folded_turn_back_and_ends_when_it_has_enough() -> None:
    turns, pages = reading(journal(5_000))
    text = await search(turns, "reply", limit=2)
    assert "[2 found in turns 4997 to 4998, the newest first" in text
    assert "search on with last_turn=4996" in text
    assert pages.read <= 256


async def test_a_search_that_ran_out_of_time_tells_what_it_found_and_where_to_go_on() -> None:
    turns, pages = reading(journal(5_000))
    pages.calls_max = 3
    text = await search(turns, "reply 49", deadline_s=0.5, limit=20)
    assert "=== turn 4998, assistant\nreply 4998" in text
    assert "search on with last_turn=" in text


async def test_a_search_ends_after_so_many_records_and_goes_on_where_it_is_told() -> None:
    turns, pages = reading(journal(2_000))
    text = await search(turns, "say m7", records_max=1_024)
    assert "since 1,024 records had been looked at" in text
    seen, rounds = pages.read, 0
    while "search on with last_turn=" in text and "turn 7," not in text:
        last = int(text.partition("search on with last_turn=")[2].partition(".")[0])
        text, rounds = await search(turns, "say m7 reply", last=last, records_max=1_024, limit=20), rounds + 1
    assert seen <= 1_280
    assert rounds >= 1
    assert "turn 7" in text


async def test_a_search_is_held_to_the_turns_that_are_named() -> None:
    turns, _ = reading(journal(3_000))
    text = await search(turns, "reply", first=1_000, last=1_002, limit=20)
    assert text.startswith("[3 found in turns 1000 to 1002, the newest first")
    assert "search on" not in text
    assert (await search(turns, "nowhere", first=1, last=2)).startswith("[Nothing found in turns 1 to 2;")


async def test_exchanges_are_the_last_folded_turns_that_were_not_refused() -> None:
    records: list[JournalRecord] = [ConversationCreated(agent="clerk")]
    for number in range(1, 1_001):
        records += [received(f"m{number}"), *turn(number, is_refused=number in {995, 998})]
    turns, pages = reading(records)
    found = await turns.exchanges(4, deadline_s=10.0)
    assert [each.number for each in found] == [993, 994, 996, 997]
    assert pages.calls == 1


async def test_exchanges_found_in_time_are_given_when_the_rest_are_not() -> None:
    turns, pages = reading(journal(1_000))
    pages.calls_max = 1
    found = await turns.exchanges(500, deadline_s=0.5)
    assert 40 < len(found) < 70
    assert found[-1].number == 998


async def test_exchanges_are_not_looked_for_without_end() -> None:
    records = [*journal(3), *(changed() for _ in range(20_000)), received("m4"), *turn(4), received("m5"), *turn(5)]
    turns, pages = reading([*records, received("m6"), *turn(6)])
    assert [each.number for each in await turns.exchanges(5, deadline_s=10.0)] == [4]
    assert pages.read <= 9_000


async def test_exchanges_are_quoted_with_messages_that_waited_for_long() -> None:
    records: list[JournalRecord] = [ConversationCreated(agent="clerk"), received("late")]
    records += [changed() for _ in range(9_000)]
    records += [*turn(1, message="late"), *(record for number in (2, 3) for record in turn(number))]
    turns, _ = reading(records)
    (only,) = await turns.exchanges(5, deadline_s=10.0)
    assert "say late" in only.said_by(Voice.USER)
