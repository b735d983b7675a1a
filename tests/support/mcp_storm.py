"""Conversations that call tools of real MCP servers while these are killed, stopped and changed, and turns cancelled.
Some of the calls have a sub-agent work, which calls tools of the same servers, those that read.

One server is a program, the other one listens; both are processes. A storm is drawn from a seed, and each blow of it
waits until a turn has ended since the last one, so that nothing hangs unnoticed.
"""

import itertools
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from tests.support.doubles import PlayedModel, calls, says, use
from tests.support.engine import Engine, running_engine
from tests.support.mcp_ledger import McpLedger
from tests.support.subagents import children, spawning, subagent
from torpor.conversation.view import request_body
from torpor.errors import NothingToCancel, UnknownConversation
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, ModelReplied, ToolFinished, ToolStarted
from torpor.records.terms import Outcome
from torpor.store.blobs import MemoryBlobs
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.loading import open_session
from torpor.toolhost.mcp.options import McpOptions, McpServer
from torpor.toolhost.mcp.servers import McpServers
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry
from torpor.turn.options import TurnOptions

SERVER: Final = Path(__file__).with_name("mcp_server.py")
HUNG_S: Final = 90.0
"""Within which a turn ends, whatever happens; far above every deadline, for a loaded machine."""
OPTIONS: Final = McpOptions(
    start_deadline_s=30.0,
    turn_wait_s=0.5,
    call_deadline_s=8.0,
    backoff_s=0.02,
    backoff_max_s=0.2,
    relist_pause_s=0.02,
    idle_stop_s=2.0,
)
_WITH_WORDS: Final = {"look", "write_down", "die"}
SCOUT: Final = "scout"
TALKERS: Final = 6
TURNS: Final = 10
"""Of one conversation."""
BLOWS: Final = ("cancel", "cancel", "kill", "end", "stop", "change", "rest")


class StormModel(PlayedModel):
    """Calls some of what it is offered, then says something."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._number = 0

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        body = msgspec.json.decode(request_body(request.preamble, request.view, live=request.live), type=dict[str, Any])
        names = [tool["name"] for tool in body.get("tools", ()) if "__" in tool["name"] or tool["name"] == SCOUT]
        last = body["messages"][-1]["content"]
        has_results = any(block["type"] == "tool_result" for block in last)
        uses = [] if has_results or not names else [self._use(names) for _ in range(self._chance.randint(1, 3))]
        self.plays.append(calls(*uses) if uses else says("So be it."))
        return await super().reply(request, sink)

    def _use(self, names: list[str]) -> Any:
        self._number += 1
        name, call_id = self._chance.choice(names), f"call{self._number}"
        if name == SCOUT:
            return use(name, call_id, task="go on")
        arguments: dict[str, dict[str, Any]] = {
            "wait": {"words": call_id, "seconds": self._chance.choice([0.01, 0.2, 1.0])},
            "block": {"seconds": self._chance.choice([0.05, 0.3])},
            "flood": {"size": 40_000},
            "add_tool": {"name": f"extra{self._chance.randint(1, 4)}"},
            "drop_tool": {"name": f"extra{self._chance.randint(1, 4)}"},
            "progress": {"steps": 3},
        }
        tool = name.partition("__")[2]
        usual: dict[str, Any] = {"words": call_id} if tool in _WITH_WORDS else {}
        return use(name, call_id, **arguments.get(tool, usual))


class Storm:
    """A running one."""

    def __init__(self, engine: Engine, *, ledger: McpLedger, servers: McpServers, chance: random.Random) -> None:
        self.engine = engine
        self.blows: Counter[str] = Counter()
        self.keys: list[ConversationKey] = []
        self._ledger = ledger
        self._servers = servers
        self._chance = chance
        self._ended = 0
        self._turned = anyio.Event()

    async def blow(self, *, count: int) -> None:
        """Let conversations talk, and storm; in the end all of them rest."""
        await self._both_up()
        async with anyio.create_task_group() as tasks:
            for talker in range(TALKERS):
                tasks.start_soon(self._talk, talker)
            for _ in range(count):
                before = self._ended
                await self._strike(self._chance.choice(BLOWS))
                with anyio.fail_after(HUNG_S):
                    while self._ended == before:
                        await self._turned.wait()
            tasks.cancel_scope.cancel()
        for key in self.keys:
            with anyio.fail_after(HUNG_S):
                await self.engine.rested(key)

    async def journals(self) -> list[tuple[JournalRecord, ...]]:
        """Of all conversations, and of the sub-agents that worked for them."""
        below = [child for key in self.keys for child in await children(self.engine, key)]
        return [await self.engine.records(key) for key in (*self.keys, *below)]

    async def _both_up(self) -> None:
        with anyio.fail_after(HUNG_S):
            for link in self._servers.links(self._servers.servers, tenant="", principal=""):
                while not (connection := self._servers.connection(link)).generation:
                    connection.want()
                    await connection.next_news()

    async def _talk(self, talker: int) -> None:
        """In conversations that stay short, so that the judge of requests has little to read."""
        for turn in itertools.count():
            key = ConversationKey("acme", "ann", f"c_{talker}_{turn // TURNS}")
            if turn % TURNS == 0:
                self.keys.append(key)
            with anyio.fail_after(HUNG_S):
                await self.engine.ask("go on", key=key)
            self._ended += 1
            self._turned.set()
            self._turned = anyio.Event()

    async def _strike(self, blow: str) -> None:
        self.blows[blow] += 1
        pids = sorted(self._ledger.alive())
        match blow:
            case "cancel" if self.keys:
                with suppress(NothingToCancel, UnknownConversation):
                    await self.engine.cancel(self._chance.choice(self.keys[-TALKERS:]))
            case "kill" | "end" | "stop" if pids:
                kind = {"kill": signal.SIGKILL, "end": signal.SIGTERM, "stop": signal.SIGSTOP}[blow]
                self._ledger.signal(pid := self._chance.choice(pids), kind)
                if blow == "stop":
                    await anyio.sleep(self._chance.choice([0.05, 0.5]))
                    self._ledger.signal(pid, signal.SIGCONT)
            case "change":
                for link in self._servers.links(self._servers.servers, tenant="", principal=""):
                    self._servers.connection(link).changed()


@asynccontextmanager
async def storming(folder: Path, *, seed: int) -> AsyncIterator[Storm]:
    """Both servers, and an engine whose agent has their tools; nothing of it is left afterwards."""
    chance = random.Random(seed)
    ledger = McpLedger(folder / "ledger.txt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = McpServer(
        command=sys.executable, args=(str(SERVER), str(ledger.path)), trust_read_only=True, reads=("block",)
    )
    tables = {
        "program": program,
        "listens": McpServer(url=f"http://127.0.0.1:{port}/mcp", trust_read_only=True),
    }
    servers = McpServers(
        tables, home=folder, values=Values(folder, {}), open_=open_session, options=OPTIONS, chance=chance.random
    )
    registry = ToolRegistry((), blobs=MemoryBlobs(), options=ToolOptions())

    def lent(*, reads_only: bool) -> McpTools:
        return McpTools(servers, names=tables, taken=["look"], toolbox_of=registry.lent_toolbox, reads_only=reads_only)

    model, scouts_model = StormModel(chance), StormModel(chance)
    scout = subagent(SCOUT, host=scouts_model, elsewhere=lent(reads_only=True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_kept_running, [sys.executable, str(SERVER), str(ledger.path), str(port)])
        async with (
            registry.running(),
            servers.running(),
            running_engine(
                host=model,
                elsewhere=lent(reads_only=False),
                turn=TurnOptions(cancel_grace_s=0.1),
                tools=[spawning(SCOUT)],
                subagents={SCOUT: scout},
            ) as engine,
        ):
            yield Storm(engine, ledger=ledger, servers=servers, chance=chance)
        tasks.cancel_scope.cancel()
    assert model.refused == scouts_model.refused == []
    await ledger.until_nobody_is_alive()


async def _kept_running(command: list[str]) -> None:
    """A server that is started again whenever it ends."""
    while True:
        async with await anyio.open_process(command, stdout=-3, stderr=-3) as process:
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    with anyio.CancelScope(shield=True):
                        await process.wait()


def _words_of(records: Sequence[Any]) -> dict[str, str]:
    """What each call was to write, by the id that the engine gave it."""
    replied = (record for record in records if isinstance(record, ModelReplied))
    blocks = (msgspec.json.decode(block) for record in replied for block in record.blocks)
    return {block["id"]: block["input"].get("words", "") for block in blocks if block["type"] == "tool_use"}


def settled(records: Sequence[Any], ledger: McpLedger) -> Counter[Outcome]:
    """How the calls of a journal ended; each that started did, and what is told of writes is what happened."""
    started = {record.call_id: record for record in records if isinstance(record, ToolStarted)}
    finished = {record.call_id: record for record in records if isinstance(record, ToolFinished)}
    assert started.keys() <= finished.keys()
    lines = Counter(ledger.lines())
    words = _words_of(records)
    for call_id, record in finished.items():
        wrote = lines[f"wrote {words.get(call_id)}"]
        assert wrote <= 1, f"{call_id} was written {wrote} times"
        if record.name.endswith("__write_down"):
            if record.outcome is Outcome.SUCCEEDED:
                assert wrote == 1
            elif record.outcome is not Outcome.UNKNOWN:
                assert wrote == 0, f"{call_id} was written and told as {record.outcome}"
    return Counter(record.outcome for record in finished.values())
