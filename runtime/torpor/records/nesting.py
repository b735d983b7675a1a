"""How deeply JSON may be nested: a fixed bound, since a reader's own depends on where it is called. Pure.

What is deeper never enters a journal, and a journal that holds it is corrupt.
"""

import re
from collections.abc import Sequence
from typing import Final

DEPTH_MAX: Final = 64
"""Of arrays and objects within each other, in a block or in anything else that a record holds as it is."""
RECORD_DEPTH_MAX: Final = DEPTH_MAX + 16
"""The same in what holds such values: a record, a row, a line of an export."""

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def is_deep(value: object) -> bool:
    """Whether arrays and objects are nested deeper than ``DEPTH_MAX``."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def is_deep_json(text: bytes, *, depth_max: int = RECORD_DEPTH_MAX) -> bool:
    """The same of JSON that was not read yet, whatever it is; of what is no JSON, whether a reader might go deeper."""
    if text.count(b"[") + text.count(b"{") <= depth_max:
        return False
    left = _STRING.sub(b"", text).translate(_ALIKE, _NOT_BRACKETS)
    for _ in range(depth_max):
        # Each pass takes the innermost pairs away.
        inner = left.replace(b"[]", b"")
        if len(inner) == len(left):
            return len(left) > depth_max
        left = inner
    return bool(left)


def _inside(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()
