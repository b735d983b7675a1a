"""Earlier turns as text that a model reads: a page of them, the places where words occur, the transcript of a
look-back. Pure.

What was said is not escaped in a page, since it is asked for word for word; so the lines that are not part of it begin
with a mark that occurs nowhere in it. Text is cut between characters as people see them.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.earlier import EarlierTurn, Part, Voice
from torpor.conversation.graphemes import cut
from torpor.conversation.markup import element, escaped_lines, group

EXCERPT_CHARS: Final = 320
"""Of a place where words were found."""
_EXCERPT_ROOM: Final = 4 * EXCERPT_CHARS
_BEFORE_CHARS: Final = 100
"""Of an excerpt, before the first of the words."""
WORDS_MAX: Final = 16
"""Of a query."""
WORD_CHARS_MAX: Final = 128
QUERY_CHARS_MAX: Final = 1_024
_HEADER_BYTES: Final = 512
"""Room for the line that says what a page holds and how to read on."""
_PIECE_MIN_BYTES: Final = 64
"""A turn of which less would be shown waits for the next page."""
_MARK: Final = "==="
_NUMBERED_MARKS: Final = re.compile(r"=#(\d+)=")
LOOKBACK_NOTE: Final = "earlier parts of this conversation, quoted because the user asked for them"


def mark_for(texts: Iterable[str]) -> str:
    """A short mark that is in none of ``texts``."""
    whole = "\n".join(texts)
    if _MARK not in whole:
        return _MARK
    taken = {int(number) for number in _NUMBERED_MARKS.findall(whole) if len(number) < 10}
    return f"=#{next(number for number in range(1, len(taken) + 2) if number not in taken)}="


def prefix(text: str, *, bytes_max: int) -> str:
    """The beginning of ``text`` in at most ``bytes_max`` bytes of UTF-8; only within a cluster that alone is longer is
    it cut between code points."""
    head = text.encode()[: max(bytes_max, 0)].decode(errors="ignore")
    return cut(text, chars_max=len(head)) or head


def page(turns: Sequence[EarlierTurn], *, last_turn: int, of: int, offset: int, bytes_max: int) -> str:
    """As much of ``turns`` as ``bytes_max`` holds, and how to read on.

    Args: turns: in order, at least one.  last_turn: what was asked for, which may go on behind ``turns``.  of: turns
        of the conversation.  offset: characters of the first turn that are left out.
    """
    room, shown, follows = bytes_max - _HEADER_BYTES, list[str](), (turns[-1].number + 1, 0)
    for turn in turns:
        head, body = _head_and_body(turn)
        if offset:
            head += f", from character {offset} on"
        rest = body[offset:]
        room -= len(head.encode()) + 2
        if shown and room < min(len(rest.encode()), _PIECE_MIN_BYTES):
            follows = (turn.number, 0)
            break
        piece = prefix(rest, bytes_max=room)
        shown.append(f"{head}\n{piece}" if piece else head)
        if len(piece) < len(rest):
            follows = (turn.number, offset + len(piece))
            break
        room -= len(piece.encode())
        offset = 0
    return "\n".join((_page_header(turns[0].number, follows, last_turn=last_turn, of=of), *shown))


def _page_header(first: int, follows: tuple[int, int], *, last_turn: int, of: int) -> str:
    turn, offset = follows
    last = turn if offset else turn - 1
    header = f"[{_turns(first, last)} of {of}, word for word; who speaks stands in the lines that begin like the next."
    if turn > last_turn:
        return f"{header}]"
    on = ", ".join((f"first_turn={turn}", f"last_turn={last_turn}", *([f"offset={offset}"] if offset else [])))
    return f"{header} The rest is left out for want of room: read on with {on}.]"


def _turns(first: int, last: int) -> str:
    return f"Turn {first}" if first == last else f"Turns {first} to {last}"


def _head_and_body(turn: EarlierTurn) -> tuple[str, str]:
    """The line that a turn begins with, and all of it."""
    mark = mark_for(part.text for part in turn.parts)
    at = datetime.fromtimestamp(turn.at_us // 1_000_000, tz=UTC)
    head = f"{mark} turn {turn.number}, {at:%Y-%m-%d %H:%M} UTC"
    if turn.is_refused:
        return f"{head}: left out, it was {turn.ending} and is no part of the conversation", ""
    if turn.ending:
        head += f", {turn.ending}"
    return head, "\n".join(
        f"{mark} {part.title}\n{part.text}" if part.text else f"{mark} {part.title}" for part in turn.parts
    )


class BadQuery(ValueError):
    """More than is looked for; the text says what is."""


class Query(NamedTuple):
    """What is looked for."""

    words: tuple[str, ...]
    """Composed, without case."""


def query_of(text: str) -> Query | None:
    """Words that must all occur, in any case and composition; None when there are none. Raises: BadQuery."""
    if len(text) > QUERY_CHARS_MAX:
        raise BadQuery(f"query has {len(text):,} characters, expected at most {QUERY_CHARS_MAX:,}")
    words = tuple(dict.fromkeys(composed(word).casefold() for word in text.split()))
    if len(words) > WORDS_MAX:
        raise BadQuery(f"query has {len(words)} words, expected at most {WORDS_MAX}")
    if (longest := max(map(len, words), default=0)) > WORD_CHARS_MAX:
        raise BadQuery(f"query has a word of {longest} characters, expected at most {WORD_CHARS_MAX}")
    return Query(words) if words else None


def composed(text: str) -> str:
    """In the one form that texts and words are compared in."""
    return unicodedata.normalize("NFC", text)


def _place_in(text: str, at: int) -> int:
    """Which character of ``text`` stands at ``at`` when it is without case, where some characters are several."""
    folded = 0
    for place, char in enumerate(text):
        folded += len(char.casefold())
        if folded > at:
            return place
    return len(text)


class Found(NamedTuple):
    """A turn in which all the words occur, and the part that has most of them."""

    turn: int
    title: str
    excerpt: str


def found_in(turn: EarlierTurn, query: Query) -> Found | None:
    """Where ``turn`` has every word of ``query``; None where it lacks one."""
    hits = [_hits(part, query) for part in turn.parts]
    if not hits or not all(max(found) >= 0 for found in zip(*hits, strict=True)):
        return None
    best = max(range(len(hits)), key=lambda place: sum(hit >= 0 for hit in hits[place]))
    part, at = turn.parts[best], min(hit for hit in hits[best] if hit >= 0)
    text = composed(part.text or part.file)
    return Found(turn.number, part.title, _excerpt(text, _place_in(text, at)))


def _hits(part: Part, query: Query) -> list[int]:
    """Where each word begins in the part without case; -1 where it does not occur."""
    text = composed(part.text or part.file).casefold()
    return [text.find(word) for word in query.words]


def _excerpt(text: str, at: int) -> str:
    begin = len(cut(text[:at], chars_max=max(at - _BEFORE_CHARS, 0)))
    piece = cut(text[begin : begin + _EXCERPT_ROOM], chars_max=EXCERPT_CHARS)
    return ("…" if begin else "") + piece + ("…" if begin + len(piece) < len(text) else "")


def places(found: Sequence[Found], *, turns: tuple[int, int], stopped: str, bytes_max: int) -> str:
    """Where words were found, the newest first.

    Args: turns: first and last that were searched.  stopped: why earlier ones were not; empty when all were.
    """
    mark = mark_for(each.excerpt for each in found)
    lines, room = list[str](), bytes_max - _HEADER_BYTES
    for each in found:
        line = f"{mark} turn {each.turn}, {each.title}\n{each.excerpt}"
        room -= len(line.encode()) + 1
        if room < 0:
            turns, stopped = (each.turn + 1, turns[1]), "there is no room for more"
            break
        lines.append(line)
    searched = f"{_turns(*turns).lower()}"
    header = (
        f"[{len(lines)} found in {searched}, the newest first; first_turn and last_turn show a turn whole."
        if lines
        else f"[Nothing found in {searched}; every word must occur in one turn, so fewer or other words may help; "
        "of files the names are searched, not what is in them."
    )
    on = f" Earlier turns were not searched, {stopped}: search on with last_turn={turns[0] - 1}." if stopped else ""
    return "\n".join((f"{header}{on}]", *lines))


class Lookback(NamedTuple):
    """A quoted transcript."""

    text: str = ""
    """Empty when nothing is quoted."""
    turns: tuple[int, ...] = ()
    """Those that are quoted, in order."""

    @property
    def tokens(self) -> int:
        """Estimated."""
        return tokens_of_bytes(len(self.text.encode()))


def lookback_of(turns: Sequence[EarlierTurn], *, bytes_max: int, note_bytes_max: int | None = None) -> Lookback:
    """The last of ``turns`` that fit, whole, and how many did not, also where that is all that can be said.

    Args: turns: in order, none refused.  note_bytes_max: for that alone; ``bytes_max`` when it is left out.
    """
    quoted: list[str] = []
    for turn in reversed(turns):
        longer = [_exchange(turn), *quoted]
        if len(_transcript(longer, left_out=len(turns) - len(longer)).encode()) > bytes_max:
            break
        quoted = longer
    if not quoted:
        nothing = element("lookback", "", attributes={"note": LOOKBACK_NOTE, "earlier_left_out": str(len(turns))})
        note_bytes_max = bytes_max if note_bytes_max is None else note_bytes_max
        return Lookback(nothing) if turns and len(nothing.encode()) <= note_bytes_max else Lookback()
    left_out = len(turns) - len(quoted)
    return Lookback(_transcript(quoted, left_out=left_out), tuple(turn.number for turn in turns[left_out:]))


def _transcript(exchanges: Sequence[str], *, left_out: int) -> str:
    attributes = {"note": LOOKBACK_NOTE, "earlier_left_out": str(left_out) if left_out else ""}
    return group("lookback", exchanges, attributes=attributes)


def _exchange(turn: EarlierTurn) -> str:
    said = "".join(
        element(name, escaped_lines(turn.said_by(voice)))
        for name, voice in (("user", Voice.USER), ("assistant", Voice.ASSISTANT))
    )
    return element("exchange", said, attributes={"turn": str(turn.number), "ended": turn.ending})
