"""Records of a journal -> why a request held what it held: each part with the record that it came from; pure.

What was said is left out; whoever asks for it has the request itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.operations.requests import TURN
from torpor.records.attachments import is_marker
from torpor.records.ids import MessageId
from torpor.records.journal import (
    ContextChanged,
    ContextReplaced,
    ConversationCreated,
    FlagsPinned,
    JournalRecord,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    ModelRequested,
    PreambleChanged,
    Record,
    SkillLoaded,
    ToolFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import FoldReason


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a request."""

    part: str
    """What kind of thing it is: ``flag``, ``skill``, ``policy``, …"""
    name: str
    detail: str
    turn: int
    """Of the record; 0 for none."""
    seq: int
    """Of the record that it came from."""


class Origins(msgspec.Struct, frozen=True, kw_only=True):
    """All parts of one request: those of its own turn one by one, earlier turns together."""

    request: ModelRequested
    parts: tuple[Origin, ...]


class _Tools(msgspec.Struct):
    model: str = ""
    tools: tuple[dict[str, object], ...] = ()


_PREAMBLE: Final = msgspec.json.Decoder(_Tools)


class _Sources:
    """The records that a request may come from, as they were written last; preambles and flags by digest, since a turn
    may go back to one."""

    def __init__(self) -> None:
        self._preambles: dict[str, PreambleChanged] = {}
        self._flags: dict[str, FlagsPinned] = {}
        self._skills: dict[tuple[str, str], SkillLoaded] = {}
        self._received: dict[MessageId, MessageReceived] = {}
        self._context: ContextChanged | None = None
        self._replaced: ContextReplaced | None = None
        self._shortened: ContextReplaced | None = None
        self._made: LiveContextReplaced | None = None
        self._live: LiveContextReplaced | None = None
        self._turn: list[Origin] = []
        self._signals: list[tuple[TurnPrepared, ContextChanged | None]] = []

    def take(self, record: JournalRecord) -> None:
        match record:
            case PreambleChanged():
                self._preambles[record.digest] = record
            case FlagsPinned():
                self._flags[record.digest] = record
            case SkillLoaded():
                self._skills[record.skill, record.digest] = record
            case MessageReceived():
                self._received[record.message_id] = record
            case ContextChanged():
                self._context = record
            case ContextReplaced(reason=FoldReason.SHORTENED):
                self._shortened = record
            case ContextReplaced(reason=FoldReason.WITHDRAWN):
                pass  # the message that it came with tells where the note is from
            case ContextReplaced():
                self._replaced = record
            case LiveContextReplaced():
                self._made = record
            case TurnPrepared():
                self._live = self._made if record.live else None
                self._turn = [*self._said(record.messages), *_quoted(record), *_policies(record)]
                if record.signal:
                    self._signals.append((record, self._context))
            case ModelRequested():
                self._turn += self._said(record.joined)
            case ToolFinished():
                detail = f"call {record.call_id}, {record.outcome.value}"
                self._turn.append(_origin(record, part="result", name=record.name, detail=detail))
            case TurnRefused() | MessageRetracted():
                self._signals = [told for told in self._signals if told[0].turn != record.turn]
            case _:
                pass

    def parts(self, state: ConversationState) -> Iterator[Origin]:
        """Of a request at ``state``, in the order of its parts."""
        if (preamble := self._preambles.get(state.preamble.digest)) is not None:
            body = _PREAMBLE.decode(preamble.body)
            detail = f"model {body.model}, {len(body.tools)} tools"
            yield _origin(preamble, part="preamble", name=preamble.digest[:12], detail=detail)
        if (flags := self._flags.get(state.flags_digest)) is not None:
            for flag in flags.decisions:
                is_on = "on" if flag.value else "off"
                detail = ", ".join(filter(None, (is_on, flag.variant and f"variant {flag.variant}", flag.reason)))
                yield _origin(flags, part="flag", name=flag.key, detail=detail)
        if (replaced := self._replaced) is not None:
            name = f"generation {replaced.generation}"
            yield _origin(replaced, part="summary", name=name, detail=_replaced_in_words(replaced))
        yield from self._earlier(state)
        if (live := self._live) is not None:
            model = f", by {live.model}" if live.model else ""
            detail = f"{len(live.words.split())} words{model}, ordered after {live.messages} messages"
            yield _origin(live, part="live context", name=live.job, detail=detail)
        for skill in state.skills:
            loaded = self._skills[skill.key, skill.digest]
            again = ", said again beside the summary" if skill.head else ""
            detail = f"version {loaded.digest[:12]}, {loaded.tokens} tokens{again}"
            yield _origin(loaded, part="skill", name=skill.key, detail=detail)
        text = state.view.text()
        for prepared, context in self._signals:
            if all(bytes(block) in text for block in prepared.signal):
                yield _signal(prepared, context)
        yield from self._turn

    def _earlier(self, state: ConversationState) -> Iterator[Origin]:
        """Turns before the running one that are in the view as they were said, and what was shortened in them."""
        if earlier := state.starts[:-1]:
            first, last = earlier[0], earlier[-1]
            name = f"turn {first.turn}" if first is last else f"turns {first.turn} to {last.turn}"
            detail = "as they were said, tool traffic included"
            yield Origin(part="history", name=name, detail=detail, turn=first.turn, seq=first.seq)
        cut = self._shortened
        if cut is not None and any(start.turn == cut.turn for start in state.starts):
            detail = f"{len(cut.shortened)} long results shortened"
            yield _origin(cut, part="shortened", name=f"in turn {cut.turn}", detail=detail)

    def _said(self, messages: Iterable[MessageId]) -> Iterator[Origin]:
        for message_id in messages:
            received = self._received.pop(message_id)
            files = sum(is_marker(bytes(block)) for block in received.blocks)
            beside = f", with {files} attachment{'s' if files > 1 else ''}" if files else ""
            detail = f"from {received.principal}{beside}"
            yield _origin(received, part="message", name=message_id, detail=detail)


def origins(records: Iterable[JournalRecord], *, seq: int) -> Origins | None:
    """Why the request at record ``seq`` was as it was; None when there is no request of a turn.

    Raises: BadHistory: as ``fold``.
    """
    sources, state = _Sources(), ConversationState()
    for record in records:
        state = fold(state, (record,))
        sources.take(record)
        if record.seq == seq:
            if isinstance(record, ModelRequested) and record.purpose == TURN:
                created = _origin_of_agent(state)
                return Origins(request=record, parts=(created, *sources.parts(state)))
            return None
    return None


def _origin_of_agent(state: ConversationState) -> Origin:
    return _origin(ConversationCreated(seq=1, agent=state.agent), part="agent", name=state.agent, detail="")


def _quoted(record: TurnPrepared) -> Iterator[Origin]:
    for turn in record.lookback:
        yield _origin(record, part="lookback", name=f"turn {turn}", detail="quoted for this turn alone")


def _policies(record: TurnPrepared) -> Iterator[Origin]:
    for policy, excerpts in Counter(record.policies).items():
        count = f"{excerpts} excerpts, " if excerpts > 1 else ""
        yield _origin(record, part="policy", name=policy, detail=f"{count}for this turn alone")


def _replaced_in_words(record: ContextReplaced) -> str:
    covered = f"turns {record.turns[0]} to {record.turns[1]}, records {record.seqs[0]} to {record.seqs[1]}"
    items = f"{len(record.items)} open items" + (f", {record.left_out} more left out so far" if record.left_out else "")
    return f"{record.reason.value}: {covered}, {items}"


def _signal(record: TurnPrepared, context: ContextChanged | None) -> Origin:
    told = f"version {context.version} of record {context.seq}" if context is not None else ""
    labels = f"labels {', '.join(record.labels)}" if record.labels else ""
    withheld = f"withheld {', '.join(record.withheld)}" if record.withheld else ""
    return _origin(record, part="context", name="signal", detail="; ".join(filter(None, (told, labels, withheld))))


def _origin(record: Record, *, part: str, name: str, detail: str) -> Origin:
    return Origin(part=part, name=name, detail=detail, turn=record.turn, seq=record.seq)
