"""Images and documents; limits hold over the whole history each time."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, Final

from torpor_fake_api.images import MEDIA_TYPES, Pixels, is_of, pixels
from torpor_fake_api.rules.case import Case, dicts, is_one_of, is_text
from torpor_fake_api.rules.violation import Violation

IMAGE_MAX_BYTES: Final = 5_242_880
SIDE_MAX: Final = 8_000
MANY_IMAGES: Final = 20
"""With more of them in one request, each must be smaller."""
SIDE_MAX_OF_MANY: Final = 2_000
PDF_MAX_PAGES: Final = 100

_PDF_PAGE: Final = re.compile(rb"/Type\s*/Page\b")
_ELSEWHERE: Final = frozenset({"url", "file"})
"""Sources whose bytes are not in the request."""


def picture_violations(case: Case) -> Iterator[Violation]:
    """Rules V-34 to V-36."""
    found = list(_found(case.messages))
    images = [item for item in found if item[1]["type"] == "image"]
    crowd = len(found) if case.profile.doubts else len(images)
    for path, block in found:
        if block["type"] == "image":
            yield from _image(
                case, block.get("source"), path=f"{path}.image.source", is_one_of_many=crowd > MANY_IMAGES
            )
        else:
            yield from _document(case, block.get("source"), path=f"{path}.document.source")
    if len(images) > case.model.images_max:
        fact = f"too many images: {len(images)} > {case.model.images_max}, which is the maximum of one request"
        yield Violation("V-34", images[case.model.images_max][0], fact)


def pages(pdf: bytes) -> int:
    """Pages of a PDF, as far as they are written plainly."""
    return len(_PDF_PAGE.findall(pdf))


def decoded(data: Any) -> bytes:
    """The bytes of base64; none when it is no base64."""
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _found(messages: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Images and documents with their paths, those inside tool results too."""
    for number, message in enumerate(messages):
        content = message.get("content")
        yield from _pictures(content, f"messages.{number}.content")


def _pictures(content: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict):
            continue
        if is_one_of(block.get("type"), {"image", "document"}):
            yield f"{path}.{index}", block
        elif block.get("type") == "tool_result" and dicts(block.get("content")):
            yield from _pictures(block["content"], f"{path}.{index}.tool_result.content")


def _image(case: Case, source: Any, *, path: str, is_one_of_many: bool) -> Iterator[Violation]:
    where = source.get("type") if isinstance(source, dict) else None
    if is_one_of(where, _ELSEWHERE) and not case.profile.is_narrow:
        return
    kind = source.get("media_type") if isinstance(source, dict) else None
    if not isinstance(kind, str) or kind not in MEDIA_TYPES or where != "base64":
        expected = ", ".join(sorted(MEDIA_TYPES))
        yield Violation("V-34", f"{path}.media_type", f"Input should be base64 of one of {expected}, got {kind!r}")
        return
    data = decoded(source.get("data"))
    if not data:
        yield Violation("V-36", path, "Could not process image")
    elif len(data) > IMAGE_MAX_BYTES:
        fact = f"image exceeds 5 MB maximum: {len(data)} bytes > {IMAGE_MAX_BYTES} bytes"
        yield Violation("V-34", path, fact)
    elif not is_of(kind, data):
        yield Violation("V-34", path, f"the image does not appear to be {kind}")
    else:
        yield from _size(pixels(data), path, is_one_of_many=is_one_of_many)


def _size(size: Pixels | None, path: str, *, is_one_of_many: bool) -> Iterator[Violation]:
    if size is None or not min(size):
        yield Violation("V-36", path, "Could not process image")
    elif max(size) > SIDE_MAX:
        fact = f"At least one of the image dimensions exceed max allowed size: {SIDE_MAX} pixels"
        yield Violation("V-34", path, fact)
    elif is_one_of_many and max(size) > SIDE_MAX_OF_MANY:
        fact = "At least one of the image dimensions exceed max allowed size for many-image requests"
        yield Violation("V-34", path, f"{fact}: {SIDE_MAX_OF_MANY} pixels")


def _document(case: Case, source: Any, *, path: str) -> Iterator[Violation]:
    match source:
        case {"type": "text", "media_type": "text/plain", "data": text} if is_text(text):
            return
        case {"type": "base64", "media_type": "application/pdf", "data": data} if pdf := decoded(data):
            if (found := pages(pdf)) > PDF_MAX_PAGES:
                fact = f"A maximum of {PDF_MAX_PAGES} PDF pages may be provided, found {found}"
                yield Violation("V-35", path, fact)
        case {"type": "url" | "file" | "content"} if not case.profile.is_narrow:
            return
        case {"type": "base64"}:
            yield Violation("V-35", f"{path}.base64.media_type", "Input should be 'application/pdf'")
        case _:
            yield Violation("V-35", path, "Input should be plain text or a PDF")
