"""A model that has to be loaded first: nothing counts as an attempt before it can be asked."""

import anyio

from tests.support.doubles import Gate, Ledger, PlayedModel, fails, says, waits
from tests.support.engine import running_engine
from torpor.provider_errors import ModelUnknown
from torpor.records.journal import AttemptStarted, TurnCancelled, TurnFailed, TurnFinished
from torpor.store.memory_data import MemoryData


async def interrupted() -> MemoryData:
    """What a process leaves that died while it waited for its model."""
    gate = Gate()
    async with running_engine(waits(gate, says("never"))) as engine:
        await engine.send("hi")
        await gate.reached.wait()
        return engine.store.image()


class Loading(PlayedModel):
    """A model that is being loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    async def warm(self) -> None:
        await self.gate.passed()


async def test_a_process_that_dies_while_its_model_loads_has_made_no_attempt() -> None:
    data = await interrupted()
    for _ in range(5):
        model = Loading()
        async with running_engine(host=model, data=data, ledger=Ledger()) as engine:
            with anyio.fail_after(5):
                await model.gate.reached.wait()
            data = engine.store.image()
        assert model.requests == []
    async with running_engine(says("done"), data=data, ledger=Ledger()) as engine:
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 1
        assert [record.attempt for record in await engine.records_of(AttemptStarted)] == [2]


async def test_a_cancel_while_the_model_loads_ends_the_turn_at_once() -> None:
    data, model = await interrupted(), Loading()
    async with running_engine(host=model, data=data, ledger=Ledger()) as engine:
        with anyio.fail_after(5):
            await model.gate.reached.wait()
            assert await engine.cancel() == 1
        assert len(await engine.records_of(TurnCancelled)) == 1


async def test_a_model_that_cannot_be_loaded_is_told_by_its_call() -> None:
    class Broken(PlayedModel):
        async def warm(self) -> None:
            raise ModelUnknown("no such file")

    data = await interrupted()
    broken = Broken([fails(ModelUnknown("no such file"))])
    async with running_engine(host=broken, data=data, ledger=Ledger()) as engine:
        await engine.rested()
        (failed,) = await engine.records_of(TurnFailed)
    assert (failed.code, len(broken.requests)) == ("model_unknown", 1)
