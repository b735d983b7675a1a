"""Whether JSON is a schema by draft 2020-12, as the schema of that draft for schemas says. Pure.

Above: ``schemas``, which bounds what comes here. The library that judges belongs to the extra ``mcp``, and is imported
for the first schema.
"""

import importlib
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

_REMEMBERED: Final = 1_024
"""Verdicts: the same tools are listed again after each change, and by each user's connection."""
_TOLD_CHARS: Final = 60
_SIMPLE: Final = frozenset({"type", "minimum", "exclusiveMinimum", "minItems", "uniqueItems", "pattern", "format"})


@lru_cache(maxsize=_REMEMBERED)
def fault_of(schema: bytes) -> str:
    """Why it is none; empty for none. Takes about 0.4 ms for each schema within it, the first time.

    Args: schema: as JSON.
    """
    error = next(_validator().iter_errors(msgspec.json.decode(schema)), None)
    if error is None:
        return ""
    where = ".".join(map(str, error.absolute_path)) or "the root"
    expected = f"{error.validator} {error.validator_value!r}" if error.validator in _SIMPLE else "draft 2020-12"
    return f"{where[:_TOLD_CHARS]} is {repr(error.instance)[:_TOLD_CHARS]}, expected {expected[:_TOLD_CHARS]}"


@cache
def _validator() -> Any:
    draft = importlib.import_module("jsonschema").Draft202012Validator
    return draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER)
