"""Planted bugs in how sub-agents live, end and tell what they came to; see ``planted``."""

from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

import anyio

from tests.simulation.faults import Fault
from tests.simulation.planting import Planted
from torpor.actor.commit import Journal
from torpor.records.ids import ConversationKey
from torpor.records.terms import Usage
from torpor.store.memory_data import Held, MemoryCore, MemoryData
from torpor.subagents.findings import Findings
from torpor.subagents.research import Research
from torpor.subagents.results import Accepted
from torpor.supervisor.child import STEPS, Child, ChildJournal, Spent
from torpor.supervisor.spawn import Spawning, Subagents
from torpor.toolhost.contract import Finding

_OUTLIVES_S: Final = 4.0


def child_outlives_parent() -> AbstractContextManager[object]:
    """A sub-agent goes on for a while though its call was cut off."""
    spawn = Spawning.spawn

    async def shielded(self: Spawning, name: str, task: str, **named: Any) -> str:
        with anyio.move_on_after(_OUTLIVES_S, shield=True):
            return await spawn(self, name, task, **named)
        await anyio.sleep_forever()
        raise AssertionError

    return patch.object(Spawning, "spawn", shielded)


def zombie_writes() -> AbstractContextManager[object]:
    """The store takes what a sub-agent writes, whoever holds the conversation that it works for."""
    fenced = MemoryCore._fenced

    def lenient(self: MemoryCore, key: ConversationKey, fence: int) -> Held:
        return self._data.of(key) if key.is_child else fenced(self, key, fence)

    return patch.object(MemoryCore, "_fenced", lenient)


def unknown_id_kept() -> AbstractContextManager[object]:
    """An id that a sub-agent made up is told as a source."""
    get = Findings.get

    def credulous(self: Findings, id_: str) -> Finding:
        return get(self, id_) or Finding(id=id_, title="", locator="", excerpt="")

    return patch.object(Findings, "get", credulous)


def bundle_delivered_twice() -> AbstractContextManager[object]:
    """A call is given what the last sub-agent of that name came to."""
    spawn, known = Spawning.spawn, dict[tuple[int, str], str]()

    async def thrifty(self: Spawning, name: str, task: str, **named: Any) -> str:
        if (id(self), name) not in known:
            known[id(self), name] = await spawn(self, name, task, **named)
        return known[id(self), name]

    return patch.object(Spawning, "spawn", thrifty)


def unselected_told() -> AbstractContextManager[object]:
    """Research that is cut short tells the first of what it found."""

    def overrun(self: Research, findings: Findings) -> Accepted:
        return self._accepted(findings.found, "It ended early.", findings=findings, dropped=())

    return patch.object(Research, "overrun", overrun)


def usage_below_forgotten() -> AbstractContextManager[object]:
    """What a sub-agent's own sub-agents cost is not counted as its own."""
    add = Spent.add

    def alone(self: Spent, usage: Usage, *, is_round: bool = True) -> None:
        above, self._above = self._above, None
        add(self, usage, is_round=is_round)
        self._above = above

    return patch.object(Spent, "add", alone)


def lost_child_untold() -> AbstractContextManager[object]:
    """Whoever takes over says nothing of the sub-agents that were at work."""

    async def settle(self: Spawning) -> None:
        return

    return patch.object(Spawning, "settle", settle)


def steps_not_counted() -> AbstractContextManager[object]:
    """A sub-agent may ask its model as often as it likes."""
    stop = Child._stop

    def lenient(self: Child, code: str) -> None:
        if code != STEPS:
            stop(self, code)

    return patch.object(Child, "_stop", lenient)


def turn_budget_forgotten() -> AbstractContextManager[object]:
    """What the sub-agents of a turn cost together is not added up."""

    def budget(self: Spawning, turn: int) -> Spent:
        return self._spent or Spent(tokens_max=self._subagents.options.turn_tokens_max)

    return patch.object(Spawning, "_budget", budget)


def children_left_behind() -> AbstractContextManager[object]:
    """A conversation is deleted without what its sub-agents wrote."""
    return patch.object(MemoryData, "below", lambda self, key: [])


class _Hasty:
    """A journal that is not waited for."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def flush(self) -> None:
        await self._journal.submit()


def child_begun_off_record() -> AbstractContextManager[object]:
    """A sub-agent begins while the record of its beginning is on its way, if it ever arrives."""
    made = Spawning.__init__

    def hasty(self: Spawning, subagents: Subagents, key: ConversationKey, *, journal: Journal, **named: Any) -> None:
        made(self, subagents, key, journal=_Hasty(journal), **named)  # type: ignore[arg-type]  # stands for one

    return patch.object(Spawning, "__init__", hasty)


def first_words_told() -> AbstractContextManager[object]:
    """What a sub-agent said first is its answer, whatever it says later."""
    add = ChildJournal.add

    def hasty(self: ChildJournal, *drafts: Any) -> None:
        said = self.text
        add(self, *drafts)
        self.text = said or self.text

    return patch.object(ChildJournal, "add", hasty)


_CHILDREN: Final = {"has_subagents": True, "clients": 3, "conversations": 1, "sends": 6, "room_tokens": 0}
_DEEP: Final = {**_CHILDREN, "children_deep": 3, "children_at_once": 4, "child_steps_max": 6, "child_tokens_max": 0}
_CRASHES: Final = {**_DEEP, "weight": {Fault.CRASH_AT_PORT: 1.0, Fault.PAUSED: 1.0}, "misfortune_every_s": 2.0}
_LONG: Final = {**_DEEP, "child_steps_max": 12, "child_seconds_max": 40.0, "lease_ttl_s": 2.0}
_FAILING: Final = {
    **_LONG,
    "chance": dict.fromkeys(Fault, 0.0) | {Fault.STORE_FULL: 0.05, Fault.STORE_UNAVAILABLE: 0.05},
}
_PAUSES: Final = {**_LONG, "weight": {Fault.PAUSED: 1.0}, "misfortune_every_s": 2.0}

PLANTED_CHILDREN: Final = {
    "child_outlives_parent": Planted(child_outlives_parent, "child_outlives", 60, dwells=_DEEP),
    "lost_child_untold": Planted(lost_child_untold, "child_outlives", 60, dwells=_CRASHES),
    "usage_below_forgotten": Planted(usage_below_forgotten, "child_usage", 60, dwells=_DEEP),
    "zombie_writes": Planted(zombie_writes, "zombie_write", 60, dwells=_PAUSES),
    "unselected_told": Planted(unselected_told, "unselected_told", 60, dwells={**_DEEP, "child_steps_max": 4}),
    "steps_not_counted": Planted(steps_not_counted, "child_budget", 60, dwells={**_DEEP, "child_steps_max": 2}),
    "unknown_id_kept": Planted(unknown_id_kept, "unknown_id_kept", 60, dwells=_DEEP),
    "child_begun_off_record": Planted(child_begun_off_record, "child_unasked", 60, dwells=_FAILING),
    "turn_budget_forgotten": Planted(
        turn_budget_forgotten, "child_budget", 150, dwells={**_DEEP, "children_tokens_max": 400}
    ),
    "bundle_delivered_twice": Planted(bundle_delivered_twice, "bundle_twice", 60, dwells=_DEEP),
    "children_left_behind": Planted(children_left_behind, "left_behind", 60, dwells={**_DEEP, "deletes": 4}),
    "first_words_told": Planted(first_words_told, "answer_invented", 60, dwells=_DEEP),
}
