"""What ``torpor config check`` finds in the flags and the policies of a home."""

import difflib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

import msgspec

from torpor.errors import ConfigError
from torpor.flags.declared import KINDS, Flag, FlagsUnreadable
from torpor.flags.options import FlagOptions
from torpor.flags.source import FLAGS_FILE, read_flags
from torpor.misfits import read_toml
from torpor.policies.options import PolicyOptions
from torpor.policies.source import POLICIES_FOLDER, read_policies
from torpor.toolhost.mcp.names import server_of
from torpor.toolhost.mcp.options import MCP_FILE
from torpor.toolhost.mcp.reading import TABLE

NOT_ASKED: Final = frozenset({"memory"})
"""Before the dot of keys, or all of one, for what the engine does not have yet."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One flag or policy, or one thing that is wrong or doubtful about it."""

    part: str
    name: str
    detail: str
    is_wrong: bool = False
    is_doubtful: bool = False


def flags_in(home: Path, *, tools: Set[str], agents: Set[str], options: FlagOptions) -> Iterator[Found]:
    """The flags of ``home``, or everything that makes its file unusable.

    A flag that gates nothing known, a rule for an agent that is not there, and rules beside a provider that does not
    read them are doubtful: what they mean may come later, from another process or from elsewhere.
    """
    try:
        flags = read_flags(home)
    except FlagsUnreadable as exc:
        for problem in exc.problems:
            place = f"{FLAGS_FILE}:{problem.line}" if problem.line else FLAGS_FILE
            yield Found(part="flag", name=place, detail=str(problem), is_wrong=True)
        return
    known = {"tool": tools, "skill": _skills(home), "subagent": _subagents(home), "mcp": server_names(home)}
    for key, flag in flags.items():
        doubts = list(_doubts(key, flag, known=known, agents=agents, options=options))
        rules = f", {len(flag.rules)} rule{'s' if len(flag.rules) > 1 else ''}" if flag.rules else ""
        idle = ", nothing asks for it yet" if key.partition(".")[0] in NOT_ASKED else ""
        detail = "; ".join(doubts) or f"{'on' if flag.default else 'off'} by default{rules}{idle}"
        yield Found(part="flag", name=key, detail=detail, is_doubtful=bool(doubts))


def policies_in(home: Path, options: PolicyOptions) -> Iterator[Found]:
    """The policies of ``home``, and the files that are none."""
    policies, problems = read_policies(home, last_good={}, file_max_bytes=options.file_max_bytes)
    for file, policy in policies.items():
        detail = f"{policy.id} {policy.version}, {len(policy.excerpts)} excerpts"
        yield Found(part="policy", name=f"{POLICIES_FOLDER}/{file}", detail=detail)
    for problem in problems:
        place = f"{POLICIES_FOLDER}/{problem.file}" + (f":{problem.line}" if problem.line else "")
        yield Found(part="policy", name=place, detail=problem.message, is_wrong=True)


def _doubts(
    key: str, flag: Flag, *, known: dict[str, Set[str]], agents: Set[str], options: FlagOptions
) -> Iterator[str]:
    kind, _, name = key.partition(".")
    is_served = kind == "tool" and server_of(name) in known["mcp"]  # what it has is known once it runs
    if kind in KINDS and name not in known[kind] and not is_served:
        near = difflib.get_close_matches(name, known[kind], n=1)
        perhaps = f", perhaps {near[0]!r}" if near else ""
        yield f"gates nothing: there is no {kind} {name!r} in this home{perhaps}"
    if flag.rules and options.provider:
        yield f"has rules, which {options.provider} does not read"
    named = {agent for rule in flag.rules for agent in ([rule.agent] if isinstance(rule.agent, str) else rule.agent)}
    if missing := sorted(named - agents):
        yield f"has a rule for {', '.join(missing)}, which is no agent of this home"


def _skills(home: Path) -> Set[str]:
    return {file.parent.name for file in (home / "skills").rglob("SKILL.md")}


def _subagents(home: Path) -> Set[str]:
    return {file.stem for file in (home / "config" / "subagents").glob("*.toml")}


def server_names(home: Path) -> Set[str]:
    """MCP servers that the home names, usable or not."""
    try:
        named = read_toml(home / MCP_FILE, where=MCP_FILE).get(TABLE)
    except (FileNotFoundError, ConfigError):
        return frozenset()
    return named.keys() if isinstance(named, dict) else frozenset()
