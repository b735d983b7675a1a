"""Whether a call may run: what is offered is pinned for a turn, what is allowed is asked at each call. Pure."""

from collections.abc import Collection, Mapping, Sequence

from torpor.conversation.state import LoadedSkill
from torpor.errors import ToolUnknown
from torpor.flags.contract import Decided
from torpor.records.terms import Outcome
from torpor.toolhost.contract import ToolResult
from torpor.toolhost.engine_tools import ALWAYS_OFFERED, ENGINE_TOOL_NAMES


class Permits:
    """Judges the calls of one batch."""

    def __init__(
        self,
        *,
        offered: Collection[str],
        gates: Mapping[str, str],
        decided: Decided,
        skills: Sequence[LoadedSkill],
        is_restricted: bool,
    ) -> None:
        """
        Args:
            offered: tools in the preamble of the turn.
            gates: keys of the flags that switch tools, by name.
            decided: as it is now, not as the turn was offered.
            skills: those in the window.
            is_restricted: whether what skills say of tools binds the agent.
        """
        self._offered = offered
        self._gates = gates
        self._decided = decided
        self._restricting = [skill for skill in skills if skill.allowed_tools] if is_restricted else []

    def refusal(self, name: str) -> ToolResult | None:
        """Why the tool ``name`` may not be called, as its result; None when it may."""
        if name not in self._offered:
            return ToolResult(outcome=Outcome.FAILED, text=str(ToolUnknown(name, known=tuple(sorted(self._offered)))))
        if name not in ALWAYS_OFFERED and not self._decided.is_on(self._gates.get(name, f"tool.{name}")):
            text = f"Not executed: {name} is switched off. Nothing was done; go on without it."
            return ToolResult(outcome=Outcome.DENIED, text=text)
        if self._restricting and name not in ENGINE_TOOL_NAMES:
            allowed = {tool.partition("(")[0] for skill in self._restricting for tool in skill.allowed_tools}
            if name not in allowed:
                keys = ", ".join(skill.key for skill in self._restricting)
                text = f"Not executed: {name} is none of the tools that the skills in use ({keys}) allow."
                return ToolResult(outcome=Outcome.DENIED, text=text)
        return None
