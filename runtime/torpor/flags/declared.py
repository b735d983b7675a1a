"""``config/flags.toml`` into flags with their defaults and rules, and a decision by those rules; pure.

Above: the reader, the provider of the file, and whoever checks a home. A file with one fault is no file: everything
that is wrong in it is told with its line, and nothing of it counts.
"""

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from torpor.flags.contract import Decision, FlagContext
from torpor.misfits import in_toml_words, parse_toml, with_choices

KINDS: Final = ("tool", "skill", "subagent", "mcp")
"""Before the dot of a key; behind it stands the name of what is gated."""
WHOLES: Final = ("memory", "live_context")
"""Keys without a name."""

FLAGS_MAX: Final = 1_000
PROBLEMS_MAX: Final = 20
"""Told of one file; the rest is seen once these are mended."""

_KEY: Final = re.compile(rf"(?:{'|'.join(KINDS)})\.\S+|{'|'.join(WHOLES)}")
_EXPECTED_KEY: Final = f"{', '.join(f'{kind}.<name>' for kind in KINDS)}, {' or '.join(WHOLES)}"
_BUCKETS: Final = 1 << 64

Names: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)] | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
"""One or several; a list of nobody would read as everybody."""
Percentage: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds for whom all of its conditions name; without a condition, for everybody."""

    value: bool
    tenant: Names = ()
    owner: Names = ()
    agent: Names = ()
    percentage: Percentage | None = None
    """Of owners; each flag draws its own, always the same ones, and a larger share holds those of a smaller one."""

    def holds_for(self, key: str, context: FlagContext) -> bool:
        pairs = ((self.tenant, context.tenant), (self.owner, context.owner), (self.agent, context.agent))
        if not all(_is_among(name, names) for names, name in pairs):
            return False
        return self.percentage is None or share_of(key, context) < self.percentage


class Flag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gate."""

    default: bool
    """Where no rule holds, and where a provider fails or is slow."""
    description: str = ""
    rules: tuple[Rule, ...] = ()
    """The first one that holds decides."""


Declarations: TypeAlias = Mapping[str, Flag]
"""By key."""


class FlagProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that makes a file unusable."""

    line: int
    """From 1; 0 when nobody can tell."""
    key: str
    """As in ``flags."tool.pay".default``; empty for the file as a whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.key} {self.message}".strip()


class FlagsUnreadable(Exception):
    """The text declares no flags; ``problems`` says why, at least one."""

    def __init__(self, problems: tuple[FlagProblem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def share_of(key: str, context: FlagContext) -> float:
    """Where between 0 and 100 the owner of ``context`` stands for ``key``; evenly spread, the same in every process."""
    digest = hashlib.sha256(f"{key}\0{context.targeting_key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") * 100 / _BUCKETS


def decide(key: str, flag: Flag, context: FlagContext) -> Decision:
    """By the first rule that holds, else by the default."""
    for number, rule in enumerate(flag.rules, start=1):
        if rule.holds_for(key, context):
            reason = "TARGETING_MATCH" if rule.percentage is None else "SPLIT"
            return Decision(key=key, value=rule.value, variant=f"rule-{number}", reason=reason)
    return Decision(key=key, value=flag.default, variant="default", reason="DEFAULT" if flag.rules else "STATIC")


def parse_flags(text: str) -> dict[str, Flag]:
    """The flags of a file's text, sorted by key.

    Raises: FlagsUnreadable: with everything that is wrong.
    """
    try:
        tables = parse_toml(text)
    except (ValueError, RecursionError) as exc:
        problem = FlagProblem(line=_line_told(str(exc), text), key="", message=f"not TOML: {exc}")
        raise FlagsUnreadable((problem,)) from exc
    declared = tables.get("flags")
    if isinstance(declared, dict) and len(declared) > FLAGS_MAX:
        message = f"declares {len(declared):,} flags, at most {FLAGS_MAX:,} are decided for every turn"
        raise FlagsUnreadable((FlagProblem(line=0, key="", message=message),))
    problems: list[FlagProblem] = []
    flags: dict[str, Flag] = {}
    for name, table in itertools.islice(tables.items(), PROBLEMS_MAX):
        if name != "flags" or not isinstance(table, dict):
            message = 'is unknown, expected tables [flags."<key>"]'
            problems.append(FlagProblem(line=_line_of(text, name), key=name, message=message))
            continue
        for key, value in sorted(table.items()):
            found = _flag(text, key, value)
            if isinstance(found, Flag):
                flags[key] = found
            else:
                problems.append(found)
            if len(problems) == PROBLEMS_MAX:  # each is looked for in the whole text
                break
    if problems:
        raise FlagsUnreadable(tuple(sorted(problems, key=lambda problem: problem.line)))
    return flags


def _line_told(error: str, text: str) -> int:
    """By what reads TOML."""
    if at := re.search(r"\(at line (\d+)", error):
        return int(at[1])
    return max(len(text.splitlines()), 1) if "(at end of document)" in error else 0


def _is_among(name: str, names: Names) -> bool:
    return not names or name == names or (not isinstance(names, str) and name in names)


def _flag(text: str, key: str, value: Any) -> Flag | FlagProblem:
    if not _KEY.fullmatch(key):
        quoted = f'; quote the key, as in [flags."{key}.name"]' if key in KINDS else ""
        kind, _, name = key.partition(".")
        near = difflib.get_close_matches(kind, KINDS if name else WHOLES, n=1)
        perhaps = f", perhaps {'.'.join((near[0], *([name] if name else [])))!r}" if near and not quoted else ""
        message = f"is unknown{perhaps}, expected {_EXPECTED_KEY}{quoted}"
        return FlagProblem(line=_line_of(text, key), key=f'flags."{key}"', message=message)
    try:
        return msgspec.convert(value, Flag)
    except msgspec.ValidationError as exc:
        fault, _, path = in_toml_words(with_choices(exc, Flag)).partition(" - at `$")
        inner = path.rstrip("`")
        rule = re.match(r"\.rules\[(\d+)\]", inner)
        line = _line_of(text, key, rule=int(rule[1]) if rule else None)
        message = f"is unusable: {_uncapitalised(fault.replace('`', ''))}"
        return FlagProblem(line=line, key=f'flags."{key}"{inner}', message=message)


def _line_of(text: str, key: str, *, rule: int | None = None) -> int:
    """Where the table of ``key``, or of its rule of that index, begins; TOML readers do not say."""
    quoted = rf"(?:\"{re.escape(key)}\"|'{re.escape(key)}'|(?<![\w-]){re.escape(key)}(?![\w-]))"
    table = rf"\s*flags\s*\.\s*{quoted}"
    tables = list(_lines(text, rf"^\s*\[\[?{table}"))
    rules = list(_lines(text, rf"^\s*\[\[{table}\s*\.\s*[\"']?rules[\"']?\s*\]\]"))
    if rule is not None and rule < len(rules):
        return rules[rule]
    return next(iter(tables), 0) or next(_lines(text, quoted), 0)


def _lines(text: str, pattern: str) -> Iterator[int]:
    return (number for number, line in enumerate(text.splitlines(), start=1) if re.search(pattern, line))


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]
