"""Text from a client into frames, and the names in it into keys. Pure.

Above: the session. What cannot be a frame is ``BadFrame`` with the place and what was expected there; the text of the
error repeats nothing that could not be sent back.
"""

import json
from typing import Any, Final

import msgspec

from torpor.conversation.text import clean
from torpor.errors import BadFrame, ClientError, TorporError, UnknownConversation
from torpor.gateway.auth import Principal, Scope, is_owner_name
from torpor.misfits import with_choices
from torpor.records.binary import BadBinary, unpacked
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.frames import (
    AnyClientFrame,
    ClientFrame,
    Create,
    ErrorFrame,
    Send,
    Subscribe,
    UpdateContext,
    UploadPiece,
)
from torpor.records.ids import CONVERSATION_ID, JOB_ID, ConversationKey

_DECODER: Final = msgspec.json.Decoder(AnyClientFrame)
_PARTS: Final[dict[str, type[msgspec.Struct]]] = {
    "record": SelectedRecord,
    **dict.fromkeys(("screen", "role", "plan", "actions"), ContextPart),
}
"""What the parts of a context are."""


_KEY_PARTS: Final = 3
"""Of the path of a conversation."""
_NAME_CHARS: Final = 64
"""Of a name that is repeated in an error."""


class _Told(msgspec.Struct):
    context: dict[str, Any] = {}


_TOLD: Final = msgspec.json.Decoder(_Told)


def decode(text: str) -> AnyClientFrame:
    r"""One client frame. The text of a message may hold lone surrogates; nothing else does.

    UTF-16 clients that cut an emoji in half write ``"\ud83d"``, which msgspec refuses and which must cost neither the
    frame nor the connection; the standard library reads it.

    Raises: BadFrame: not JSON, nested too deeply, of no known type, or not of its type's shape.
    """
    try:
        return _decode_strict(text)
    except msgspec.ValidationError as exc:
        raise _bad(exc) from exc
    except UnicodeEncodeError:
        return _decode_lenient(text)
    except msgspec.DecodeError as exc:
        if "\\ud" not in text.lower():
            raise _bad(exc) from exc
        return _decode_lenient(text)
    except RecursionError as exc:
        raise _too_deep() from exc


def decode_binary(message: bytes) -> UploadPiece:
    """A frame with bytes behind its header. Raises: BadFrame: it has none, or is of a type that carries no bytes."""
    try:
        header, data = unpacked(message)
        frame = decode(header.decode())
    except (BadBinary, UnicodeDecodeError) as exc:
        raise BadFrame(f"binary frame cannot be read: {exc}; expected a length, a header of JSON, and bytes") from exc
    if not isinstance(frame, UploadPiece):
        raise BadFrame("binary frame carries bytes for nothing, expected an upload.piece")
    return msgspec.structs.replace(frame, data=data)


def _decode_strict(text: str) -> AnyClientFrame:
    frame = _DECODER.decode(text)
    if isinstance(frame, UpdateContext):
        _check_context(_TOLD.decode(text).context)
    return frame


def _check_context(context: dict[str, Any]) -> None:
    """A part that is misspelt would clear what it was meant to tell. Raises: BadFrame."""
    _check_names(context, of=WorkingContext, place="context")
    for name, kind in _PARTS.items():
        told = context.get(name)
        for number, part in enumerate(told if isinstance(told, list) else [told]):
            if isinstance(part, dict):
                where = f"context.{name}[{number}]" if isinstance(told, list) else f"context.{name}"
                _check_names(part, of=kind, place=where)


def _check_names(told: dict[str, Any], *, of: type[msgspec.Struct], place: str) -> None:
    known = of.__struct_fields__
    for name in told:
        if name not in known:
            shown = repr(clean(name[:_NAME_CHARS]).text)
            raise BadFrame(f"{place} has an unknown field {shown}, expected of {', '.join(known)}")


def _decode_lenient(text: str) -> AnyClientFrame:
    try:
        told = json.loads(text)
        frame: AnyClientFrame = msgspec.convert(told, AnyClientFrame)
        if isinstance(frame, UpdateContext):
            _check_context(told["context"])
    except ValueError as exc:  # of either library
        raise _bad(exc) from exc
    except RecursionError as exc:
        raise _too_deep() from exc
    frame = msgspec.structs.replace(frame, ref=clean(frame.ref).text)
    if isinstance(frame, Send | Create):
        return msgspec.structs.replace(frame, agent=clean(frame.agent).text)
    return frame


def _bad(exc: Exception) -> BadFrame:
    said = with_choices(exc, AnyClientFrame) if isinstance(exc, msgspec.ValidationError) else str(exc)
    return BadFrame(f"frame cannot be read: {clean(said).text}")


def _too_deep() -> BadFrame:
    return BadFrame("frame is nested too deeply, expected a few levels")


def key_named(name: str, *, by: Principal) -> ConversationKey:
    """The key that ``by`` means with ``name``: an id of its own owner, or a path ``[tenant/]owner/conversation``.

    Raises:
        BadFrame: it is neither.
        UnknownConversation: it is a path to somebody else, and ``by`` is no operator. Whether anything is there is
            not looked at, so that foreign and unknown are the same.
    """
    *owners, conversation = name.split("/")
    if len(owners) > 2 or not CONVERSATION_ID.fullmatch(conversation) or not all(map(is_owner_name, owners)):
        raise BadFrame(f"conversation {name[:200]!r} is not a name, expected 1..64 letters, digits, '_' or '-'")
    tenant, owner = ([by.tenant, by.owner] if not owners else [by.tenant, *owners])[-2:]
    key = ConversationKey(tenant, owner, conversation)
    if not may_name(key, by=by):
        raise UnknownConversation(name)
    return key


def journal_named(path: str, *, by: Principal) -> ConversationKey:
    """The key of the journal that ``by`` means with ``path``: a conversation's, or that of a sub-agent which works for
    it, ``tenant/owner/conversation/child``, or of one that works for that. Raises: as ``key_named``."""
    parts = path.split("/")
    key = key_named("/".join(parts[:_KEY_PARTS]), by=by)
    for child in parts[_KEY_PARTS:]:
        if not CONVERSATION_ID.fullmatch(child):
            raise BadFrame(f"sub-agent {child[:200]!r} is not a name, expected 1..64 letters, digits, '_' or '-'")
        key = key.child(child)
    return key


def may_name(key: ConversationKey, *, by: Principal) -> bool:
    """Whether the conversation, which may exist or not, is of ``by``'s owner, or ``by`` is an operator."""
    return (key.tenant, key.owner) == (by.tenant, by.owner) or by.may(Scope.OPERATOR)


def owner_named(name: str, *, by: Principal) -> tuple[str, str]:
    """Tenant and owner that ``by``, an operator, means with ``[tenant/]owner``. Raises: BadFrame: it is no name."""
    parts = name.split("/")
    if len(parts) > 2 or not all(map(is_owner_name, parts)):
        shown = clean(name[:_NAME_CHARS]).text
        raise BadFrame(f"owner {shown!r} is not a name, expected [tenant/]owner, each 1..128 characters without blanks")
    tenant, owner = [by.tenant, *parts][-2:]
    return tenant, owner


def job_named(path: str, *, by: Principal) -> tuple[ConversationKey, str]:
    """The job that ``by`` means with ``path``: ``[[tenant/]owner/]conversation/job``. Raises: as ``key_named``."""
    conversation, _, job = path.rpartition("/")
    if not JOB_ID.fullmatch(job):
        raise BadFrame(f"job {path[:300]!r} is not a name, expected a conversation, a slash and the id of a job")
    return key_named(conversation, by=by), job


class _Loose(msgspec.Struct, frozen=True):
    """What may name a request, in a frame that cannot be read as a whole."""

    ref: Any = ""
    conversation: Any = ""
    message_id: Any = ""


_LOOSE: Final = msgspec.json.Decoder(_Loose)


def unreadable_frame(text: str, error: ClientError) -> ErrorFrame:
    """``error`` as the answer to ``text``, with whatever names the request in it."""
    loose = _loosely(text)
    ref, conversation, message_id = (
        clean(name).text if isinstance(name, str) else "" for name in (loose.ref, loose.conversation, loose.message_id)
    )
    return ErrorFrame(
        code=error.code,
        message=str(error),
        retry_after_s=error.retry_after_s,
        ref=ref,
        conversation=conversation,
        message_id=message_id,
    )


def _loosely(text: str) -> _Loose:
    """What is no name, or half a character anywhere, costs no other name."""
    try:
        return _LOOSE.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:
        return msgspec.convert(json.loads(text), _Loose)
    except (ValueError, RecursionError):  # of either library
        return _Loose()


def unreadable_binary(message: bytes, error: ClientError) -> ErrorFrame:
    """``error`` as the answer to a binary message, likewise by its header, if it has one."""
    try:
        return unreadable_frame(unpacked(message)[0].decode(), error)
    except (BadBinary, UnicodeDecodeError):
        return unreadable_frame("", error)


def error_frame(error: ClientError | None, *, of: ClientFrame) -> ErrorFrame:
    """``error`` as the answer to the frame ``of``; None for a fault of ours, of which clients learn nothing more."""
    conversation = of.subscription.conversation if isinstance(of, Subscribe) else getattr(of, "conversation", "")
    return ErrorFrame(
        code=error.code if error else TorporError.code,
        message=str(error) if error else "the server failed, its log says why",
        retry_after_s=error.retry_after_s if error else None,
        ref=of.ref,
        conversation=clean(conversation).text,
        message_id=clean(of.message_id).text if isinstance(of, Send) else "",
    )
