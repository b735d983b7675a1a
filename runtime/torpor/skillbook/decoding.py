"""The bytes of a text file as text with ``\\n`` at its line ends, and what had to be forgiven. PURE."""

import codecs
import re
from typing import Final, NamedTuple

_WIDE_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like the mark of UTF-16, so it comes first
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LINE_END: Final = re.compile("\r\n?")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Finding(NamedTuple):
    """Something to say of a file."""

    code: str
    """A key of ``CODES``."""
    message: str
    line: int = 0
    """From 1; 0 for the file as a whole."""


class Decoded(NamedTuple):
    """Text without controls other than tabs and line ends."""

    text: str
    findings: tuple[Finding, ...]


def decode(data: bytes) -> Decoded:
    """UTF-8, or what a byte-order mark names."""
    findings: list[Finding] = []
    text = _marked(data, findings)
    if text is None:
        if data.startswith(codecs.BOM_UTF8):
            findings.append(Finding("byte_order_mark", "begins with a byte-order mark", 1))
        text = data.decode("utf-8-sig", errors="replace")
        if "\ufffd" in text and not _is_utf8(data):
            findings.append(Finding("not_utf8", "has bytes that are no UTF-8, expected UTF-8; they were replaced"))
    text = _LINE_END.sub("\n", text)
    if found := _CONTROLS.search(text):
        line = text.count("\n", 0, found.start()) + 1
        findings.append(Finding("control_characters", f"has the control character {found[0]!r}, removed", line))
        text = _CONTROLS.sub("", text)
    return Decoded(text, tuple(findings))


def _marked(data: bytes, findings: list[Finding]) -> str | None:
    for mark, encoding in _WIDE_MARKS:
        if data.startswith(mark):
            findings.append(Finding("utf16", f"is {encoding.upper()}, expected UTF-8", 1))
            return data.decode(encoding, errors="replace")
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
