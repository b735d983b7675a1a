"""Performs what ``next_step`` decides, one step after the other, until there is nothing to do.

Pure steps only add records; a step that acts hands over what was added first. Recovery, cancellation and ordinary
progress come through the same function, so there is no second way of doing anything.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, assert_never

import anyio
import anyio.abc
import msgspec
import structlog

from torpor.bus.contract import Bus
from torpor.clock import Clock
from torpor.conversation.budget import (
    exceeded,
    head_bytes,
    input_tokens,
    next_request_tokens,
    request_bytes,
    request_sections,
)
from torpor.conversation.compaction import can_shrink, left_alone_until_us
from torpor.conversation.lately import preamble_record
from torpor.conversation.reckoning import reckoned
from torpor.conversation.retry import RetryOptions
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import (
    NEVER,
    CallModel,
    Compact,
    FinishTurn,
    Folding,
    Lane,
    PrepareTurn,
    Rest,
    RunTools,
    Step,
    StepOptions,
    TurnEnd,
    next_step,
)
from torpor.conversation.summary import CompactionOptions
from torpor.conversation.turn_folds import digest_of, requested_view
from torpor.conversation.withdrawing import withdrawn
from torpor.flags.contract import Decided
from torpor.model.contract import ModelReply, ModelRequest
from torpor.provider_errors import ContextTooLong, ProviderError
from torpor.records.attachments import Why
from torpor.records.events import Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    FOLD_CUT,
    AttemptStarted,
    CompactionFailed,
    ContextReplaced,
    ModelRequested,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import StepKind
from torpor.toolhost.contract import FindingSink, Lent
from torpor.turn import answers
from torpor.turn.agents import Agent
from torpor.turn.attached import not_to_be_sent
from torpor.turn.calibration import Calibration
from torpor.turn.contract import NO_SPAWNS, UNOBSERVED, Journal, Observer, Spawns
from torpor.turn.earlier import EarlierTurns, Pages
from torpor.turn.endings import Endings, running_turn
from torpor.turn.fold_history import Spent, replacement
from torpor.turn.model_call import ModelCall, ReplySoFar
from torpor.turn.opening import Opening
from torpor.turn.options import TurnOptions
from torpor.turn.permits import Permits
from torpor.turn.places import Share
from torpor.turn.prepare import Surroundings
from torpor.turn.skills import TurnSkills
from torpor.turn.tool_batch import Strays, ToolBatch

_log = structlog.get_logger()


class Doing(NamedTuple):
    """A step, and since when: UTC, microseconds."""

    step: Step
    began_us: int


class Interpreter:
    """Runs the turns of one conversation; owned by its actor, one at a time."""

    def __init__(
        self,
        key: ConversationKey,
        *,
        journal: Journal,
        pages: Pages,
        agent: Agent | None,
        bus: Bus,
        clock: Clock,
        places: Share,
        steps: StepOptions,
        retry: RetryOptions,
        options: TurnOptions,
        compaction: CompactionOptions,
        calibration: Calibration,
        surroundings: Surroundings,
        tasks: anyio.abc.TaskGroup,
        strays: Strays,
        land_soon: Callable[[], None],
        recovers: bool = False,
        spawns: Spawns = NO_SPAWNS,
        collector: FindingSink | None = None,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """
        Args:
            pages: of the journal as far as it is durable.
            places: for model calls.
            land_soon: has another task wait for the commit under way, while this one waits for the model; that task's
                failure cancels this one.
            recovers: whether a life before this one may have asked the model already and left no record of it.
            collector: takes what its tools find, where somebody collects that.
        """
        self._key = key
        self._journal = journal
        self._endings = Endings(journal)
        self._pages = pages
        self._opening = Opening(
            key,
            journal=journal,
            pages=pages,
            clock=clock,
            steps=steps,
            options=options,
            surroundings=surroundings,
            land_soon=land_soon,
        )
        self._agent = agent
        self._bus = bus
        self._clock = clock
        self._places = places
        self._steps = steps
        self._retry = retry
        self._options = options
        self._compaction = compaction
        self._calibration = calibration
        self._surroundings = surroundings
        self._tasks = tasks
        self._strays = strays
        self._land_soon = land_soon
        self._recovers = recovers
        self._spawns = spawns
        self._collector = collector
        self._observer = observer
        self._is_ready = False
        self._is_pausing = False
        self._scope: anyio.CancelScope | None = None
        self._idling: anyio.CancelScope | None = None
        """The scope above while nothing is done in it but waiting."""
        self._waited_for = ""
        self.doing: Doing | None = None
        """The step under way."""

    async def run(self) -> None:
        """Perform steps until ``Rest``, or until the next one when it pauses; everything is durable and published then.

        Raises: StoreError: the journal could not take what was done. Any other exception is a crash of this step.
        """
        try:
            await self._run()
        except BaseException:
            self._observer.interrupted(self._key)
            raise
        if self._journal.state.turn is not None:
            self._observer.interrupted(self._key)

    def pause(self) -> None:
        """Begin no further step but the end of a turn. What is left is due, and goes on in another life.

        A step that only waits for its turn, or for the time to ask again, has not begun.
        """
        self._is_pausing = True
        if self._idling is not None:
            self._idling.cancel()

    async def _run(self) -> None:
        await self._spawns.settle()
        while True:
            state = self._journal.state
            now_us = self._clock.now_us()
            step = next_step(state, Lane.TURN, self._steps, now_us, folding=self._folding(state))
            if isinstance(step, Rest) or self._leaves_due(step):
                await self._journal.flush()
                if self._is_over():
                    return
                continue
            self.doing = Doing(step, now_us)
            with self._observer.step(self._key, step, agent=state.agent):
                await self._perform(step)
            self.doing = None

    async def _perform(self, step: PrepareTurn | Compact | CallModel | RunTools | FinishTurn) -> None:
        match step:
            case PrepareTurn():
                await self._begin(step)
            case FinishTurn():
                self._finish(step)
            case Compact() | CallModel() | RunTools():
                await self._act(step)
            case _:
                assert_never(step)

    @property
    def opening(self) -> int | None:
        """The turn that is about to begin, while something has to be waited for first."""
        step = self.doing.step if self.doing is not None else None
        return step.turn if isinstance(step, PrepareTurn) else None

    def cancel(self, reason: str, *, turn: int, ended: Callable[[], None] | None = None) -> None:
        """End ``turn`` at its next await if it still runs; ``ended`` is called once its end is durable."""
        running = self._journal.state.turn
        if turn != (self.opening if running is None else running.number):
            if ended is not None:
                self._journal.after_commit(ended)
            return
        self._endings.stop(reason, ended=ended)
        if self._scope is not None:
            self._scope.cancel()

    def _is_over(self) -> bool:
        step = next_step(self._journal.state, Lane.TURN, self._steps, self._clock.now_us())
        return isinstance(step, Rest) or self._leaves_due(step)

    def _leaves_due(self, step: Step) -> bool:
        """Whether ``step`` is another life's: a turn that was cancelled still ends in this one."""
        return self._is_pausing and not self._endings.stopping and not isinstance(step, FinishTurn)

    async def _begin(self, step: PrepareTurn) -> None:
        if self._agent is None:
            self._journal.add(TurnPrepared(turn=step.turn, messages=step.messages))
        else:
            if not self._endings.stopping:
                with anyio.CancelScope() as self._scope:
                    await self._opening.wait_for_tools(step, self._agent)
                self._scope = None
            folding = self._folding_of(self._agent, self._agent.model_name)
            await self._opening.begin(step, self._agent, folding=folding)
            if self._endings.stopping and isinstance(self._opening.next_step(), Rest):
                self._endings.ended()  # its message was taken back meanwhile

    def _finish(self, step: FinishTurn) -> None:
        match step.end:
            case TurnEnd.FINISHED:
                self._journal.add(TurnFinished(turn=step.turn))
                if self._agent is not None:
                    self._opening.order_live_context(self._agent)
                self._endings.ended()
            case TurnEnd.INTERRUPTED:
                self._endings.cut("interrupt")
            case TurnEnd.FAILED:
                self._endings.fail(step.code, step.detail)
            case TurnEnd.REFUSED:
                self._endings.refuse()
            case _:
                assert_never(step.end)

    def _folding(self, state: ConversationState) -> Folding:
        """What the agent's requests may take, by what the model's host counted so far."""
        agent, turn = self._agent, state.turn
        if agent is None or turn is None:
            return NEVER
        return self._folding_of(agent, turn.model or agent.model_name)

    def _folding_of(self, agent: Agent, model: str) -> Folding:
        return Folding(window=agent.window(self._calibration.bytes_per_token(model)), options=self._compaction)

    async def _act(self, step: Compact | CallModel | RunTools) -> None:
        """Perform a step that a cancel may cut short."""
        if self._agent is None:
            name = self._journal.state.agent
            self._endings.fail("unknown_agent", f"agent {name!r} is no longer defined in this home")
            return
        if self._endings.stopping:
            self._endings.cut()
            return
        if isinstance(step, Compact):
            await self._compact(step, self._agent)
            return
        may_repeat = self._recovers or step.attempt > 1
        if isinstance(step, CallModel):
            if step.not_before_us and await self._has_waited(step):
                return
            if may_repeat and not self._is_ready:
                await self._make_ready(self._agent)
                return
            files, state = self._surroundings.attached, self._journal.state
            step = msgspec.structs.replace(step, joined=files.joining(state, step.joined))
            if places := files.making_room(state, step.joined):
                self._withdraw(places, why=Why.ROOM)
                return  # the call itself is still to come, and may still be a repeat
            self._recovers = False
            await self._call_model(step, self._agent, may_repeat=may_repeat)
        else:
            await self._run_tools(step, self._agent)

    async def _make_ready(self, agent: Agent) -> None:
        """Loading comes before the attempt is on record: a process that dies meanwhile has not asked anything.

        Whatever came in that time is looked at first.
        """
        with anyio.CancelScope() as self._scope:
            self._idling = self._scope
            with anyio.move_on_after(self._options.model_deadline_s):
                try:
                    await agent.model.warm()
                except ProviderError as exc:  # which the call tells as well
                    _log.debug("model.not_ready", code=exc.code)
            self._is_ready = True
        self._scope = self._idling = None

    async def _compact(self, step: Compact, agent: Agent) -> None:
        """Replace a part of the view. The attempt is on record first: a summary that kills its process is given up."""
        if step.attempt > self._steps.attempts_max:
            detail = f"the summary did not survive {self._steps.attempts_max} attempts"
            self._journal.add(self._with_pause(CompactionFailed(turn=step.turn, code="crashed", detail=detail)))
            return
        self._journal.add(AttemptStarted(turn=step.turn, step=StepKind.COMPACT, round=step.round, attempt=step.attempt))
        record: ContextReplaced | CompactionFailed | None = None
        spent = Spent()
        with anyio.CancelScope() as self._scope:
            await self._journal.flush()  # nobody waits for a summary to hear that a message was accepted
            decided = await self._opening.decided(agent)
            terms = agent.fold_terms(self._journal.state.preamble, decided, self._surroundings.skills.current)
            record = await replacement(
                self._journal.state,
                step,
                summariser=agent.summariser,
                folding=self._folding(self._journal.state),
                places=self._places,
                terms=terms,
                spent=spent,
            )
        self._scope = None
        if record is None:
            if spent.calls:
                self._journal.add(
                    CompactionFailed(
                        turn=step.turn,
                        code=FOLD_CUT,
                        detail=self._endings.stopping,
                        usage=spent.usage,
                        calls=spent.calls,
                    )
                )
            self._endings.cut()
            return
        if isinstance(record, CompactionFailed):
            self._journal.add(self._with_pause(record))
            return
        state = self._journal.state
        preamble = state.preamble if record.is_without_tool else terms.preamble
        self._journal.add(reckoned(state, record, preamble=preamble, window=self._folding(state).window))
        if preamble.digest != state.preamble.digest:
            # What the summary stands for can be read from the very next call on; the prefix is another one anyway.
            self._journal.add(preamble_record(self._journal.state, preamble))

    def _with_pause(self, failed: CompactionFailed) -> CompactionFailed:
        """``failed``, with the time for which the summariser is left alone if it was one time too many."""
        state = self._journal.state
        until_us = left_alone_until_us(state, self._folding(state).options, now_us=self._clock.now_us())
        return msgspec.structs.replace(failed, left_alone_until_us=until_us)

    async def _call_model(self, step: CallModel, agent: Agent, *, may_repeat: bool) -> None:
        """A call that may be a repeat is on record before it is made, so that a restart storm cannot become a bill."""
        state = self._journal.state
        turn = running_turn(state)
        call = f"{step.turn}-{step.round}-{turn.asked + 1 if turn.call else 1}"
        view = requested_view(state, step.joined)
        model = turn.model or agent.model_name
        ratio = self._calibration.bytes_per_token(model)
        estimated_tokens = next_request_tokens(state, view.weight_bytes, bytes_per_token=ratio)
        fixed = agent.offers.sections_of(state.preamble)
        sections = request_sections(fixed, turn, view, budget_tokens=agent.budget_tokens, head_bytes=head_bytes(state))
        if step.attempt > 1:
            self._journal.add(
                AttemptStarted(turn=step.turn, step=StepKind.CALL_MODEL, round=step.round, attempt=step.attempt)
            )
        self._journal.add(
            ModelRequested(
                turn=step.turn,
                call=call,
                round=step.round,
                preamble=state.preamble.digest,
                link=view.link.hex(),
                sections=sections,
                joined=step.joined,
                model=turn.model,
                estimated_tokens=estimated_tokens,
                budget_tokens=agent.budget_tokens,
                over=exceeded(sections, agent.profile),
                live=digest_of(turn.live),
            )
        )
        sink = ReplySoFar(call, publish=lambda delta: self._bus.publish_delta(self._key, delta))
        lasting = (state.lasting_bytes, turn.lasting_bytes)
        request = ModelRequest(
            call=call, preamble=state.preamble, view=view, model=turn.model, live=turn.live, lasting=lasting
        )
        model_call = ModelCall(
            request,
            sink=sink,
            places=self._places,
            deadline_s=self._options.model_deadline_s,
            asks=self._asks,
            attached=partial(self._surroundings.attached.read, self._key) if view.marks else None,
        )
        answer: ModelReply | ProviderError | None = None
        with anyio.CancelScope() as self._scope:
            await self._journal.submit()
            if may_repeat:
                await self._journal.flush()
            self._journal.after_commit(sink.release)
            self._land_soon()
            self._idling = self._scope
            heard = await model_call.answer(agent.model)
            await self._journal.flush()
            answer = heard
        self._scope = self._idling = None
        if answer is None and not self._endings.stopping:
            return  # it pauses, and nobody was asked
        if isinstance(answer, ModelReply) and (counted := input_tokens(answer.usage)):
            self._calibration.learn(model, size_bytes=request_bytes(state, view), tokens=counted)
            error = (estimated_tokens - counted) / counted
            _log.debug(
                "model.estimated", model=model, tokens=counted, estimated=estimated_tokens, error=round(error, 3)
            )
        self._answered(agent, answer, sink)

    def _asks(self) -> None:
        """A place for the model call was found."""
        self._idling = None

    async def _has_waited(self, step: CallModel) -> bool:
        """The pause before a call is asked again, known to the client, and cut short by a cancel like any step.

        Once per failure, and never longer than a host's wish is honoured: the wall clock may step. False when the pause
        was made already; whatever came in the meantime is looked at first.
        """
        lost_call = running_turn(self._journal.state).call
        if self._waited_for == lost_call:
            return False
        self._waited_for = lost_call
        pause_s = (step.not_before_us - self._clock.now_us()) / 1_000_000
        with anyio.CancelScope() as self._scope:
            await self._journal.flush()
            self._idling = self._scope
            await anyio.sleep(min(max(pause_s, 0.0), 1.1 * self._retry.retry_after_max_s))
        self._scope = self._idling = None
        return True

    def _answered(self, agent: Agent, answer: ModelReply | ProviderError | None, sink: ReplySoFar) -> None:
        state = self._journal.state
        turn = running_turn(state)
        if isinstance(answer, ModelReply):
            self._journal.add(answers.replied(turn, answer))
        elif isinstance(answer, ProviderError):
            unsent, why = not_to_be_sent(state, answer)
            answer = answers.told(answer, is_of_file=bool(unsent))
            failure = answers.failed(
                turn,
                answer,
                is_without_files=bool(unsent) and (why is not Why.REFUSED or not turn.has_withdrawn),
                key=self._key,
                was_shown=sink.has_shown and not self._key.is_child,  # nobody sees what a sub-agent says
                fallback=agent.fallback,
                can_shrink=isinstance(answer, ContextTooLong) and can_shrink(state, self._folding(state).options),
                options=self._retry,
                now_us=self._clock.now_us(),
            )
            self._journal.add(failure)
            if unsent:
                self._withdraw(unsent, why=why)
            if not failure.retry_at_us:
                self._journal.add(answers.given_up(turn, answer, partial=sink.partial()))
                self._endings.ended()
        else:
            self._endings.cut(partial=sink.partial())

    def _withdraw(self, places: Iterable[int], *, why: Why) -> None:
        """Have notes stand for attachments of the view, from now on."""
        state = self._journal.state
        window = self._folding(state).window
        self._journal.add(reckoned(state, withdrawn(state, places, why=why), preamble=state.preamble, window=window))

    async def _run_tools(self, step: RunTools, agent: Agent) -> None:
        """Also the flags may have to be waited for; what was ended in the meantime does not begin."""
        with anyio.CancelScope() as self._scope:
            decided = await self._opening.decided(agent)
            await self._calls_known(agent)
        self._scope = None
        if self._endings.stopping:
            self._endings.cut()
            return
        if not isinstance(next_step(self._journal.state, Lane.TURN, self._steps, self._clock.now_us()), RunTools):
            return  # a message asked to be next in the meantime
        self._recovers = self._recovers and step.attempt == 1  # later attempts are on record before they act
        state = self._journal.state
        turn, offer = running_turn(state), agent.offer(decided, self._surroundings.skills.current)
        lent = agent.lent(self._key, turn.principal)
        permits = self._permits(agent, lent, decided, state=state)

        def permits_now() -> Permits:
            now = self._surroundings.flags.decided(agent.flag_context(self._key))
            return permits if now is None or now == decided else self._permits(agent, lent, now, state=state)

        batch = ToolBatch(
            self._key,
            turn,
            toolbox=agent.tools_with(lent),
            permits=permits,
            permits_now=permits_now,
            is_ending=lambda: bool(self._endings.stopping),
            skills=TurnSkills(turn=turn.number, offer=offer, loaded=state.skills),
            earlier=EarlierTurns(self._key, pages=self._pages, state=state),
            journal=self._journal,
            tasks=self._tasks,
            strays=self._strays,
            report=self._report,
            spawns=self._spawns,
            collector=self._collector,
        )
        with anyio.CancelScope() as self._scope:
            await batch.run(step)
        was_cut, self._scope = self._scope.cancelled_caught, None
        if was_cut:
            await batch.stop(grace_s=self._options.cancel_grace_s)
            self._endings.cut()

    def _permits(self, agent: Agent, lent: Lent | None, decided: Decided, *, state: ConversationState) -> Permits:
        return Permits(
            offered=agent.offers.tools_of(state.preamble),
            gates=agent.gates_with(lent, decided),
            decided=decided,
            skills=state.skills,
            is_restricted=agent.definition.skill_tools == "restriction",
        )

    async def _calls_known(self, agent: Agent) -> None:
        """Wait, within a bound, for tools from elsewhere that are called and not there, as after a restart."""
        turn = running_turn(self._journal.state)
        tools = agent.tools_with(agent.lent(self._key, turn.principal))
        if any(tools.spec(call.name) is None for call in turn.open_calls if not call.unusable):
            await self._opening.tools_known(agent, turn.principal)

    def _report(self, progress: Progress) -> None:
        self._bus.publish_progress(self._key, progress)
