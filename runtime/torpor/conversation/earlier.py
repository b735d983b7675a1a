"""Earlier turns read again from their records: who said what, word for word. Pure.

Above: whoever reads the pages of a journal, for the tool ``read_earlier`` and for the transcript of a look-back. Calls
stand with their arguments and results as they were stored, whatever the view was cut to since. Thinking, what was for
one turn alone and the engine's own notes are left out; a refused turn is no part of the conversation any more.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from torpor.conversation.transcript import text_of_result
from torpor.records.attachments import attachment_of, is_marker, told_of
from torpor.records.blocks import Block
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    JournalRecord,
    LateResult,
    MessageReceived,
    MessageRetracted,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnPrepared,
    TurnRefused,
)

READ_EARLIER: Final = "read_earlier"
"""The tool whose results quote turns; they are not quoted again."""
_BLOCK: Final = msgspec.json.Decoder(dict[str, Any])
_RAW_BLOCK: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Voice(StrEnum):
    """Whose words a part is."""

    USER = "user"
    ASSISTANT = "assistant"
    CALL = "call"
    RESULT = "result"
    CONTEXT = "context"


class Part(NamedTuple):
    """Something that was said in one piece."""

    voice: Voice
    title: str
    """Who, and of what; one line."""
    text: str
    file: str = ""
    """The name of an attachment, which is found by it; its bytes are nobody's words."""


class EarlierTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn."""

    number: int
    at_us: int = 0
    """When it began."""
    parts: tuple[Part, ...] = ()
    """In order; none of a refused turn."""
    ending: str = ""
    """How it ended where it was not by a complete reply."""
    is_refused: bool = False

    def said_by(self, voice: Voice) -> str:
        """All its words of that voice."""
        return "\n\n".join(part.text for part in self.parts if part.voice is voice and part.text)


class Backwards:
    """Takes the records of a journal page by page from its end, and gives the turns in them, the newest first.

    A message may be recorded long before the turn that takes it, so a turn is given once its messages are found.
    """

    def __init__(self) -> None:
        self._open: list[JournalRecord] = []
        self._waiting: deque[tuple[tuple[JournalRecord, ...], set[MessageId]]] = deque()
        self._found: dict[MessageId, MessageReceived] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a turn was met whose messages were not."""
        return bool(self._waiting)

    def take(self, page: Sequence[JournalRecord]) -> list[EarlierTurn]:
        """The turns that are complete with ``page``, whose records precede those taken before. Args: page: in order."""
        turns: list[EarlierTurn] = []
        for record in reversed(page):
            if isinstance(record, MessageReceived):
                self._meet(record)
            elif isinstance(record, TurnPrepared):
                records = (record, *reversed(self._open))
                self._waiting.append((records, set(named_in(records))))
                self._open.clear()
            elif record.turn or isinstance(record, LateResult):
                self._open.append(record)
            while self._waiting and not self._waiting[0][1]:
                turns.append(self._given())
        return turns

    def rest(self) -> list[EarlierTurn]:
        """Turns whose messages were not found."""
        return [self._given() for _ in range(len(self._waiting))]

    def _meet(self, message: MessageReceived) -> None:
        for _, missing in self._waiting:
            if message.message_id in missing:
                missing.remove(message.message_id)
                self._found[message.message_id] = message

    def _given(self) -> EarlierTurn:
        records, _ = self._waiting.popleft()
        turn = turn_of(records, self._found)
        for message_id in named_in(records):
            self._found.pop(message_id, None)
        return turn


def named_in(records: Iterable[JournalRecord]) -> Iterator[MessageId]:
    """The messages that a turn takes."""
    for record in records:
        if isinstance(record, TurnPrepared):
            yield from record.messages
        elif isinstance(record, ModelRequested):
            yield from record.joined


def turn_of(records: Sequence[JournalRecord], messages: Mapping[MessageId, MessageReceived]) -> EarlierTurn:
    """A turn. Args: records: its own, in order, the first being its ``TurnPrepared``."""
    begun = records[0]
    if any(isinstance(record, MessageRetracted) and record.turn == begun.turn for record in records):
        return EarlierTurn(number=begun.turn, at_us=begun.at_us, ending="taken back by the user", is_refused=True)
    last = next((record for record in reversed(records) if isinstance(record, _ENDS)), None)
    if isinstance(last, TurnRefused):
        return EarlierTurn(number=begun.turn, at_us=begun.at_us, ending="refused by the model", is_refused=True)
    ending = ""
    if isinstance(last, TurnCancelled):
        ending = f"cancelled ({last.reason})"
    elif isinstance(last, TurnFailed):
        ending = f"failed ({last.code})"
    return EarlierTurn(number=begun.turn, at_us=begun.at_us, parts=tuple(_Parts(messages).of(records)), ending=ending)


_ENDS: Final = (TurnCancelled, TurnFailed, TurnRefused)


class _Parts:
    """Makes the parts of one turn; numbers its calls."""

    def __init__(self, messages: Mapping[MessageId, MessageReceived]) -> None:
        self._messages = messages
        self._numbers: dict[CallId, int] = {}

    def of(self, records: Iterable[JournalRecord]) -> Iterator[Part]:
        for record in records:
            match record:
                case TurnPrepared():
                    yield from (Part(Voice.CONTEXT, "what the user worked on", text) for text in _texts(record.signal))
                    yield from self._said(record.messages)
                case ModelRequested():
                    yield from self._said(record.joined)
                case ModelReplied():
                    yield from self._replied(record.blocks, "assistant")
                case ToolFinished():
                    yield self._result(record)
                case LateResult():
                    title = f"late end of {record.name}, called in turn {record.of_turn}: {record.outcome.value}"
                    yield from (Part(Voice.RESULT, title, text) for text in _texts([record.note]))
                case TurnCancelled() | TurnFailed():
                    yield from self._replied(record.partial, "assistant, cut short")
                case _:
                    pass

    def _said(self, ids: Iterable[MessageId]) -> Iterator[Part]:
        for message_id in ids:
            message = self._messages.get(message_id)
            if message is None:
                yield Part(Voice.USER, f"user, a message that was not found: {message_id}", "")
                continue
            for block in message.blocks:
                text, kind = _text_and_kind(block)
                who = f"user {message.principal}"
                if is_marker(bytes(block)):
                    file = attachment_of(bytes(block))
                    title = f"{who}, attachment {told_of(file)}, which cannot be read again; the user may send it again"
                    yield Part(Voice.USER, title, "", file.name)
                else:
                    yield Part(Voice.USER, who if kind == "text" else f"{who}, {kind} not shown", text)

    def _replied(self, blocks: Iterable[Block], who: str) -> Iterator[Part]:
        for block in blocks:
            text, kind = _text_and_kind(block)
            if kind == "text":
                yield Part(Voice.ASSISTANT, who, text)
            elif kind == "tool_use":
                fields = _RAW_BLOCK.decode(block)
                call_id = CallId(msgspec.json.decode(fields["id"], type=str))
                number = self._numbers.setdefault(call_id, len(self._numbers) + 1)
                name = msgspec.json.decode(fields["name"], type=str)
                yield Part(Voice.CALL, f"{who} calls {name}, call {number}", bytes(fields["input"]).decode())

    def _result(self, record: ToolFinished) -> Part:
        number = self._numbers.setdefault(record.call_id, len(self._numbers) + 1)
        title = f"result of {record.name}, call {number}: {record.outcome.value}"
        if record.name == READ_EARLIER:
            return Part(Voice.RESULT, f"{title}; it quotes turns, which can be read themselves", "")
        return Part(Voice.RESULT, title, text_of_result(record.block))


def _texts(blocks: Iterable[Block]) -> list[str]:
    return [text for text, kind in map(_text_and_kind, blocks) if kind == "text"]


def _text_and_kind(block: Block) -> tuple[str, str]:
    fields = _BLOCK.decode(block)
    return str(fields.get("text", "")), str(fields.get("type", ""))
