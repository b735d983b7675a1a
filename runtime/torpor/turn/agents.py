"""An agent: a persona with its model and its tools, built once from its definition and shared by all its
conversations."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from torpor.conversation.budget import Profile
from torpor.conversation.compaction import Window
from torpor.conversation.earlier import READ_EARLIER
from torpor.conversation.state import ConversationState
from torpor.conversation.view import Preamble
from torpor.flags.contract import Decided, FlagContext
from torpor.model.contract import Model
from torpor.model.windows import window_of
from torpor.records.ids import ConversationKey
from torpor.skillbook.catalogue import Catalogue
from torpor.toolhost.contract import Elsewhere, Lent, Toolbox, ToolSpec
from torpor.toolhost.joined import JoinedToolbox
from torpor.turn.definition import AgentDefinition
from torpor.turn.fold_history import Summariser
from torpor.turn.fold_record import FoldTerms
from torpor.turn.live_context import LiveModel
from torpor.turn.offer import Offer, Offers

INDEX_BUDGET_TOKENS: Final = 2_000
"""Of the index of skills, where nobody says otherwise."""
UNBOUND: Final = Profile()
"""Nothing but the model's window counts."""


class Agent:
    """A definition with its parts."""

    __slots__ = (
        "_window",
        "budget_tokens",
        "definition",
        "elsewhere",
        "gates",
        "live",
        "model",
        "offers",
        "profile",
        "summariser",
        "toolbox",
    )

    def __init__(
        self,
        definition: AgentDefinition,
        *,
        model: Model,
        toolbox: Toolbox,
        profile: Profile = UNBOUND,
        index_budget_tokens: int = INDEX_BUDGET_TOKENS,
        summariser: Summariser | None = None,
        live: LiveModel | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """
        Args:
            summariser: folds older turns; None to fold them without a model.
            live: makes live contexts; None for an agent without one.
            elsewhere: where it has tools from beside ``toolbox``; None for nowhere.
        """
        self.live = live
        self.elsewhere = elsewhere
        self.definition = definition
        self.summariser = summariser
        self.model = model
        self.toolbox = toolbox
        self.gates: Final = {spec.name: spec.flag for spec in toolbox.specs()}
        """Keys of the flags that switch its tools, by name."""
        self.profile = profile
        self.budget_tokens: Final = profile.budget_tokens or window_of(
            definition.model_name, override=int(definition.model.get("window_tokens", 0))
        )
        """Of a request and its reply together: what the profile says, or else the model's window."""
        self._window = Window(
            budget_tokens=self.budget_tokens,
            reserve_tokens=profile.headroom_tokens or definition.max_tokens,
            conversation_tokens=profile.conversation_tokens,
            messages_max=profile.messages_max,
            exchanges_max=profile.exchanges_max,
            has_summariser=summariser is not None,
        )
        self.offers = Offers(
            definition,
            model=model,
            toolbox=toolbox,
            profile=profile,
            index_budget_tokens=index_budget_tokens,
            limit_tokens=self._window.limit_tokens,
        )

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def model_name(self) -> str:
        """The model that is asked first."""
        return self.definition.model_name

    @property
    def fallback(self) -> str:
        """The model that is asked when the first one fails; empty for none."""
        return str(self.definition.model.get("fallback", ""))

    def window(self, bytes_per_token: float) -> Window:
        """What its requests may take. Args: bytes_per_token: as the model's host counts."""
        if self._window.bytes_per_token != bytes_per_token:  # asked before each call, and changes seldom
            self._window = msgspec.structs.replace(self._window, bytes_per_token=bytes_per_token)
        return self._window

    def offer(
        self, decided: Decided, catalogue: Catalogue, *, has_earlier: bool = False, lent: Lent | None = None
    ) -> Offer:
        """What it offers under these flags and skills.

        Args: has_earlier: to a conversation with turns to read again.  lent: tools beside its own.
        """
        return self.offers.offer(decided, catalogue, has_earlier=has_earlier, lent=lent)

    def lent(self, key: ConversationKey, principal: str) -> Lent | None:
        """Tools beside its own, as they are now; None for none."""
        return self.elsewhere.lent(key, principal) if self.elsewhere is not None else None

    def tools_with(self, lent: Lent | None) -> Toolbox:
        """What may be called."""
        return JoinedToolbox(self.toolbox, lent.toolbox) if lent is not None else self.toolbox

    def gates_with(self, lent: Lent | None, decided: Decided) -> Mapping[str, str]:
        """Keys of the flags that switch what may be called, by name; of several, the one that is off."""
        if lent is None:
            return self.gates
        return {**{spec.name: _gate(spec, decided) for spec in lent.toolbox.specs()}, **self.gates}

    def has_earlier(self, state: ConversationState) -> bool:
        """Whether there is something that its conversation holds and cannot see: folded turns, or a result cut short,
        for which the tool that reads it was offered."""
        return state.generation > 0 or self.offers_earlier(state)

    def offers_earlier(self, state: ConversationState) -> bool:
        """Whether the tool that reads earlier turns is offered already."""
        return READ_EARLIER in self.offers.tools_of(state.preamble)

    def fold_terms(self, preamble: Preamble, decided: Decided, catalogue: Catalogue) -> FoldTerms:
        """For a turn with ``preamble``."""
        after = self.offers.with_earlier(preamble, decided)
        skills = self.offer(decided, catalogue, has_earlier=True).addresses()
        return FoldTerms(after, skills, READ_EARLIER in self.offers.tools_of(after))

    def interned(self, preamble: Preamble) -> Preamble:
        """The same preamble as other conversations hold it, so that its text is in memory once."""
        return self.offers.interned(preamble)

    def flag_context(self, key: ConversationKey) -> FlagContext:
        """By whom and what flags are decided in the conversation ``key``."""
        return FlagContext(tenant=key.tenant, owner=key.owner, agent=self.name)

    def __repr__(self) -> str:
        return f"<Agent {self.name} {self.offers!r}>"


def _gate(spec: ToolSpec, decided: Decided) -> str:
    return next((flag for flag in spec.flags if not decided.is_on(flag)), spec.flag)


class Agents:
    """The agents of a home by name."""

    def __init__(self, agents: tuple[Agent, ...]) -> None:
        self._by_name = {agent.name: agent for agent in agents}
        self._default = next((agent for agent in agents if agent.definition.default), None) or next(iter(agents), None)

    def get(self, name: str) -> Agent | None:
        """The agent of that name; the home's default for an empty one."""
        return self._by_name.get(name) if name else self._default

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._by_name.values())

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._by_name))
