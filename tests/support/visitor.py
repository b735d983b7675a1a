"""A person at a client: lives through a scenario in one conversation, whatever becomes of the server meanwhile.

The scenario has a plain turn, turns with two tools, messages that wait, steer and interrupt, cancelled turns, one with
a payment that ends afterwards, a model that fails, sleep and thaw, and somebody who looks on from the middle. Every
step waits for what the client hears, never for time. What is sent and heard goes into a log for the judges.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.journal_checker import named_in
from torpor.client.failures import ConnectionLost, RequestRefused
from torpor.client.items import EventItem, ReloadItem
from torpor.client.torpor_client import TorporClient
from torpor.records.events import (
    AnyEvent,
    ReplyFinishedEvent,
    ToolLateEvent,
    ToolStartedEvent,
    TurnCancelledEvent,
    TurnFailedEvent,
    TurnFinishedEvent,
    TurnStartedEvent,
)
from torpor.records.frames import Cursor
from torpor.records.ids import MessageId
from torpor.records.journal import WhenBusy

FINISHED = "finished"
CANCELLED = "cancelled"
Log = Callable[[dict[str, Any]], None]


class Follower:
    """Somebody who watches one conversation, writes down what comes, and knows what has become of each message."""

    def __init__(self, client: TorporClient, conversation: str, *, name: str, log: Log) -> None:
        self._client = client
        self._conversation = conversation
        self._name = name
        self._log = log
        self._changed = anyio.Event()
        self._turn_of: dict[str, int] = {}
        self._ended_turns = set[int]()
        self.seen = 0
        """Number of the last event."""
        self.tools_started = set[str]()
        self.tools_late = set[str]()

    async def follow(self, cursor: Cursor | None) -> None:
        """Take items for ever."""
        async with self._client.watch(self._conversation, cursor) as watch:
            async for item in watch:
                match item:
                    case ReloadItem():
                        self._note(what="reloaded", head=item.head)
                        self.seen = item.head
                    case EventItem():
                        self._note(what="event", event=msgspec.to_builtins(item.event))
                        self._take(item.event)
                self.look_again()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once ``is_so``, looked at whenever something was heard."""
        while not is_so():
            await self._changed.wait()

    def look_again(self) -> None:
        """Something has changed."""
        self._changed.set()
        self._changed = anyio.Event()

    def has_begun(self, message: str) -> bool:
        """Whether a turn has taken it."""
        return message in self._turn_of

    def is_over(self, message: str) -> bool:
        """Whether the turn that took it has ended."""
        return self._turn_of.get(message) in self._ended_turns

    def _take(self, event: AnyEvent) -> None:
        self.seen = event.event
        match event:
            case TurnStartedEvent():
                self._turn_of.update(dict.fromkeys(event.messages, event.turn))
            case ReplyFinishedEvent() if not event.tool_calls:
                # A message that joined a turn shows in its answer only.
                for message in named_in(event.text):
                    self._turn_of.setdefault(message, event.turn)
            case ToolStartedEvent():
                self.tools_started.add(event.call_id)
            case ToolLateEvent():
                self.tools_late.add(event.call_id)
            case TurnFinishedEvent() | TurnCancelledEvent() | TurnFailedEvent():
                self._ended_turns.add(event.turn)

    def _note(self, **line: Any) -> None:
        self._log(line | {"client": self._name, "path": path_of(self._conversation)})


def path_of(conversation: str) -> str:
    """Of the development token's owner."""
    return f"default/developer/{conversation}"


class Visitor:
    """One conversation of one client; ``lives`` counts the servers so far, ``number`` tells visitors apart."""

    def __init__(
        self,
        client: TorporClient,
        onlooker: TorporClient,
        conversation: str,
        *,
        home: Path,
        log: Log,
        lives: Callable[[], int],
        number: int,
    ) -> None:
        self._client = client
        self._conversation = conversation
        self._released = home / "released"
        self._log = log
        self._lives = lives
        self._number = 100 * number
        self._heard = Follower(client, conversation, name="speaker", log=log)
        self._onlooker = Follower(onlooker, conversation, name="onlooker", log=log)

    def server_changed(self) -> None:
        """The server is another one than before."""
        self._heard.look_again()

    async def live(self) -> None:
        """Go through the whole scenario."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._heard.follow, Cursor(event=0))
            for step in (self._chatting, self._using_tools, self._waiting, self._steering, self._interrupting):
                await step()
            tasks.start_soon(self._onlooker.follow, None)
            for step in (self._cancelling, self._paying_late, self._failing, self._sleeping):
                await step()
            await self._onlooker.until(lambda: self._onlooker.seen == self._heard.seen)
            tasks.cancel_scope.cancel()

    async def _chatting(self) -> None:
        await self._answered(await self._say())

    async def _using_tools(self) -> None:
        for tools in ("look_up, pay_keyed", "look_up, pay_probed", "dig_out, pay_blindly"):
            await self._answered(await self._say(tools))

    async def _waiting(self) -> None:
        first = await self._begun("hold")
        behind = [await self._say(), await self._say()]
        self._release(first)
        await self._answered(first, *behind)

    async def _steering(self) -> None:
        first = await self._paying(ends=(FINISHED,))
        joining = await self._say(when_busy=WhenBusy.STEER)
        self._release(first)
        await self._answered(first, joining)

    async def _interrupting(self) -> None:
        first = await self._begun("hold", ends=(FINISHED, CANCELLED))
        await self._answered(first, await self._say(when_busy=WhenBusy.INTERRUPT))

    async def _cancelling(self) -> None:
        first = await self._begun("hold", ends=(FINISHED, CANCELLED))
        await self._cancel(first)
        await self._answered(await self._say())

    async def _paying_late(self) -> None:
        life = self._lives()
        first = await self._paying(ends=(FINISHED, CANCELLED))
        await self._cancel(first)
        self._release(first)
        # A payment that was under way when its process died is never heard of again.
        await self._heard.until(lambda: f"{first}-pay_slowly" in self._heard.tools_late or self._lives() != life)
        await self._answered(await self._say())

    async def _failing(self) -> None:
        await self._answered(await self._say("fail", ends=("failed",)))
        await self._answered(await self._say())
        with pytest.raises(RequestRefused, match="no visible text"):
            await self._client.send(self._conversation, " ")

    async def _sleeping(self) -> None:
        path = path_of(self._conversation)
        await self._client.hibernate(path, deadline_s=10.0)
        assert any(row["path"] == path for row in await self._client.list())
        await self._client.thaw(path)
        assert await self._client.inspect(path)
        await self._answered(await self._say("look_up"))

    async def _say(
        self, doing: str = "", *, when_busy: WhenBusy = WhenBusy.QUEUE, ends: tuple[str, ...] = (FINISHED,)
    ) -> str:
        """Send a message and return its id once it is accepted."""
        self._number += 1
        message = f"m{self._number}"
        wish = f"[{message}: {doing}]" if doing else f"[{message}]"
        text = f"{self._conversation} says: please do as it says \N{WAVING HAND SIGN} {wish}"
        note = {"path": path_of(self._conversation), "id": message}
        self._log(note | {"what": "sent", "text": text, "ends": ends})
        receipt = await self._client.send(self._conversation, text, message_id=MessageId(message), when_busy=when_busy)
        self._log(note | {"what": "accepted", "event": receipt.event})
        return message

    async def _begun(self, doing: str, *, ends: tuple[str, ...] = (FINISHED,)) -> str:
        message = await self._say(doing, ends=ends)
        await self._heard.until(lambda: self._heard.has_begun(message))
        return message

    async def _paying(self, *, ends: tuple[str, ...]) -> str:
        """A slow payment that has begun, or whose turn is over."""
        message = await self._begun("pay_slowly", ends=ends)
        call = f"{message}-pay_slowly"
        await self._heard.until(lambda: call in self._heard.tools_started or self._heard.is_over(message))
        return message

    async def _answered(self, *messages: str) -> None:
        await self._heard.until(lambda: all(self._heard.is_over(message) for message in messages))

    async def _cancel(self, message: str) -> None:
        """Cancel the turn of ``message``, again when nobody can tell whether it was done."""
        while not self._heard.is_over(message):
            try:
                await self._client.cancel(self._conversation)
            except ConnectionLost:
                continue
            except RequestRefused as refusal:
                if refusal.code != "nothing_to_cancel":
                    raise
            await self._answered(message)

    def _release(self, message: str) -> None:
        (self._released / message).touch()
