"""The summary that stands for folded turns: what a summariser may say, what is carried on whatever it says. Pure.

Facts, decisions and names are the summariser's, new in each generation. Corrections, denials, open questions and open
proposals are *items*: they have ids, one generation hands them to the next, and only a closing by id, with the turn
that closed it, takes one out. A summariser that says nothing of them keeps them all. Where there is no room for all,
those of less weight make way; they are counted, and the summary says of which turns they were.
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
    """How long it is left alone then."""
    summary_tokens: Count = 1_500
    """Facts, decisions and names of a summary together; a longer one is a failure."""
    items_max: Count = 40
    """Open items that a summary carries on; what makes way is counted, questions first and refusals last."""
    item_tokens: Count = 60
    """Text of one item, which is cut to it."""
    items_tokens: Count = 2_400
    """All of them as they stand in a request; what makes way is counted likewise."""
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
PRIORITY: Final = (ItemKind.DENIAL, ItemKind.CORRECTION, ItemKind.PROPOSAL, ItemKind.QUESTION)
"""Items that keep their place against others, where there is not room for all."""


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
    """That found no room, since the conversation began."""
    left_out_turns: tuple[int, int] = (0, 0)
    """First and last turn in which those came up; 0 when nobody said."""


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
    items, opened = [item for item in before.items if item.id not in closed], before.opened
    said = {(item.kind, item.text) for item in items}
    for kind, text, turn in proposal.opened:
        short = _capped(text, options)
        if (kind, short) in said:
            continue
        said.add((kind, short))
        opened += 1
        items.append(Item(id=f"i{generation}-{opened}", kind=kind, text=short, turn=min(turn, last_turn)))
    after = msgspec.structs.replace(
        before, items=tuple(items), closed=(*before.closed, *closed.values()), opened=opened
    )
    return held(after, options)


def held(carried: Carried, options: CompactionOptions) -> Carried:
    """What of the items has room. By ``PRIORITY``, and of one kind the newest first; the others are counted."""
    items, room, count = carried.items, options.items_tokens * BYTES_PER_TOKEN, 0
    ranked = sorted(range(len(items)), key=lambda place: (PRIORITY.index(items[place].kind), -place))
    for place in ranked:
        room -= told_bytes(f"{_item_line(items[place])}\n")
        if room < 0 or count == options.items_max:
            break
        count += 1
    kept, gone = set(ranked[:count]), [items[place] for place in ranked[count:]]
    turns = sorted(turn for turn in (*carried.left_out_turns, *(item.turn for item in gone)) if turn)
    return msgspec.structs.replace(
        carried,
        items=tuple(item for place, item in enumerate(items) if place in kept),
        left_out=carried.left_out + len(gone),
        left_out_turns=(turns[0], turns[-1]) if turns else (0, 0),
    )


def told_bytes(text: str) -> int:
    """What ``text`` takes within a request, its escapes counted."""
    return len(msgspec.json.encode(text)) - len('""')


def rendered(
    summary: Summary,
    items: Sequence[Item],
    *,
    generation: int,
    turns: tuple[int, int],
    seqs: tuple[int, int],
    left_out: int = 0,
    left_out_turns: tuple[int, int] = (0, 0),
    skills: Mapping[str, str] = {},
    reads_earlier: bool = True,
) -> str:
    """The text of the summary block.

    Args: turns, seqs: first and last that it covers.  left_out: items that found no room.  left_out_turns:
        first and last turn in which they came up.  skills: version by key of the skills that were loaded in what was
        folded.  reads_earlier: whether the model has the tool that reads the turns themselves.
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
        where = "turns {} to {}".format(*left_out_turns) if left_out_turns[0] else f"turns {turns[0]} to {turns[1]}"
        lines.append(f"{left_out} more items of {where} found no room here; they may be open still.")
    if skills:
        lines.append(f"Skills loaded: {', '.join(f'{key} ({digest[:12]})' for key, digest in sorted(skills.items()))}.")
    hint = " read_earlier shows the exact words." if reads_earlier else ""
    lines.append(f"Where this differs from what a tool says, the tool is right.{hint}]")
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
