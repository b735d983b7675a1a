"""A rehearsal: a script in TOML that answers a user's text, so that everything but the model can be tried for real.

``config/rehearsals/<name>.toml`` holds rules. The first whose ``match`` is found in the user's last text plays its
steps, one per model call: which one is next follows from the request alone, so a rehearsal goes on where it was after
a restart. Texts and arguments may hold placeholders (``model.templates``).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from torpor.errors import ConfigError
from torpor.misfits import Misfit, Words, misfit_in_toml, read_toml, seen
from torpor.model.options import ScriptedOptions
from torpor.model.scripted import Call, Fail, Move, Say, ScriptedModel, ScriptedTurn
from torpor.model.templates import CONVERSIONS, Values, conversions, placeholders
from torpor.provider_errors import (
    BillingRefused,
    ContextTooLong,
    KeyRefused,
    ModelTimedOut,
    ModelUnknown,
    Overloaded,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestInvalid,
    RequestTooLarge,
    StreamLost,
)

REHEARSALS_FOLDER: Final = "config/rehearsals"

_MATCHED_CHARS: Final = 2_000
"""Of a text, its beginning: patterns take time that grows with more than its length, and others wait meanwhile."""
_PASSING: Final = (Overloaded, ProviderUnavailable, RateLimited, StreamLost)
_LASTING: Final = (
    *(BillingRefused, ContextTooLong, KeyRefused, ModelTimedOut, ModelUnknown),
    *(RequestInvalid, RequestTooLarge),
)
_FAILURES: Final[dict[str, type[ProviderError]]] = {error.code: error for error in (*_PASSING, *_LASTING)}


class CallLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of one tool."""

    tool: str
    arguments: dict[str, Any] = {}


class FailLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model host fails, behind the first words of what the step says."""

    code: str
    """Of a ``ProviderError``. A passing one before the first word is asked again, and fails again, until the turn has
    used up its retries; any other ends the turn at once."""
    after_words: Annotated[int, msgspec.Meta(ge=0)] = 0
    message: str = "the rehearsal was asked to fail"


class StepLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply: text, then calls, which run side by side."""

    say: str = ""
    call: tuple[CallLine, ...] = ()
    fail: FailLine | None = None


class RuleLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is played when ``match`` is found."""

    match: str = ""
    """A regular expression, matched anywhere in the first 2,000 characters and in any case; only the last rule has
    none, and plays for the rest."""
    step: Annotated[tuple[StepLine, ...], msgspec.Meta(min_length=1)]


class RehearsalFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    pace_cps: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Characters per second; 0 says everything at once."""
    rule: Annotated[tuple[RuleLine, ...], msgspec.Meta(min_length=1)]


class Rehearsal:
    """Implements ``model.scripted.Script``; immutable."""

    def __init__(self, file: RehearsalFile, *, where: str, pace_cps: float | None = None) -> None:
        """Raises: ConfigError: a rule can never play as written; names ``where`` and the key."""
        self._pace_cps = file.pace_cps if pace_cps is None else pace_cps
        self._rules = tuple(
            (_pattern(rule, f"rule[{at}]", where=where, is_last=at == len(file.rule) - 1), rule.step)
            for at, rule in enumerate(file.rule)
        )
        for at, (pattern, steps) in enumerate(self._rules):
            _check_steps(pattern, steps, f"rule[{at}]", where=where)

    def __call__(self, turn: ScriptedTurn) -> Iterator[Move]:
        match, steps = self._chosen(turn.text)
        values = Values(match, [(result.name, result.text) for result in turn.results])
        yield from self._moves(steps[min(turn.step, len(steps) - 1)], values, resumes=turn.resumes)

    def tool_names(self) -> frozenset[str]:
        """Every tool that some rule calls."""
        return frozenset(call.tool for _, steps in self._rules for step in steps for call in step.call)

    def _chosen(self, text: str) -> tuple[re.Match[str] | None, tuple[StepLine, ...]]:
        for pattern, steps in self._rules:
            if match := pattern.search(text[:_MATCHED_CHARS]):
                return match, steps
        return None, self._rules[-1][1]

    def _moves(self, step: StepLine, values: Values, *, resumes: str) -> Iterator[Move]:
        """Args: resumes: what was taken up; a step that failed in mid-sentence goes on then, or says all of it."""
        text = values.text(step.say)
        if step.fail is not None:
            begun = _first_words(text, step.fail.after_words)
            if resumes and text:
                yield Say(text[len(begun) :] if resumes == "continue" else text, self._pace_cps)
                return
            yield Say(begun, self._pace_cps)
            yield Fail(_FAILURES[step.fail.code](step.fail.message))
        yield Say(text, self._pace_cps)
        for call in step.call:
            yield Call(call.tool, values.arguments(call.arguments))

    def __repr__(self) -> str:
        return f"<Rehearsal rules={len(self._rules)}>"


def scripted_from(table: Mapping[str, Any], *, home: Path, where: str) -> ScriptedModel:
    """The model of an agent whose ``[model]`` table has ``kind = "scripted"``.

    Args: where: the agent's file, for errors.
    Raises: ConfigError: the table, or the rehearsal that it names, cannot be used.
    """
    try:
        options = msgspec.convert(table, ScriptedOptions)
    except msgspec.ValidationError as exc:
        raise _unfit(
            where, "model", misfit_in_toml(exc, ScriptedOptions, key="model", value=dict(table)), dict(table)
        ) from exc
    path = home / REHEARSALS_FOLDER / f"{options.rehearsal}.toml"
    rehearsal = read_rehearsal(path, pace_cps=options.pace_cps, named_by=where)
    return ScriptedModel(rehearsal, name=options.model or options.kind)


def read_rehearsal(path: Path, *, pace_cps: float | None = None, named_by: str = "an agent") -> Rehearsal:
    """Read and check one file. Args: named_by: whose file says that it is there.

    Raises: ConfigError: names the file, the key, what was found and what was expected.
    """
    where = f"{REHEARSALS_FOLDER}/{path.name}"
    try:
        table = read_toml(path, where=where)
    except FileNotFoundError as exc:
        expected = f"the rehearsal that {named_by} names"
        raise ConfigError(where, key="file", found=Words("missing"), expected=expected) from exc
    try:
        file = msgspec.convert(table, RehearsalFile)
    except msgspec.ValidationError as exc:
        raise _unfit(where, "", misfit_in_toml(exc, RehearsalFile, value=table), table) from exc
    return Rehearsal(file, where=where, pace_cps=pace_cps)


def _unfit(where: str, name: str, why: Misfit, table: Mapping[str, Any]) -> ConfigError:
    """Args: name: of the table, which ``why`` is about; empty for the whole file."""
    key = ".".join(filter(None, (name, why.path.removeprefix(".")))) or "content"
    return ConfigError(where, key=key, found=seen(why, table), expected=why.expected)


def _pattern(rule: RuleLine, key: str, *, where: str, is_last: bool) -> re.Pattern[str]:
    if is_last != (not rule.match):
        expected = "a regular expression"
        if is_last:
            expected = (
                "none, since the last rule plays for all that no other one matches: add a [[rule]] without a match"
            )
        raise ConfigError(where, key=f"{key}.match", found=rule.match, expected=expected)
    try:
        return re.compile(rule.match, re.IGNORECASE)
    except re.error as exc:
        expected = f"a regular expression ({exc})"
        raise ConfigError(where, key=f"{key}.match", found=rule.match, expected=expected) from exc


def _check_steps(pattern: re.Pattern[str], steps: tuple[StepLine, ...], rule: str, *, where: str) -> None:
    known = {*map(str, range(pattern.groups + 1)), *pattern.groupindex}
    calls = 0
    for at, step in enumerate(steps):
        for key, found, expected in _faults(step, is_last=at == len(steps) - 1, known=known):
            raise ConfigError(where, key=f"{rule}.step[{at}].{key}", found=found, expected=expected)
        for call in step.call:
            calls += 1
            known |= {f"result.{call.tool}", f"result.{calls}"}


def _faults(step: StepLine, *, is_last: bool, known: set[str]) -> Iterator[tuple[str, object, str]]:
    """Key, finding and expectation of what keeps a step from being played, from ending its turn, or from its values."""
    if is_last and step.call:
        yield "call", [call.tool for call in step.call], "no calls in a last step, or a step behind it"
    if not is_last and not step.call:
        yield "call", [], "a call, or no step behind this one, which it keeps from being reached"
    if step.fail is not None and step.call:
        yield "fail", step.fail.code, "no failure in a step that calls"
    if step.fail is not None and step.fail.code not in _FAILURES:
        yield "fail.code", step.fail.code, f"one of {', '.join(sorted(_FAILURES))}"
    if not (step.say.strip() or step.call or step.fail):
        yield "say", step.say, "something to say"
    for text, key in ((step.say, "say"), *((call.arguments, "call") for call in step.call)):
        for name in placeholders(text):
            if name not in known:
                yield key, f"{{{name}}}", f"placeholders among {', '.join(sorted(known))}"
        for name, conversion in conversions(text):
            if name in known and conversion not in CONVERSIONS:
                yield key, f"{{{name}:{conversion}}}", f"one of {', '.join(CONVERSIONS)} behind the colon"


def _first_words(text: str, count: int) -> str:
    return "".join(re.findall(r"\S+\s*", text)[:count])
