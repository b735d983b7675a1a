"""Simulated clients: they send, resend, cancel, send to sleep and reload, and write down what they see.

A client watches its conversation on the bus of every life, as a hint, and fills gaps from the journal as a gateway
does. It knows nothing of the engine but answers, events and error codes.
"""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import msgspec

from tests.simulation.faults import Fault, Sight
from tests.simulation.files import brought
from tests.simulation.life import Asked, DeleteConversation, Life, Question
from tests.simulation.model import key_of, mark
from tests.simulation.offers import some_context
from tests.simulation.world import World
from tests.support.oracle_evidence import Json, Watch
from torpor.conversation.publish import event_of
from torpor.errors import StoreError
from torpor.records.commands import (
    ArchiveConversation,
    CancelTurn,
    Hibernate,
    RefreshLiveContext,
    RenameConversation,
    RetractMessage,
    SendMessage,
    TellContext,
    Wake,
)
from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.records.terms import WhenBusy
from torpor.supervisor.forking import ForkConversation

_WEIGHTS = (10, 4, 3, 1, 1, 4, 2, 2, 1, 2, 1)
_FOR_GOOD = frozenset({"rejected", "unknown_agent", "empty_message"})
_READ_WITHIN_S = 5.0
_POLL_S = 5.0
_TRIES = 20


class Client:
    """One of a conversation's clients. Implements ``bus.contract.Subscriber``."""

    def __init__(
        self, world: World, *, conversation: str, number: int, lives: Callable[[], list[Life]], has_peers: bool
    ) -> None:
        """Args: lives: those that are up.  has_peers: whether several may be at once."""
        self.name = f"{conversation}m{number}"
        self.conversation = conversation
        self.key = key_of(conversation)
        self._world = world
        self._lives = lives
        self._life: Life | None = None
        self._sent = 0
        self._has_peers = has_peers
        self._connected = 0
        """How often a process began to tell it of the conversation."""
        self._looked = 0
        """The same, when it saw last which conversation it is told of."""
        self._forks = 0
        self._watch = Watch(client=self.name, conversation=conversation, start=0)
        world.evidence.watches.append(self._watch)
        self._behind = anyio.Event()
        self.waits_for = ""
        """What it asked for and was not told of yet."""
        self.is_done = False
        self._nudges: list[Callable[[], Awaitable[None]]] = []
        self._nudged = anyio.Event()

    async def run(self) -> None:
        """Do what clients do, and return when everything sent was answered."""
        rng, plan = self._world.rng, self._world.plan
        actions: tuple[Callable[[], Awaitable[None]], ...]
        actions = (
            self._send,
            self._cancel,
            self._hibernate,
            self._reload,
            self._wake,
            self._update_context,
            self._refresh,
            self._retract,
            self._rename,
            self._archive,
            self._fork,
            self._delete,
        )
        while self._sent < self._world.plan.sends and self._world.is_stormy:
            self._nudges.clear()
            self._nudged = anyio.Event()
            with anyio.move_on_after(rng.choice((0.0, 0.05, 0.5, 2.0, 5.0)) * rng.random()):
                await self._nudged.wait()
            action = self._nudges[-1] if self._nudges else rng.choices(actions, weights=(*_WEIGHTS, plan.deletes))[0]
            await action()
        self.is_done = True

    async def watch(self) -> None:
        """Follow the journal where the bus left something out."""
        while True:
            with anyio.move_on_after(_POLL_S):
                await self._behind.wait()
            self._behind = anyio.Event()
            await self._fill()

    async def catch_up(self) -> None:
        """See everything there is."""
        for _ in range(_TRIES):
            self._watch.is_last = True
            if await self._fill():
                return

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        if self._world.roll(Fault.EVENT_DROPPED):
            return
        for record in records:
            if not self._is_sure():
                self._behind.set()
            elif record.event == self._last + 1:
                self._see(record)
            elif record.event > self._last:
                self._behind.set()

    def on_delta(self, key: ConversationKey, delta: Delta) -> None:
        pass

    def on_standing(self, key: ConversationKey) -> None: ...

    def on_gone(self, key: ConversationKey) -> None:
        self._begin(epoch=0, start=0)
        self._behind.set()

    def reconnect(self) -> None:
        """A process has started that will tell it of the conversation."""
        self._connected += 1

    def on_progress(self, key: ConversationKey, progress: Progress) -> None:
        pass

    def _is_sure(self) -> bool:
        """Whether what it is told is of the conversation whose numbers it knows. Several processes tell it of theirs in
        any order, so that once one was deleted only the journal is to be believed."""
        if not self._watch.epoch or self._looked != self._connected:
            return False
        gone = (entry.journal.conversation for entry in self._world.evidence.gone)
        return not self._has_peers or self.conversation not in gone

    def _begin(self, *, epoch: int, start: int) -> None:
        """Forget everything and go on from there."""
        self._watch = Watch(client=self.name, conversation=self.conversation, start=start, epoch=epoch)
        self._world.evidence.watches.append(self._watch)

    @property
    def _last(self) -> int:
        number: int = self._watch.seen[-1][1]["event"] if self._watch.seen else self._watch.start
        return number

    def _see(self, record: JournalRecord) -> None:
        event: Json = msgspec.json.decode(msgspec.json.encode(event_of(record)))
        self._watch.seen.append((self._world.moment(), event))
        if self._world.is_stormy and self._world.rng.random() < 0.3:
            self._react(event["type"])

    def _react(self, kind: str) -> None:
        """Act on what was seen, when nothing better is being done."""
        match kind:
            case "tool.started":
                self._nudges.append(self._cancel)
            case "turn.started":
                self._nudges.append(self._hibernate)
            case "turn.finished" | "turn.cancelled" | "turn.failed":
                self._nudges.append(self._send)
            case _:
                return
        self._nudged.set()

    async def _fill(self) -> bool:
        """Read on in the journal; whether that worked."""
        life = self._pick()
        if life is None or life.engine is None:
            return False
        watch, connected, store = self._watch, self._connected, life.engine.store
        try:
            with anyio.fail_after(_READ_WITHIN_S):
                before = await store.describe(self.key)
                records = await store.events_after(self.key, event=self._last, limit=1000)
                row = await store.describe(self.key)
        except (TimeoutError, StoreError):
            return False
        epoch = row.epoch if row else 0
        if watch is not self._watch or epoch != (before.epoch if before else 0):
            return False
        if watch.epoch not in {0, epoch}:
            self._world.saw(Sight.OTHER_LIFE)
            self._begin(epoch=epoch, start=row.head.event if row else 0)
            return False
        watch.epoch, self._looked = epoch, connected
        for record in records:
            if record.event == self._last + 1:
                self._world.saw(Sight.GAP_FILLED)
                self._see(record)
        return True

    def _pick(self) -> Life | None:
        """A life to talk to: mostly the one of the last time."""
        lives = self._lives()
        if self._life not in lives or self._world.rng.random() < 0.15:
            self._life = self._world.rng.choice(lives) if lives else None
        return self._life

    async def _ask(self, command: Question, *, patience_s: float) -> Asked | None:
        """Ask some life; None when none is up."""
        life = self._pick()
        if life is None:
            return None
        asked = life.ask(self.key, command)
        with anyio.move_on_after(patience_s) as patience:
            await asked.done.wait()
        if patience.cancelled_caught and self._world.rng.random() < 0.7:
            self._life = None  # next time, somebody else perhaps
        return asked

    async def _send(self) -> None:
        """Send a message until it is accepted or refused for good."""
        world, rng = self._world, self._world.rng
        self._sent += 1
        id_ = MessageId(f"{self.name}-{self._sent}")
        command = SendMessage(
            message_id=id_,
            principal=self.name,
            text=mark(self.conversation, id_),
            when_busy=rng.choices(tuple(WhenBusy), weights=(6, 5, 3, 2))[0],
            lookback=rng.choice((0, 0, 0, 2)),
            attachments=brought(world, self.key, rng=rng),
        )
        self.waits_for = f"{self.name} was never answered to {id_}"
        before: Life | None = None
        while True:
            patience_s = 0.2 if world.roll(Fault.CLIENT_IMPATIENT) else rng.choice((1.0, 3.0, 20.0))
            if world.roll(Fault.DUPLICATE_SEND) and (twin := self._pick()) is not None:
                twin.ask(self.key, command)
            asked = await self._ask(command, patience_s=patience_s)
            if asked is not None:
                if before is not None:
                    world.saw(Sight.MESSAGE_RESENT)
                if before is not None and self._life is not None and before.process != self._life.process:
                    world.saw(Sight.RESENT_ELSEWHERE)
                before = self._life
                if self._is_settled(asked):
                    break
            await anyio.sleep(rng.choice((0.05, 0.3, 1.0)))

    def _is_settled(self, asked: Asked) -> bool:
        noted = asked.noted
        if noted.error == "busy":
            self._world.saw(Sight.BUSY)
        if noted.error == "rejected":
            self._world.saw(Sight.REJECTED)
        return bool(noted.answered) and (not noted.error or noted.error in _FOR_GOOD)

    async def _cancel(self) -> None:
        asked = await self._ask(CancelTurn(principal=self.name), patience_s=10.0)
        if asked is not None and asked.noted.answered and not asked.noted.error:
            self._world.saw(Sight.CANCELLED)

    async def _hibernate(self) -> None:
        """Send it to sleep; now and then a message comes right behind."""
        rng = self._world.rng
        is_followed = rng.random() < 0.5
        patience_s = rng.choice((0.0, 0.001, 0.01)) if is_followed else 10.0
        asked = await self._ask(Hibernate(deadline_s=rng.choice((0.0, 0.5, 5.0))), patience_s=patience_s)
        if asked is not None and asked.noted.error == "not_now":
            self._world.saw(Sight.HIBERNATION_REFUSED)
        if is_followed:
            await self._send()

    async def _update_context(self) -> None:
        await self._ask(TellContext(principal=self.name, context=some_context(self._world)), patience_s=10.0)

    async def _refresh(self) -> None:
        """Have the live context made anew, or have it looked at as whoever opens the conversation does."""
        await self._ask(RefreshLiveContext(is_opened=self._world.rng.random() < 0.5), patience_s=10.0)

    async def _retract(self) -> None:
        """Take back what was sent last, whether it waits, runs or was answered."""
        if self._sent:
            id_ = MessageId(f"{self.name}-{self._sent}")
            asked = await self._ask(RetractMessage(principal=self.name, message_id=id_), patience_s=10.0)
            if asked is not None and asked.noted.answered and not asked.noted.error:
                self._world.saw(Sight.RETRACTED)

    async def _rename(self) -> None:
        title = f"{self.name} no. {self._world.moment()}"
        await self._ask(RenameConversation(principal=self.name, title=title), patience_s=10.0)

    async def _archive(self) -> None:
        """Put it away or take it out again, whichever it was."""
        is_archived = self._world.rng.random() < 0.7
        await self._ask(ArchiveConversation(principal=self.name, is_archived=is_archived), patience_s=10.0)

    async def _fork(self) -> None:
        """Begin another conversation with what stands before a message; at times, ask for that twice."""
        self._forks += 1
        sent = [f"{self.name}-{number}" for number in range(1, self._sent + 1)]
        before, name = self._world.rng.choice(["", *sent]), f"{self.name}f{self._forks}"
        for _ in range(self._world.rng.choice((1, 1, 2))):
            fork = ForkConversation(
                source=self.key,
                into=key_of(name),
                before=MessageId(before),
                title=self._world.rng.choice(("", name)),
                principal=self.name,
            )
            await self._ask(fork, patience_s=10.0)

    async def _delete(self) -> None:
        """Until nothing is there."""
        for _ in range(_TRIES):
            asked = await self._ask(DeleteConversation(principal=self.name), patience_s=10.0)
            if asked is not None and asked.noted.answered and asked.noted.error in {"", "unknown_conversation"}:
                return
            await anyio.sleep(self._world.rng.choice((0.05, 0.5, 2.0)))

    async def _wake(self) -> None:
        await self._ask(Wake(), patience_s=10.0)

    async def _reload(self) -> None:
        """Forget everything and go on from the head."""
        life = self._pick()
        if life is None or life.engine is None:
            return
        try:
            with anyio.fail_after(_READ_WITHIN_S):
                row = await life.engine.store.describe(self.key)
        except (TimeoutError, StoreError):
            return
        self._world.saw(Sight.RELOADED)
        self._begin(epoch=row.epoch if row else 0, start=row.head.event if row else 0)
