"""What the turn loop knows of tools, and what a tool knows of its caller.

Above: the turn, which decides when a call runs and records what became of it. Below: the tools. A call never raises for
something that is the tool's or the model's fault; it returns an outcome and a text the model can act on.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from torpor.flags.contract import EVERYTHING_ON, Decided
from torpor.records.ids import CallId, ConversationKey
from torpor.records.terms import Effect, Outcome


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is offered and called."""

    name: str
    """Matches ``[a-zA-Z0-9_-]{1,64}``, unique within a toolbox."""
    description: str
    input_schema: dict[str, Any]
    """JSON Schema 2020-12, an object at the root."""
    effect: Effect
    deadline_s: float
    accepts_key: bool = False
    """It keeps the idempotency key, so that an interrupted call may be retried under the same one."""
    has_probe: bool = False
    """It can be asked what became of an interrupted call."""
    gate: str = ""
    """Key of the flag that switches it; empty for ``tool.<name>``."""
    server: str = ""
    """The MCP server that has it; empty for one of the home or the engine."""

    @property
    def flag(self) -> str:
        """Key of the flag that switches it."""
        return self.gate or f"tool.{self.name}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Keys of all flags that must be on; the one of its server switches all that the server has."""
        return (self.flag, f"tool.{self.name}") if self.server else (self.flag,)


class SkillAccess(Protocol):
    """The skills that one call may reach; implemented by the turn, which knows what is offered and allowed."""

    def load(self, name: str) -> str:
        """The text of a skill, which is in the conversation from then on; a note when it already is.

        Raises: ToolError: there is no such skill, or it is switched off.
        """
        ...

    async def read_file(self, name: str, path: str) -> str:
        """The text of a file of a skill. Raises: ToolError: it cannot be had."""
        ...

    def search(self, query: str, *, limit: int) -> str:
        """A line for each skill that fits."""
        ...


class EarlierAccess(Protocol):
    """The earlier turns of one conversation; implemented by the turn, which knows whose they are."""

    async def read(self, *, first_turn: int, last_turn: int, offset: int, bounds: "EarlierBounds") -> str:
        """Turns word for word, as many as there is room for. Args: offset: characters of the first turn to leave out.

        Raises: ToolError: there is no such turn, or it cannot be read now.
        """
        ...

    async def search(self, query: str, *, first_turn: int, last_turn: int, limit: int, bounds: "EarlierBounds") -> str:
        """Folded turns in which all words of ``query`` occur, the newest first, at most ``limit``.

        Args: first_turn, last_turn: where to look; 0 for all.
        Raises: ToolError: nothing is folded there, or it cannot be read now.
        """
        ...


class Spawner(Protocol):
    """The sub-agents that one call may have work for it; implemented by the supervisor."""

    async def spawn(self, name: str, task: str) -> str:
        """What the sub-agent ``name`` makes of ``task``, as the model is told.

        Cancellation: it ends, and whatever it had work for it, within a bound.
        Raises: ToolError: there is no such sub-agent, no room for one, or it failed.
        """
        ...


class EarlierBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the earlier turns one call may cost."""

    size_bytes: int
    """Of what it answers, UTF-8."""
    records_max: int
    """Looked at."""
    deadline_s: float
    """For looking; what was found until then is told."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a tool of a sub-agent found, of which the model sees as much as the tool tells."""

    id: str
    """What the model selects it by; the same for the same thing, however often it is found."""
    title: str
    locator: str
    """Where it stands, such as a file and a line, or an address."""
    excerpt: str
    """A sentence or two."""
    year: int = 0
    """0 where it has none."""
    kind: str = ""
    strength: str = ""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What of the findings is selected, once a sub-agent has selected some."""

    counted: tuple[str, ...]
    """Ids, in the order in which they were selected, of earlier selections as well."""
    beyond: tuple[str, ...] = ()
    """Ids for which no room is left."""
    unknown: tuple[str, ...] = ()
    """Ids of this selection that nothing found has."""


class FindingSink(Protocol):
    """Where tools put what they find, past the model; implemented by the collector of a sub-agent."""

    async def found(self, finding: Finding) -> None:
        """Hand over a finding; waits while too many are on their way.

        Raises: ToolError: nothing is collected any more, or the finding has an id that cannot be selected.
        """
        ...

    async def select(self, ids: Sequence[str]) -> Selection:
        """Add to the selection, out of all that was handed over before.

        Raises: ToolError: nothing is collected any more, or these are no ids.
        """
        ...


class Onset(Protocol):
    """When a call that has to wait for something begins to act; implemented by the turn."""

    def wait(self) -> None:
        """The call has done nothing, and waits: from here on the end of its turn ends it at once, as never started.

        Raises: NotStarted: its turn ends already.
        """
        ...

    def begin(self) -> None:
        """From here on the call may have acted; to be called right before it does.

        Raises: NotStarted: its turn ends.  ToolRefused: it was switched off meanwhile.
        """
        ...


class _AtOnce:
    """Implements ``Onset`` where nothing ends or refuses a call that waits."""

    def wait(self) -> None:
        """Nobody asks."""

    def begin(self) -> None:
        """It may."""


AT_ONCE: Final[Onset] = _AtOnce()


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf and under which name a call runs; ids named by the model are not authority, this is."""

    key: ConversationKey
    principal: str
    """Who sent the message that the turn answers."""
    turn: int
    call_id: CallId
    idempotency_key: str
    """The same for every attempt of this call, different for every other call."""
    report: Callable[[str], None]
    """Tell the watching clients what is going on; never waits."""
    skills: SkillAccess | None = None
    """For the engine's own tools; None where no skill is offered."""
    earlier: EarlierAccess | None = None
    """For the engine's own tools; None where nothing is kept to be read."""
    collector: FindingSink | None = None
    """None but for the calls of a sub-agent that collects, and only for a tool that is an ``async def``."""
    spawner: Spawner | None = None
    """For the tools that stand for sub-agents; None where there are none."""
    onset: Onset = AT_ONCE
    """For calls of servers, which may have to be waited for."""

    @property
    def tenant(self) -> str:
        return self.key.tenant

    @property
    def owner(self) -> str:
        return self.key.owner

    @property
    def conversation(self) -> str:
        return self.key.conversation


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the model will read, cleaned and capped."""

    outcome: Outcome
    text: str
    handle: str = ""
    """Where the whole text lies when ``text`` holds only a part of it; durable already."""
    cleaned: int = 0


class Toolbox(Protocol):
    """The tools one agent may call."""

    def specs(self) -> tuple[ToolSpec, ...]:
        """Sorted by name; never empty, since the engine's own tools are always offered."""
        ...

    def spec(self, name: str) -> ToolSpec | None: ...

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        """Validate, run under the tool's deadline, clean, cap and store the rest.

        A write past its deadline is ``UNKNOWN``, a read ``FAILED``; ``ToolRefused`` is ``DENIED``; unusable arguments
        or an unknown name are ``FAILED`` and nothing was run. Any exception of the tool is ``FAILED`` with its type and
        message.
        Cancellation: an async tool is cancelled, a synchronous one is abandoned in its thread.
        Raises: StoreError: the whole result could not be made durable.
        """
        ...

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        """Ask what became of an interrupted call: its result when it is known to have ended, None when it is unknown.

        A tool that knows the call never took effect answers with ``Outcome.NEVER_STARTED``.
        """
        ...


class Asks(Protocol):
    """The MCP servers, for a tool of ours that asks one for an answer of its own."""

    def gate(self, server: str) -> str:
        """Key of the flag that switches ``server``."""
        ...

    def deadline_s(self, server: str, tool: str) -> float:
        """Of one call, within which ``ask`` answers."""
        ...

    async def ask(self, server: str, tool: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """What ``tool`` of ``server`` answers, as values of JSON; a text where it is none.

        Raises: ToolError: it cannot be asked by this principal, or it failed.
        """
        ...


class Lent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Tools from elsewhere, as they are now."""

    toolbox: Toolbox
    digest: str
    """The same for the same tools."""


class Elsewhere(Protocol):
    """Where an agent has tools from that are other ones from time to time, and for each principal.

    What ``decided`` switches off as a whole is neither asked nor waited for.
    """

    def is_known(self, key: ConversationKey, principal: str, *, decided: Decided = EVERYTHING_ON) -> bool:
        """Whether it is known what there is; asking has it found out."""
        ...

    async def known(self, key: ConversationKey, principal: str, *, decided: Decided = EVERYTHING_ON) -> None:
        """Wait until it is known, within a bound."""
        ...

    def lent(self, key: ConversationKey, principal: str) -> Lent | None:
        """What is known to be there; None for nothing. Their names are none of the agent's own tools."""
        ...
