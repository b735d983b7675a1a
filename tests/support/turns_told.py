"""States of conversations told turn by turn, the last one running: for tests of what is folded, without a journal."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from torpor.conversation.segments import TurnStart
from torpor.conversation.state import CallState, CallStatus, ConversationState, LoadedSkill, TurnState
from torpor.conversation.view import Role, View, preamble_of
from torpor.records.blocks import Block, canonical, text_block, tool_result_block
from torpor.records.ids import CallId, MessageId

Turn = Sequence[tuple[Role, Sequence[Block]]]


def plain(number: int, *, text: str = "") -> Turn:
    """A question and its answer."""
    return (("user", [text_block(f"question {number}{text}")]), ("assistant", [text_block(f"answer {number}{text}")]))


def asked(text: str) -> Turn:
    """A question without an answer."""
    return (("user", [text_block(text)]),)


def called(number: int, *, result: str | Block, call_id: str = "", is_error: bool = False) -> Turn:
    """A question answered with the help of a tool. Args: result: its text, or the block."""
    call_id = call_id or f"call_{number}"
    block = tool_result_block(call_id, result, is_error=is_error) if isinstance(result, str) else result
    return (
        ("user", [text_block(f"question {number}")]),
        ("assistant", [use(call_id)]),
        ("user", [block]),
        ("assistant", [text_block(f"answer {number}")]),
    )


def use(call_id: str, **arguments: Any) -> Block:
    return canonical({"type": "tool_use", "id": call_id, "name": "look", "input": arguments})


def told(
    *turns: Turn,
    skills: tuple[LoadedSkill, ...] = (),
    pending: Mapping[str, str] = {},
    preamble_bytes: int = 0,
    **fields: Any,
) -> ConversationState:
    """A state in which the last of ``turns`` runs.

    Args: pending: results of its open round by call.  preamble_bytes: about.  fields: of the state.
    """
    view, starts, base = View(), list[TurnStart](), View()
    for number, turn in enumerate(turns, 1):
        base = view
        starts.append(TurnStart(number, 10 * number, view.size_bytes, 2))
        for role, blocks in turn:
            view = view.extended(role, blocks)
    running = TurnState(
        number=len(turns),
        messages=(MessageId("m"),),
        principal="ann",
        base=base,
        base_starts=tuple(starts[:-1]),
        reply=tuple(map(use, pending)) or None,
        calls=tuple(
            CallState(
                id=CallId(call_id),
                name="look",
                arguments=msgspec.Raw(b"{}"),
                status=CallStatus.SETTLED,
                result=tool_result_block(call_id, text, is_error=False),
            )
            for call_id, text in pending.items()
        ),
    )
    state = ConversationState(
        turns=len(turns),
        turn=running,
        view=view,
        starts=tuple(starts),
        messages=2 * len(turns),
        skills=skills,
        preamble=preamble_of({"system": "x" * preamble_bytes}),
    )
    return msgspec.structs.replace(state, **fields)


def with_turn(state: ConversationState, **fields: Any) -> ConversationState:
    """The state with other fields of its running turn."""
    assert state.turn is not None
    return msgspec.structs.replace(state, turn=msgspec.structs.replace(state.turn, **fields))
