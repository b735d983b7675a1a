"""A conversation with follow-ups, the facts that each needs, and how a text is searched for a fact.

A fact is a few wordings, of which one must stand somewhere. Capitals and blanks do not matter, and a wording is never
found inside a longer word or number. Where a fact was said last before its follow-up is looked up, not written down.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.support.recordings import RecordedReply, RecordedTurn

_HERE: Final = Path(__file__).parent
OPENING_TURNS: Final = 30
"""Of small talk, before each conversation of the clinic begins."""
_LINE: Final = re.compile(r"(user|tool|assistant|fill|kind|needs|stale|opens): +(.+)")


class Fact(msgspec.Struct, frozen=True):
    """One thing that has to be known."""

    wordings: tuple[str, ...]

    def stands_in(self, text: str) -> bool:
        """Args: text: folded by ``plain``."""
        return any(_pattern(wording).search(text) for wording in self.wordings)


class FollowUp(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that cannot be answered without what was said before it."""

    turn: int
    kind: str
    needs: tuple[Fact, ...]
    stale: tuple[Fact, ...] = ()
    """Visible without what is needed, it misleads."""


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may not be lost by silence."""

    turn: int
    kind: str
    text: str


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What is said, and what of it is needed later."""

    name: str
    set: str
    """Which data it comes from."""
    turns: tuple[RecordedTurn, ...]
    follow_ups: tuple[FollowUp, ...]
    openings: tuple[Opening, ...] = ()
    common: int = 0
    """The turns that all share; each one after them is asked alone behind those. 0 for one line from first to last."""

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        """Places of the turns that are said behind the common ones, one line after the other."""
        if not self.common:
            return (tuple(range(len(self.turns))),)
        return tuple((place,) for place in range(self.common, len(self.turns)))

    def distance(self, follow_up: FollowUp, fact: Fact) -> int:
        """Turns since the fact was said last; 0 when it never was."""
        number = min(follow_up.turn, self.common + 1) if self.common else follow_up.turn
        for back, place in enumerate(reversed(range(number - 1)), 1):
            if any(fact.stands_in(plain(text)) for text in texts_of(self.turns[place])):
                return back
        return 0


def plain(text: str) -> str:
    """``text`` as facts are looked for in it."""
    return " ".join(text.casefold().split())


def _pattern(wording: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){re.escape(plain(wording))}(?![^\W_])")


def texts_of(turn: RecordedTurn) -> Iterator[str]:
    """Everything that is said in it."""
    yield turn.user
    for reply in turn.replies:
        yield reply.text
        yield from reply.results


class _Exchange(msgspec.Struct, frozen=True):
    user: str
    assistant: str


def small_talk() -> tuple[RecordedTurn, ...]:
    """Turns that no follow-up needs."""
    found = tomllib.loads((_HERE / "small_talk.toml").read_text(encoding="utf-8"))
    exchanges = msgspec.convert(found["exchange"], tuple[_Exchange, ...])
    return tuple(RecordedTurn(user=each.user, replies=(RecordedReply(text=each.assistant),)) for each in exchanges)


def clinic() -> tuple[Conversation, ...]:
    """The project's own. Raises: ValueError: a follow-up needs what was never said, or says it itself."""
    found = tomllib.loads((_HERE / "clinic.toml").read_text(encoding="utf-8"))
    talk = small_talk()
    conversations = [
        _Script(each["name"], talk[7 * place % len(talk) :] + talk[: 7 * place % len(talk)]).read(each["script"])
        for place, each in enumerate(found["conversation"])
    ]
    for conversation in conversations:
        check(conversation)
    return tuple(conversations)


def check(conversation: Conversation) -> None:
    """Raises: ValueError: a follow-up needs what was never said before it, or says it itself."""
    for follow_up in conversation.follow_ups:
        asked = plain(conversation.turns[follow_up.turn - 1].user)
        for fact in (*follow_up.needs, *follow_up.stale):
            where = f"{conversation.name}, turn {follow_up.turn}: {fact.wordings[0]!r}"
            if fact.stands_in(asked):
                raise ValueError(f"{where} stands in the follow-up itself")
            if not conversation.distance(follow_up, fact):
                raise ValueError(f"{where} was not said before")


class _Script:
    """Reads one script, line by line."""

    def __init__(self, name: str, talk: Sequence[RecordedTurn]) -> None:
        self._name = name
        self._talk = talk
        self._filled = 0
        self._turns = [talk[-place % len(talk)] for place in range(OPENING_TURNS, 0, -1)]
        self._follow_ups: list[FollowUp] = []
        self._openings: list[Opening] = []
        self._results: list[str] = []
        self._user = ""

    def read(self, script: str) -> Conversation:
        for line in script.strip().splitlines():
            if (found := _LINE.fullmatch(line)) is None:
                raise ValueError(f"{self._name}: no line of a script: {line!r}")
            self._take(found[1], found[2])
        return Conversation(
            name=self._name,
            set="clinic",
            turns=tuple(self._turns),
            follow_ups=tuple(self._follow_ups),
            openings=tuple(self._openings),
        )

    def _take(self, what: str, text: str) -> None:
        number = len(self._turns) + 1
        match what:
            case "user":
                self._user = text
            case "tool":
                self._results.append(text)
            case "assistant":
                asks = (RecordedReply(results=tuple(self._results)),) if self._results else ()
                self._turns.append(RecordedTurn(user=self._user, replies=(*asks, RecordedReply(text=text))))
                self._results = []
            case "fill":
                for _ in range(int(text)):
                    self._turns.append(self._talk[self._filled % len(self._talk)])
                    self._filled += 1
            case "kind":
                self._follow_ups.append(FollowUp(turn=number, kind=text, needs=()))
            case "opens":
                kind, _, words = text.partition(": ")
                self._openings.append(Opening(turn=number, kind=kind, text=words))
            case _:
                facts = tuple(_facts(text))
                self._follow_ups[-1] = msgspec.structs.replace(self._follow_ups[-1], **{what: facts})


def _facts(text: str) -> Iterable[Fact]:
    for each in text.split(";"):
        yield Fact(tuple(wording.strip() for wording in each.split("|")))
