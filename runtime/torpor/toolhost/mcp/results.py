"""What a server answered to a call, as text the model can read. Pure.

Text stands as it is. Structured content is told where no text says it already. Anything else is a note of what it was,
since its bytes are not for reading.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from torpor.errors import ToolFailed

EMPTY: Final = "done, without a word"
_URI_CHARS: Final = 200


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a call, as the server tells it."""

    content: tuple[Mapping[str, Any], ...] = ()
    """Blocks with a ``type``, as JSON has them."""
    structured: Any = None
    is_error: bool = False


def told(answer: Answer, *, tool: str, size_bytes_max: int) -> str:
    """The text of an answer that is no error.

    Raises: ToolFailed: it is one, with what the server says; or it is too large to be taken.
    """
    text = _text(answer, tool=tool, size_bytes_max=size_bytes_max)
    if answer.is_error:
        raise ToolFailed(text if text != EMPTY else f"{tool} failed, and its server does not say why")
    return text


def size_of(answer: Answer) -> int:
    """Bytes, roughly: characters of all texts within."""
    total, left = 0, list[Any]([*answer.content, answer.structured])
    while left:
        match left.pop():
            case str() as text:
                total += len(text)
            case Mapping() as inner:
                left.extend(inner.values())
                total += sum(len(str(key)) for key in inner)
            case list() | tuple() as listed:
                left.extend(listed)
            case _:
                total += 8
    return total


def _text(answer: Answer, *, tool: str, size_bytes_max: int) -> str:
    size = size_of(answer)
    if size > size_bytes_max:
        fact = f"{tool} answered with about {size:,} bytes, of which at most {size_bytes_max:,} are taken"
        raise ToolFailed(f"{fact}; it has run all the same: ask for less")
    texts = [block["text"] for block in answer.content if _is_text(block)]
    notes = [_note(block) for block in answer.content if not _is_text(block)]
    if answer.structured is not None and not (_says(texts, answer.structured) or _is_content(answer)):
        texts.append(_as_json(answer.structured, tool=tool))
    return "\n".join(filter(None, (*texts, *notes))) or EMPTY


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _says(texts: Sequence[str], structured: Any) -> bool:
    """Whether a text is the structured content again, as servers send it for those who know texts only; of a list each
    item may be a text of its own."""
    if isinstance(structured, Mapping) and structured.keys() == {"result"}:
        result = structured["result"]
        if result in texts or (isinstance(result, list) and _lists(texts, result)):
            return True
    return any(_is_json_of(text, structured) for text in texts)


def _lists(texts: Sequence[str], result: list[Any]) -> bool:
    """Lists within lists are one list to who makes texts of them."""
    items, left = list[Any](), result[::-1]
    while left and len(items) <= len(texts):
        if isinstance(item := left.pop(), list):
            left.extend(reversed(item))
        else:
            items.append(item)
    if left or not items or len(items) != len(texts):
        return False
    return all(item == text or _is_json_of(text, item) for item, text in zip(items, texts, strict=True))


def _is_content(answer: Answer) -> bool:
    """Whether the structured content is the blocks again, pictures and all."""
    structured = answer.structured
    again = structured.get("result") if isinstance(structured, Mapping) and len(structured) == 1 else None
    if not isinstance(again, list) or not again or len(again) != len(answer.content):
        return False
    return all(
        isinstance(block, Mapping) and "type" in block and block["type"] == kind.get("type")
        for block, kind in zip(again, answer.content, strict=True)
    )


def _is_json_of(text: str, value: Any) -> bool:
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return bool(
        said == value or (isinstance(value, Mapping) and value.keys() == {"result"} and said == value["result"])
    )


def _as_json(value: Any, *, tool: str) -> str:
    try:
        return msgspec.json.encode(_with_finite_numbers(value)).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as exc:
        raise ToolFailed(f"{tool} ran to its end, but its result cannot be written as JSON") from exc


def _with_finite_numbers(value: Any) -> Any:
    """JSON has no others, and they would be told as ``null``."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _with_finite_numbers(each) for key, each in value.items()}
        case list():
            return [_with_finite_numbers(each) for each in value]
    return value


def _note(block: Mapping[str, Any]) -> str:
    kind = str(block.get("type", "something"))[:40]
    match kind:
        case "image" | "audio":
            size = len(str(block.get("data", ""))) * 3 // 4
            return f"[{kind}, {str(block.get('mimeType', 'of an unknown type'))[:80]}, about {size:,} bytes: not shown]"
        case "resource":
            return _resource(block.get("resource"))
        case "resource_link":
            return f"[a link to {str(block.get('uri', ''))[:_URI_CHARS]}, which cannot be followed here]"
    return f"[{kind}: not shown]"


def _resource(resource: object) -> str:
    if not isinstance(resource, Mapping):
        return "[resource: not shown]"
    if isinstance(text := resource.get("text"), str):
        return text
    return f"[a resource {str(resource.get('uri', ''))[:_URI_CHARS]}: not shown]"
