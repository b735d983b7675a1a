"""What a tool returned, as text the model can read: rendered, cleaned, and shortened around its middle.

Pure. Cuts fall between code points, never within one.
"""

from typing import Any, Final

import msgspec

from torpor.conversation.text import CleanText, clean
from torpor.errors import ToolFailed

_UTF8_MAX_BYTES: Final = 4
_HEAD_SHARE: Final = 0.75


def rendered(value: object) -> CleanText:
    """A string as it is, None as ``done``, anything else as JSON; always text that can be stored and sent.

    Raises: ToolFailed: the value has no JSON form.
    """
    if value is None:
        return CleanText("done", 0)
    return clean(value) if isinstance(value, str) else _as_json(value)


def _as_json(value: object) -> CleanText:
    try:
        return CleanText(msgspec.json.encode(value).decode(), 0)
    except UnicodeEncodeError:
        counted = _Cleaning()
        text = msgspec.json.encode(counted.cleaned(msgspec.to_builtins(value))).decode()
        return CleanText(text, counted.replaced)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as exc:
        what = type(value).__name__
        raise ToolFailed(f"it ran to its end, but its result of type {what} cannot be written as JSON: {exc}") from exc


class _Cleaning:
    """Replaces, all through a value, what JSON cannot hold, and counts."""

    def __init__(self) -> None:
        self.replaced = 0

    def cleaned(self, value: Any) -> Any:
        match value:
            case str():
                text = clean(value)
                self.replaced += text.replaced
                return text.text
            case dict():
                return {self.cleaned(key): self.cleaned(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.cleaned(inner) for inner in value]
            case _:
                return value


def fits(text: str, *, cap_bytes: int) -> bool:
    """Whether ``text`` takes at most ``cap_bytes`` in UTF-8."""
    if len(text) * _UTF8_MAX_BYTES <= cap_bytes:
        return True
    return len(text) <= cap_bytes and len(text.encode()) <= cap_bytes


def excerpt(whole: bytes, *, cap_bytes: int, handle: str) -> str:
    """Head and tail of ``whole``, which is UTF-8 and longer than the cap, around a note that tells how to read on."""
    room = cap_bytes - len(_note(len(whole), len(whole), len(whole), handle=handle))
    head = whole[: int(room * _HEAD_SHARE)].decode(errors="ignore")
    tail = whole[len(whole) - (room - int(room * _HEAD_SHARE)) :].decode(errors="ignore")
    begin, end = len(head.encode()), len(whole) - len(tail.encode())
    return head + _note(begin, end, len(whole), handle=handle) + tail


def _note(begin: int, end: int, total: int, *, handle: str) -> str:
    return (
        f"\n[bytes {begin} to {end} of {total} are left out; "
        f'read_result with handle="{handle}" and offset={begin} reads on]\n'
    )


def page(window: bytes, *, size_bytes: int) -> tuple[int, bytes]:
    """The whole code points that begin in the first ``size_bytes`` of a window of UTF-8, and where they begin in it.

    Args: window: at least ``size_bytes + 4`` long unless the text ends there.  size_bytes: 4 or more, so that a page
        is never empty while there is text.
    """
    start = next((at for at, byte in enumerate(window) if byte & 0xC0 != 0x80), len(window))
    text = window[start : start + size_bytes].decode(errors="ignore")
    return start, text.encode()
