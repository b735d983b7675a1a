"""Files as people send them: made here, whole or broken in a way of their own."""

import io
import zipfile
from typing import Final

from PIL import Image
from pypdf import PdfWriter

MP4: Final = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + bytes(64)
_WORD_NS: Final = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def picture(width: int = 40, height: int = 30, *, kind: str = "PNG", seed: int = 0) -> bytes:
    """One colour all over; another one for another seed."""
    made = Image.new("RGB", (width, height), (seed % 256, seed // 256 % 256, 90))
    return _saved(made, kind)


def noise(width: int, height: int, *, kind: str = "PNG") -> bytes:
    """One that packs badly."""
    return _saved(Image.effect_noise((width, height), 90).convert("RGB"), kind)


def _saved(made: Image.Image, kind: str) -> bytes:
    to = io.BytesIO()
    made.save(to, kind)
    return to.getvalue()


def pdf(pages: int = 1, *, password: str = "", seed: int = 0) -> bytes:
    """Blank pages."""
    writer = PdfWriter()
    for _ in range(pages):
        writer.add_blank_page(width=200 + seed, height=200)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    to = io.BytesIO()
    writer.write(to)
    return to.getvalue()


def docx(*paragraphs: str, part: str = "word/document.xml", markup: str = "") -> bytes:
    """What an office program writes, as far as anybody looks."""
    told = "".join(f"<w:p><w:r><w:t>{each}</w:t></w:r></w:p>" for each in paragraphs)
    document = markup or f'<?xml version="1.0"?><w:document {_WORD_NS}><w:body>{told}</w:body></w:document>'
    return archive({"[Content_Types].xml": b"<Types/>", part: document.encode()})


def odt(*paragraphs: str) -> bytes:
    text = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
    told = "".join(f"<t:p>{each}</t:p>" for each in paragraphs)
    return archive(
        {
            "mimetype": b"application/vnd.oasis.opendocument.text",
            "content.xml": f'<a xmlns:t="{text}">{told}</a>'.encode(),
        }
    )


def archive(entries: dict[str, bytes]) -> bytes:
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w") as made:
        for name, data in entries.items():
            # Of no date, so that it is the same in each process of the tests.
            made.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return to.getvalue()
