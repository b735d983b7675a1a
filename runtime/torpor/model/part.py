"""One block of a reply while it is being written: pure."""

from typing import Any, Final

import msgspec

from torpor.conversation.text import clean
from torpor.model.repeatable import repeatable
from torpor.records.blocks import Block
from torpor.records.nesting import is_deep

WORD_CHARS_MAX: Final = 64
"""Of a reason to stop or a type of block: words of the host's that go on record."""
NAME_CHARS_MAX: Final = 200
"""Of a model or a request."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class Part:
    """A block from its beginning on."""

    __slots__ = ("block", "fields", "index", "is_over", "json", "pieces", "signature", "type", "unsaid", "unusable")

    def __init__(self, fields: dict[str, Any], *, index: int) -> None:
        self.fields = fields
        self.index = index
        self.type = word(fields.get("type")) or "none"
        self.pieces: list[str] = []
        self.unsaid: list[str] = []
        self.json: list[str] = []
        self.signature = ""
        self.unusable = ""
        self.is_over = False
        self.block: Block | None = None
        """None until its end, and for one that is left out."""

    def text(self, field: str) -> str:
        """What the block began with; some hosts leave it out or say null."""
        value = self.fields.get(field)
        return value if isinstance(value, str) else ""

    def say(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self.unsaid.append(text)

    def finish(self) -> None:
        """Encode what came."""
        fields = self.fields
        if self.type == "text":
            fields["text"] = "".join(self.pieces)
        elif self.type == "thinking":
            fields["thinking"] = self.text("thinking") + "".join(self.pieces)
            fields["signature"] = self.signature or self.text("signature")
        else:
            self._read_input("".join(self.json))
        self.is_over = True
        self.block = repeatable(fields)

    def _read_input(self, text: str) -> None:
        """The arguments; a call whose arguments are not an object is kept with none, and never run."""
        why = ""
        if text.strip():
            try:
                self.fields["input"] = _OBJECT.decode(text)
            except (msgspec.DecodeError, RecursionError) as exc:
                why = str(exc)
        if is_deep(self.fields.get("input")):
            why = "it is nested too deep"
        if why:
            self.fields["input"] = {}
            self.unusable = f"arguments of {self.text('name')[:80]} are not a JSON object ({why}); nothing was done"


def word(told: object) -> str:
    """A word of the host's as it may go on record; empty for what is none."""
    return clean(told).text[:WORD_CHARS_MAX] if isinstance(told, str) else ""


def name_of(told: object) -> str:
    """Likewise, of something that the host names."""
    return clean(told).text[:NAME_CHARS_MAX] if isinstance(told, str) else ""
