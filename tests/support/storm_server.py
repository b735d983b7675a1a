"""A server for the storm: ``python -m tests.support.storm_server --home DIR --data DIR --seed N``.

A composition root of its own: the engine's, with a model that does what it is told, at a pace that nobody can foresee.
It talks to the test that started it in lines of JSON: ``ready`` with the address, and ``census`` with what the process
holds whenever it gets SIGUSR1. SIGTERM drains it, as it does to ``torpor serve``.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import anyio
import msgspec

from tests.support.census import census
from tests.support.fault_points import Announce
from tests.support.kill_server import announcer, end_with_the_test
from tests.support.obedient_model import ObedientModel
from torpor.app import Wrapping, running
from torpor.settings import read_settings

SLOWEST_S = 0.2
"""The longest that the model keeps silent in the middle of a reply, but for one time in forty."""


class Pace:
    """Mostly quick, now and then not."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    async def pause(self) -> None:
        longest = SLOWEST_S if self._chance.random() < 0.975 else 10 * SLOWEST_S
        await anyio.sleep(longest * self._chance.random() ** 3)


def names() -> dict[str, int]:
    """How many tasks and threads of this process have each name; what follows the last colon or dash tells them apart,
    and is left out."""
    tasks = (f"task {task.get_name().partition(':')[0]}" for task in asyncio.all_tasks())
    threads = (f"thread {thread.name.rpartition('-')[0] or thread.name}" for thread in threading.enumerate())
    return dict(sorted((Counter(tasks) + Counter(threads)).items()))


async def serve(arguments: argparse.Namespace, announce: Announce) -> None:
    """Serve until SIGTERM, or until this process is killed."""
    model = ObedientModel(arguments.home, pause=Pace(arguments.seed).pause)
    settings = read_settings(arguments.home, os.environ)
    wrapping = Wrapping(model=lambda _: model)
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGUSR1) as signals:
        async with running(settings, data=arguments.data, host="127.0.0.1", port=0, wrapping=wrapping) as server:
            announce(ready=server.url, token=server.development_token)
            async for each in signals:
                if each is signal.SIGTERM:
                    server.drain.begin()
                    break
                announce(census=msgspec.to_builtins(census()), names=names())
    announce(ended=True)


def main(argv: list[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.storm_server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    end_with_the_test()
    anyio.run(serve, arguments, announcer())


if __name__ == "__main__":
    main(sys.argv[1:])
