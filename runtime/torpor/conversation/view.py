"""The model's view: the messages of a request as text that only grows, and what stands before them.

The view is the ``messages`` array without its closing brackets, in canonical JSON. Appending a block appends text;
nothing in it is encoded twice, and an earlier request is a prefix of a later one by construction. Neighbours of one
role share a message, so roles always alternate.

Each block extends a hash chain, ``link = sha256(previous link + canonical JSON of [role, block])``, from the empty
string. A request is named by the digest of its preamble and its last link, so a new preamble costs no pass over the
history.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from torpor.records.attachments import attachment_of, is_marker
from torpor.records.blocks import Block, canonical

Role = Literal["user", "assistant"]

_OPEN: Final = b'{"content":['
_CLOSE: Final[dict[Role, bytes]] = {"user": b'],"role":"user"}', "assistant": b'],"role":"assistant"}'}
_NEXT: Final[dict[Role, bytes]] = {role: close + b"," + _OPEN for role, close in _CLOSE.items()}
"""Between a message of this role and the next one."""
_LINK_HEAD: Final[dict[Role, bytes]] = {"user": b'["user",', "assistant": b'["assistant",'}


FALLBACK: Final = "fallback"
"""In a preamble: the fallback model and, as fields that replace those of the preamble, what its requests have of their
own; null leaves one out. Never sent as such."""


class Preamble(msgspec.Struct, frozen=True):
    """What stands before the messages: model, limits, system blocks, tool schemas. Stored once when it changes."""

    digest: str = ""
    """sha256 of ``body``, hex."""
    body: msgspec.Raw = msgspec.Raw(b"{}")
    """Canonical JSON object of every request field but ``messages``, and of what ``FALLBACK`` names."""

    @property
    def size_bytes(self) -> int:
        """Of ``body``."""
        return len(memoryview(self.body))


def preamble_of(fields: dict[str, Any]) -> Preamble:
    """Encode and name a preamble; equal fields give an equal digest."""
    body = canonical(fields)
    return Preamble(digest=hashlib.sha256(body).hexdigest(), body=body)


TOKEN_BYTES: Final = 4
"""What a token of an attachment weighs, beside text; the first guess for text."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Where a view has the marker of an attachment."""

    begin: int
    """Size of the view before it."""
    size_bytes: int
    extra_bytes: int
    """How much more it weighs in a request than in the view; may be less than 0."""


def weight_of(block: Block) -> int:
    """Size of a block in a request, in bytes of text: what an attachment stands for weighs what its tokens would."""
    if not is_marker(body := bytes(block)):
        return len(body)
    return TOKEN_BYTES * attachment_of(body).tokens


class View(msgspec.Struct, frozen=True):
    """An immutable prefix of a list that is shared with its extensions.

    Extending the longest view of a list, or extending a shorter one by what already follows it, copies nothing.
    """

    chunks: list[bytes] = msgspec.field(default_factory=list)
    """Shared; only the first ``length`` belong to this view."""
    length: int = 0
    role: Role | None = None
    """Of the message that is open at the end."""
    link: bytes = b""
    """Of the last block; empty before the first."""
    size_bytes: int = 0
    blocks: int = 0
    loose: int = 0
    """Chunks from here on are one block or what stands between two; those before hold more."""
    marks: tuple[Mark, ...] = ()
    """Of attachments, in order."""

    def extended(self, role: Role, blocks: Iterable[Block]) -> "View":
        """This view with ``blocks`` said by ``role`` at its end."""
        pieces: list[bytes] = []
        link, previous, count, size, marks = self.link, self.role, self.blocks, self.size_bytes, self.marks
        for block in blocks:
            body = bytes(block)
            joint = _OPEN if previous is None else b"," if previous == role else _NEXT[previous]
            pieces += (joint, body)
            size += len(joint)
            if is_marker(body):
                marks = (*marks, Mark(size, len(body), weight_of(block) - len(body)))
            size += len(body)
            link = hashlib.sha256(link + _LINK_HEAD[role] + body + b"]").digest()
            previous = role
            count += 1
        chunks, end = self.chunks, self.length + len(pieces)
        if not self.length:
            chunks = []  # the list of an empty view is everybody's
        elif len(chunks) > self.length and chunks[self.length : end] != pieces:
            chunks = chunks[: self.length]
        chunks.extend(pieces[len(chunks) - self.length :])
        return View(chunks, end, previous, link, size, count, self.loose, marks)

    def packed(self) -> "View":
        """The same view as one piece of text: what an idle conversation keeps."""
        if self.length < 2:
            return self
        return View([self.text()], 1, self.role, self.link, self.size_bytes, self.blocks, 1, self.marks)

    def settled(self, base: "View") -> "View":
        """The same view with what follows ``base``, a view that it extends, as one piece.

        Joining many small pieces would cost each later request more than copying them. Pieces double as they age, like
        the digits of a counter, so each byte is copied a logarithmic number of times and few pieces are left.
        """
        if self.length - base.length < 2:
            return self
        chunks, tail = self.chunks[: base.length], [b"".join(self.chunks[base.length : self.length])]
        size_bytes = len(tail[0])
        while chunks and len(chunks[-1]) <= size_bytes:
            tail.append(chunks.pop())
            size_bytes += len(tail[-1])
        chunks.append(b"".join(reversed(tail)) if len(tail) > 1 else tail[0])
        return View(chunks, len(chunks), self.role, self.link, self.size_bytes, self.blocks, len(chunks), self.marks)

    @property
    def weight_bytes(self) -> int:
        """Its size in a request, attachments as what they stand for."""
        return self.size_bytes + sum(mark.extra_bytes for mark in self.marks) if self.marks else self.size_bytes

    def weight_before(self, size_bytes: int) -> int:
        """The same of its first ``size_bytes``."""
        return size_bytes + sum(mark.extra_bytes for mark in self.marks if mark.begin < size_bytes)

    def text(self) -> bytes:
        """The array without its opening bracket and without what closes it."""
        return b"".join(self.chunks[: self.length])

    def messages(self) -> bytes:
        """The ``messages`` array, canonical JSON."""
        return b"".join((b"[", *self.chunks[: self.length], _CLOSE[self.role] if self.role else b"", b"]"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        return (self.role, self.link, self.size_bytes) == (other.role, other.link, other.size_bytes) and (
            self.text() == other.text()
        )

    __hash__ = None  # type: ignore[assignment]  # views are compared, never keyed


def request_fields(preamble: Preamble, *, model: str = "", live: Block | None = None) -> dict[str, msgspec.Raw]:
    """What stands beside the messages of a request.

    Args: model: asked instead of the preamble's; empty for that one.  live: the live context, which stands behind
        every other system block.
    """
    fields = msgspec.json.decode(preamble.body, type=dict[str, msgspec.Raw])
    fallback = fields.pop(FALLBACK, None)
    if model:
        fields["model"] = canonical(model)
        own = msgspec.json.decode(fallback or b"{}", type=dict[str, msgspec.Raw])
        if own.get("model") == fields["model"]:
            fields |= own
    if live is not None:
        system = msgspec.json.decode(fields.get("system", b"[]"), type=list[msgspec.Raw])
        fields["system"] = canonical([*system, live])
    return {name: value for name, value in fields.items() if bytes(value) != b"null"}


def request_body(preamble: Preamble, view: View, *, model: str = "", live: Block | None = None) -> bytes:
    """The whole request as canonical JSON, which is what an audit compares."""
    fields = request_fields(preamble, model=model, live=live)
    return bytes(canonical({**fields, "messages": msgspec.Raw(view.messages())}))
