"""What sub-agents may use, whichever they are."""

from typing import Annotated

import msgspec

from torpor.records.bounds import Amount, Count


class SubagentOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts, tokens, seconds and days."""

    depth_max: Count = 2
    """Sub-agents below one another; one of a conversation itself is at depth 1."""
    at_once_max: Count = 4
    """That work for one conversation, or for one sub-agent, at the same time."""
    turn_tokens_max: Amount = 400_000
    """Of all that work for one turn, together; 0 for no limit."""
    capacity: Count = 64
    """Findings on their way to a collector; a tool with one more waits."""
    findings_max: Count = 500
    """Different ones of one sub-agent; more are counted and left out."""
    selected_max: Count = 8
    """Of them that count when a budget is over."""
    end_s: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """For what a sub-agent still has to write when it is ended."""
    keep_days: Annotated[float, msgspec.Meta(ge=0)] = 7.0
    """After its last record a sub-agent's journal is kept so long for `torpor inspect`; 0 for always."""
