"""A server for tests that end it badly: ``python -m tests.support.kill_server --home DIR --data DIR``.

A composition root of its own: the engine's, with a trap around every port, and a model that tests can steer. It talks
to the test that started it in lines of JSON on stdout: ``ready`` with the address, ``idle`` once no conversation is
due, ``held`` when it has reached the point at which it is to be killed. SIGTERM ends it in peace; its last line says
how often it passed each point.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import msgspec

import torpor.gateway.server
from tests.support.fault_points import Announce, Trap
from tests.support.fault_ports import (
    trapped_blobs,
    trapped_bus,
    trapped_jobs,
    trapped_model,
    trapped_store,
    trapped_toolbox,
)
from tests.support.logging_model import LoggingModel
from tests.support.obedient_model import ObedientModel
from tests.support.recordings import replaying_model
from tests.support.side_model import SideModel
from torpor.app import Wrapping, running
from torpor.gateway.outbox import Outbox
from torpor.model.contract import Model
from torpor.records.binary import is_binary, unpacked
from torpor.settings import read_settings
from torpor.store.contract import Store

MODELS: dict[str, Callable[[Path], Model]] = {
    "obedient": lambda home: LoggingModel(SideModel(ObedientModel(home), home), home),
    "obedient-unlogged": lambda home: SideModel(ObedientModel(home), home),
    "replaying": lambda home: LoggingModel(replaying_model(home), home),
    "replaying-unlogged": replaying_model,
}
_FOREVER_US = 2**62


class _Tag(msgspec.Struct):
    frame: str


class _Stores:
    """Remembers the store, to look at what is due."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap
        self._store: Store | None = None

    def around(self, store: Store) -> Store:
        self._store = store
        return trapped_store(store, self._trap)

    async def rest(self) -> None:
        """Return once no conversation is due."""
        assert self._store is not None
        while await self._store.due(now_us=_FOREVER_US, limit=1):  # noqa: ASYNC110 - no store tells when that changes
            await anyio.sleep(0.01)


def trapped_outbox(trap: Trap) -> type[Outbox]:
    """An outbox with a point before each frame is given to the socket."""

    class TrappedOutbox(Outbox):
        def take(self) -> bytes | None:
            data = super().take()
            if data is not None:
                header = unpacked(data)[0] if is_binary(data) else data
                trap.reach(f"frame:{msgspec.json.decode(header, type=_Tag).frame}")
            return data

    return TrappedOutbox


async def serve(arguments: argparse.Namespace, announce: Announce) -> None:
    """Serve until SIGTERM, or until this process is killed."""
    trap = Trap(arguments.fault, nth=arguments.nth, announce=announce)
    stores = _Stores(trap)
    model = MODELS[arguments.model](arguments.home)
    wrapping = Wrapping(
        store=stores.around,
        blobs=lambda blobs: trapped_blobs(blobs, trap),
        bus=lambda bus: trapped_bus(bus, trap),
        model=lambda _: trapped_model(model, trap),
        toolbox=lambda toolbox: trapped_toolbox(toolbox, trap),
        jobs=lambda jobs: trapped_jobs(jobs, trap),
    )
    settings = read_settings(arguments.home, os.environ)
    with (
        patch.object(torpor.gateway.server, "Outbox", trapped_outbox(trap)),
        anyio.open_signal_receiver(signal.SIGTERM) as signals,
    ):
        async with running(settings, data=arguments.data, host="127.0.0.1", port=0, wrapping=wrapping) as server:
            announce(ready=server.url, token=server.development_token)
            await stores.rest()
            announce(idle=True, cpu_s=time.process_time())
            async for _ in signals:
                break
    announce(ended=True, passed=trap.passed)


def announcer() -> Announce:
    """Speaks to the test on what was stdout; whatever else is printed goes to stderr from now on."""
    sys.stdout.flush()
    to_test = os.dup(1)
    os.dup2(2, 1)

    def announce(**facts: Any) -> None:
        os.write(to_test, json.dumps(facts).encode() + b"\n")

    return announce


def end_with_the_test() -> None:
    """A test that is killed itself closes our stdin, and must not leave us behind."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="stdin", daemon=True).start()


def main(argv: list[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.kill_server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", choices=sorted(MODELS), default="obedient")
    parser.add_argument("--fault", default="", help="the point to stop at")
    parser.add_argument("--nth", type=int, default=1, help="at which passage of it")
    arguments = parser.parse_args(argv)
    end_with_the_test()
    anyio.run(serve, arguments, announcer())


if __name__ == "__main__":
    main(sys.argv[1:])
