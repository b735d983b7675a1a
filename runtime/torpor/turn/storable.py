"""A model's reply made fit for the history: block for block as the host sent it, but for what no request may repeat.

Pure. A blank text, arguments that are no object, a name or an id that the API refuses: one of them in the history, and
every request after it is refused. What must change is changed here, once, before the reply is recorded; a call that
cannot be run as it was meant is named in ``unusable`` and answered without being run.
"""

import re
from typing import Any, Final

import msgspec

from torpor.conversation.state import PAUSED
from torpor.conversation.steps import REFUSAL
from torpor.model.contract import ModelReply
from torpor.model.repeatable import uncited, unpaired
from torpor.records.blocks import Block, BlockHead, canonical, head_of

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_OF_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_OUR_ID: Final = "call_"
_CALLS: Final = "tool_use"
"""The reason to stop of a reply that waits for the results of its calls."""
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
"""Blocks that mean nothing without what they led to."""


def storable(reply: ModelReply, *, call: str) -> ModelReply:
    """The reply to model call ``call`` as later requests may repeat it.

    Text blocks that say nothing are left out, and so are thinking that no host signed, thinking that nothing came of,
    halves of what the host's own tools did, and all that a refusal had said. Calls are kept only of a reply that
    stopped for them: one that was cut off may hold half a call, and none of it is run. A kept call gets an id of our
    own, since hosts may give one twice, ``{}`` for arguments that are missing or no object, and a name that may be
    sent.
    """
    if reply.stop_reason == REFUSAL:
        dropped = tuple(head_of(block).type for block in reply.blocks)
        return msgspec.structs.replace(reply, blocks=(), unusable={}, dropped=(*reply.dropped, *dropped))
    blocks: list[Block] = []
    dropped_types = list(reply.dropped)
    unusable: dict[int, str] = {}
    halves = unpaired(reply.blocks)
    for place, block in enumerate(reply.blocks):
        head = head_of(block)
        if head.type != "tool_use":
            if is_unsigned(head) or place in halves:
                dropped_types.append(head.type)
            elif not is_blank(head):
                blocks.append(uncited(block) if halves else block)
        elif reply.stop_reason != _CALLS:
            dropped_types.append(head.type)
        else:
            changes, why = _repairs(block, head)
            changes["id"] = f"{_OUR_ID}{call}_{place}"
            if why := why or reply.unusable.get(place, ""):
                unusable[len(blocks)] = why
            blocks.append(canonical({**msgspec.json.decode(block), **changes}))
    if reply.stop_reason != PAUSED and all(head_of(block).type in THOUGHTS for block in blocks):
        dropped_types.extend(head_of(block).type for block in blocks)
        blocks.clear()
    return msgspec.structs.replace(reply, blocks=tuple(blocks), unusable=unusable, dropped=tuple(dropped_types))


def was_cut(reply: ModelReply) -> bool:
    """Whether calls of the reply were left out because it did not stop for them."""
    return "tool_use" in reply.dropped and reply.stop_reason != REFUSAL


def is_blank(head: BlockHead) -> bool:
    """Whether it is a text block that says nothing."""
    return head.type == "text" and not head.text.strip()


def is_unsigned(head: BlockHead) -> bool:
    """Whether it is thinking that its host would not take back."""
    return head.type == "thinking" and not head.signature


def _repairs(block: Block, head: BlockHead) -> tuple[dict[str, Any], str]:
    """The fields of a call that must change, and why it cannot be run; both empty for one as it should be."""
    changes: dict[str, Any] = {}
    why = ""
    if "input" not in msgspec.json.decode(block, type=dict[str, msgspec.Raw]):
        changes["input"] = {}
    elif not bytes(head.input).startswith(b"{"):
        found = bytes(head.input)[:40].decode(errors="replace")
        changes["input"] = {}
        why = f"arguments of {head.name} are {found}, expected a JSON object; nothing was done"
    if not _NAME.fullmatch(head.name):
        changes["name"] = _NOT_OF_A_NAME.sub("_", head.name)[:64] or "unnamed"
        why = f"no tool {head.name[:80]!r} is offered; nothing was done"
    return changes, why
