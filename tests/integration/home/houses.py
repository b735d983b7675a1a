"""An agent home in a temporary folder, a server that runs it, and a client that talks to it.

Everything is real but the model, which plays what a test laid out and keeps every request byte for byte. Tools are
files of the home; what they do, they write into the home's ``done.txt``. Edits of files are waited for by what the
engine says of them in its log.
"""

import itertools
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import structlog

from tests.support.doubles import Play, PlayedModel
from torpor import local_files
from torpor.app import Running, Wrapping, running
from torpor.client.items import EventItem
from torpor.client.torpor_client import TorporClient
from torpor.clock import SystemClock
from torpor.conversation.view import request_body
from torpor.gateway.auth import Scope, mint
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.context import WorkingContext
from torpor.records.events import AnyEvent, TurnStartedEvent
from torpor.records.frames import Cursor
from torpor.records.ids import MessageId
from torpor.settings import read_settings
from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES

DEADLINE_S: Final = 30.0
"""For every wait; long, since it ends only tests that would hang."""
ENDS: Final = {"turn.finished", "turn.cancelled", "turn.failed", "turn.refused"}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "store": {"synchronous": "normal"},
    "supervisor": {"stop_deadline_s": 0.0, "sweep_s": 0.05},
    "skills": {"look_s": 0.1},
    "turn": {"cancel_grace_s": 0.0},
}
DONE: Final = "done.txt"
_NUMBERS: Final = itertools.count(1)
"""Of messages, never the same again: a server that goes on where another one was knows the ids of that one."""
_TOOLS: Final = '''
"""Tools that write down what they did."""

from pathlib import Path

from torpor import tool

HOME = Path(__file__).parent.parent


def note(name: str) -> str:
    with (HOME / "done.txt").open("a") as file:
        file.write(name + "\\n")
    return f"{name} is done"
'''
_TOOL: Final = '''

@tool(effect="{effect}")
def {name}() -> str:
    """The tool {name}."""
    return note("{name}")
'''

_SLOW: Final = '''
import anyio

from torpor import tool


@tool(effect="{effect}")
async def {name}() -> str:
    """The tool {name}."""
    await anyio.sleep_forever()
    return "never"
'''


class Home:
    """The files; every method may be called while a server runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "config" / "agents").mkdir(parents=True)
        self.settings()
        self.agent()

    def settings(self, **sections: dict[str, Any]) -> None:
        """Write ``config/torpor.toml``: what suits tests, and these."""
        told = {name: SETTINGS.get(name, {}) | sections.get(name, {}) for name in {*SETTINGS, *sections}}
        self._write("config/torpor.toml", "".join(f"[{name}]\n{_toml(table)}\n" for name, table in told.items()))

    def profile(self, name: str, **allotments: int) -> None:
        """Add a profile to the settings as they are."""
        before = (self.path / "config/torpor.toml").read_text()
        self._write("config/torpor.toml", f"{before}\n[profiles.{name}]\n{_toml(allotments)}\n")

    def agent(self, name: str = "clerk", **fields: Any) -> None:
        table = {"name": name, "system": "You are a clerk.", "default": name == "clerk", **fields}
        self._write(f"config/agents/{name}.toml", f'{_toml(table)}\n[model]\nkind = "scripted"\nrehearsal = "any"\n')
        self._write("config/rehearsals/any.toml", '[[rule]]\nmatch = ""\n\n[[rule.step]]\nsay = "Hello."\n')

    def subagent(self, name: str) -> None:
        """One that owes a text."""
        table = {"name": name, "description": f"Has {name} work.", "system": f"You are {name}."}
        self._write(f"config/subagents/{name}.toml", _toml(table))

    def tools(self, *names: str, effect: str = "write", file: str = "deeds.py") -> None:
        """The tools of the home, all in one file."""
        self._write(f"tools/{file}", _TOOLS + "".join(_TOOL.format(name=name, effect=effect) for name in names))

    def module(self, file: str, text: str) -> None:
        """A file of tools, as it stands."""
        self._write(f"tools/{file}", text)

    def slow_tool(self, name: str, *, effect: str) -> None:
        """A tool that never ends by itself, in a file of its own."""
        self._write(f"tools/{name}.py", _SLOW.format(name=name, effect=effect))

    def skill(self, name: str, body: str = "", *, description: str = "", **front: str) -> Path:
        """Add or replace a skill; returns its file."""
        head = {"name": name, "description": description or f"What there is to know of {name}.", **front}
        lines = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in head.items())
        return self._write(f"skills/{name}/SKILL.md", f"---\n{lines}---\n\n{body or f'How to do {name}.'}\n")

    def flags(self, **tables: Any) -> None:
        """What is switched on or off: ``tool__pay=False``, or a whole table."""
        text = "".join(
            f'[flags."{key.replace("__", ".")}"]\n'
            + (f"default = {json.dumps(told)}\n" if isinstance(told, bool) else _toml(told))
            for key, told in tables.items()
        )
        self._write("config/flags.toml", text)

    def policy(self, name: str, text: str, *, version: str = "1") -> Path:
        return self._write(f"config/policies/{name}.md", f"---\nid: {name}\nversion: {version}\n---\n\n{text}\n")

    def done(self) -> list[str]:
        """Names of the tools that did something, in order."""
        path = self.path / DONE
        return path.read_text().split() if path.exists() else []

    def _write(self, where: str, text: str) -> Path:
        """Whole or not at all, so that nobody reads half of it."""
        path = self.path / where
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text)
        part.replace(path)
        return path


def _toml(table: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


class Model(PlayedModel):
    """Keeps its requests as they would be sent, too."""

    def __init__(self, *plays: Play) -> None:
        super().__init__(plays)
        self.bodies: list[bytes] = []

    def then(self, *plays: Play) -> None:
        self.plays.extend(plays)

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        self.bodies.append(request_body(request.preamble, request.view, live=request.live))
        return await super().reply(request, sink)


class Told:
    """What the engine says of itself."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._changed = anyio.Event()

    def take(self, _: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        self.entries.append(dict(event) | {"level": level})
        self._changed.set()
        self._changed = anyio.Event()
        raise structlog.DropEvent

    def of(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["event"] == name]

    async def until(self, name: str, *, after: int) -> dict[str, Any]:
        """The first entry of that name behind the first ``after`` entries."""
        with anyio.fail_after(DEADLINE_S):
            while True:
                for entry in self.entries[after:]:
                    if entry["event"] == name:
                        return entry
                await self._changed.wait()


class House:
    """A server, its model, and clients of it."""

    def __init__(self, server: Running, client: TorporClient, *, home: Home, model: Model, told: Told) -> None:
        self.server = server
        self.client = client
        self.home = home
        self.model = model
        self.told = told
        self._seen: dict[str, int] = {}

    async def ask(self, text: str, *, conversation: str = "c1", agent: str = "") -> list[AnyEvent]:
        """Say something and return the events up to the end of the turn that takes it."""
        message = await self.say(text, conversation=conversation, agent=agent)
        return await self.ended(message, conversation=conversation)

    async def say(self, text: str, *, conversation: str = "c1", agent: str = "") -> MessageId:
        message = MessageId(f"{conversation}-{next(_NUMBERS)}")
        with anyio.fail_after(DEADLINE_S):
            await self.client.send(conversation, text, message_id=message, agent=agent)
        return message

    async def tell(self, context: WorkingContext, *, conversation: str = "c1", agent: str = "") -> None:
        """Say what the user works on, and return once it is durable."""
        with anyio.fail_after(DEADLINE_S):
            await self.client.update_context(conversation, context, agent=agent)

    async def ended(self, message: MessageId, *, conversation: str = "c1") -> list[AnyEvent]:
        """The events that were not returned yet, up to the end of the turn that takes the message."""

        def is_over(events: list[AnyEvent]) -> bool:
            begun = (event for event in events if isinstance(event, TurnStartedEvent) and message in event.messages)
            turn = next((event.turn for event in begun), 0)
            return _kind(events[-1]) in ENDS and events[-1].turn == turn

        return await self._heard(conversation, is_over)

    async def _heard(self, conversation: str, is_last: Callable[[list[Any]], bool]) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        with anyio.fail_after(DEADLINE_S):
            async with self.client.watch(conversation, Cursor(event=self._seen.get(conversation, 0))) as watch:
                async for item in watch:
                    if isinstance(item, EventItem):
                        events.append(item.event)
                        self._seen[conversation] = item.event.event
                        if is_last(events):
                            break
        return events

    async def until_turn(self, conversation: str, turn: int) -> list[AnyEvent]:
        """The events that were not returned yet, up to the end of a turn."""
        return await self._heard(conversation, lambda events: _kind(events[-1]) in ENDS and events[-1].turn == turn)

    async def until_event(self, kind: str, *, count: int = 1, conversation: str = "c1") -> list[AnyEvent]:
        """The events that were not returned yet, up to the ``count``-th of one kind among them."""
        return await self._heard(conversation, lambda events: kinds(events).count(kind) == count)

    def resume(self, conversation: str, *, after: int) -> None:
        """Go on with a conversation of an earlier server, behind one of its events."""
        self._seen[conversation] = after

    async def records(self, kind: str = "", *, conversation: str = "c1", owner: str = "developer") -> list[Any]:
        """The journal, or its records of one kind, as JSON."""
        with anyio.fail_after(DEADLINE_S):
            rows = await self.client.inspect(f"default/{owner}/{conversation}")
        return [row for row in rows if not kind or row["kind"] == kind]

    async def results(self, *, conversation: str = "c1") -> list[str]:
        """What the calls of the last turn with any came back with, in the model's order."""
        finished = await self.records("tool_finished", conversation=conversation)
        last = max((record["turn"] for record in finished), default=0)
        own = sorted((record for record in finished if record["turn"] == last), key=lambda record: record["call_id"])
        return [record["block"].get("content", "") for record in own]

    async def after(self, name: str, edit: Callable[[], object]) -> dict[str, Any]:
        """Edit files and wait until the engine says ``name``."""
        before = len(self.told.entries)
        edit()
        return await self.told.until(name, after=before)


def _kind(event: AnyEvent) -> str:
    return str(event.__struct_config__.tag)


def kinds(events: Iterable[AnyEvent]) -> list[str]:
    return [_kind(event) for event in events]


@asynccontextmanager
async def living(
    home: Home, *plays: Play, model: Model | None = None, spans: object = None, is_asking: bool = False
) -> AsyncIterator[House]:
    """A server for ``home`` and a client of its developer; every request that the model got must have been valid.

    Args: is_asking: the hosts that the home names, and not ``model``.
    """
    model = model or Model()
    model.then(*plays)
    settings = read_settings(home.path, {})
    told = Told()
    before = structlog.get_config()
    structlog.configure(processors=[told.take], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False)
    try:
        async with (
            running(
                settings,
                data=home.path / "data",
                host="127.0.0.1",
                port=0,
                wrapping=Wrapping(model=lambda host: host if is_asking else model, spans=spans),
            ) as server,
            TorporClient(server.url, server.development_token) as client,
        ):
            yield House(server, client, home=home, model=model, told=told)
    except BaseExceptionGroup as exc:
        # Out of the many task groups of a server: what failed is one thing, and is what a reader wants to see.
        cause: BaseException = exc
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        raise cause from None
    finally:
        structlog.configure(**before)
    assert model.refused == []


def token_of(home: Home, owner: str) -> str:
    """For somebody who may chat in the server of ``home``."""
    secret = local_files.keep_secret(home.path / "data", fresh=os.urandom(local_files.SECRET_BYTES))
    return mint(secret, subject=owner, now_us=SystemClock().now_us(), scopes=(Scope.CHAT,))


def text_of(request: dict[str, Any]) -> str:
    """All of a request's system prompt."""
    return "\n".join(block["text"] for block in request["system"])


def tool_names(request: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


def home_tools(request: dict[str, Any]) -> list[str]:
    """Names of the tools that are not the engine's own."""
    return [name for name in tool_names(request) if name not in ENGINE_TOOL_NAMES]


def without(request: dict[str, Any], *fields: str) -> bytes:
    """A request but for some of its fields."""
    return msgspec.json.encode({name: value for name, value in request.items() if name not in fields}, order="sorted")


def results_in(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool results that a request shows, in order."""
    blocks = (block for message in request["messages"] for block in message["content"])
    return [block for block in blocks if block["type"] == "tool_result"]
