"""Commands that become records: what is refused, what is written, and what is answered once it is durable.

Above: the actor's task, which takes commands from its mailbox one after the other. Nothing here waits.
"""

from typing import Final

from torpor.actor.commit import Journal
from torpor.actor.parts import ActorParts
from torpor.conversation.fold import version_of
from torpor.conversation.live_context import due, is_awaited, live_block
from torpor.conversation.markup import defused
from torpor.conversation.retracting import retractable, view_before
from torpor.conversation.state import ConversationState
from torpor.conversation.text import is_blank
from torpor.errors import (
    Busy,
    ConversationExists,
    NotOffered,
    NotRetractable,
    Rejected,
    TooManyChanges,
    TooManyUpdates,
    UnknownAgent,
    UnknownConversation,
)
from torpor.records.attachments import marker_block
from torpor.records.blocks import Block, text_block
from torpor.records.commands import (
    ArchiveConversation,
    CreateConversation,
    Receipt,
    Refreshed,
    RefreshLiveContext,
    RenameConversation,
    RetractMessage,
    SendMessage,
    TellContext,
    TellLiveContext,
)
from torpor.records.context import WorkingContext
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    ContextChanged,
    ConversationArchived,
    ConversationCreated,
    ConversationRenamed,
    ConversationUnarchived,
    LiveContextFailed,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
)
from torpor.records.terms import LiveReason, WhenBusy
from torpor.turn import notes
from torpor.turn.agents import Agent
from torpor.turn.live_context import order_of
from torpor.turn.prepare import LIVE_FLAG

_MICROSECONDS: Final = 1_000_000
_NOTHING: Final = WorkingContext()


class Recorder:
    """Of one conversation."""

    __slots__ = ("_journal", "_key", "_parts")

    def __init__(self, key: ConversationKey, parts: ActorParts, *, journal: Journal) -> None:
        self._key = key
        self._parts = parts
        self._journal = journal

    def message(self, command: SendMessage) -> Receipt:
        """Record a message that was not seen before.

        Raises: UnknownAgent, ConversationExists, Rejected, Busy, NotOffered: nothing was recorded.
        """
        journal, state, bounds = self._journal, self._journal.state, self._parts.actor
        agent = self._agent(state, command.agent)
        if state.turn is not None and command.when_busy is WhenBusy.REJECT:
            raise Rejected(turn=state.turn.number)
        if len(state.queued) >= bounds.unprocessed_max:
            raise Busy(
                "queue of messages",
                waiting=len(state.queued),
                bound="actor.unprocessed_max",
                retry_after_s=bounds.busy_retry_after_s,
            )
        if command.resume is not None and command.resume not in state.offers:
            raise NotOffered(command.resume.value)
        if not state.seq:
            journal.add(ConversationCreated(agent=agent.name))
        if state.is_archived:  # whoever writes into it wants to find it again
            journal.add(ConversationUnarchived(principal=command.principal))
        journal.add(
            MessageReceived(
                message_id=command.message_id,
                principal=command.principal,
                blocks=_blocks_of(command),
                when_busy=command.when_busy,
                cleaned=command.cleaned,
                lookback=command.lookback,
            )
        )
        receipt = Receipt(
            message_id=command.message_id,
            event=journal.state.event,
            at_us=journal.added_us,
            position=_position(journal.state, command.message_id),
        )
        journal.remember(receipt)
        return receipt

    def create(self, command: CreateConversation) -> None:
        """Begin the conversation; nothing when it is there with the same agent.

        Raises: ConversationExists: with another one. UnknownAgent: nothing was recorded.
        """
        state, agents = self._journal.state, self._parts.agents
        agent = agents.get(command.agent)
        if state.seq:
            named = command.agent if agent is None else agent.name
            if state.agent not in {command.agent, named}:
                raise ConversationExists(self._key.conversation, agent=state.agent, named=named)
            return
        if agent is None:
            raise UnknownAgent(command.agent, known=agents.names())
        self._journal.add(ConversationCreated(agent=agent.name, title=command.title))

    def rename(self, command: RenameConversation) -> None:
        """Raises: UnknownConversation, TooManyChanges."""
        if command.title != self._existing().title:
            self._check_changes()
            self._journal.add(ConversationRenamed(title=command.title, principal=command.principal))

    def archive(self, command: ArchiveConversation) -> None:
        """Raises: UnknownConversation, TooManyChanges."""
        if command.is_archived is not self._existing().is_archived:
            self._check_changes()
            kind = ConversationArchived if command.is_archived else ConversationUnarchived
            self._journal.add(kind(principal=command.principal))

    def retract(self, command: RetractMessage) -> None:
        """Take back a message that waits, or the last turn; one that was taken back lately is no news.

        Raises: UnknownConversation, NotRetractable: nothing was recorded.
        """
        state, id_ = self._existing(), command.message_id
        if id_ in state.retracted:
            return
        if any(message.id == id_ for message in state.queued):
            self._journal.add(MessageRetracted(messages=(id_,), principal=command.principal))
            return
        ended = retractable(state, id_)
        if ended is None:
            is_running = state.turn is not None and id_ in state.turn.messages
            why = (
                "it is being answered: cancel the turn first"
                if is_running
                else "only that of the last turn can be, once: fork before it to go back further"
            )
            raise NotRetractable(f"message {id_!r} cannot be retracted, {why}")
        self._journal.add(
            MessageRetracted(
                turn=ended.number,
                messages=ended.messages,
                principal=command.principal,
                link=view_before(state, ended).link.hex(),
                note=notes.retracted(ended.executed),
            )
        )

    def _check_changes(self) -> None:
        """A journal grows with what is said, not with what is done to and fro. Raises: TooManyChanges."""
        if self._journal.state.changes >= (changes_max := self._parts.actor.changes_max):
            past = f"was changed {changes_max} times since the last message"
            raise TooManyChanges(f"conversation {past}, it stays as it is; send one first")

    def _existing(self) -> ConversationState:
        state = self._journal.state
        if not state.seq:
            raise UnknownConversation(self._key.conversation)
        return state

    def context(self, command: TellContext) -> int:
        """Record what is new; a repeat of what was told a short while ago is not written again. Returns the version.

        Raises: UnknownAgent, ConversationExists: nothing was recorded. TooManyUpdates: nothing is selected any more,
        since what was told before would now be wrong.
        """
        state, now_us = self._journal.state, self._parts.clock.now_us()
        agent = self._agent(state, command.agent)
        age_s = (now_us - state.context_us) / _MICROSECONDS
        if command.context == state.context and age_s <= self._parts.surroundings.context.expiry_s / 2:
            return state.context_version
        updates_max = self._parts.actor.context_updates_max
        is_over = state.context_told >= updates_max
        context = _NOTHING if is_over else command.context
        if not state.seq:
            self._journal.add(ConversationCreated(agent=agent.name))
        if not is_over or context != state.context:
            version = version_of(state, context)
            self._journal.add(ContextChanged(context=context, version=version, principal=command.principal))
        if context != command.context:
            raise TooManyUpdates(updates_max=updates_max)
        return self._journal.state.context_version

    def live_context(self, command: TellLiveContext) -> None:
        """Record what came of the order that is out; of any other, nothing."""
        state = self._journal.state
        if command.job != state.live.ordered or command.begun_us not in {0, state.created_us}:
            return
        if not command.words:
            failed = LiveContextFailed(job=command.job, code=command.code, detail=command.detail, usage=command.usage)
            self._journal.add(failed)
            return
        self._journal.add(
            LiveContextReplaced(
                job=command.job,
                words=command.words,
                block=live_block(command.words),
                messages=command.messages,
                usage=command.usage,
                model=command.model,
            )
        )

    def refresh(self, command: RefreshLiveContext) -> Refreshed:
        """Order a new live context: by hand unless one is on its way, on opening when it is old, and where it is
        switched off, never. Raises: TooManyChanges."""
        parts, state, now_us = self._parts, self._journal.state, self._parts.clock.now_us()
        agent = parts.agents.get(state.agent) if state.seq else None
        options = parts.surroundings.live
        if agent is None or agent.live is None:
            return Refreshed.NO_LIVE_CONTEXT
        if not self._is_live_on(agent):
            return Refreshed.SWITCHED_OFF
        if not (state.said or state.queued):
            return Refreshed.NOTHING_SAID
        if is_awaited(state, options=options):
            return Refreshed.OUTSTANDING
        reason: LiveReason | None = LiveReason.HAND
        if command.is_opened:
            reason = due(state, options=options, now_us=now_us, is_opened=True)
        if reason is None:
            return Refreshed.NOT_DUE
        if reason is LiveReason.HAND:
            self._check_changes()
        order, job = order_of(state, reason, agent=agent.name, now_us=now_us)
        self._journal.add(order)
        self._journal.add_job(job)
        return Refreshed.ORDERED

    def _agent(self, state: ConversationState, named: str) -> Agent:
        """Of this conversation; of one that is to be created, the one that was named.

        Raises: UnknownAgent. ConversationExists: with another one than was named.
        """
        if state.seq and named not in {"", state.agent}:
            raise ConversationExists(self._key.conversation, agent=state.agent, named=named)
        name = state.agent if state.seq else named
        if (agent := self._parts.agents.get(name)) is None:
            raise UnknownAgent(name, known=self._parts.agents.names())
        return agent

    def _is_live_on(self, agent: Agent) -> bool:
        """Whether flags allow a live context, as far as that is known without asking."""
        decided = self._parts.surroundings.flags.decided(agent.flag_context(self._key))
        return decided is None or decided.is_on(LIVE_FLAG)


def _blocks_of(command: SendMessage) -> tuple[Block, ...]:
    """What the model reads of a message; the engine's own tags mean nothing in it."""
    resumes = (notes.RESUME[command.resume],) if command.resume is not None else ()
    texts = (*resumes, defused(command.text)) if not is_blank(command.text) else resumes
    return (*map(marker_block, command.attachments), *map(text_block, texts))


def _position(state: ConversationState, message_id: MessageId) -> int:
    """How many turns and messages go before it."""
    ahead = next(index for index, message in enumerate(state.queued) if message.id == message_id)
    return ahead + (state.turn is not None)
