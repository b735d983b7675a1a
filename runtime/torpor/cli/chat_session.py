"""What a chat does with lines, with what the server says, and with Ctrl-C.

Lines go out as messages, items of the watch go onto the screen. A connection that goes away and comes back is a note:
what was sent is sent again by the client, and what was missed comes with the watch.
"""

import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Protocol, assert_never

import anyio
import anyio.abc
import click

from torpor.cli.attaching import attached
from torpor.cli.screen import Screen
from torpor.client.items import AnyItem, DeltaItem, EventItem, ProgressItem, ReloadItem, ResumedItem, StatusItem
from torpor.clock import RandomIds
from torpor.errors import ClientError, NothingToCancel
from torpor.records.attachments import told_of
from torpor.records.commands import Receipt
from torpor.records.events import (
    AnyEvent,
    MessageReceivedEvent,
    TurnCancelledEvent,
    TurnFailedEvent,
    TurnFinishedEvent,
    TurnRefusedEvent,
    TurnStartedEvent,
)
from torpor.records.frames import RunStatus
from torpor.records.terms import Offer

_COMMAND: Final = re.compile(r"/[A-Za-z]+(?=\s|$)")
_NO_COMMAND: Final = re.compile(r"//[A-Za-z]+(?=\s|$)")
"""A message that begins with a slash and a word."""
_ATTACH: Final = "/attach "
_TURNS_RECALLED: Final = 2
"""Of an older conversation, shown when a chat goes on in it."""


class Talks(Protocol):
    """What a chat needs of a client."""

    async def send(
        self,
        conversation: str,
        text: str,
        *,
        message_id: str,
        agent: str,
        resume: Offer | None,
        attachments: Sequence[str] | None,
    ) -> Receipt: ...

    async def upload(self, data: bytes, *, name: str) -> dict[str, Any]: ...

    async def cancel(self, conversation: str) -> None: ...


class _File:
    """One that somebody wants to send along."""

    __slots__ = ("attachment", "is_over", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attachment = ""
        """What a message names it by; empty before, and when nothing came of it."""
        self.is_over = anyio.Event()


class ChatSession:
    """One conversation on one screen, for as long as ``run`` lasts."""

    def __init__(
        self,
        client: Talks,
        conversation: str,
        *,
        agent: str,
        screen: Screen,
        echoes: bool,
        on_continue: Callable[[], None] = lambda: None,
        why_not: Callable[[int], str] = lambda _: "",
    ) -> None:
        """Args: echoes: show what was sent, since no terminal has.  on_continue: called after a stop, as by Ctrl-Z.
        why_not: what is in the way of a message with so many files; empty where nothing is."""
        self._why_not = why_not
        self._on_continue = on_continue
        self._client = client
        self._conversation = conversation
        self._agent = agent
        self._screen = screen
        self._echoes = echoes
        self._ids = RandomIds()
        self._mine: set[str] = set()
        """Messages of this chat that no turn has answered yet."""
        self._is_expected = False
        """Whether somebody else has said something since the last turn ended, which a turn will answer."""
        self._taken: tuple[str, ...] = ()
        """Messages that the running turn answers."""
        self._offers: tuple[Offer, ...] = ()
        """Of the last turn, which failed."""
        self._files: list[_File] = []
        """That go with the next message, which waits for them."""
        self._is_running = False
        self._is_cancelling = False
        self._is_connected = True
        self._has_no_more_lines = False
        self._leaving = anyio.Event()

    async def run(self, items: AsyncIterator[AnyItem], *, lines: AsyncGenerator[str, None]) -> None:
        """Chat until ``lines`` have ended and are answered, or somebody leaves by Ctrl-C.

        Raises: whatever ends ``items``.
        """
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._obey, tasks)
                self._recall(await anext(items))
                tasks.start_soon(self._follow, items)
                tasks.start_soon(self._read, lines, tasks)
                await self._leaving.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._screen.close()

    def on_connection(self, *, is_there: bool) -> None:
        """The connection came or went."""
        if is_there != self._is_connected and not self._leaving.is_set():
            self._screen.note("connected again" if is_there else "connection lost, trying again")
            self._is_connected = is_there
            self._ask_for_more()

    def interrupt(self, tasks: anyio.abc.TaskGroup) -> None:
        """Ctrl-C: cancel what runs; with nothing to cancel, or when that was asked already, leave."""
        self._screen.interrupted()
        if self._is_busy and not self._is_cancelling:
            self._is_cancelling = True
            self._screen.note("cancelling")
            tasks.start_soon(self._cancel)
        else:
            self._leaving.set()

    @property
    def _is_busy(self) -> bool:
        return self._is_running or self._is_expected or bool(self._mine)

    async def _obey(
        self, tasks: anyio.abc.TaskGroup, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGCONT) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGINT:
                    self.interrupt(tasks)
                else:
                    self._on_continue()
                    self._screen.redraw()

    async def _read(self, lines: AsyncGenerator[str, None], tasks: anyio.abc.TaskGroup) -> None:
        async with aclosing(lines):
            async for line in lines:
                self._screen.entered()
                if line.strip():
                    self._say(line, tasks)
                self._ask_for_more()
        self._has_no_more_lines = True
        self._ask_for_more()

    def _say(self, line: str, tasks: anyio.abc.TaskGroup) -> None:
        """Send a line; ``/retry`` and ``/continue`` take up what the last turn offered. What else begins with a slash
        and a word was meant for us and is answered here; a second slash before it makes it a message."""
        command = line.rstrip()
        if command.startswith(_ATTACH):
            file = _File(_file_in(command.removeprefix(_ATTACH).strip()))
            waiting = sum(bool(each.attachment) or not each.is_over.is_set() for each in self._files)
            if why := self._why_not(waiting + 1):
                self._screen.note(f"cannot attach {file.path}: {why}")
                return
            self._files.append(file)
            tasks.start_soon(self._attach, file)
            return
        offer = next((offer for offer in self._offers if command == f"/{offer}"), None)
        if offer is None and (found := _COMMAND.match(command)):
            self._screen.note(_answer_to(found[0], self._offers))
            return
        if _NO_COMMAND.match(line):
            line = line[1:]
        message_id = self._ids.new_id()
        self._mine.add(message_id)
        files, self._files = self._files, []
        tasks.start_soon(self._send, message_id, "" if offer else line, offer, files)

    async def _attach(self, file: _File) -> None:
        try:
            row = await attached(self._client, file.path, say=self._screen.note)
            file.attachment = row["attachment"]
        except (ClientError, click.ClickException) as exc:
            self._screen.note(str(exc))
        file.is_over.set()
        self._ask_for_more()

    async def _send(self, message_id: str, text: str, resume: Offer | None, files: Sequence[_File]) -> None:
        for file in files:
            await file.is_over.wait()
        attachments = [file.attachment for file in files if file.attachment]
        try:
            await self._client.send(
                self._conversation,
                text,
                message_id=message_id,
                agent=self._agent,
                resume=resume,
                attachments=attachments,
            )
        except ClientError as exc:
            self._mine.discard(message_id)
            self._screen.note(f"not sent, {exc}")
            self._ask_for_more()

    async def _cancel(self) -> None:
        try:
            await self._client.cancel(self._conversation)
        except ClientError as exc:
            self._is_cancelling = False
            if exc.code != NothingToCancel.code:
                self._screen.note(f"not cancelled, {exc}")

    async def _follow(self, items: AsyncIterator[AnyItem]) -> None:
        async for item in items:
            self._show(item)
            self._ask_for_more()
        self._leaving.set()

    def _ask_for_more(self) -> None:
        if self._is_busy:
            return
        if self._has_no_more_lines:
            self._leaving.set()
        else:
            self._screen.prompt()

    def _recall(self, first: AnyItem) -> None:
        """The end of an older conversation for a person; a pipe has no use for it."""
        if isinstance(first, ReloadItem):
            if not self._echoes:
                for event in _last_turns(first.events):
                    self._on_event(event)
            self._offers = _offers_of(first.events)
            self._is_running = first.status.state == "running"
        self._ask_for_more()

    def _show(self, item: AnyItem) -> None:
        match item:
            case EventItem():
                self._on_event(item.event)
            case DeltaItem():
                self._screen.delta(item.call, offset=item.offset, text=item.text)
            case ProgressItem():
                self._screen.progress(item.name, item.text)
            case ReloadItem():
                self._begin_over(item)
            case ResumedItem():
                pass
            case StatusItem():
                self._on_status(item.status)
            case _:
                assert_never(item)

    def _on_status(self, status: RunStatus) -> None:
        self._is_running = status.state == "running"
        if status.state == "quarantined":
            self._screen.note("this conversation was quarantined; nothing can be sent until an operator releases it")
        else:
            self._screen.note("this conversation was released")

    def _on_event(self, event: AnyEvent) -> None:
        match event:
            case MessageReceivedEvent() if event.message_id not in self._mine:
                self._screen.said(event.principal, _words_of(event))
                self._is_expected = True
            case MessageReceivedEvent() if self._echoes:
                self._screen.said("you", _words_of(event))
            case TurnStartedEvent():
                self._is_running, self._taken, self._offers = True, event.messages, ()
            case TurnFailedEvent():
                self._offers = event.offers
                self._screen.event(event)
                self._turn_over()
            case TurnFinishedEvent() | TurnCancelledEvent() | TurnRefusedEvent():
                self._screen.event(event)
                self._turn_over()
            case _:
                self._screen.event(event)

    def _turn_over(self) -> None:
        self._mine.difference_update(self._taken)
        self._taken = ()
        self._is_running = self._is_expected = self._is_cancelling = False

    def _begin_over(self, item: ReloadItem) -> None:
        """The server could not go on from where this chat was."""
        self._screen.note("the conversation was loaded anew, some of it may be missing here")
        self._turn_over()
        self._offers = _offers_of(item.events)
        self._is_running = item.status.state == "running"
        if not self._is_running and not item.status.waiting:
            self._mine.clear()


def _file_in(told: str) -> Path:
    """A name as it is typed, or in the quotes that terminals put around a file that is dropped on them."""
    if len(told) > 1 and told[0] == told[-1] and told[0] in "\"'":
        told = told[1:-1]
    return Path(told).expanduser()


def _words_of(event: MessageReceivedEvent) -> str:
    """What was said, and what came with it."""
    return "\n".join([*filter(None, [event.text]), *(f"[{told_of(each)}]" for each in event.attachments)])


def _answer_to(command: str, offers: Sequence[Offer]) -> str:
    """What a slash and a word that do nothing now are answered."""
    if command == "/help":
        taken = " or ".join(f"/{offer}" for offer in offers)
        now = f"{taken} takes up the turn that failed; " if offers else ""
        beside = "/attach FILE sends a file with the next message; Ctrl-C cancels the running turn, Ctrl-D leaves"
        return f"{now}{beside}; every other line is a message to the agent, //help and the like with one slash"
    word = command.removeprefix("/")
    if word in offers:
        return f"{command} stands alone; as a message to the agent: /{command}"
    if word in {offer.value for offer in Offer}:
        return f"nothing to {word}, since the last turn did not offer it"
    if command == _ATTACH.strip():
        return "/attach takes the name of a file: /attach FILE"
    known = ", ".join(f"/{offer}" for offer in Offer)
    return f"there is no {command}, only /attach FILE, {known} and /help; as a message to the agent: /{command}"


def _offers_of(events: Sequence[AnyEvent]) -> tuple[Offer, ...]:
    """What the last turn offered, if it failed."""
    for event in reversed(events):
        if isinstance(event, TurnFailedEvent):
            return event.offers
        if isinstance(event, TurnStartedEvent | TurnFinishedEvent | TurnCancelledEvent | TurnRefusedEvent):
            return ()
    return ()


def _last_turns(events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
    """From the first message of the last turns on."""
    begun = [event for event in events if isinstance(event, TurnStartedEvent)][-_TURNS_RECALLED:]
    taken = {message_id for event in begun for message_id in event.messages}
    for at, event in enumerate(events):
        if isinstance(event, MessageReceivedEvent) and event.message_id in taken:
            return events[at:]
    return events
