"""What was said, as text that a summariser or a person reads: speakers, calls, results; thinking left out. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from torpor.conversation.graphemes import cut
from torpor.conversation.markup import is_told
from torpor.conversation.segments import Said
from torpor.records.attachments import attachment_of, told_of

_BLOCK: Final = msgspec.json.Decoder(dict[str, Any])


def transcript(turns: Iterable[tuple[int, Sequence[Said]]], *, text_chars: int, part_chars: int) -> list[str]:
    """A text for each turn, oldest first.

    Args: text_chars: of what a user or the model said in one piece; the rest is left out.  part_chars: of each call and
        each result.
    """
    return [
        f"Turn {number}\n" + "\n".join(_lines(said, text_chars=text_chars, part_chars=part_chars))
        for number, said in turns
    ]


def first_words(said: Iterable[Said], *, chars: int) -> tuple[str, str]:
    """How the words begin with which a user opened the turn, and the last reply to them."""
    asked, answered = "", ""
    is_opening = True
    for role, blocks in said:
        is_opening = is_opening and role == "user"
        for fields in map(_BLOCK.decode, blocks):
            text = str(fields.get("text", ""))
            if fields.get("type") != "text" or (role == "user" and is_told(text)):
                continue
            if role == "assistant":
                answered = text
            elif is_opening:
                asked = text  # notes on the turn before stand before it
    return _shortened(asked, chars), _shortened(answered, chars)


def text_of_result(block: bytes) -> str:
    """What a tool answered, as text."""
    content = _BLOCK.decode(block).get("content", "")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


def _lines(said: Iterable[Said], *, text_chars: int, part_chars: int) -> Iterable[str]:
    for role, blocks in said:
        for block in blocks:
            fields = _BLOCK.decode(block)
            match kind := fields.get("type"):
                case "text":
                    if role != "user" or not is_told(fields["text"]):
                        yield f"{role}: {_shortened(fields['text'], text_chars)}"
                case "tool_use":
                    arguments = msgspec.json.encode(fields.get("input", {})).decode()
                    yield f"calls {fields.get('name')}({_shortened(arguments, part_chars)})"
                case "tool_result":
                    kind = "error" if fields.get("is_error") else "result"
                    yield f"{kind}: {_shortened(text_of_result(block), part_chars)}"
                case "thinking" | "redacted_thinking":
                    continue
                case "attachment":
                    yield f"{role}: (attached {told_of(attachment_of(block))})"
                case _:
                    yield f"{role}: ({kind})"


def _shortened(text: str, chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars else cut(line, chars_max=chars).rstrip() + "…"
