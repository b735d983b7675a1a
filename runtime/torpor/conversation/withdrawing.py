"""Attachments in a view: which there are, and a view without some of them, in whose place notes stand. Pure.

Above: the turn, which finds that their bytes are gone or damaged, that a host does not take them, or that they are too
many for a request. Once a file was refused, every later request that holds it would be; so it leaves the view for good.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from torpor.conversation.folding import changed_in_place
from torpor.conversation.segments import withdrawing
from torpor.conversation.state import ConversationState
from torpor.conversation.view import View
from torpor.records.attachments import TYPE, Attachment, Why, attachment_of, told_of
from torpor.records.blocks import Block, text_block
from torpor.records.journal import ContextReplaced
from torpor.records.terms import FoldReason

_WORDS: Final = {
    Why.MISSING: "its bytes are no longer stored, so you cannot see it; say so if it matters",
    Why.DAMAGED: "its bytes were damaged where they are stored, so you cannot see it; say so if it matters",
    Why.REFUSED: "the model's host did not take it, so you cannot see it; say so if it matters",
    Why.ROOM: "it was shown before; there is no room to show it again",
}


class _Message(msgspec.Struct):
    content: list[dict[str, Any]]


_MESSAGES: Final = msgspec.json.Decoder(list[_Message])


def attachments_in(view: View) -> tuple[Attachment, ...]:
    """In order. Costs a copy of the view where there are any."""
    if not view.marks:
        return ()
    text = view.text()
    return tuple(attachment_of(text[mark.begin : mark.begin + mark.size_bytes]) for mark in view.marks)


def place_of(view: View, *, message: int, block: int) -> int | None:
    """Which of the attachments, from 0, stands there in the request; None for none of them."""
    messages = _MESSAGES.decode(view.messages())
    if not 0 <= message < len(messages) or not 0 <= block < len(messages[message].content):
        return None
    if messages[message].content[block].get("type") != TYPE:
        return None
    before = [fields for each in messages[:message] for fields in each.content] + messages[message].content[:block]
    return len([fields for fields in before if fields.get("type") == TYPE])


def crowded_out(
    attachments: Iterable[Attachment], *, attachments_max: int, bytes_max: int, pages_max: int
) -> tuple[int, ...]:
    """The oldest ones, as many as must go so that the rest is within all bounds."""
    known = tuple(attachments)
    count, size_bytes, pages = len(known), sum(each.size_bytes for each in known), sum(each.pages for each in known)
    for place, each in enumerate(known):
        if count <= attachments_max and size_bytes <= bytes_max and pages <= pages_max:
            return tuple(range(place))
        count, size_bytes, pages = count - 1, size_bytes - each.size_bytes, pages - each.pages
    return tuple(range(len(known)))


def withdrawn(state: ConversationState, places: Iterable[int], *, why: Why) -> ContextReplaced:
    """The record that puts notes in the place of attachments of the view; what it comes to is not reckoned yet.

    Args: places: of the attachments in the view, from 0.
    """
    known = attachments_in(state.view)
    notes: dict[int, Block] = {
        place: text_block(f"[Attachment {told_of(known[place])}: {_WORDS[why]}.]") for place in sorted(set(places))
    }
    record = changed_in_place(state, withdrawing(notes), reason=FoldReason.WITHDRAWN)
    return msgspec.structs.replace(record, withdrawn=notes, why=why.value)
