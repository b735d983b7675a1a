"""The text of a view cut at the beginnings of turns, and a view built anew from what is to stay. Pure.

A turn begins with what a user said, at a known place in the text. Before that place the message of the turn before may
still be open, if it was a user's: then the cut goes through a message, never through a round.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from torpor.conversation.view import Role, View
from torpor.records.attachments import is_marker
from torpor.records.blocks import Block, result_of

Change = Callable[[Role, Block], Block]
"""What becomes of a block that stays."""


class TurnStart(msgspec.Struct, frozen=True, array_like=True):
    """Where a turn begins."""

    turn: int
    seq: int
    """Of the record that began it."""
    size_bytes: int
    """Of the view before it."""
    messages: int
    """User messages and final replies of it, so far."""


class _Message(msgspec.Struct):
    role: Role
    content: list[Block]


class Said(NamedTuple):
    """Blocks of one role, in order."""

    role: Role
    blocks: tuple[Block, ...]


_MESSAGES: Final = msgspec.json.Decoder(list[_Message])
_USER_ON: Final = b","
_AFTER_USER: Final = b'],"role":"user"},'
_AFTER_ASSISTANT: Final = b'],"role":"assistant"},'


def said_in(view: View, starts: Sequence[TurnStart]) -> tuple[tuple[Said, ...], ...]:
    """What ``view`` holds of each turn of ``starts``, of which each begins where the one before ends, and the last goes
    on to the end."""
    text, said = view.text(), []
    for place, start in enumerate(starts, 1):
        end = starts[place].size_bytes if place < len(starts) else view.size_bytes
        said.append(_said(text, start.size_bytes, end, role=view.role))
    return tuple(said)


def before(view: View, start: TurnStart) -> View:
    """What ``view`` was before the turn of ``start``, to the byte and the link."""
    new = View()
    for role, blocks in _said(view.text(), 0, start.size_bytes, role=view.role):
        new = new.extended(role, blocks)
    return new


def rebuilt(
    view: View, starts: Sequence[TurnStart], *, head: Iterable[Block], change: Change | None = None
) -> tuple[View, tuple[TurnStart, ...]]:
    """``head`` said by the user, then the turns of ``starts`` as they stand in ``view``, and where they begin now.

    Args: starts: to the end of the view.  change: applied to every block that stays.
    """
    new, moved = View().extended("user", head), list[TurnStart]()
    for start, said in zip(starts, said_in(view, starts), strict=True):
        moved.append(msgspec.structs.replace(start, size_bytes=new.size_bytes))
        for role, blocks in said:
            new = new.extended(role, blocks if change is None else [change(role, block) for block in blocks])
    return new, tuple(moved)


def shortening(shorter: Mapping[str, Block]) -> Change | None:
    """Puts shorter results in the place of long ones, by the id of their call; None when there are none."""

    def change(role: Role, block: Block) -> Block:
        return shorter.get(result_of(block), block) if role == "user" else block

    return change if shorter else None


def withdrawing(notes: Mapping[int, Block], then: Change | None = None) -> Change | None:
    """Puts notes in the place of attachments, by their place among those of the view; for one passage over it, or over
    a part of its beginning.

    Args: then: is done to the other blocks.
    """
    if not notes:
        return then
    passed = itertools.count()

    def change(role: Role, block: Block) -> Block:
        if is_marker(bytes(block)):
            return notes.get(next(passed), block)
        return block if then is None else then(role, block)

    return change


def blocks_of(said: Iterable[Said]) -> Iterator[tuple[Role, Block]]:
    """One by one."""
    return ((role, block) for role, blocks in said for block in blocks)


def _said(text: bytes, begin: int, end: int, *, role: Role | None) -> tuple[Said, ...]:
    if begin >= end:
        return ()
    if end < len(text):
        role = "assistant" if text.startswith(_AFTER_ASSISTANT, end) else "user"
    return _parsed(_closed(text[begin:end], role=role or "user"))


def _closed(text: bytes, *, role: Role) -> bytes:
    """A piece of the text as an array of messages: without what joins it to the piece before, closed at its end."""
    for joint in (_AFTER_USER, _AFTER_ASSISTANT):
        if text.startswith(joint):
            return b"".join((b"[", text[len(joint) :], b'],"role":"', role.encode(), b'"}]'))
    begin = b'[{"content":[' if text.startswith(_USER_ON) else b"["
    return b"".join((begin, text.removeprefix(_USER_ON), b'],"role":"', role.encode(), b'"}]'))


def _parsed(messages: bytes) -> tuple[Said, ...]:
    return tuple(Said(message.role, tuple(message.content)) for message in _MESSAGES.decode(messages))
