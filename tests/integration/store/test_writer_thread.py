"""The driver with a thread: who shares a commit, and who is told."""

import threading
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from tests.support.sample_records import conversation
from torpor.store.contract import Head
from torpor.store.requests import AskHead, Outcome, Request
from torpor.store.sqlite.writer_thread import WriterThread


class Gated:
    """A core that commits nothing before its gate is opened."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.began = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        self.began.set()
        assert self.gate.wait(timeout=20)
        self.sizes.append(len(requests))
        return [Head(seq=len(self.sizes))] * len(requests)


def ask(number: int) -> AskHead:
    return AskHead(key=conversation(number))


async def test_what_is_submitted_in_one_round_of_the_event_loop_is_one_commit() -> None:
    core, ended = Gated(), threading.Event()
    writer = WriterThread(core, group_limit=256, at_end=ended.set)
    writer.start()
    first = writer.submit(ask(0))
    # The thread has all the time it wants, and still waits for the end of the round.
    assert not core.began.wait(timeout=0.05)
    rest = [writer.submit(ask(number)) for number in range(1, 50)]
    with anyio.fail_after(20):
        for ticket in (first, *rest):
            assert await ticket.outcome() == Head(seq=1)
        await writer.close()
    assert core.sizes == [50]
    assert ended.is_set()


@pytest.mark.parametrize("limit", [4, 256])
async def test_what_gathers_while_a_group_is_flushed_is_the_next_group_up_to_the_limit(limit: int) -> None:
    core = Gated()
    core.gate.clear()
    writer = WriterThread(core, group_limit=limit, at_end=lambda: None)
    writer.start()
    with anyio.fail_after(20):
        first = writer.submit(ask(0))
        while not core.began.is_set():
            await anyio.lowlevel.checkpoint()
        rest = []
        for number in range(10):
            rest.append(writer.submit(ask(number)))
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        core.gate.set()
        for ticket in (first, *rest):
            await ticket.wait()
        await writer.close()
    assert core.sizes == ([1, 4, 4, 2] if limit == 4 else [1, 10])


async def test_closing_twice_is_closing_once() -> None:
    core = Gated()
    writer = WriterThread(core, group_limit=256, at_end=lambda: None)
    writer.start()
    ticket = writer.submit(ask(1))
    with anyio.fail_after(20):
        await writer.close()
        await writer.close()
        await ticket.wait()
    assert repr(writer) == "<WriterThread gathering=0 queued=0 closed=True>"
