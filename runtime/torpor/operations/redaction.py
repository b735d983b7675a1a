"""Takes secrets and content out of a log event, whoever put them there: a net under the rule that nobody does.

Pure. Above: ``logs``, which runs every event through it. A secret is known by the name of its field or by its looks;
content by the name of its field alone, so words of people belong into no other.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "[masked]"
LEFT_OUT: Final = "[left out]"
_DEPTH_MAX: Final = 6
_SECRET_FIELD: Final = re.compile(
    r"(?:^|[_-])(?:token|secret|password|passwd|passphrase|authorization|api_?key|private_?key|cookie|credentials?)$",
    re.IGNORECASE,
)
_CONTENT_FIELDS: Final = frozenset(
    {
        "arguments",
        "blocks",
        "body",
        "content",
        "input",
        "output",
        "payload",
        "prompt",
        "reply",
        "result",
        "said",
        "text",
    }
)
_WORD: Final = r"[A-Za-z0-9._~+/=-]"
_SECRETS: Final = re.compile(
    rf"""
    (?P<head>\bbearer\s+){_WORD}{{12,}}
    | (?P<name>(?:token|secret|password|passwd|authorization|api[_-]?key)["']?\s*[:=]\s*["']?(?:basic\s+)?){_WORD}{{8,}}
    | (?P<scheme>://)[^\s/@:'"]+:[^\s/@'"]+(?=@)
    | \beyJ[A-Za-z0-9_-]{{4,}}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?
    | \b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs])[-_][A-Za-z0-9_-]{{10,}}
    | \bA(?:KIA|SIA)[0-9A-Z]{{16}}\b
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""What looks like one: headers, assignments, users of URLs, signed tokens, keys by their usual beginnings."""


def redact(event: Mapping[str, Any]) -> dict[str, Any]:
    """The same event with what is secret masked and what is content left out."""
    return {name: _value(name, value, depth=0) for name, value in event.items()}


def masked(text: str) -> str:
    """``text`` with everything that looks like a secret masked."""
    return _SECRETS.sub(_mask, text)


def _mask(found: re.Match[str]) -> str:
    kept = found["head"] or found["name"] or found["scheme"] or ""
    return f"{kept}{MASK}"


def _value(name: str, value: Any, *, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if _SECRET_FIELD.search(name):
        return MASK
    if name in _CONTENT_FIELDS:
        return LEFT_OUT
    return _plain(value, depth=depth)


def _plain(value: Any, *, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return masked(value)
    if depth < _DEPTH_MAX and isinstance(value, Mapping):
        return {masked(str(key)): _value(str(key), each, depth=depth + 1) for key, each in value.items()}
    if depth < _DEPTH_MAX and isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, depth=depth + 1) for each in value]
    return masked(repr(value))
