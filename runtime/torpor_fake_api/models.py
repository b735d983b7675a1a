"""What differs from model to model, as data: every rule reads it from here and none branches on a model's id.

The figures are those published in mid-2026, as far as a request can meet them. The toy models are small enough for a
test to fill. A test may add models or replace some.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

ThinkingMode = Literal["enabled", "adaptive", "disabled", "between_tools"]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the table."""

    id: str
    name: str = ""
    line: str | None = None
    created_at: str = "2026-01-01T00:00:00Z"
    window_tokens: int = 1_000_000
    max_output_tokens: int = 128_000
    prefill: bool = False
    """Whether the last message may be the assistant's."""
    thinking: frozenset[ThinkingMode] = frozenset({"adaptive", "disabled"})
    thinking_display: Literal["summarized", "omitted"] = "summarized"
    """What is shown of the thinking when the request does not say."""
    sampling: Literal["free", "one", "none"] = "none"
    """``free``: temperature and top_p together, ``one``: either, ``none``: no sampling parameter at all."""
    system_messages: bool = False
    """Whether messages may have the role system."""
    refuses_overflow: bool = False
    """Whether input and max_tokens together must fit the window; else the reply stops when it is full."""
    tool_name_max: int = 128
    images_max: int = 100
    cache_min_tokens: int = 1024
    """A shorter prefix is not cached, silently."""
    token_ratio: float = 1.3
    """Tokens per piece of text, relative to the oldest tokenizer."""


_NEWEST: Final[dict[str, Any]] = {"images_max": 600, "cache_min_tokens": 512, "system_messages": True}
_ALWAYS_THINKING: Final[dict[str, Any]] = _NEWEST | {"thinking": {"adaptive"}, "thinking_display": "omitted"}
_46: Final[dict[str, Any]] = {"thinking": {"enabled", "adaptive", "disabled"}, "sampling": "one", "token_ratio": 1.0}
_45: Final[dict[str, Any]] = {
    "window_tokens": 200_000,
    "max_output_tokens": 64_000,
    "prefill": True,
    "thinking": {"enabled", "disabled"},
    "sampling": "one",
    "token_ratio": 1.0,
}
_4: Final[dict[str, Any]] = _45 | {"refuses_overflow": True}
_TOY: Final[dict[str, Any]] = {
    "window_tokens": 4_000,
    "max_output_tokens": 1_500,
    "thinking": {"enabled", "adaptive", "disabled"},
    "sampling": "one",
    "cache_min_tokens": 16,
    "token_ratio": 1.0,
}

_ROWS: Final[tuple[dict[str, Any], ...]] = (
    _ALWAYS_THINKING | {"id": "claude-fable-5-2", "line": "fable"},
    _ALWAYS_THINKING | {"id": "claude-mythos-5-2", "line": "mythos"},
    _ALWAYS_THINKING | {"id": "claude-fable-5-1", "line": "fable"},
    _ALWAYS_THINKING | {"id": "claude-mythos-5-1", "line": "mythos"},
    _ALWAYS_THINKING | {"id": "claude-fable-5", "line": "fable", "system_messages": False},
    _ALWAYS_THINKING | {"id": "claude-mythos-5", "line": "mythos", "system_messages": False},
    _NEWEST | {"id": "claude-opus-5-5", "line": "opus"},
    _NEWEST | {"id": "claude-opus-5", "line": "opus"},
    _NEWEST | {"id": "claude-sonnet-5-5", "line": "sonnet", "system_messages": False},
    _NEWEST | {"id": "claude-sonnet-5", "line": "sonnet", "system_messages": False, "cache_min_tokens": 1024},
    _NEWEST | {"id": "claude-haiku-5-5", "line": "haiku", "system_messages": False},
    _NEWEST | {"id": "claude-opus-4-8", "line": "opus", "cache_min_tokens": 1024},
    {"id": "claude-opus-4-7", "line": "opus", "cache_min_tokens": 2048, "thinking_display": "omitted"},
    _46 | {"id": "claude-opus-4-6", "line": "opus", "cache_min_tokens": 4096},
    _46 | {"id": "claude-sonnet-4-6", "line": "sonnet"},
    _45 | {"id": "claude-opus-4-5", "line": "opus", "cache_min_tokens": 4096},
    _45 | {"id": "claude-opus-4-5-20251101", "line": "opus", "cache_min_tokens": 4096},
    _45 | {"id": "claude-sonnet-4-5", "line": "sonnet"},
    _45 | {"id": "claude-sonnet-4-5-20250929", "line": "sonnet"},
    _45 | {"id": "claude-haiku-4-5", "line": "haiku", "cache_min_tokens": 4096},
    _45 | {"id": "claude-haiku-4-5-20251001", "line": "haiku", "cache_min_tokens": 4096},
    _4 | {"id": "claude-opus-4-1", "line": "opus", "max_output_tokens": 32_000},
    _4 | {"id": "claude-sonnet-4-20250514", "line": "sonnet", "sampling": "free"},
    _TOY | {"id": "toy-4k"},
    _TOY | {"id": "toy-4k-prefill", "prefill": True, "thinking": {"enabled", "disabled"}, "refuses_overflow": True},
    _TOY | {"id": "toy-4k-newest", "thinking": {"adaptive"}, "sampling": "none", "system_messages": True},
)

MODELS: Final[Mapping[str, ModelFacts]] = {row["id"]: msgspec.convert(row, ModelFacts) for row in _ROWS}

UNLISTED: Final = ModelFacts(
    id="",
    window_tokens=2**53,
    max_output_tokens=2**53,
    thinking=frozenset({"enabled", "adaptive", "disabled", "between_tools"}),
    sampling="one",
)
"""Stands in for a model that nobody listed, where a request is judged without being served."""


def with_changes(changes: Mapping[str, Mapping[str, Any]]) -> dict[str, ModelFacts]:
    """``MODELS`` with fields of some rows replaced and rows added, by id.

    Raises: msgspec.ValidationError: a field is not known or of another type.
    """
    table = dict(MODELS)
    for model, fields in changes.items():
        row = msgspec.to_builtins(table.get(model, UNLISTED)) | dict(fields) | {"id": model}
        table[model] = msgspec.convert(row, ModelFacts)
    return table


def described(model: ModelFacts) -> dict[str, Any]:
    """The row as ``GET /v1/models/{id}`` tells it."""
    yes, no = {"supported": True}, {"supported": False}
    modes = ("enabled", "adaptive", "disabled", "between_tools")
    return {
        "type": "model",
        "id": model.id,
        "display_name": model.name or model.id.replace("-", " ").title(),
        "created_at": model.created_at,
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": model.line,
        "max_input_tokens": model.window_tokens,
        "max_tokens": model.max_output_tokens,
        "capabilities": {
            **dict.fromkeys(("batch", "citations", "code_execution"), no),
            **dict.fromkeys(("image_input", "pdf_input", "structured_outputs"), yes),
            "context_management": no,
            "effort": yes | dict.fromkeys(("low", "medium", "high", "xhigh", "max"), yes),
            "server_tools": no | {"code_execution": no, "web_search": no},
            "thinking": {
                "supported": not model.thinking.isdisjoint({"enabled", "adaptive"}),
                "types": {mode: yes if mode in model.thinking else no for mode in modes},
            },
        },
    }
