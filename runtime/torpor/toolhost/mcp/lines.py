"""What a server wrote becomes a message, also where a part of it cannot be read. Pure.

Above: ``program``, ``bodies``. The library takes a line as a whole or not at all, and whoever waits for what was in it
waits for ever. So characters that are none are replaced, and what no reader takes is left out; where nothing helps and
the line tells whose answer it would be, that is an error.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import mcp_types as types
import msgspec
import pydantic_core
from mcp.shared.message import SessionMessage

LEVELS_MAX: Final = 160
"""What is deeper is left out; the library's reader takes some 200."""
_DIGITS_MAX: Final = 400
_MENDED_BYTES_MAX: Final = 1_048_576
"""Longer lines are only mended where characters are wrong: to look at each level takes up to 0.2 s for each MB."""
_LEFT_OUT: Final = b'"[left out: too large for JSON]"'
_ESCAPED: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<alone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_PARTS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<number>-?\d{400,}+)', re.DOTALL)
_ID_FIRST: Final = re.compile(rb'\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"id"\s*:\s*(\d{1,18})\s*,(?!\s*"method")')
_ID_LAST: Final = re.compile(rb',\s*"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_TAIL_BYTES: Final = 200


class TooLong(Exception):
    """A server sent more at once than is taken."""


class Unreadable(msgspec.Struct, frozen=True):
    """Stands in the data of an error that a server did not send."""

    why: str


class _Envelope(msgspec.Struct):
    id: int | str
    method: str = ""


def message_of(line: bytes) -> SessionMessage:
    """Raises: ValueError: it is no message, and no answer to anything."""
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as exc:
        why = _why(exc)
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(mended(line), by_name=False))
    except ValueError:
        answered = _id_of(line)
        if answered is None:
            raise
    error = types.ErrorData(code=types.PARSE_ERROR, message=why, data=Unreadable(why))
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=answered, error=error))


def readable(text: bytes) -> bytes:
    """JSON as it is, where the library can read it, else mended."""
    try:
        pydantic_core.from_json(text)
    except ValueError:
        return mended(text)
    return text


def mended(line: bytes) -> bytes:
    """JSON without characters that are none, and without what is too deep or too long a number."""
    line = with_characters(line)
    return b"".join(_readable(line)) if len(line) <= _MENDED_BYTES_MAX else line


def with_characters(text: bytes) -> bytes:
    """Characters that are none, also where they are escaped as JSON has it, are replaced by U+FFFD."""
    if not text.isascii():
        text = text.decode(errors="replace").encode()
    return _ESCAPED.sub(_whole, text) if b"\\u" in text else text


def _whole(found: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if found["alone"] else found[0]


def _readable(line: bytes) -> Iterator[bytes]:
    level, kept = 0, 0
    for part in _PARTS.finditer(line):
        match part.lastgroup:
            case "open":
                level += 1
                if level == LEVELS_MAX:
                    yield line[kept : part.start()]
                    yield _LEFT_OUT
                    kept = len(line)
            case "close":
                if level == LEVELS_MAX:
                    kept = part.end()
                level -= 1
            case "number" if level < LEVELS_MAX:
                yield line[kept : part.start()]
                yield _LEFT_OUT
                kept = part.end()
    yield line[kept:]


def _id_of(line: bytes) -> int | str | None:
    """Of the request that it answers; none where it is none."""
    try:
        envelope = msgspec.json.decode(line, type=_Envelope)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = _ID_FIRST.match(line) or _ID_LAST.search(line, max(0, len(line) - _TAIL_BYTES))
        return int(found[1]) if found else None
    return None if envelope.method else envelope.id


def _why(exc: ValueError) -> str:
    """Without the words of the line."""
    errors: Any = exc.errors(include_input=False, include_url=False) if hasattr(exc, "errors") else ()
    told = next((str(error["msg"]) for error in errors if error["type"] == "json_invalid"), "")
    return told.partition(" at line ")[0].removeprefix("Invalid JSON: ") or "it has not the shape of an answer"
