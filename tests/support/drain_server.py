"""A server for tests that end it in the middle of something: ``python -m tests.support.drain_server``.

Told to ``--hold POINT``, it stays at the first passage of that point, and says so on stdout as
``tests.support.kill_server`` does, until a file ``let_go`` appears in its home; everything else goes on meanwhile.
SIGTERM ends it as ``torpor serve`` ends: it drains.

    model    a reply has come, and nobody knows of it yet      summary   likewise, of the model that folds
    tool     a write has had its effect, and is not recorded   job       likewise, of the model of a background job
    snapshot is about to be written                            child     likewise, of a sub-agent's model
                                                               tracker   likewise, of the one that works for that
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, cast

import anyio
import msgspec

from tests.support.fault_points import Announce
from tests.support.kill_server import announcer, end_with_the_test
from tests.support.logging_model import LoggingModel
from tests.support.obedient_model import ObedientModel
from tests.support.side_model import CHILD, GRANDCHILD, LIVE, SUMMARY, TURN, SideModel, purpose_of
from torpor.app import Wrapping, running
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink
from torpor.settings import read_settings
from torpor.store.contract import Store
from torpor.toolhost.contract import Toolbox, ToolContext, ToolResult

POINTS: Final = {
    "model": TURN,
    "tool": "tool",
    "child": CHILD,
    "tracker": GRANDCHILD,
    "summary": SUMMARY,
    "job": LIVE,
    "snapshot": "snapshot",
}
LET_GO: Final = "let_go"


class Hold:
    """Stays at one point until it is let go."""

    def __init__(self, point: str, *, home: Path, announce: Announce) -> None:
        self._point = POINTS.get(point, "")
        self._let_go = home / LET_GO
        self._announce = announce

    async def at(self, point: str) -> None:
        if point != self._point:
            return
        self._point = ""
        self._announce(held=point)
        while not self._let_go.exists():  # noqa: ASYNC110 - another process
            await anyio.sleep(0.005)


class _Around:
    """Hands on whatever a subclass does not take in its own hands."""

    def __init__(self, port: Any, hold: Hold) -> None:
        self._port = port
        self._hold = hold

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class _Model(_Around):
    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply: ModelReply = await self._port.reply(request, sink)
        await self._hold.at(purpose_of(request))
        return reply


class _Toolbox(_Around):
    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        result: ToolResult = await self._port.call(name, arguments, context)
        await self._hold.at("tool")
        return result


class _Store(_Around):
    async def put_snapshot(self, *place: Any, **rest: Any) -> None:
        await self._hold.at("snapshot")
        await self._port.put_snapshot(*place, **rest)


async def serve(arguments: argparse.Namespace, announce: Announce) -> None:
    """Serve until SIGTERM, or until this process is killed."""
    hold = Hold(arguments.hold, home=arguments.home, announce=announce)
    model: Model = LoggingModel(SideModel(ObedientModel(arguments.home), arguments.home), arguments.home)
    wrapping = Wrapping(
        model=lambda _: cast("Model", _Model(model, hold)),
        toolbox=lambda toolbox: cast("Toolbox", _Toolbox(toolbox, hold)),
        store=lambda store: cast("Store", _Store(store, hold)),
    )
    settings = read_settings(arguments.home, os.environ)
    settings = msgspec.structs.replace(
        settings,
        supervisor=msgspec.structs.replace(settings.supervisor, stop_deadline_s=arguments.deadline_s),
        jobs=msgspec.structs.replace(settings.jobs, stop_deadline_s=arguments.deadline_s),
    )
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with running(settings, data=arguments.data, host="127.0.0.1", port=0, wrapping=wrapping) as server:
            announce(ready=server.url, token=server.development_token)
            async for _ in signals:
                server.drain.begin()
                break
    announce(ended=True, cut_off=server.drain.statistics().cut_off)


def main(argv: list[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.drain_server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--hold", choices=sorted(POINTS), default="", help="where to stay")
    parser.add_argument("--deadline-s", type=float, default=60.0, help="for a drain")
    arguments = parser.parse_args(argv)
    end_with_the_test()
    anyio.run(serve, arguments, announcer())


if __name__ == "__main__":
    main(sys.argv[1:])
