"""What one append cannot hold goes with the next."""

from tests.support.doubles import calls, says, use
from tests.support.engine import running_engine
from torpor.records.journal import ToolFinished, TurnFinished
from torpor.store.codec import MAX_BATCH_RECORDS


async def test_more_results_than_an_append_holds_are_all_recorded_and_the_turn_goes_on() -> None:
    count = 2 * MAX_BATCH_RECORDS
    wanted = (use("nowhere", f"toolu_{number}") for number in range(count))
    async with running_engine(calls(*wanted), says("done")) as engine:
        await engine.ask("do it all")
        assert len(await engine.records_of(ToolFinished)) == count
        assert len(await engine.records_of(TurnFinished)) == 1
        assert max(map(len, engine.store.appends)) == MAX_BATCH_RECORDS
        due = [mark is not None for mark in engine.store.due_marks]
        assert due == [True] * (len(due) - 1) + [False]
