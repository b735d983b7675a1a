"""What turns draw on beside the conversation: flags that flip, skills that are edited, policies, contexts.

Flags and skills are files that all lives look at, so there is one ``Switches`` for a run; every change of it is noted
at its moment. Skills are made of bytes, and nothing here touches a disk.
"""

import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final

import anyio

from tests.simulation.faults import Fault
from tests.simulation.jobs import live_options_of
from tests.simulation.life import Life
from tests.simulation.world import World
from tests.support.oracle_evidence import Shelved, Switched
from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.signals import ContextOptions
from torpor.flags.contract import Decided, Decision, FlagContext
from torpor.policies.parse import Excerpt
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.load import Edition, Place, Shelf, SkillRoot
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import parse
from torpor.turn.attached import AttachedFiles
from torpor.turn.prepare import Surroundings

FLAGS: Final = (
    "tool.look",
    "tool.pay",
    "tool.book",
    "tool.load_skill",
    "skill.refunds",
    "skill.visits",
    "live_context",
)
CHILD_FLAGS: Final = ("subagent.scout", "subagent.dig", "tool.seek")
"""As well, where there are sub-agents."""
SKILLS: Final = {"refunds": "look pay", "visits": "look book ship", "manners": ""}
"""With the tools that each of them allows."""
EDITIONS: Final = (0, 1, 2)
"""Of a skill; 0 when there is none."""
HIDDEN: Final = "for nobody's eyes"
"""In parts of a context that the agent may not see."""
_ROOT: Final = SkillRoot(path=Path("/nowhere"), scope="home")


class Switches:
    """The flags and skills of a run. Implements ``turn.prepare.SkillShelf``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._flags = (*FLAGS, *CHILD_FLAGS) if world.plan.has_subagents else FLAGS
        self._is_on = dict.fromkeys(self._flags, True)
        self._flipped = FLAGS[0]
        """The flag that was flipped last; often it is flipped back."""
        self._editions = dict.fromkeys(SKILLS, 1)
        for key in self._flags:
            self._note_switch(key)
        for skill in SKILLS:
            self._note_skill(skill)

    @property
    def decided(self) -> Decided:
        return _decided(tuple(self._is_on.items()))

    @property
    def current(self) -> Catalogue:
        return _catalogue(tuple(self._editions.items()))

    @property
    def fullest(self) -> Catalogue:
        """With every skill there ever is."""
        return _catalogue(tuple((skill, 1) for skill in self._editions))

    def stir(self) -> None:
        """Flip a flag or edit a skill, as luck will have it."""
        rng = self._world.rng
        if self._world.roll(Fault.FLAG_FLIPPED):
            key = self._flipped = self._flipped if rng.random() < 0.4 else rng.choice(self._flags)
            self._is_on[key] = not self._is_on[key]
            self._world.note("world", "flipped", key=key, is_on=self._is_on[key])
            self._note_switch(key)
        if self._world.roll(Fault.SKILL_EDITED):
            skill = rng.choice(tuple(SKILLS))
            self._editions[skill] = rng.choice([number for number in EDITIONS if number != self._editions[skill]])
            self._world.note("world", "edited", skill=skill, edition=self._editions[skill])
            self._note_skill(skill)

    def _note_switch(self, key: str) -> None:
        world = self._world
        world.evidence.switched.append(Switched(moment=world.moment(), key=key, is_on=self._is_on[key]))

    def _note_skill(self, skill: str) -> None:
        world, found = self._world, self.current.get(skill)
        digest = found.digest if found is not None else ""
        world.evidence.shelved.append(Shelved(moment=world.moment(), skill=skill, digest=digest))


class SimFlags:
    """Implements ``turn.prepare.FlagSource`` for one life; now and then it has to ask first."""

    def __init__(self, switches: Switches, life: Life) -> None:
        self._switches = switches
        self._life = life

    def decided(self, context: FlagContext) -> Decided | None:
        return None if self._life.world.roll(Fault.FLAGS_ASKED) else self._switches.decided

    async def ask(self, context: FlagContext) -> Decided:
        await anyio.sleep(self._life.world.rng.choice((0.0, 0.02, 0.5)))
        await self._life.gate()
        return self._switches.decided


class SimPolicies:
    """Implements ``turn.prepare.PolicySearch``: up to three excerpts, the same for the same words."""

    def search(
        self, text: str, *, limit: int, budget_tokens: int, ids: frozenset[str] | None = None
    ) -> tuple[Excerpt, ...]:
        found = [
            Excerpt(id=f"rule-{number}", version="1", heading="Rules", text=f"Rule {number} </policies> & more.")
            for number in range(min(zlib.crc32(text.encode()) % 4, limit))
        ]
        while sum(tokens_of_bytes(len(each.text)) for each in found) > budget_tokens:
            found.pop()
        return tuple(found)


def surroundings_of(life: Life, switches: Switches, *, attached: AttachedFiles) -> Surroundings:
    """For the turns of one life."""
    return Surroundings(
        flags=SimFlags(switches, life),
        skills=switches,
        policies=SimPolicies(),
        context=ContextOptions(expiry_s=life.world.plan.context_expiry_s),
        excerpts_tokens=life.world.plan.excerpts_tokens,
        live=live_options_of(life),
        attached=attached,
    )


def some_context(world: World) -> WorkingContext:
    """What an application might tell, or nothing at all."""
    rng = world.rng
    label = rng.choice(("public", "secret"))
    text = HIDDEN if label == "secret" else f"screen {rng.randrange(4)} </context>"
    return WorkingContext(
        record=SelectedRecord(type="invoice", id=f"i-{rng.randrange(2)}") if rng.random() < 0.6 else None,
        screen=ContextPart(text=text, label=label) if rng.random() < 0.7 else None,
    )


@lru_cache(maxsize=256)
def _decided(switches: tuple[tuple[str, bool], ...]) -> Decided:
    return Decided(Decision(key=key, value=is_on, variant="sim", reason="STATIC") for key, is_on in switches)


@lru_cache(maxsize=64)
def _catalogue(editions: tuple[tuple[str, int], ...]) -> Catalogue:
    made = (_edition(skill, number) for skill, number in editions if number)
    return Catalogue(Shelf(editions={edition.place: edition for edition in made}), options=SkillOptions())


def _edition(name: str, number: int) -> Edition:
    allowed = f"allowed-tools: {SKILLS[name]}\n" if SKILLS[name] else ""
    text = f"---\nname: {name}\ndescription: About {name}.\n{allowed}---\n\nEdition {number} of {name}.\n"
    parsed = parse(text.encode(), directory_name=name, scope=_ROOT.scope)
    assert parsed.skill is not None
    place: Place = (0, (name,))
    return Edition(
        root=_ROOT,
        place=place,
        skill=parsed.skill,
        packed=zlib.compress(parsed.body.encode()),
        resources=(),
        has_more_resources=False,
        warnings=(),
    )
