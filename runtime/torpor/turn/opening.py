"""Begins turns: what has to be waited for before the first record of one, and what its end orders.

Above: the interpreter. Below: ``prepare``, which makes the records and waits for nothing. Waited for, within deadlines,
are only flags that another provider was not asked for yet, and exchanges that a message asks to have quoted; whoever
waits for a message to be accepted does not wait for either.
"""

from collections.abc import Callable, Sequence

from torpor.clock import Clock
from torpor.conversation.live_context import due
from torpor.conversation.quoting import Lookback
from torpor.conversation.steps import Folding, Lane, PrepareTurn, StepOptions, next_step
from torpor.flags.contract import Decided
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.turn.agents import Agent
from torpor.turn.contract import Journal
from torpor.turn.earlier import EarlierTurns, Pages
from torpor.turn.foresight import Foreseen, foreseen
from torpor.turn.live_context import order_of
from torpor.turn.lookback import quoted
from torpor.turn.options import TurnOptions
from torpor.turn.prepare import LIVE_FLAG, NOTHING_QUOTED, Surroundings, beginning
from torpor.turn.sparing import Spared, sparing


class Opening:
    """Of one conversation's turns."""

    def __init__(
        self,
        key: ConversationKey,
        *,
        journal: Journal,
        pages: Pages,
        clock: Clock,
        steps: StepOptions,
        options: TurnOptions,
        surroundings: Surroundings,
        land_soon: Callable[[], None],
    ) -> None:
        """Args: pages, land_soon: as the interpreter has them."""
        self._key = key
        self._journal = journal
        self._pages = pages
        self._clock = clock
        self._steps = steps
        self._options = options
        self._surroundings = surroundings
        self._land_soon = land_soon

    async def begin(self, step: PrepareTurn, agent: Agent, *, folding: Folding) -> None:
        """Add the records that begin the turn, or none when another step has become the next one meanwhile."""
        decided = await self.decided(agent)
        if isinstance(now := self.next_step(), PrepareTurn):
            step = now  # a message that came meanwhile may go first
        lookback = await self._lookback(step, agent, decided, folding=folding)
        if lookback is None or self.next_step() != step:
            return
        self._journal.add(*self._records(step, agent, decided, folding=folding, lookback=lookback))

    async def wait_for_tools(self, step: PrepareTurn, agent: Agent) -> None:
        """What may be cut short before a turn begins; it begins all the same."""
        await self.tools_known(agent, self._principal(step))

    async def decided(self, agent: Agent) -> Decided:
        """What the flags say now."""
        context = agent.flag_context(self._key)
        if (known := self._surroundings.flags.decided(context)) is not None:
            return known
        await self._journal.submit()
        self._land_soon()  # whoever waits for what was added need not wait for another's provider
        return await self._surroundings.flags.ask(context)

    async def tools_known(self, agent: Agent, principal: str) -> None:
        """Wait, within a bound, until it is known which tools the agent has from elsewhere, but for what is off."""
        if agent.elsewhere is None:
            return
        decided = await self.decided(agent)
        if agent.elsewhere.is_known(self._key, principal, decided=decided):
            return
        await self._journal.submit()
        self._land_soon()  # nobody waits for a server to hear that a message was accepted
        await agent.elsewhere.known(self._key, principal, decided=decided)

    def order_live_context(self, agent: Agent) -> None:
        """Have it made anew where that is due, in the commit that ends the turn."""
        if agent.live is None:
            return
        state, now_us = self._journal.state, self._clock.now_us()
        decided = self._surroundings.flags.decided(agent.flag_context(self._key))
        reason = due(state, options=self._surroundings.live, now_us=now_us)
        if reason is not None and (decided is None or decided.is_on(LIVE_FLAG)):
            order, job = order_of(state, reason, agent=agent.name, now_us=now_us)
            self._journal.add(order)
            self._journal.add_job(job)

    def _records(
        self,
        step: PrepareTurn,
        agent: Agent,
        decided: Decided,
        *,
        folding: Folding,
        lookback: Lookback = NOTHING_QUOTED,
    ) -> list[JournalRecord]:
        """What begins the turn, less what its first request has no room for."""
        state, now_us = self._journal.state, self._clock.now_us()
        lent = agent.lent(self._key, self._principal(step))

        def begin(less: Spared) -> list[JournalRecord]:
            return beginning(
                state,
                step,
                agent=agent,
                decided=decided,
                surroundings=self._surroundings,
                now_us=now_us,
                lookback=lookback,
                less=less,
                lent=lent,
            )

        def foresee(records: Sequence[JournalRecord]) -> Foreseen:
            return self._trial(records, agent, decided, folding=folding)

        return sparing(state, begin=begin, foresee=foresee, window=folding.window)

    async def _lookback(
        self, step: PrepareTurn, agent: Agent, decided: Decided, *, folding: Folding
    ) -> Lookback | None:
        """What the messages of the turn ask to have quoted, of what will be folded when the model is asked.

        None when what came while it was read has changed what begins next, or what that folds.
        """
        state = self._journal.state
        count = max((message.lookback for message in state.queued if message.id in step.messages), default=0)
        if not count:
            return NOTHING_QUOTED
        ahead = self._foreseen(step, agent, decided, folding=folding)
        if not ahead.state.generation:
            return NOTHING_QUOTED
        await self._journal.submit()
        self._land_soon()  # nobody waits for a quotation to hear that the message was accepted
        if ahead.state.covered != state.covered:
            await self._journal.flush()  # the turns that are about to go may have ended just now
        earlier = EarlierTurns(self._key, pages=self._pages, state=ahead.state)
        exchanges = await earlier.exchanges(count, deadline_s=self._options.lookback_deadline_s)
        if self.next_step() != step:
            return None  # another message goes first, with what it asks for
        if self._journal.state is not state:
            last_folded = ahead.state.covered[0]
            ahead = self._foreseen(step, agent, decided, folding=folding)
            if ahead.state.covered[0] != last_folded:
                return None
        return quoted(ahead, exchanges, folding=folding)

    def _foreseen(self, step: PrepareTurn, agent: Agent, decided: Decided, *, folding: Folding) -> Foreseen:
        records = self._records(step, agent, decided, folding=folding)
        return self._trial(records, agent, decided, folding=folding)

    def _trial(self, records: Sequence[JournalRecord], agent: Agent, decided: Decided, *, folding: Folding) -> Foreseen:
        return foreseen(
            self._journal.state,
            records,
            agent=agent,
            decided=decided,
            catalogue=self._surroundings.skills.current,
            steps=self._steps,
            folding=folding,
            now_us=self._clock.now_us(),
        )

    def _principal(self, step: PrepareTurn) -> str:
        """On whose behalf the turn will act: who sent the last of its messages."""
        senders = [each.principal for each in self._journal.state.queued if each.id in step.messages]
        return senders[-1] if senders else ""

    def next_step(self) -> object:
        return next_step(self._journal.state, Lane.TURN, self._steps, self._clock.now_us())
