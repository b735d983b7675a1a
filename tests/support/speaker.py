"""Somebody at a client: says things in one conversation, and knows what has become of each.

What a message asks of the model stands in brackets at its end, see ``tests.support.obedient_model``. Every verb waits
for what the client hears, never for time. What is sent and heard goes into a log for the judges.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec

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
    TurnRefusedEvent,
    TurnStartedEvent,
)
from torpor.records.frames import Cursor
from torpor.records.ids import MessageId
from torpor.records.terms import WhenBusy

FINISHED = "finished"
CANCELLED = "cancelled"
WORDS = "please do as it says \N{WAVING HAND SIGN}"
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
        self._tools_started = set[tuple[int | None, str]]()
        self._tools_late = set[tuple[int | None, str]]()
        self.count = Counter[type[AnyEvent]]()
        """Events so far, by kind."""

    async def follow(self, cursor: Cursor | None) -> None:
        """Take items for ever."""
        async with self._client.watch(self._conversation, cursor) as watch:
            async for item in watch:
                match item:
                    case ReloadItem():
                        self._note(what="reloaded", head=item.head)
                        self.seen = item.head
                    case EventItem():
                        self._note(what="event", event=json.loads(msgspec.json.encode(item.event)))
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

    def has_started(self, message: str, tool: str) -> bool:
        """Whether the turn that took the message has started the tool."""
        return (self._turn_of.get(message), tool) in self._tools_started

    def has_ended_late(self, message: str, tool: str) -> bool:
        """Whether the end of the tool came after that of the turn that took the message."""
        return (self._turn_of.get(message), tool) in self._tools_late

    def _take(self, event: AnyEvent) -> None:
        self.seen = event.event
        self.count[type(event)] += 1
        match event:
            case TurnStartedEvent():
                self._turn_of.update(dict.fromkeys(event.messages, event.turn))
            case ReplyFinishedEvent() if not event.tool_calls:
                # A message that joined a turn shows in its answer only.
                for message in named_in(event.text):
                    self._turn_of.setdefault(message, event.turn)
            case ToolStartedEvent():
                self._tools_started.add((event.turn, event.name))
            case ToolLateEvent():
                self._tools_late.add((event.of_turn, event.name))
            case TurnFinishedEvent() | TurnCancelledEvent() | TurnFailedEvent() | TurnRefusedEvent():
                self._ended_turns.add(event.turn)

    def _note(self, **line: Any) -> None:
        self._log(line | {"client": self._name, "path": path_of(self._conversation)})


def path_of(conversation: str) -> str:
    """Of the development token's owner."""
    return f"default/developer/{conversation}"


class Speaker:
    """One conversation of one client; its messages are numbered from ``number`` hundred and one."""

    def __init__(
        self,
        client: TorporClient,
        conversation: str,
        *,
        home: Path,
        log: Log = lambda _: None,
        number: int = 0,
        agent: str = "",
        words: str = WORDS,
    ) -> None:
        """Args: agent: that the first message asks for.  words: in every message that has no others."""
        self.client = client
        self.conversation = conversation
        self.heard = Follower(client, conversation, name="speaker", log=log)
        self._released = home / "released"
        self._log = log
        self._agent = agent
        self._words = words
        self._number = 100 * number

    async def say(
        self,
        doing: str = "",
        *,
        when_busy: WhenBusy = WhenBusy.QUEUE,
        ends: tuple[str, ...] = (FINISHED,),
        words: str = "",
        attachments: Sequence[str] = (),
    ) -> str:
        """Send a message and return its id once it is accepted.

        Args: doing: what it asks of the model.  ends: the ways in which its turn may end, for the judges.
            attachments: what an upload gave.
        """
        self._number += 1
        message = f"m{self._number}"
        wish = f"[{message}: {doing}]" if doing else f"[{message}]"
        text = f"{self.conversation} says: {words or self._words} {wish}"
        note = {"path": path_of(self.conversation), "id": message}
        self._log(note | {"what": "sent", "text": text, "ends": ends})
        receipt = await self.client.send(
            self.conversation,
            text,
            message_id=MessageId(message),
            when_busy=when_busy,
            agent=self._agent,
            attachments=attachments,
        )
        self._log(note | {"what": "accepted", "event": receipt.event})
        return message

    async def begun(self, doing: str, *, ends: tuple[str, ...] = (FINISHED,)) -> str:
        message = await self.say(doing, ends=ends)
        await self.heard.until(lambda: self.heard.has_begun(message))
        return message

    async def paying(self, *, ends: tuple[str, ...]) -> str:
        """A slow payment that has begun, or whose turn is over."""
        message = await self.begun("pay_slowly", ends=ends)
        await self.heard.until(lambda: self.heard.has_started(message, "pay_slowly") or self.heard.is_over(message))
        return message

    async def answered(self, *messages: str) -> None:
        await self.heard.until(lambda: all(self.heard.is_over(message) for message in messages))

    async def cancel(self, message: str) -> None:
        """Cancel the turn of ``message``, again when nobody can tell whether it was done."""
        while not self.heard.is_over(message):
            try:
                await self.client.cancel(self.conversation)
            except ConnectionLost:
                continue
            except RequestRefused as refusal:
                if refusal.code != "nothing_to_cancel":
                    raise
            await self.answered(message)

    def release(self, message: str) -> None:
        (self._released / message).touch()
