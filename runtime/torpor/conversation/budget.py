"""Where the tokens of a request go, and what an agent's profile allows for each part.

A section is a part of a request; an allotment is what a profile grants to a few of them together:

- fixed: instructions, tools, skill index
- conversation: history, summary, live context, memories, look-back
- workflow: workflow state, envelope (the context signal)
- policies: policy excerpts
- headroom: the reply, and whatever was estimated too low

Fixed parts are held to their allotment when an agent is made and when its skills change; envelope and excerpts when a
turn is prepared. History only reports that it is over.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from torpor.conversation.state import ConversationState, TurnState
from torpor.conversation.view import TOKEN_BYTES, View, weight_of
from torpor.records.blocks import Block, canonical
from torpor.records.bounds import Amount
from torpor.records.ids import MessageId
from torpor.records.terms import Usage

NEXT_BYTES: Final = len(b'],"role":"assistant"},{"content":[')
"""Between two messages, at most."""
BYTES_PER_TOKEN: Final = TOKEN_BYTES
"""The first guess; what hosts report says better."""


SECTIONS: Final = {
    "fixed": ("instructions", "tools", "skill_index"),
    "conversation": ("history", "summary", "live_context", "memories", "lookback"),
    "workflow": ("workflow", "envelope"),
    "policies": ("policy_excerpts",),
}
"""The sections that draw on each allotment."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent may spend its window. An allotment of 0 has no cap of its own: it shares what is left."""

    budget_tokens: Amount = 0
    """A request and its reply together; 0 for the window of the agent's model."""
    fixed_tokens: Amount = 0
    conversation_tokens: Amount = 0
    workflow_tokens: Amount = 0
    policies_tokens: Amount = 0
    headroom_tokens: Amount = 0
    messages_max: Amount = 0
    """User messages and replies before older turns are folded; the last two turns stay. 0 for no limit."""
    exchanges_max: Amount = 0
    """Turns before older ones are folded; the last two stay. 0 for no limit."""

    def allotment(self, name: str) -> int:
        """Tokens granted to ``name`` of ``SECTIONS``; 0 for no cap of its own."""
        granted: int = getattr(self, f"{name}_tokens")
        return granted

    @property
    def granted_tokens(self) -> int:
        """The sum of all allotments."""
        return sum(map(self.allotment, (*SECTIONS, "headroom")))


@cache
def _caps(profile: Profile) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    """Allotments with a cap, and the sections that draw on them; asked before each call of a model."""
    granted = ((name, profile.allotment(name), drawn) for name, drawn in SECTIONS.items())
    return tuple(cap for cap in granted if cap[1])


PROFILES: Final[dict[str, Profile]] = {
    "administrative": Profile(
        budget_tokens=8_000,
        fixed_tokens=1_200,
        conversation_tokens=1_500,
        workflow_tokens=1_000,
        policies_tokens=2_500,
        headroom_tokens=1_800,
        messages_max=50,
    ),
    "clinical": Profile(),
    "companion": Profile(exchanges_max=12),
}
"""Those of a home whose settings say nothing else."""


def tokens_of_bytes(size_bytes: int) -> int:
    """Estimated tokens, rounded up."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def encoded_tokens(value: Any) -> int:
    """Estimated tokens of ``value`` as it stands in a request; 0 of what is empty and left out."""
    return tokens_of_bytes(len(canonical(value))) if value else 0


def request_sections(
    fixed: Mapping[str, int], turn: TurnState | None, view: View, *, budget_tokens: int, head_bytes: int = 0
) -> dict[str, int]:
    """Estimated tokens of a whole request by section; what is empty is left out, and ``headroom`` is what remains.

    Args: head_bytes: of the view, for what stands for folded turns.
    """
    said_bytes = view.weight_bytes - head_bytes
    sections = {**fixed}
    if turn is not None:
        said_bytes -= turn.signal_bytes + turn.turn_only_bytes
        sections.update(turn.sections)
    sections["history"] = tokens_of_bytes(said_bytes)
    sections["summary"] = tokens_of_bytes(head_bytes)
    used = {name: tokens for name, tokens in sections.items() if tokens}
    used["headroom"] = budget_tokens - sum(used.values())
    return used


def head_bytes(state: ConversationState) -> int:
    """Of the view, what stands for folded turns: the summary, and texts of skills."""
    return state.starts[0].size_bytes if state.generation and state.starts else 0


def exceeded(sections: Mapping[str, int], profile: Profile) -> tuple[str, ...]:
    """Allotments of ``profile`` that ``sections`` go beyond."""
    over = []
    for name, granted, drawn in _caps(profile):
        if granted < sum(sections.get(section, 0) for section in drawn):
            over.append(name)
    if sections.get("headroom", 0) < profile.headroom_tokens:
        over.append("headroom")
    return tuple(over)


def input_tokens(usage: Usage) -> int:
    """All of a request, cached or not: ``input_tokens`` alone is only what no cache had."""
    return usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens


def tokens_of(usage: Usage) -> int:
    """All of a request and of its reply."""
    return input_tokens(usage) + usage.output_tokens


def added(one: Usage, other: Usage) -> Usage:
    """What both come to."""
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in Usage.__struct_fields__})


def next_request_tokens(state: ConversationState, view_bytes: int, *, bytes_per_token: float) -> int:
    """Tokens of a request with messages that weigh ``view_bytes``: what the host counted last time, reply included, and
    an estimate of the rest.

    Less than was counted when something left the view; all of it is an estimate when nothing was counted.
    """
    size_bytes = state.preamble.size_bytes + view_bytes
    counted = tokens_of(state.last_usage)
    if not counted:
        return math.ceil(size_bytes / bytes_per_token)
    return max(counted + math.ceil((size_bytes - state.measured_bytes) / bytes_per_token), 0)


def pending_bytes(state: ConversationState, joined: Collection[MessageId]) -> int:
    """Size of what enters the view with the next request, or a few bytes more: the open round, and the messages that
    join."""
    turn = state.turn
    if turn is None:
        return 0
    reply = turn.reply or ()
    said = [call.result for call in turn.calls if call.result is not None]
    said += turn.note
    if joined:
        said += [block for message in state.queued if message.id in joined for block in message.blocks]
    sizes = [weight_of(block) + 1 for block in (*reply, *said)] if joined else _sizes(reply, said)
    return sum(sizes) + NEXT_BYTES * (bool(reply) + bool(said))


def _sizes(reply: Iterable[Block], said: Iterable[Block]) -> list[int]:
    """Of blocks none of which stands for an attachment."""
    return [len(memoryview(block)) + 1 for block in (*reply, *said)]


def request_bytes(state: ConversationState, view: View) -> int:
    """Size of a request for ``view``, about: what stands before the messages, and the messages."""
    return state.preamble.size_bytes + view.weight_bytes
