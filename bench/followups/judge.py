"""Where a fact stands in a request: as it was said, in a summary, only in the journal, or nowhere. Pure."""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from bench.followups.conversations import Conversation, Fact, FollowUp, plain

SUMMARY_MARK: Final = "[Summary of earlier conversation: "


class Place(StrEnum):
    """Where a fact is found, the best of all places that hold it."""

    VERBATIM = "verbatim"
    SUMMARY = "summary"
    JOURNAL = "journal"
    """Not in the request, but in what ``read_earlier`` answers for one of the turns before."""
    NOWHERE = "nowhere"


class Shown(NamedTuple):
    """What a request shows, folded by ``plain``; its last text, the follow-up itself, left out."""

    verbatim: str
    summary: str

    @classmethod
    def by(cls, body: bytes) -> "Shown":
        """Args: body: of the first request of a follow-up's turn."""
        texts = [text for message in json.loads(body)["messages"] for text in _texts(message["content"])]
        summaries = [text for text in texts if text.startswith(SUMMARY_MARK)]
        said = [text for text in texts[:-1] if not text.startswith(SUMMARY_MARK)]
        return cls(plain("\n".join(said)), plain("\n".join(summaries)))

    def has(self, fact: Fact) -> bool:
        """Whether a model that is asked now sees it."""
        return fact.stands_in(self.verbatim) or fact.stands_in(self.summary)


UNSENT: Final = Shown("", "")
"""Where no request could be sent."""


def _texts(blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        match block["type"]:
            case "text":
                yield block["text"]
            case "tool_result":
                yield block["content"]
            case _:
                continue


def place_of(fact: Fact, shown: Shown, *, journal: str) -> Place:
    """Args: journal: what can be read again, folded by ``plain``; empty where nothing can."""
    if fact.stands_in(shown.verbatim):
        return Place.VERBATIM
    if fact.stands_in(shown.summary):
        return Place.SUMMARY
    return Place.JOURNAL if fact.stands_in(journal) else Place.NOWHERE


class Finding(NamedTuple):
    """What one policy showed for one follow-up."""

    conversation: str
    turn: int
    kind: str
    places: tuple[Place, ...]
    """Of each fact that is needed."""
    distances: tuple[int, ...]
    """Turns since each was said last."""
    is_sent: bool
    has_stale: bool
    """Something was corrected."""
    misleads: bool
    """What was corrected is visible, the correction is not."""

    @property
    def is_resolved(self) -> bool:
        """Everything it needs is visible."""
        return all(place in (Place.VERBATIM, Place.SUMMARY) for place in self.places)


def finding(conversation: Conversation, follow_up: FollowUp, *, body: bytes | None, journal: str) -> Finding:
    """Args: body: None where nothing could be sent.  journal: what the model could read again, folded by ``plain``."""
    shown = Shown.by(body) if body is not None else UNSENT
    places = tuple(place_of(fact, shown, journal=journal) for fact in follow_up.needs)
    is_resolved = not {Place.JOURNAL, Place.NOWHERE} & {*places}
    return Finding(
        conversation=conversation.name,
        turn=follow_up.turn,
        kind=follow_up.kind,
        places=places,
        distances=tuple(conversation.distance(follow_up, fact) for fact in follow_up.needs),
        is_sent=body is not None,
        has_stale=bool(follow_up.stale),
        misleads=not is_resolved and any(map(shown.has, follow_up.stale)),
    )
