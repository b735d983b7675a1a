"""The summary that stands for folded turns: what a summariser may say, what is carried on whatever it says. Pure.

Facts, decisions and names are the summariser's, new in each generation. Corrections, denials, open questions and open
proposals are *items*: they have ids, one generation hands them to the next, and only a closing by id, with the turn
that closed it, takes one out. A summariser that says nothing of them keeps them all.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from torpor.conversation.budget import BYTES_PER_TOKEN
from torpor.conversation.graphemes import cut
from torpor.records.bounds import Amount, Count, Pause, Seconds, Share
from torpor.records.summary import Closing, Item, ItemKind, Summary


class CompactionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and how older turns are folded into a summary."""

    threshold_share: Share = 0.8
    """Of an agent's budget: a request above it has its older turns folded first."""
    deadline_s: Seconds = 120.0
    """For a summary, all calls of the summariser together."""
    failures_max: Count = 3
    """Failures in a row of one conversation, after which the summariser is left alone for a while."""
    cool_down_s: Pause = 300.0
    """That while."""
    summary_tokens: Count = 1_500
    """Facts, decisions and names of a summary together; a longer one is a failure."""
    items_max: Count = 40
    """Open items that a summary carries on; what comes up beyond them is counted."""
    item_tokens: Count = 60
    """Text of one item, which is cut to it."""
    skill_tokens: Amount = 2_000
    """Text of one skill that was loaded in what is folded, which is cut to it; 0 for none."""
    skills_tokens: Amount = 4_000
    """All of them; those loaded first are left out, and can be loaded again."""
    result_bytes: Count = 1_500
    """What a tool result of a turn that stays is shortened to, where nothing older is left to fold."""
    chunk_share: Share = 0.5
    """Of the summariser's window: what it is given to read at once; longer histories are read in pieces."""


LISTS: Final = ("facts", "decisions", "entities")
LINE_BYTES: Final = 3
"""What a line of the summary takes beside its text."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What a summariser says: its words, and what it opens and closes."""

    summary: Summary
    opened: tuple[tuple[ItemKind, str, int], ...] = ()
    closed: tuple[Closing, ...] = ()


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """Items on their way from one summary to the next."""

    items: tuple[Item, ...]
    """Open."""
    closed: tuple[Closing, ...] = ()
    opened: int = 0
    """New ones so far; numbers the next."""
    left_out: int = 0
    """New ones that found no room."""


def carried(
    before: Carried, proposal: Proposal, *, generation: int, last_turn: int, options: CompactionOptions
) -> Carried:
    """The items after what a summariser proposed.

    A closing counts when it names an item that is open and a turn from that item's own up to ``last_turn``.
    """
    known = {item.id: item for item in before.items}
    closed = {
        closing.id: closing
        for closing in proposal.closed
        if closing.id in known and max(known[closing.id].turn, 1) <= closing.turn <= last_turn
    }
    items, opened, left_out = [item for item in before.items if item.id not in closed], before.opened, 0
    said = {(item.kind, item.text) for item in items}
    for kind, text, turn in proposal.opened:
        short = _capped(text, options)
        if (kind, short) in said:
            continue
        said.add((kind, short))
        if len(items) >= options.items_max:
            left_out += 1
            continue
        opened += 1
        items.append(Item(id=f"i{generation}-{opened}", kind=kind, text=short, turn=min(turn, last_turn)))
    return Carried(
        items=tuple(items),
        closed=(*before.closed, *closed.values()),
        opened=opened,
        left_out=before.left_out + left_out,
    )


def rendered(
    summary: Summary,
    items: Sequence[Item],
    *,
    generation: int,
    turns: tuple[int, int],
    seqs: tuple[int, int],
    left_out: int = 0,
    skills: Mapping[str, str] = {},
) -> str:
    """The text of the summary block.

    Args: turns, seqs: first and last that it covers.  left_out: items that found no room.  skills: version by key of
        the skills that were loaded in what was folded.
    """
    lines = [
        f"[Summary of earlier conversation: turns {turns[0]} to {turns[1]}, records {seqs[0]} to {seqs[1]}, "
        f"generation {generation}."
    ]
    for title, texts in (("Facts", summary.facts), ("Decisions", summary.decisions), ("Names", summary.entities)):
        if texts:
            lines += [f"{title}:", *(f"- {text}" for text in texts)]
    if items:
        lines += ["Open, until closed:", *map(_item_line, items)]
    if left_out:
        lines.append(f"{left_out} more open items found no room here; read the turns again for them.")
    if skills:
        lines.append(f"Skills loaded: {', '.join(f'{key} ({digest[:12]})' for key, digest in sorted(skills.items()))}.")
    lines.append("Where this differs from what a tool says, the tool is right. read_earlier shows the exact words.]")
    return "\n".join(lines)


def _item_line(item: Item) -> str:
    where = f", turn {item.turn}" if item.turn else ""
    return f"- {item.id} ({item.kind.value}{where}): {item.text}"


def _capped(text: str, options: CompactionOptions) -> str:
    line = " ".join(text.split())
    room = options.item_tokens * BYTES_PER_TOKEN
    if len(line.encode()) <= room:
        return line
    return cut(line, chars_max=len(line.encode()[: room - 3].decode(errors="ignore"))) + "…"
