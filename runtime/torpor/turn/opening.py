"""Begins turns: what has to be waited for before the first record of one, and what its end orders.

Above: the interpreter. Below: ``prepare``, which makes the records and waits for nothing. Waited for, within deadlines,
are only flags that another provider was not asked for yet, and exchanges that a message asks to have quoted; whoever
waits for a message to be accepted does not wait for either.
"""

from collections.abc import Callable

from torpor.clock import Clock
from torpor.conversation.live_context import due
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Folding, Lane, PrepareTurn, StepOptions, next_step
from torpor.flags.contract import Decided
from torpor.records.ids import ConversationKey
from torpor.turn.agents import Agent
from torpor.turn.contract import Journal
from torpor.turn.earlier import EarlierTurns, Exchanges, Pages
from torpor.turn.live_context import order_of
from torpor.turn.options import TurnOptions
from torpor.turn.prepare import LIVE_FLAG, Surroundings, beginning


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
        if isinstance(now := self._next_step(), PrepareTurn):
            step = now  # a message that came meanwhile may go first
        exchanges = await self._exchanges(self._journal.state, step)
        if self._next_step() != step:
            return  # another message goes first, with what it asks for
        records = beginning(
            self._journal.state,
            step,
            agent=agent,
            decided=decided,
            surroundings=self._surroundings,
            now_us=self._clock.now_us(),
            exchanges=exchanges,
            folding=folding,
        )
        self._journal.add(*records)

    async def decided(self, agent: Agent) -> Decided:
        """What the flags say now."""
        context = agent.flag_context(self._key)
        if (known := self._surroundings.flags.decided(context)) is not None:
            return known
        await self._journal.submit()
        self._land_soon()  # whoever waits for what was added need not wait for another's provider
        return await self._surroundings.flags.ask(context)

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

    async def _exchanges(self, state: ConversationState, step: PrepareTurn) -> Exchanges:
        """What the messages of the turn ask to have quoted, of what is folded."""
        count = max((message.lookback for message in state.queued if message.id in step.messages), default=0)
        if not count or not state.generation:
            return ()
        await self._journal.submit()
        self._land_soon()  # nobody waits for a quotation to hear that the message was accepted
        earlier = EarlierTurns(self._key, pages=self._pages, state=state)
        return await earlier.exchanges(count, deadline_s=self._options.lookback_deadline_s)

    def _next_step(self) -> object:
        return next_step(self._journal.state, Lane.TURN, self._steps, self._clock.now_us())
