"""The first bytes of a file -> what it is; its name is not asked. Pure."""

import codecs
import re
import struct
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What can be done with it."""

    PICTURE = "picture"
    """Of a kind that models are shown, or that can be turned into one."""
    PDF = "pdf"
    ZIP = "zip"
    """An archive, which office documents are as well."""
    TEXT = "text"
    """Unless something else shows, once it is decoded."""
    OTHER = "other"
    """Nothing that a model could be shown."""


_PDF: Final = b"%PDF-"
_PDF_WITHIN_BYTES: Final = 1_024
"""Readers take a PDF that begins so late; so may a text that speaks of one."""
_BOX_AT: Final = 4
_PICTURES: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\x00", b"MM\x00*")
_SENT: Final = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_PICTURE_BRANDS: Final = frozenset({b"avif", b"avis"})
_HEIC_BRANDS: Final = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"})
_OTHERS: Final = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old or protected office document"),
    (b"\x1aE\xdf\xa3", "a video"),
    (b"ID3", "a sound recording"),
    (b"OggS", "a sound recording"),
    (b"fLaC", "a sound recording"),
    (b"\x1f\x8b", "a compressed file"),
    (b"BZh", "a compressed file"),
    (b"\xfd7zXZ\x00", "a compressed file"),
    (b"7z\xbc\xaf'\x1c", "an archive"),
    (b"Rar!\x1a\x07", "an archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"SQLite format 3\x00", "a database"),
)
_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""What no text has, in none of the encodings that have no zero bytes."""
_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
"""With which a text says how it is encoded."""


def kind_of(head: bytes) -> tuple[Kind, str]:
    """Args: head: the first few KB.

    Returns: The kind; of ``OTHER`` also what it is, for people.
    """
    if head.startswith(_PICTURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return Kind.PICTURE, ""
    if head[_BOX_AT : _BOX_AT + 4] == b"ftyp":
        return _box(head)
    if _PDF in head[:_PDF_WITHIN_BYTES]:
        return Kind.PDF, ""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Kind.ZIP, ""
    if head[:4] == b"RIFF":
        return Kind.OTHER, "a sound recording" if head[8:12] == b"WAVE" else "a video"
    for magic, what in _OTHERS:
        if head.startswith(magic):
            return Kind.OTHER, what
    if not head.startswith(_MARKS) and _BINARY.search(head):
        return Kind.OTHER, "a file of a kind that is not known"
    return Kind.TEXT, ""


def media_type_of(data: bytes) -> str:
    """Of bytes that were looked into before: one of the few kinds that are sent."""
    for magic, media_type in _SENT:
        if data.startswith(magic):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    is_pdf = data.startswith(_PDF) or (_PDF in data[:_PDF_WITHIN_BYTES] and not is_plain(data[:_PDF_WITHIN_BYTES]))
    return "application/pdf" if is_pdf else "text/plain; charset=utf-8"


def is_plain(data: bytes) -> bool:
    """Whether it is text in UTF-8, as far as it goes; its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return not _BINARY.search(data)


def may_be_text(data: bytes) -> bool:
    """Whether what looks like a PDF within its first bytes may be a text that speaks of one."""
    return not data.startswith(_PDF) and is_plain(data)


def _box(head: bytes) -> tuple[Kind, str]:
    """Of the family that phones write pictures and videos in, by its brands."""
    (size,) = struct.unpack(">I", head[:4])
    told = head[8 : max(16, min(size, 256))]
    brands = {told[at : at + 4] for at in range(0, len(told) - 3, 4)}
    if brands & _PICTURE_BRANDS:
        return Kind.PICTURE, ""
    if brands & _HEIC_BRANDS:
        return Kind.OTHER, "a HEIC picture"
    return Kind.OTHER, "a video or a sound recording"
