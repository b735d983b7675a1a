"""What a turn offers the model: the preamble, and the tools and skills that stand in it.

An agent may call what its definition allows; flags take away from that, and what is off costs nothing: neither a
schema nor a line in the index, nor the engine's tools that would serve it; nor does the tool that reads earlier turns
before there are any that cannot be seen. Equal offers are made once and shared by all conversations, so a turn costs a
look-up.
"""

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
import structlog

from torpor.conversation.budget import Profile, encoded_tokens
from torpor.conversation.earlier import READ_EARLIER
from torpor.conversation.view import Preamble, preamble_of
from torpor.errors import ConfigError
from torpor.flags.contract import Decided
from torpor.misfits import Words
from torpor.model.contract import Model
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.index import INDEX_TAG, IndexText, index_text
from torpor.skillbook.parse import Skill
from torpor.toolhost.contract import Lent, Toolbox, ToolSpec
from torpor.toolhost.engine_tools import ALWAYS_OFFERED
from torpor.toolhost.skill_tools import LOAD_SKILL, READ_SKILL_FILE, SEARCH_SKILLS
from torpor.turn.definition import EVERY, AgentDefinition

_SEARCH: Final = frozenset({SEARCH_SKILLS})
_SKILL_TOOLS: Final = frozenset({LOAD_SKILL, READ_SKILL_FILE, SEARCH_SKILLS})
EDITIONS_MAX: Final = 3
"""Editions of the skills of which offers are kept ready."""
OFFERS_MAX: Final = 64
"""Offers of one agent that are kept ready; the one made first goes first."""
_log = structlog.get_logger()


class Offer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One way in which an agent presents itself."""

    preamble: Preamble
    sections: Mapping[str, int]
    """Estimated tokens of the fixed parts."""
    tools: frozenset[str]
    """Names that stand in the preamble."""
    skills: Mapping[str, Skill]
    """By key: those in the index, and those that only a search finds."""
    catalogue: Catalogue
    """The texts of the skills."""

    def named(self, name: str) -> Skill | None:
        """The skill that answers to ``name`` and may be loaded; judged itself where it only shares the key of one."""
        skill = self.catalogue.get(name)
        return skill if skill is not None and skill.model_invocable and skill.key in self.skills else None

    def addresses(self) -> frozenset[str]:
        """What the skills answer to that may be loaded."""
        shadowed = (each for each in self.catalogue.shadowed if each.skill.model_invocable)
        return frozenset(self.skills) | {each.address for each in shadowed if each.skill.key in self.skills}


class Offers:
    """Makes and keeps the offers of one agent."""

    def __init__(
        self,
        definition: AgentDefinition,
        *,
        model: Model,
        toolbox: Toolbox,
        profile: Profile,
        index_budget_tokens: int,
        limit_tokens: int,
    ) -> None:
        """Args: limit_tokens: of a request, by the agent's budget."""
        self._definition = definition
        self._model = model
        self._toolbox = toolbox
        self._profile = profile
        self._index_budget_tokens = index_budget_tokens
        self._limit_tokens = limit_tokens
        self._ready: dict[tuple[frozenset[str], str, bool, str], Offer] = {}
        self._by_digest: dict[str, Offer] = {}

    def offer(
        self, decided: Decided, catalogue: Catalogue, *, has_earlier: bool = False, lent: Lent | None = None
    ) -> Offer:
        """What is offered under these flags and skills.

        Args: has_earlier: to a conversation with turns to read again.  lent: tools beside the agent's own.
        """
        named = (decided.off, catalogue.digest, has_earlier, lent.digest if lent is not None else "")
        offer = self._ready.get(named)
        if offer is None:
            if len(self._ready) >= OFFERS_MAX:
                gone = self._ready.pop(next(iter(self._ready)))
                self._by_digest.pop(gone.preamble.digest, None)
            self._forget_old(catalogue.digest)
            offer = self._ready[named] = self._made(decided, catalogue, has_earlier=has_earlier, lent=lent)
            self._by_digest[offer.preamble.digest] = offer
        return offer

    def _forget_old(self, digest: str) -> None:
        """An offer holds the texts of all skills, so only those of the last few editions of them are kept."""
        editions = list(dict.fromkeys(edition for _, edition, *_ in self._ready if edition != digest))
        gone = set(editions[: max(len(editions) + 1 - EDITIONS_MAX, 0)])
        for named in [named for named in self._ready if named[1] in gone]:
            self._by_digest.pop(self._ready.pop(named).preamble.digest, None)

    def with_earlier(self, preamble: Preamble, decided: Decided) -> Preamble:
        """``preamble``, which may be of another time, and in it the tool that reads earlier turns; nothing else of it
        is another, since it is pinned for a turn. The same one when the tool is in it or may not be."""
        spec = self._toolbox.spec(READ_EARLIER)
        if spec is None or READ_EARLIER in self.tools_of(preamble) or not decided.is_on(f"tool.{READ_EARLIER}"):
            return preamble
        fields = _fields_of(preamble)
        tools = sorted([*fields.get("tools", ()), _schema(spec)], key=lambda tool: str(tool["name"]))
        return self.interned(preamble_of({**fields, "tools": tools}))

    def interned(self, preamble: Preamble) -> Preamble:
        """The equal preamble of an offer that is kept, or ``preamble`` itself."""
        return offer.preamble if (offer := self._by_digest.get(preamble.digest)) is not None else preamble

    def tools_of(self, preamble: Preamble) -> frozenset[str]:
        """Names of the tools in ``preamble``, which may be of another time."""
        return offer.tools if (offer := self._by_digest.get(preamble.digest)) is not None else tools_in(preamble)

    def sections_of(self, preamble: Preamble) -> Mapping[str, int]:
        """Estimated tokens of the fixed parts in ``preamble``, which may be of another time."""
        return offer.sections if (offer := self._by_digest.get(preamble.digest)) is not None else sections_in(preamble)

    def check(self, decided: Decided, catalogue: Catalogue) -> None:
        """Raises: ConfigError: the fixed parts alone are more than definition or profile grant, or leave no room in the
        budget; with the numbers."""
        sections = self.offer(decided, catalogue, has_earlier=True).sections
        used, caps = sum(sections.values()), self._caps() | {"its budget, less the reply": self._limit_tokens - 1}
        for key, cap in caps.items():
            if used > cap:
                parts = ", ".join(f"{name} {tokens:,}" for name, tokens in sections.items() if tokens)
                raise ConfigError(
                    f"agent {self._definition.name!r}",
                    key="the total of its fixed parts",
                    found=Words(f"{used:,} tokens ({parts})"),
                    expected=f"at most {cap:,} by {key}; shorten the prompt, allow fewer tools or skills",
                )

    def _caps(self) -> dict[str, int]:
        """What the fixed parts may cost together, by where it is said."""
        definition, profile = self._definition, self._profile
        caps = {
            "fixed_tokens_max": definition.fixed_tokens_max,
            f"profile {definition.profile!r}": profile.fixed_tokens,
        }
        return {key: cap for key, cap in caps.items() if cap}

    def __repr__(self) -> str:
        return f"<Offers ready={len(self._ready)}>"

    def _made(self, decided: Decided, catalogue: Catalogue, *, has_earlier: bool, lent: Lent | None) -> Offer:
        definition = self._definition
        skills = {
            skill.key: skill
            for skill in catalogue.skills
            if skill.model_invocable
            and (EVERY in definition.skills or skill.key in definition.skills)
            and decided.is_on(f"skill.{skill.key}")
        }
        idle = frozenset() if has_earlier else frozenset({READ_EARLIER})
        tools = self._tools(decided, idle=idle | (_SEARCH if skills else _SKILL_TOOLS), lent=lent)
        index = self._index(skills, tools)
        if index.left_out:
            tools = self._tools(decided, idle=idle, lent=lent)
            index = self._index(skills, tools)
        preamble = preamble_of(self._fields(tools, index.text))
        return Offer(
            preamble=preamble,
            sections=sections_in(preamble),
            tools=tools_in(preamble),
            skills=skills,
            catalogue=catalogue,
        )

    def _tools(self, decided: Decided, *, idle: AbstractSet[str], lent: Lent | None) -> list[dict[str, Any]]:
        """Schemas sorted by name, so that only a change of what is offered moves the prefix. Args: idle: names of the
        engine's tools that would have nothing to do."""
        own = [
            _schema(spec)
            for spec in self._toolbox.specs()
            if spec.name not in idle and (spec.name in ALWAYS_OFFERED or decided.is_on(spec.flag))
        ]
        if lent is None:
            return own
        return sorted((*own, *self._fitting(lent, decided, beside=own)), key=lambda tool: str(tool["name"]))

    def _fitting(self, lent: Lent, decided: Decided, *, beside: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Tools from elsewhere, in the order of their names, as many as there is room for: what others serve must not
        take the room for everything else."""
        room_tokens = min(self._caps().values(), default=self._limit_tokens // 2)
        room_tokens -= encoded_tokens(self._instructions()) + encoded_tokens(beside)
        fitting, left_out = list[dict[str, Any]](), list[str]()
        names = {tool["name"] for tool in beside}
        for spec in lent.toolbox.specs():
            if spec.name in names or not all(map(decided.is_on, spec.flags)):
                continue
            schema = _schema(spec)
            room_tokens -= (size_tokens := encoded_tokens([schema]))
            if room_tokens < 0:
                room_tokens += size_tokens
                left_out.append(spec.name)
            else:
                fitting.append(schema)
        if left_out:
            _log.warning("agent.tools_left_out", agent=self._definition.name, tools=left_out)
        return fitting

    def _index(self, skills: Mapping[str, Skill], tools: list[dict[str, Any]]) -> IndexText:
        """Of its own budget, and of no more, as it stands in a request, than is left beside prompt and tools."""
        budget_tokens = self._index_budget_tokens
        used_tokens = encoded_tokens(self._instructions()) + encoded_tokens(tools)
        left_tokens = min(self._caps().values(), default=math.inf) - used_tokens
        while True:
            index = index_text(tuple(skills.values()), budget_tokens=budget_tokens)
            over_tokens = encoded_tokens([_system_block(index.text)]) - left_tokens
            if over_tokens <= 0 or not index.listed:
                return index
            budget_tokens = math.floor(min(budget_tokens, index.tokens) - over_tokens)

    def _instructions(self) -> list[dict[str, str]]:
        """A prompt that says nothing is left out, since the API refuses it."""
        return [_system_block(self._definition.system)] if self._definition.system.strip() else []

    def _fields(self, tools: list[dict[str, Any]], index: str) -> dict[str, Any]:
        """The static prompt first, then the index as its own block: what changes less often stands before."""
        system = [*self._instructions(), *([_system_block(index)] if index else [])]
        return {
            "model": self._definition.model_name,
            "max_tokens": self._definition.max_tokens,
            **self._model.request_fields(),
            **({"system": system} if system else {}),
            "tools": tools,
        }


def _schema(spec: ToolSpec) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}


def tools_in(preamble: Preamble) -> frozenset[str]:
    """Names of the tools that ``preamble`` offers."""
    return frozenset(tool["name"] for tool in _fields_of(preamble).get("tools", ()))


def sections_in(preamble: Preamble) -> dict[str, int]:
    """Estimated tokens of the fixed parts of ``preamble``."""
    fields = _fields_of(preamble)
    system = fields.get("system", [])
    index = [block for block in system if block["text"].startswith(f"<{INDEX_TAG}")]
    return {
        "instructions": encoded_tokens([block for block in system if block not in index]),
        "tools": encoded_tokens(fields.get("tools")),
        "skill_index": encoded_tokens(index),
    }


def _fields_of(preamble: Preamble) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(preamble.body)
    return fields


def _system_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
