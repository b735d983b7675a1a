"""What is asked about flags and what is answered; knows no provider."""

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec


class FlagContext(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf something is offered or done."""

    tenant: str
    owner: str
    agent: str

    @property
    def targeting_key(self) -> str:
        """What percentages are drawn by."""
        return f"{self.tenant}/{self.owner}"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one flag is on, and why."""

    key: str
    value: bool
    variant: str
    """``rule-1`` for the first rule of the file, ``default``; or whatever another provider calls it."""
    reason: str
    """As in OpenFeature: ``STATIC``, ``TARGETING_MATCH``, ``SPLIT``, ``DEFAULT``, ``STALE``, ``ERROR``, …"""


class Decided:
    """One decision for every declared flag; immutable, equal when all decisions are, and hashed once."""

    __slots__ = ("__weakref__", "decisions", "digest", "off")

    decisions: Mapping[str, Decision]
    """By key, sorted."""
    digest: str
    """16 hexadecimal digits over all of them."""
    off: frozenset[str]
    """Keys of what is switched off."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        ordered = sorted(decisions, key=lambda decision: decision.key)
        self.decisions = MappingProxyType({decision.key: decision for decision in ordered})
        self.digest = hashlib.sha256(msgspec.json.encode(ordered)).hexdigest()[:16]
        self.off = frozenset(decision.key for decision in ordered if not decision.value)

    def is_on(self, key: str) -> bool:
        """Whether what ``key`` gates may be offered and used; what nobody declared is on."""
        return key not in self.off

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Decided) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Decided {self.digest} flags={len(self.decisions)} off={sorted(self.off)}>"


def defaulted(key: str, *, default: bool, reason: str) -> Decision:
    """The decision of nobody: what the flag's declaration says."""
    return Decision(key=key, value=default, variant="default", reason=reason)


EVERYTHING_ON: Final = Decided(())
"""The answer where nothing is declared."""
