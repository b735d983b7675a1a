"""Torpor: a long-running agent runtime, one durable actor per conversation.

What tools, and programs that use conversations, import from here is loaded when first asked for, so that ``import
torpor`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torpor.client.torpor_client import TorporClient
    from torpor.errors import ToolFailed, ToolRefused
    from torpor.toolhost.contract import Finding, ToolContext
    from torpor.toolhost.declare import NeverHappened, tool

__all__ = ["Finding", "NeverHappened", "ToolContext", "ToolFailed", "ToolRefused", "TorporClient", "tool"]

_OWNERS: Final = {
    "Finding": "torpor.toolhost.contract",
    "NeverHappened": "torpor.toolhost.declare",
    "ToolContext": "torpor.toolhost.contract",
    "ToolFailed": "torpor.errors",
    "ToolRefused": "torpor.errors",
    "TorporClient": "torpor.client.torpor_client",
    "tool": "torpor.toolhost.declare",
}


def __getattr__(name: str) -> Any:
    if name not in _OWNERS:
        raise AttributeError(f"module 'torpor' has no attribute {name!r}")
    value = getattr(import_module(_OWNERS[name]), name)
    globals()[name] = value  # the next access finds it without asking
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
