"""Documents as models may be shown them: PDFs whole, all else as text.

Above: ``ingest``, in the process that looks into files. Below: ``pypdf``, which counts pages, and the standard library,
which unpacks office documents; what they unpack to is bounded.
"""

import io
import logging
import re
import zipfile
import zlib
from typing import Final
from xml.etree.ElementTree import Element, ParseError, XMLParser

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from torpor.attachment_errors import (
    AttachmentEmpty,
    AttachmentEncrypted,
    AttachmentTooLarge,
    AttachmentTooManyPages,
    AttachmentUnreadable,
    AttachmentUnsupported,
)
from torpor.attachments.looked import TAKEN, Looked
from torpor.attachments.options import AttachmentOptions
from torpor.conversation.markup import defused
from torpor.conversation.text import clean, is_blank

PDF: Final = "application/pdf"
TEXT: Final = "text/plain"
_TOKENS_PER_PAGE: Final = 2_500
"""Of a PDF, whose pages are read as text and seen as pictures."""
_BYTES_PER_TOKEN: Final = 4
_UNPACKED_FACTOR: Final = 32
"""How much larger the markup of a document may be than its text may."""
_ENTRIES_MAX: Final = 10_000
_WORD, _OPEN_TEXT = "word/document.xml", "content.xml"
_BREAKS: Final = frozenset({"p", "br", "h", "tr", "table-row", "line-break"})
"""Elements of either format behind which a line ends."""
_CELLS: Final = frozenset({"tab", "tc", "table-cell"})
_DOCTYPE: Final = re.compile(rb"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)
_DAMAGED_ZIP: Final = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError)


def pdf(data: bytes, *, name: str, options: AttachmentOptions) -> Looked:
    """Raises: AttachmentTooLarge, AttachmentEncrypted, AttachmentUnreadable, AttachmentTooManyPages."""
    if len(data) > options.pdf_bytes_max:
        raise AttachmentTooLarge(
            f"document {name!r} has {len(data)} bytes, expected at most {options.pdf_bytes_max}; send a part of it"
        )
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted:
            raise AttachmentEncrypted(
                f"document {name!r} is encrypted, expected one without a password; save it without"
            )
        pages = len(reader.pages)
    except (PyPdfError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as exc:
        what = f"document {name!r} is damaged, expected a whole one; save it again"
        raise AttachmentUnreadable(what) from exc
    if not pages:
        raise AttachmentEmpty(f"document {name!r} has no pages")
    if pages > options.pdf_pages_max:
        raise AttachmentTooManyPages(
            f"document {name!r} has {pages} pages, expected at most {options.pdf_pages_max}; send the pages that matter"
        )
    return Looked(PDF, pages * _TOKENS_PER_PAGE, None, pages=pages)


def text(data: bytes, *, name: str, options: AttachmentOptions) -> Looked:
    """A file that is none of the other kinds. Raises: AttachmentUnsupported, AttachmentTooLarge, AttachmentEmpty."""
    if len(data) > 2 * options.text_bytes_max:  # in UTF-16 it may be that long
        raise _too_long(name, len(data), options)
    for encoding, note in _encodings(data):
        try:
            decoded = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        return _as_text(decoded, name=name, options=options, note=note, whole=data)
    raise AttachmentUnsupported(f"file {name!r} is of a kind that is not known, expected {TAKEN}")


def _encodings(data: bytes) -> list[tuple[str, str]]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return [("utf-16", "read as UTF-16")]
    return [("utf-8-sig", ""), ("cp1252", "read as Windows-1252"), ("latin-1", "read as Latin-1")]


def office(data: bytes, *, name: str, options: AttachmentOptions) -> Looked:
    """The text of a document that is a ZIP archive.

    Raises: AttachmentUnsupported: it is no document of text. AttachmentUnreadable, AttachmentTooLarge, AttachmentEmpty.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > _ENTRIES_MAX:
                raise AttachmentTooLarge(
                    f"archive {name!r} has {len(entries)} entries, expected at most {_ENTRIES_MAX}"
                )
            names = {entry.filename for entry in entries}
            part = next((each for each in (_WORD, _OPEN_TEXT) if each in names), None)
            if part is None or (part == _OPEN_TEXT and not _is_open_text(archive, names)):
                raise _unsupported(name, names)
            markup = _unpacked(archive, part, name=name, options=options)
    except _DAMAGED_ZIP as exc:
        raise AttachmentUnreadable(f"document {name!r} is damaged, expected a whole one; save it again") from exc
    except RuntimeError as exc:  # how the library says that an entry has a password
        raise AttachmentEncrypted(f"document {name!r} is encrypted, expected one without a password") from exc
    return _as_text(_text_in(markup, name=name), name=name, options=options, note="its text alone is shown", whole=None)


def _is_open_text(archive: zipfile.ZipFile, names: set[str]) -> bool:
    if "mimetype" not in names:
        return False
    with archive.open("mimetype") as file:
        return file.read(64).startswith(b"application/vnd.oasis.opendocument.text")


def _unsupported(name: str, names: set[str]) -> AttachmentUnsupported:
    what = "an archive"
    for folder, told in (("xl/", "a spreadsheet"), ("ppt/", "a presentation")):
        if any(each.startswith(folder) for each in names):
            what = told
    remedy = "unpack it" if what == "an archive" else "save it as a PDF, or as CSV"
    return AttachmentUnsupported(f"file {name!r} is {what}, expected {TAKEN}; {remedy}")


def _unpacked(archive: zipfile.ZipFile, part: str, *, name: str, options: AttachmentOptions) -> bytes:
    """No more than is allowed is ever unpacked, whatever the archive says of itself."""
    most = _UNPACKED_FACTOR * options.text_bytes_max
    with archive.open(part) as file:
        markup = file.read(most + 1)
    if len(markup) > most:
        raise AttachmentTooLarge(f"document {name!r} unpacks to more than {most} bytes; send a part of it")
    return markup


def _text_in(markup: bytes, *, name: str) -> str:
    if _DOCTYPE.search(markup) or b"\x00" in markup:
        raise AttachmentUnreadable(f"document {name!r} holds markup that no office program writes; save it again")
    parser = XMLParser()  # noqa: S314 - it declares nothing, see above
    try:
        parser.feed(markup)
        root: Element = parser.close()
    except ParseError as exc:
        raise AttachmentUnreadable(f"document {name!r} is damaged, its markup ends at {exc.position}") from exc
    pieces: list[str] = []
    _collect(root, pieces)
    return "".join(pieces).strip()


def _collect(root: Element, pieces: list[str]) -> None:
    """All text under ``root`` in order; markup may be nested as deep as it likes."""
    waiting: list[tuple[Element, bool]] = [(root, False)]
    while waiting:
        element, is_over = waiting.pop()
        tag = str(element.tag).rpartition("}")[2]
        is_word = "wordprocessingml" in str(element.tag)
        if is_over:
            pieces.append("\n" if tag in _BREAKS else "\t" if tag in _CELLS else "")
            if element.tail and not is_word:
                pieces.append(element.tail)
            continue
        if element.text and (not is_word or tag == "t"):
            pieces.append(element.text)
        waiting.append((element, True))
        waiting.extend((child, False) for child in reversed(element))


def _as_text(told: str, *, name: str, options: AttachmentOptions, note: str, whole: bytes | None) -> Looked:
    """Args: whole: the file, if it may be kept as it is."""
    fit = defused(clean(told.replace("\r\n", "\n").replace("\r", "\n")).text)
    if is_blank(fit):
        raise AttachmentEmpty(f"file {name!r} has no text in it")
    data = fit.encode()
    if len(data) > options.text_bytes_max:
        raise _too_long(name, len(data), options)
    return Looked(TEXT, -(-len(data) // _BYTES_PER_TOKEN), None if data == whole else data, note=note)


def _too_long(name: str, size_bytes: int, options: AttachmentOptions) -> AttachmentTooLarge:
    found = f"text {name!r} has {size_bytes} bytes"
    return AttachmentTooLarge(f"{found}, expected at most {options.text_bytes_max}; send the part that matters")
