"""Flags in words, as operators read them. Pure.

Above: the command that lists flags, the log of their changes, and what is told of servers that they switch.
"""

from collections.abc import Iterable
from enum import StrEnum

from torpor.flags.declared import Declarations, Flag, Rule


class Reach(StrEnum):
    """For whom a flag is on, as far as its rules tell."""

    ON = "on"
    OFF = "off"
    PARTLY = "partly"
    """On for some and off for others."""


def reach_of(flag: Flag | None) -> Reach:
    """Args: flag: None for one that is not declared, which is on."""
    if flag is None:
        return Reach.ON
    value, others = _usual(flag)
    if others:
        return Reach.PARTLY
    return Reach.ON if value else Reach.OFF


def off_in_words(key: str, declarations: Declarations) -> str:
    """For whom ``key`` is off, like ``off by mcp.notes``; empty where it is off for nobody."""
    flag = declarations.get(key)
    match reach_of(flag):
        case Reach.ON:
            return ""
        case Reach.OFF:
            return f"off by {key}"
    assert flag is not None, "what is not declared is on"
    value, others = _usual(flag)
    told = "; ".join(map(rule_in_words, others))
    return f"{told} by {key}" if value else f"off by {key}, {told}"


def by_reach(keys: Iterable[str], declarations: Declarations) -> dict[str, list[str]]:
    """The keys by how they are now: ``on``, ``off`` or ``partly``; without those of which there are none."""
    told: dict[str, list[str]] = {}
    for key in keys:
        told.setdefault(reach_of(declarations.get(key)).value, []).append(key)
    return told


def rule_in_words(rule: Rule) -> str:
    share = f"{rule.percentage:g}% of owners" if rule.percentage is not None else ""
    names = ((kind, getattr(rule, kind)) for kind in ("tenant", "owner", "agent"))
    parts = [f"{kind} {_listed(found)}" for kind, found in names if found]
    return f"{switch_in_words(rule.value)} for {', '.join([*parts, *([share] if share else [])]) or 'everybody'}"


def switch_in_words(value: object) -> str:
    return "on" if value else "off"


def _usual(flag: Flag) -> tuple[bool, list[Rule]]:
    """What holds for whom no rule names, and the rules that say something else."""
    rules = list[Rule]()
    value = flag.default
    for rule in flag.rules:
        if not (rule.tenant or rule.owner or rule.agent or rule.percentage is not None):
            value = rule.value
            break
        rules.append(rule)
    return value, [rule for rule in rules if rule.value is not value]


def _listed(names: str | tuple[str, ...]) -> str:
    return names if isinstance(names, str) else " or ".join(names)
