"""What stands for a file that somebody sent, in records and in the view: a marker of a few dozen bytes.

The marker is a block like any other: it is stored, hashed and kept in its place. No host is ever sent one: the bytes
that it names take its place just before a call, see ``model.attached``.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from torpor.records.blocks import Block, canonical


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that was looked into and can be shown to a model."""

    blob: str
    """Its bytes' sha256, by which the owner's blobs have them."""
    media_type: str
    """Of these bytes, as they are sent: a picture's, ``application/pdf`` or ``text/plain``."""
    size_bytes: int
    tokens: int
    """Estimated, of the block that it becomes."""
    name: str = ""
    """As the client calls it; may be empty."""
    pages: int = 0
    """Of a PDF."""

    @property
    def is_picture(self) -> bool:
        return self.media_type.startswith("image/")


class Why(StrEnum):
    """Why an attachment is not shown any more."""

    MISSING = "missing"
    """Its bytes are not there."""
    DAMAGED = "damaged"
    """Its bytes are not those that it names."""
    REFUSED = "refused"
    """The model's host does not take it."""
    ROOM = "room"
    """A request cannot hold all of them, and it is among the oldest."""


class _Marker(msgspec.Struct, frozen=True):
    attachment: Attachment
    type: str


TYPE: Final = "attachment"
HANDLE: Final = re.compile(r"[0-9a-f]{64}")
"""What the name of a blob must match in full."""
MEDIA_TYPE: Final = re.compile(r"image/(png|jpeg|gif|webp)|application/pdf|text/plain")
"""What the kind of one must match in full."""
NAME_CHARS_MAX: Final = 120
"""Of its name; the rest is cut off."""
_BEGIN: Final = b'{"attachment":{"blob":"'
_MARKER: Final = msgspec.json.Decoder(_Marker)


def marker_block(attachment: Attachment) -> Block:
    """The block that stands for it."""
    return canonical({TYPE: attachment, "type": TYPE})


def is_marker(block: bytes) -> bool:
    """Whether a whole block, as canonical JSON, is a marker: no block of a host begins like one."""
    return block.startswith(_BEGIN)


def attachment_of(block: bytes) -> Attachment:
    """What the marker stands for. Raises: msgspec.DecodeError: it is none."""
    return _MARKER.decode(block).attachment


def told_of(attachment: Attachment) -> str:
    """In words, where the bytes themselves are not shown: ``scan.png (image/png)``."""
    kind = f"{attachment.media_type}, {attachment.pages} pages" if attachment.pages else attachment.media_type
    return f"{attachment.name} ({kind})" if attachment.name else kind
