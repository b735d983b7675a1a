"""A model's reply made fit for the history: block for block as the host sent it, but for what no request may repeat.

Pure. A blank text, arguments that are no object, a name or an id that the API refuses: one of them in the history, and
every request after it is refused. What must change is changed here, once, before the reply is recorded; a call that
cannot be run as it was meant is named in ``unusable`` and answered without being run.
"""

import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

from torpor.model.contract import ModelReply
from torpor.records.blocks import Block, BlockHead, canonical, head_of

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_OF_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def storable(reply: ModelReply, *, call: str) -> ModelReply:
    """The reply to model call ``call`` as later requests may repeat it.

    Text blocks that say nothing are left out. A call gets ``{}`` for arguments that are missing or no object, a name
    that may be sent, and an id of its own where the host gave none that is usable or gave one twice.
    """
    blocks: list[Block] = []
    unusable: dict[str, str] = {}
    ids: set[str] = set()
    for index, block in enumerate(reply.blocks):
        head = head_of(block)
        if head.type == "tool_use":
            changes, why = _repairs(block, head, used=ids, new_id=f"{call}-{index}")
            call_id = changes.get("id", head.id)
            ids.add(call_id)
            if why := why or reply.unusable.get(head.id, ""):
                unusable[call_id] = why
            blocks.append(canonical({**msgspec.json.decode(block), **changes}) if changes else block)
        elif not is_blank(head):
            blocks.append(block)
    return msgspec.structs.replace(reply, blocks=tuple(blocks), unusable=unusable)


def is_blank(head: BlockHead) -> bool:
    """Whether it is a text block that says nothing."""
    return head.type == "text" and not head.text.strip()


def _repairs(block: Block, head: BlockHead, *, used: Collection[str], new_id: str) -> tuple[dict[str, Any], str]:
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
    if head.id in used or not _ID.fullmatch(head.id):
        changes["id"] = new_id
    return changes, why
