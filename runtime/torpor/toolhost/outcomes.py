"""What a call that did not succeed comes to, by where it stood and what it may have changed."""

import structlog

from torpor.conversation.text import CleanText, clean
from torpor.errors import ToolError, ToolRefused, ToolTimedOut
from torpor.records.terms import Effect, Outcome
from torpor.toolhost.contract import ToolSpec
from torpor.toolhost.declare import Runs
from torpor.toolhost.failures import place_of, said_by, words_of
from torpor.toolhost.mcp.session import ConnectionLost
from torpor.toolhost.process import NotStarted
from torpor.toolhost.processes import ToolCrashed, ToolRaised

_log = structlog.get_logger()


def failure(spec: ToolSpec, cause: BaseException) -> tuple[Outcome, CleanText]:
    """Of a call that raised ``cause``."""
    match cause:
        case ToolRefused():
            return Outcome.DENIED, clean(said_by(cause))
        case NotStarted():
            _log.warning("tool.not_started", tool=spec.name)
            return Outcome.NEVER_STARTED, clean(said_by(cause))
        case ConnectionLost():
            _log.warning("tool.connection_lost", tool=spec.name, effect=spec.effect.value)
            return _interrupted(spec, said_by(cause))
        case ToolCrashed():
            _log.error("tool.crashed", tool=spec.name, effect=spec.effect.value)
            return _interrupted(spec, said_by(cause))
        case ToolRaised():
            _log.warning("tool.failed", tool=spec.name, error=cause.error, where=cause.where)
            return Outcome.FAILED, clean(said_by(cause))
        case ToolError():
            return Outcome.FAILED, clean(said_by(cause))
    _log.warning("tool.failed", tool=spec.name, error=type(cause).__name__, where=place_of(cause))
    return Outcome.FAILED, clean(f"tool {spec.name!r} failed: {words_of(cause)}")


def timed_out(spec: ToolSpec, runs: Runs, *, has_begun: bool, taken: dict[str, int]) -> tuple[Outcome, CleanText]:
    """Of a call whose deadline passed. Args: taken: threads by the tool that has them, for the log."""
    if not has_begun:
        kind = "process" if runs is Runs.PROCESS else "thread"
        # Whoever runs the server needs to know which tools do not let go.
        _log.warning("tool.no_place", tool=spec.name, deadline_s=spec.deadline_s, place=kind, threads_taken=taken)
        text = f"tool {spec.name!r} was not started: no {kind} became free within {spec.deadline_s:g} s"
        return Outcome.NEVER_STARTED, CleanText(f"{text}; nothing was done, call it again later", 0)
    _log.warning("tool.timed_out", tool=spec.name, deadline_s=spec.deadline_s, runs=runs.value)
    return _interrupted(spec, str(ToolTimedOut(spec.name, deadline_s=spec.deadline_s)))


def _interrupted(spec: ToolSpec, fact: str) -> tuple[Outcome, CleanText]:
    if spec.effect is Effect.READ:
        return Outcome.FAILED, CleanText(f"{fact}; it only reads, so nothing was changed", 0)
    return Outcome.UNKNOWN, CleanText(f"{fact}; it may or may not have taken effect, check before repeating it", 0)
