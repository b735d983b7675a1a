"""The driver without a thread: groups, order, latency, and what a crash leaves."""

from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from trio.testing import MockClock

from tests.support.sample_records import conversation
from torpor.errors import StoreFull, StoreUnavailable
from torpor.store.contract import Head
from torpor.store.requests import AskHead, Outcome, Request
from torpor.store.writer import TaskWriter, ask_head


class Recording:
    """A core that answers each request with the number of its group."""

    def __init__(self) -> None:
        self.groups: list[list[Request]] = []

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        self.groups.append(list(requests))
        return [Head(seq=len(self.groups))] * len(requests)

    @property
    def sizes(self) -> list[int]:
        return [len(group) for group in self.groups]


def ask(number: int) -> AskHead:
    return AskHead(key=conversation(number))


async def test_what_is_submitted_together_is_committed_together_in_order() -> None:
    core = Recording()
    async with TaskWriter(core, group_limit=100) as writer:
        tickets = [writer.submit(ask(number)) for number in range(10)]
        with anyio.fail_after(5):
            assert [await ticket.outcome() for ticket in tickets] == [Head(seq=1)] * 10
    assert core.groups == [[ask(number) for number in range(10)]]


async def test_a_group_is_no_larger_than_its_limit() -> None:
    core = Recording()
    async with TaskWriter(core, group_limit=4) as writer:
        tickets = [writer.submit(ask(number)) for number in range(10)]
        with anyio.fail_after(5):
            await tickets[-1].wait()
    assert core.sizes == [4, 4, 2]


async def test_a_refusal_is_raised_to_everyone_who_waits_for_it() -> None:
    refused = StoreFull("no space left")

    class Full:
        def commit(self, requests: Sequence[Request]) -> list[Outcome]:
            return [refused] * len(requests)

    async with TaskWriter(Full(), group_limit=4) as writer:
        ticket = writer.submit(ask(1))
        for _ in range(2):
            with pytest.raises(StoreFull), anyio.fail_after(5):
                await ticket.wait()


async def test_leaving_commits_what_was_submitted_and_takes_no_more() -> None:
    core = Recording()
    async with TaskWriter(core, group_limit=4) as writer:
        tickets = [writer.submit(ask(number)) for number in range(6)]
    assert core.sizes == [4, 2]
    assert all(ticket.is_resolved for ticket in tickets)
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await ask_head(writer, ask(1))


class TestLatency:
    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        """Virtual time."""
        return "trio", {"clock": MockClock(autojump_threshold=0)}

    async def test_a_group_takes_its_latency_once_and_the_next_one_gathers_meanwhile(self) -> None:
        core, started = Recording(), anyio.current_time()
        async with TaskWriter(core, group_limit=100, latency=lambda: 10.0) as writer:
            first = writer.submit(ask(0))
            await anyio.sleep(1)
            rest = [writer.submit(ask(number)) for number in range(1, 5)]
            assert core.groups == []
            await first.wait()
            assert anyio.current_time() - started == 10
            await rest[-1].wait()
            assert anyio.current_time() - started == 20
        assert core.sizes == [1, 4]

    async def test_a_crash_loses_what_was_not_committed_and_says_so(self) -> None:
        core = Recording()
        with anyio.CancelScope() as world:
            async with TaskWriter(core, group_limit=1, latency=lambda: 10.0) as writer:
                tickets = [writer.submit(ask(number)) for number in range(3)]
                await tickets[0].wait()
                world.cancel()
                await anyio.lowlevel.checkpoint()
        assert core.sizes == [1]
        for ticket in tickets[1:]:
            with pytest.raises(StoreUnavailable, match="stopped before this was committed"):
                await ticket.wait()
        assert repr(writer) == "<TaskWriter waiting=0 closing=True>"
