"""What a request for a file says of the part that it wants, and of the file that it has. Pure.

Source: RFC 9110, 13.1.2 (``If-None-Match``), 13.1.5 (``If-Range``) and 14 (``Range``).
"""

import re
from collections.abc import Sequence
from typing import Final

_DIGITS_MAX: Final = 40
"""Of a number; nobody has a file of more bytes, and a longer one costs time to read."""
_RANGE: Final = re.compile(rf"bytes=([0-9]{{0,{_DIGITS_MAX}}})-([0-9]{{0,{_DIGITS_MAX}}})", re.IGNORECASE)


def wanted_part(ranges: Sequence[str], *, conditions: Sequence[str], etag: str, size_bytes: int) -> range | None:
    """Which bytes; empty for a part that the file has not, and None for the whole.

    Whoever asks for several parts, or in a way that is not known, gets the whole, and so does who has another file.

    Args: ranges: the values of ``Range``.  conditions: those of ``If-Range``.
    """
    if len(ranges) != 1 or any(condition.strip() != etag for condition in conditions):
        return None
    if (found := _RANGE.fullmatch(ranges[0].strip())) is None:
        return None
    first, last = found.groups()
    if not first:
        return range(max(size_bytes - int(last), 0), size_bytes) if last else None
    if last and int(last) < int(first):
        return None
    return range(int(first), min(int(last) + 1, size_bytes) if last else size_bytes)


def has_it(tags: Sequence[str], *, etag: str) -> bool:
    """Whether the client has the file already. Args: tags: the values of ``If-None-Match``."""
    told = {tag.strip().removeprefix("W/") for value in tags for tag in value.split(",")}
    return "*" in told or etag in told
