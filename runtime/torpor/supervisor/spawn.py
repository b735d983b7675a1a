"""Sub-agents at work for tool calls: started, bounded, ended with their call, and on record.

Above: the turn, through ``turn.contract.Spawns`` and ``toolhost.contract.Spawner``. Below: ``child``, one of them.

A call that is cut off takes its sub-agent with it, and that its own: each runs in a task of its call. What a crash cut
off runs again from its start under another name, since every tool that stands for a sub-agent only reads; what the
first one found is on record as lost, and is used by nobody.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio

from torpor.actor.commit import Journal
from torpor.actor.parts import ActorParts
from torpor.errors import ToolRefused
from torpor.records.events import Progress
from torpor.records.ids import CHILD_MARK, CallId, ConversationKey
from torpor.records.journal import SubagentFinished, SubagentStarted
from torpor.records.terms import Outcome
from torpor.store.contract import Blobs
from torpor.subagents.definition import Subagent
from torpor.subagents.options import SubagentOptions
from torpor.supervisor.child import CANCELLED, Child, ChildJournal, Spent
from torpor.supervisor.remains import remains_of

FAILED: Final = "failed"
LOST: Final = "lost"


class Subagents:
    """Those of a home; one for a process."""

    def __init__(self, subagents: Mapping[str, Subagent], *, blobs: Blobs, options: SubagentOptions) -> None:
        self.by_name = dict(subagents)
        self.blobs = blobs
        self.options = options

    def of(self, key: ConversationKey, journal: Journal, parts: ActorParts) -> "Spawning":
        """Those that work for the conversation ``key``."""
        return Spawning(self, key, journal=journal, parts=parts)

    def __repr__(self) -> str:
        return f"<Subagents {', '.join(sorted(self.by_name))}>"


class Spawning:
    """Implements ``turn.contract.Spawns`` for as long as turns of one conversation run."""

    def __init__(
        self,
        subagents: Subagents,
        key: ConversationKey,
        *,
        journal: Journal,
        parts: ActorParts,
        spent: Spent | None = None,
    ) -> None:
        """Args: spent: of the sub-agent whose own these are; None for a conversation's."""
        self._subagents = subagents
        self._key = key
        self._journal = journal
        self._parts = parts
        self._spent = spent
        self._turn = 0
        self._of_turn = Spent(tokens_max=subagents.options.turn_tokens_max)
        self._running: dict[str, Child] = {}
        """By the child's name."""
        self._ended: dict[CallId, list[SubagentFinished]] = {}
        """Records that nobody has taken yet."""

    def of_call(
        self, call_id: CallId, *, turn: int, principal: str, report: Callable[[Progress], None]
    ) -> "CallSpawner":
        """See the contract."""
        return CallSpawner(self, call_id, turn=turn, principal=principal, report=report)

    def ended_by(self, call_id: CallId) -> tuple[SubagentFinished, ...]:
        """See the contract."""
        return tuple(self._ended.pop(call_id, ()))

    async def settle(self) -> None:
        """See the contract. What they cost is in their journals."""
        known = {*self._running, *(ended.child for records in self._ended.values() for ended in records)}
        lost = [each for each in self._journal.state.children if each.child not in known]
        for each in lost:
            remains = await remains_of(self._parts.store, self._key.child(each.child))
            self._budget(each.turn).add(remains.usage, is_round=False)
            self._journal.add(remains.end_of(each, LOST))
            self._journal.after_commit(partial(remains.tell, self._parts.observer, LOST))

    async def spawn(
        self, name: str, task: str, *, call_id: CallId, turn: int, principal: str, report: Callable[[Progress], None]
    ) -> str:
        """See ``toolhost.contract.Spawner``."""
        subagent = self._allowed(name, call_id=call_id, turn=turn)

        def told(text: str) -> None:
            report(Progress(call_id=call_id, name=name, text=text, type=subagent.told_as.progress))

        child = self._child(subagent, turn=turn, principal=principal, report=told)
        told_as = subagent.told_as
        self._journal.add(SubagentStarted(turn=turn, call_id=call_id, name=name, child=child.name, told_as=told_as))
        self._running[child.name] = child
        code, accepted, bundle = FAILED, None, ""
        try:
            await self._journal.flush()  # one that kills its process is on record, and what it cost is accounted for
            accepted = await child.work(task)
            if (fenced := child.journal.fenced) is not None:
                raise fenced  # it could not write down what it answered
            bundle = await self._subagents.blobs.put(self._key.root, accepted.kept) if accepted.kept else ""
            code = child.code
            return accepted.told.decode()
        except anyio.get_cancelled_exc_class():
            code = CANCELLED
            raise
        finally:
            del self._running[child.name]
            child.close()
            if (fenced := child.journal.fenced) is not None:
                self._journal.leave_to(fenced)  # a failed call would be answered with one more request of the model
            seq, link = child.journal.head
            record = SubagentFinished(
                turn=turn,
                call_id=call_id,
                name=name,
                child=child.name,
                outcome=Outcome.FAILED if code in {FAILED, CANCELLED} else Outcome.SUCCEEDED,
                code=code,
                rounds=child.spent.rounds,
                usage=child.spent.usage,
                bundle=bundle,
                findings=len(child.findings.found),
                dropped=accepted.dropped if accepted is not None else (),
                child_seq=seq,
                link=link,
                told_as=told_as,
            )
            self._ended.setdefault(call_id, []).append(record)

    def _allowed(self, name: str, *, call_id: CallId, turn: int) -> Subagent:
        """Raises: ToolRefused: there is none of that name, no room for one, or its call is over."""
        running = self._journal.state.turn
        if running is None or running.number != turn or all(call.id != call_id for call in running.open_calls):
            raise ToolRefused("the call that asks for a sub-agent is over")
        options = self._subagents.options
        subagent = self._subagents.by_name.get(name)
        if subagent is None:
            raise ToolRefused(f"there is no sub-agent {name!r} any more: go on without it")
        depth = self._key.conversation.count(CHILD_MARK) + 1
        if depth > options.depth_max:
            raise ToolRefused(
                f"sub-agents may stand {options.depth_max} deep, this one would be at {depth}: do it here"
            )
        if len(self._running) >= options.at_once_max:
            raise ToolRefused(f"{options.at_once_max} sub-agents work here already: ask again when one is done")
        if self._budget(turn).is_over:
            raise ToolRefused("the sub-agents of this turn have used all the tokens they may: go on without them")
        return subagent

    def _budget(self, turn: int) -> Spent:
        """Of all that work for ``turn``; of a sub-agent's own sub-agents, its own."""
        if self._spent is not None:
            return self._spent
        if turn != self._turn:
            running = self._journal.state.turn
            before = running.children_tokens if running is not None and running.number == turn else 0
            tokens_max = self._subagents.options.turn_tokens_max
            self._turn, self._of_turn = turn, Spent(tokens_max=tokens_max, tokens_before=before)
        return self._of_turn

    def _child(self, subagent: Subagent, *, turn: int, principal: str, report: Callable[[str], None]) -> Child:
        options, parts, name = self._subagents.options, self._parts, self._parts.ids.new_id()
        spent = Spent(tokens_max=subagent.definition.tokens_max, above=self._budget(turn))
        journal = ChildJournal(self._key.child(name), lease=self._journal.lease, parts=parts, spent=spent)
        return Child(
            name,
            subagent,
            key=self._key.child(name),
            journal=journal,
            parts=parts,
            spawns=Spawning(self._subagents, self._key.child(name), journal=journal, parts=parts, spent=spent),
            spent=spent,
            options=options,
            principal=principal,
            report=report,
        )

    def __repr__(self) -> str:
        return f"<Spawning {self._key.path} running={len(self._running)}>"


class CallSpawner:
    """Implements ``toolhost.contract.Spawner``."""

    def __init__(
        self, spawning: Spawning, call_id: CallId, *, turn: int, principal: str, report: Callable[[Progress], None]
    ) -> None:
        self._spawning = spawning
        self._call_id = call_id
        self._turn = turn
        self._principal = principal
        self._report = report

    async def spawn(self, name: str, task: str) -> str:
        return await self._spawning.spawn(
            name, task, call_id=self._call_id, turn=self._turn, principal=self._principal, report=self._report
        )
