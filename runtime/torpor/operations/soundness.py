"""What a record may hold, whatever came before it: pure.

Above: verification, for what is stored and for what is to be imported. A record that decodes may still hold what no
engine writes: a block that requests may not hold at its place, an id that no client could give, a moment that no clock
shows. The fold does not look into most of that; whoever shows the record, or sends it, would fail.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from torpor.conversation.live_context import live_block
from torpor.conversation.text import clean, is_blank
from torpor.conversation.title import titled
from torpor.flags.contract import Decided, Decision
from torpor.model.repeatable import repeatable
from torpor.records.attachments import HANDLE, MEDIA_TYPE, Attachment, marker_block
from torpor.records.attachments import TYPE as ATTACHMENT
from torpor.records.blocks import Block, canonical
from torpor.records.bounds import MOMENT_MAX_US, NUMBER_MAX
from torpor.records.context import WorkingContext
from torpor.records.ids import CONVERSATION_ID, JOB_ID, OWNER_ID
from torpor.records.journal import (
    ContextReplaced,
    ConversationCreated,
    FlagsPinned,
    JournalRecord,
    LateResult,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    ModelReplied,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnPrepared,
    TurnRefused,
)

_NAME_CHARS_MAX: Final = 200
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,256}")
_CALL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MAY_BE_BELOW_ZERO: Final = frozenset({"sections"})
"""Estimates: what is left of a whole, when its other parts were told too high."""
_FLAGS_DIGEST: Final = re.compile(r"[0-9a-f]{16}")
_FIELDS: Final = msgspec.json.Decoder(dict[str, Any])
_WITH_SOURCE: Final = ("image", "document", "search_result")
_TEXT_FIELDS: Final = frozenset({"type", "text"})
_RESULT_FIELDS: Final = frozenset({"type", "tool_use_id", "content", "is_error"})


class _Attached(msgspec.Struct, frozen=True):
    attachment: Attachment


class _Unsound(ValueError):
    pass


def flaw_of(record: JournalRecord) -> str:
    """What no engine would have written in it; empty when there is nothing. It is not nested too deeply."""
    try:
        _check_numbers(record, "")
        _check_ids(record)
        for kind, check in _CHECKS:
            if isinstance(record, kind):
                check(record)
    except _Unsound as exc:
        return str(exc)
    except (msgspec.DecodeError, UnicodeError) as exc:
        return f"a block of it cannot be read: {exc}"
    return ""


def too_deep(depth_max: int) -> str:
    """Of JSON, in words."""
    return f"it is nested deeper than {depth_max} levels"


def _require(is_sound: object, what: str) -> None:
    if not is_sound:
        raise _Unsound(what)


def _check_numbers(value: Any, name: str) -> None:
    """All of them, at any depth: stores can hold each, and each moment is one."""
    if isinstance(value, bool | float | str | msgspec.Raw | WorkingContext):
        return
    if isinstance(value, int):
        end = MOMENT_MAX_US if name.endswith("_us") else NUMBER_MAX
        begin = -end if name in _MAY_BE_BELOW_ZERO else 0
        _require(begin <= value <= end, f"its {name} is {_short(value)}, expected {begin} to {end}")
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            _check_numbers(getattr(value, field), field)
    elif isinstance(value, dict):
        _check_numbers(tuple(value.values()), name)
    elif isinstance(value, tuple):
        for each in value:
            _check_numbers(each, name)


def _short(value: int) -> str:
    """A number of any size."""
    return str(value) if abs(value) < 10**20 else f"one of {value.bit_length()} bits"


def _check_ids(record: JournalRecord) -> None:
    """Every field that is called as one, of whatever kind of record."""
    for name in record.__struct_fields__:
        rule, value = _RULES.get(name), getattr(record, name)
        for each in value if isinstance(value, tuple) else (value,):
            if rule is None or not isinstance(each, str) or not each:
                continue
            shown = clean(each[:80]).text
            _require(rule(each), f"its {name} {shown!r} is none")


def _is_text_line(value: str) -> bool:
    return len(value) <= _NAME_CHARS_MAX and value.isprintable()


def _is_principal(value: str) -> bool:
    return OWNER_ID.fullmatch(value) is not None and value.isprintable()


_RULES: Final[dict[str, Callable[[str], object]]] = {
    "message_id": CONVERSATION_ID.fullmatch,
    "cause": CONVERSATION_ID.fullmatch,
    "messages": CONVERSATION_ID.fullmatch,
    "joined": CONVERSATION_ID.fullmatch,
    "before": CONVERSATION_ID.fullmatch,
    "source": CONVERSATION_ID.fullmatch,
    "call_id": _CALL_ID.fullmatch,
    "job": JOB_ID.fullmatch,
    "child": CONVERSATION_ID.fullmatch,
    "principal": _is_principal,
    "agent": _is_text_line,
    "title": lambda value: titled(value) == value,
    "call": _is_text_line,
    "name": _is_text_line,
}
"""By name of a field; those that may be empty may."""


def _created(record: ConversationCreated) -> None:
    _require(record.agent, "it names no agent")


def _received(record: MessageReceived) -> None:
    _require(record.message_id, "it has no message id")
    _check_message(record.blocks)


def _prepared(record: TurnPrepared) -> None:
    _check_notes((*record.signal, *record.turn_only))


def _noted(record: MessageRetracted | LateResult | TurnRefused) -> None:
    _check_notes(record.note if isinstance(record.note, tuple) else (record.note,))


def _cut(record: TurnCancelled | TurnFailed) -> None:
    _check_notes((record.note,))
    _check_reply(record.partial)


def _replied(record: ModelReplied) -> None:
    _check_reply(record.blocks)
    _check_notes(record.note)


def _finished(record: ToolFinished) -> None:
    _check_result(record.block, record.call_id)


def _replaced(record: ContextReplaced) -> None:
    _check_notes(record.head)
    _check_notes(record.withdrawn.values())
    for call_id, block in record.shortened.items():
        _check_result(block, call_id)


def _live_replaced(record: LiveContextReplaced) -> None:
    _require(bytes(live_block(record.words)) == bytes(record.block), "its block does not hold its words")


def _pinned(record: FlagsPinned) -> None:
    if not _FLAGS_DIGEST.fullmatch(record.digest):
        return  # it is nothing that decisions have: the next turn pins its own
    decisions = [
        Decision(key=each.key, value=each.value, variant=each.variant, reason=each.reason) for each in record.decisions
    ]
    found = Decided(decisions).digest
    _require(found == record.digest, f"it names digest {record.digest}, its decisions have {found}")


_CHECKS: Final[tuple[tuple[type[Any], Callable[[Any], None]], ...]] = (
    (ConversationCreated, _created),
    (MessageReceived, _received),
    (TurnPrepared, _prepared),
    (MessageRetracted, _noted),
    (LateResult, _noted),
    (TurnRefused, _noted),
    (TurnCancelled, _cut),
    (TurnFailed, _cut),
    (ModelReplied, _replied),
    (ToolFinished, _finished),
    (ContextReplaced, _replaced),
    (LiveContextReplaced, _live_replaced),
    (FlagsPinned, _pinned),
)


def _read(blocks: Iterable[Block]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each one's type and fields."""
    for block in blocks:
        _require(bytes(block).startswith(b"{"), f"a block of it is {bytes(block)[:40]!r}, expected an object")
        fields = _FIELDS.decode(block)
        type_ = fields.get("type")
        if not isinstance(type_, str):
            raise _Unsound("a block of it has no type")
        yield type_, fields


def _check_message(blocks: Iterable[Block]) -> None:
    """What people send: text, and what the host reads beside it."""
    for type_, fields in _read(blocks):
        if type_ in _WITH_SOURCE:
            _check_source(type_, fields)
        elif type_ == ATTACHMENT:
            _check_attachment(fields)
        else:
            _check_text(type_, fields, of="a message")


def _check_attachment(fields: dict[str, Any]) -> None:
    """It names bytes, and says of them what requests are reckoned with."""
    try:
        named = msgspec.convert(fields, _Attached).attachment
    except msgspec.ValidationError as exc:
        raise _Unsound(f"an attachment of it cannot be read: {exc}") from exc
    _require(bytes(marker_block(named)) == bytes(canonical(fields)), "an attachment of it is not written as one")
    _require(HANDLE.fullmatch(named.blob), f"an attachment of it names blob {clean(named.blob[:80]).text!r}")
    _require(MEDIA_TYPE.fullmatch(named.media_type), "an attachment of it is of a kind that is not sent")
    numbers = (named.size_bytes, named.tokens, named.pages)
    _require(all(0 <= number <= NUMBER_MAX for number in numbers), "an attachment of it has no size")
    _require(_is_text_line(named.name), "an attachment of it has a name that cannot be shown")


def _check_notes(blocks: Iterable[Block]) -> None:
    """What the engine says to the model in a user message."""
    for type_, fields in _read(blocks):
        _check_text(type_, fields, of="what the engine says")


def _check_text(type_: str, fields: dict[str, Any], *, of: str) -> None:
    _require(type_ == "text", f"a block of it is {clean(type_[:40]).text!r}, which {of} cannot hold")
    _require(fields.keys() == _TEXT_FIELDS, "a text of it has other fields than its text")
    text = fields["text"]
    _require(isinstance(text, str) and text.strip() and not is_blank(text), "a text of it says nothing")


def _check_source(type_: str, fields: dict[str, Any]) -> None:
    source = fields.get("source")
    is_sound = isinstance(source, str) if type_ == "search_result" else isinstance(source, dict)
    _require(is_sound, f"a block of it, {type_!r}, has no source")


def _check_reply(blocks: Iterable[Block]) -> None:
    """What a host may say, and is told again in every later request."""
    blocks = tuple(blocks)
    for block, (type_, fields) in zip(blocks, _read(blocks), strict=True):
        shown = clean(type_[:40]).text
        kept = repeatable(fields)
        _require(kept is not None and bytes(kept) == bytes(block), f"a block of it is no {shown!r} of a reply")
        match type_:
            case "text":
                _require(fields["text"].strip(), "a text of it says nothing")
            case "thinking":
                _require(fields["signature"], "its thinking is not signed")
            case "tool_use":
                is_call = _CALL_ID.fullmatch(fields["id"]) and _CALL_NAME.fullmatch(fields["name"])
                _require(is_call and isinstance(fields.get("input"), dict), "a call of it cannot be sent again")


def _check_result(block: Block, call_id: str) -> None:
    ((type_, fields),) = _read((block,))
    _require(type_ == "tool_result", f"its block is {clean(type_[:40]).text!r}, expected a tool_result")
    _require(fields.keys() <= _RESULT_FIELDS, "its result has fields that requests do not take")
    named, content, is_error = fields.get("tool_use_id"), fields.get("content", ""), fields.get("is_error", False)
    _require(named == call_id, f"the result of call {call_id!r} names call {clean(str(named)[:80]).text!r}")
    _require(isinstance(is_error, bool), "its result may or may not be an error")
    _require(content or not is_error, "its result is an error that says nothing")
    if isinstance(content, str):
        return
    _require(isinstance(content, list), "its result is neither text nor blocks")
    for inner in content:
        _require(isinstance(inner, dict), "a part of its result is no object")
        inner_type = str(inner.get("type", ""))
        if inner_type in _WITH_SOURCE:
            _check_source(inner_type, inner)
        else:
            _check_text(inner_type, inner, of="a result")
