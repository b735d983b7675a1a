"""What is left of corrections and refusals after many folds, whatever the summariser does: on the real engine.

The conversations of the clinic that open something, each followed by small talk until it was folded ten times. An
opening counts once the turn that brought it up was folded; it is visible when its words stand in the summary of the
next request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from bench.followups.conversations import OPENING_TURNS, Conversation, Fact, Opening, small_talk
from bench.followups.judge import Shown
from bench.followups.spoken import RecordedAssistant, User
from bench.followups.summarisers import extract, flooding, hostile, lazy, liar, naming, scripted
from tests.support.engine import Engine, running_engine
from torpor.conversation.budget import Profile
from torpor.conversation.summary import CompactionOptions
from torpor.model.scripted import Script

FOLDS: Final = (1, 3, 10)
"""After how many it is counted."""
WINDOW: Final = Profile(budget_tokens=2_500, headroom_tokens=250)
OPTIONS: Final = CompactionOptions(summary_tokens=400)
"""All but the cap of the facts, which suits the window, is what a home has."""
_TURNS_MAX: Final = 600


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Of one summariser, over all conversations."""

    summariser: str
    is_named: bool
    """Whether each opening is named once, by the fold that reads it, before the summariser goes its own way."""
    visible: dict[int, int]
    """By number of folds."""
    due: dict[int, int]
    """Openings whose turns were folded, by number of folds."""


WAYS: Final[Mapping[str, Script]] = {
    "good": extract(cap_tokens=OPTIONS.summary_tokens),
    "lazy": lazy,
    "hostile": hostile,
    "liar": liar,
    "flooding": flooding(count=OPTIONS.items_max),
}


UNAIDED: Final = ("good", "lazy")
"""Those that are also left to find openings by themselves."""


EVERY: Final = (*((name, True) for name in WAYS), *((name, False) for name in UNAIDED))
"""Summarisers, and whether they name each opening once."""


async def kept(conversations: Iterable[Conversation], *, ways: Iterable[tuple[str, bool]] = EVERY) -> list[Kept]:
    """One row for each of ``ways``."""
    found = [conversation for conversation in conversations if conversation.openings]
    rows = []
    for name, is_named in ways:
        visible, due = dict.fromkeys(FOLDS, 0), dict.fromkeys(FOLDS, 0)
        for conversation in found:
            for folds, (seen, of) in (await _counted(conversation, WAYS[name], is_named=is_named)).items():
                visible[folds] += seen
                due[folds] += of
        rows.append(Kept(summariser=name, is_named=is_named, visible=visible, due=due))
    return rows


async def _counted(conversation: Conversation, way: Script, *, is_named: bool) -> dict[int, tuple[int, int]]:
    """Openings seen and due, by number of folds."""
    openings = [msgspec.structs.replace(each, turn=each.turn - OPENING_TURNS) for each in conversation.openings]
    talk = small_talk()
    turns = [*conversation.turns[OPENING_TURNS:], *(talk[place % len(talk)] for place in range(_TURNS_MAX))]
    assistant = RecordedAssistant(turns)
    summariser = scripted(naming(openings, way) if is_named else way, name="summariser")
    offer: dict[str, Any] = {"profile": WINDOW, "summariser": summariser, "compaction": OPTIONS}
    async with running_engine(host=assistant, tools=(assistant.tool(),), **offer) as engine:
        return await _told(engine, assistant, openings)


async def _told(
    engine: Engine, assistant: RecordedAssistant, openings: Sequence[Opening]
) -> dict[int, tuple[int, int]]:
    user = User(engine)
    counts = dict[int, tuple[int, int]]()
    for turn in assistant.turns:
        before = len(user.folds)
        await user.ask(turn.user)
        folds = user.folds
        if len(folds) > before and len(folds) in FOLDS:
            shown = Shown.by(assistant.requests[-1].body)
            due = [each for each in openings if each.turn <= folds[-1].turns[1]]
            seen = sum(Fact((each.text,)).stands_in(shown.summary) for each in due)
            counts[len(folds)] = (seen, len(due))
        if len(counts) == len(FOLDS):
            break
    return counts
