"""Calls in a few threads; one that fails costs none of the others."""

import anyio

from torpor.threads import Threads


def leave() -> None:
    raise SystemExit(3)


async def test_call_that_raises_leaves_its_thread_to_the_next() -> None:
    threads = Threads(1, name="test")
    ended = anyio.Event()

    def refuse(_: object) -> None:
        raise ValueError("no result like this")

    threads.submit(leave, ended=refuse)
    threads.submit(lambda: 1, ended=refuse)
    threads.submit(lambda: 2, ended=lambda _: ended.set())
    with anyio.fail_after(20):
        await ended.wait()
    threads.close()
