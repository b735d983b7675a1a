"""One agent's tools, and the edge at which whatever a tool does becomes a result the model can read.

Above: the turn, through ``contract.Toolbox``. Below: the declared tools, the threads for synchronous ones, the blobs
that keep what is too long to read at once. It knows nothing of journals: what a call's outcome means for the
conversation is decided above.

A call opens one cancel scope for its deadline and nothing else, so an instant tool costs microseconds.
"""

import functools
import math
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
import structlog

from torpor.conversation.text import CleanText, clean
from torpor.errors import StoreUnavailable, ToolError, ToolRefused, ToolTimedOut, ToolUnknown
from torpor.records.ids import ConversationKey
from torpor.records.journal import Effect, Outcome
from torpor.store.contract import Blobs
from torpor.toolhost.contract import ToolContext, ToolResult, ToolSpec
from torpor.toolhost.declare import NeverHappened, Tool
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.results import excerpt, fits, rendered
from torpor.toolhost.signature import Routine
from torpor.toolhost.workers import Workers

_log = structlog.get_logger()


class LocalToolbox:
    """Implements ``contract.Toolbox`` over tools of this process; immutable, and shared by an agent's conversations."""

    def __init__(
        self, tools: Iterable[Tool[..., Any]], *, blobs: Blobs, workers: Workers, options: ToolOptions
    ) -> None:
        """Args: tools: with the engine's own among them; their names differ."""
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._specs = {name: _spec(tool, options) for name, tool in self._tools.items()}
        self._offered = tuple(self._specs.values())
        self._blobs = blobs
        self._workers = workers
        self._options = options

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._offered

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        """See ``contract.Toolbox.call``."""
        tool = self._tools.get(name)
        if tool is None:
            outcome, said = Outcome.FAILED, clean(str(ToolUnknown(name, known=tuple(self._tools))))
        else:
            outcome, said = await self._call(tool, self._specs[name], arguments, context)
        cap_bytes = (tool.result_cap_bytes if tool else None) or self._options.result_cap_bytes
        return await self._result(outcome, said, key=context.key, cap_bytes=cap_bytes)

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        """See ``contract.Toolbox.probe``; a probe that fails or takes too long leaves the outcome unknown."""
        tool = self._tools.get(name)
        if tool is None or tool.probe_routine is None:
            return None
        answer = await self._ask(tool, tool.probe_routine, self._specs[name], arguments, context)
        if answer is None:
            return None
        outcome, said = answer
        cap_bytes = tool.result_cap_bytes or self._options.result_cap_bytes
        return await self._result(outcome, said, key=context.key, cap_bytes=cap_bytes)

    async def _call(
        self, tool: Tool[..., Any], spec: ToolSpec, arguments: msgspec.Raw, context: ToolContext
    ) -> tuple[Outcome, CleanText]:
        run = _Run(tool.routine, workers=self._workers, progress_cap_chars=self._options.progress_cap_chars)
        scope = anyio.move_on_after(spec.deadline_s)
        try:
            with scope:
                value = await run.perform(tool.parameters.decode(arguments), context)
                return Outcome.SUCCEEDED, rendered(value)
        except anyio.get_cancelled_exc_class():
            if anyio.current_effective_deadline() == -math.inf:
                raise
            # Nobody here cancelled anything: the tool let a cancellation of its own escape, which ends the tool only.
            return Outcome.FAILED, CleanText(f"tool {spec.name!r} was cancelled from within", 0)
        except BaseException as exc:  # the edge to a tool's own code, which may raise anything
            if isinstance(exc, BaseExceptionGroup) and anyio.current_effective_deadline() == -math.inf:
                raise  # a cancellation of the turn's is somewhere in it
            cause = _cause(exc)
            if isinstance(cause, ToolError) or not scope.cancel_called:
                return _failure(spec.name, cause)
        finally:
            run.is_over = True
        return _timed_out(spec, has_begun=run.has_begun)

    async def _ask(
        self,
        tool: Tool[..., Any],
        probe: Routine,
        spec: ToolSpec,
        arguments: msgspec.Raw,
        context: ToolContext,
    ) -> tuple[Outcome, CleanText] | None:
        run = _Run(probe, workers=self._workers, progress_cap_chars=self._options.progress_cap_chars)
        try:
            with anyio.move_on_after(spec.deadline_s):
                given = tool.parameters.decode(arguments)
                value = await run.perform({name: given[name] for name in probe.names}, context)
                if value is None:
                    return None
                if isinstance(value, NeverHappened):
                    return Outcome.NEVER_STARTED, CleanText(f"{spec.name} never took effect, nothing was done", 0)
                return Outcome.SUCCEEDED, rendered(value)
        except anyio.get_cancelled_exc_class():
            if anyio.current_effective_deadline() == -math.inf:
                raise
            return None
        except BaseException as exc:  # the edge to a tool's own code, which may raise anything
            if isinstance(exc, BaseExceptionGroup) and anyio.current_effective_deadline() == -math.inf:
                raise
            cause = _cause(exc)
            _log.warning("tool.probe_failed", tool=spec.name, error=type(cause).__name__, where=_where(cause))
            return None
        finally:
            run.is_over = True
        _log.warning("tool.probe_timed_out", tool=spec.name, deadline_s=spec.deadline_s)
        return None

    async def _result(self, outcome: Outcome, said: CleanText, *, key: ConversationKey, cap_bytes: int) -> ToolResult:
        if not said.text.strip():
            # The API refuses blank text in places, and an error must say something.
            text = "" if outcome is Outcome.SUCCEEDED else f"{outcome.value}, without a word of explanation"
            return ToolResult(outcome=outcome, text=text, cleaned=said.replaced)
        if fits(said.text, cap_bytes=cap_bytes):
            return ToolResult(outcome=outcome, text=said.text, cleaned=said.replaced)
        whole = said.text.encode()
        handle = await self._kept(key, whole)
        text = excerpt(whole, cap_bytes=cap_bytes, handle=handle)
        return ToolResult(outcome=outcome, text=text, handle=handle, cleaned=said.replaced)

    async def _kept(self, key: ConversationKey, whole: bytes) -> str:
        deadline_s = self._options.blob_deadline_s
        try:
            with anyio.fail_after(deadline_s):
                return await self._blobs.put(key, whole)
        except TimeoutError:
            what = f"a tool result of {len(whole)} bytes was not stored within {deadline_s:g} s"
            raise StoreUnavailable(what) from None

    def __repr__(self) -> str:
        return f"<LocalToolbox tools={len(self._tools)}>"


class _Run:
    """One run of a tool or its probe: where it takes place, and what it may still say."""

    __slots__ = ("_cap_chars", "_routine", "_workers", "has_begun", "is_over")

    def __init__(self, routine: Routine, *, workers: Workers, progress_cap_chars: int) -> None:
        self._routine = routine
        self._workers = workers
        self._cap_chars = progress_cap_chars
        self.has_begun = False
        self.is_over = False

    async def perform(self, given: dict[str, Any], context: ToolContext) -> Any:
        routine = self._routine
        if routine.context_name:
            given[routine.context_name] = msgspec.structs.replace(context, report=self._heard(context.report))
        if routine.is_async:
            self.has_begun = True
            return await routine.function(**given)
        return await self._workers.run(functools.partial(routine.function, **given), begun=self._begin)

    def _begin(self) -> None:
        self.has_begun = True

    def _heard(self, report: Callable[[str], None]) -> Callable[[str], None]:
        """``report`` for text of any kind, from where the routine runs; silent once the run is over."""

        def hear(text: str) -> None:
            if not self.is_over:
                report(clean(str(text)).text[: self._cap_chars])

        if self._routine.is_async:
            return hear
        token = anyio.lowlevel.current_token()
        return lambda text: anyio.from_thread.run_sync(hear, text, token=token)


def _spec(tool: Tool[..., Any], options: ToolOptions) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters.schema,
        effect=tool.effect,
        deadline_s=tool.deadline_s or options.deadline_s,
        accepts_key=tool.accepts_key,
        has_probe=tool.probe_routine is not None,
    )


def _cause(exc: BaseException) -> BaseException:
    """What a tool raised, out of the groups that its own task groups wrapped around it."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _failure(name: str, cause: BaseException) -> tuple[Outcome, CleanText]:
    if isinstance(cause, ToolRefused):
        return Outcome.DENIED, clean(_said(cause))
    if isinstance(cause, ToolError):
        return Outcome.FAILED, clean(_said(cause))
    _log.warning("tool.failed", tool=name, error=type(cause).__name__, where=_where(cause))
    return Outcome.FAILED, clean(f"tool {name!r} failed: {_words(cause)}")


def _timed_out(spec: ToolSpec, *, has_begun: bool) -> tuple[Outcome, CleanText]:
    _log.warning("tool.timed_out", tool=spec.name, deadline_s=spec.deadline_s, has_begun=has_begun)
    if not has_begun:
        text = f"tool {spec.name!r} was not started: no thread became free within {spec.deadline_s:g} s"
        return Outcome.NEVER_STARTED, CleanText(text, 0)
    fact = str(ToolTimedOut(spec.name, deadline_s=spec.deadline_s))
    if spec.effect is Effect.READ:
        return Outcome.FAILED, CleanText(f"{fact}; it only reads, so nothing was changed", 0)
    return Outcome.UNKNOWN, CleanText(f"{fact}; it may or may not have taken effect, check before repeating it", 0)


def _words(cause: BaseException) -> str:
    """Type and message, whatever the message does when it is asked for."""
    message = _said(cause)
    return f"{type(cause).__name__}: {message}" if message else type(cause).__name__


def _said(cause: BaseException) -> str:
    try:
        return str(cause)
    except BaseException:  # noqa: BLE001  # the edge to a tool's own code
        return "its message cannot be read"


def _where(cause: BaseException) -> str:
    """File and line that raised, without anything of the conversation."""
    frames = traceback.extract_tb(cause.__traceback__, limit=-1)
    return f"{Path(frames[0].filename).name}:{frames[0].lineno}" if frames else ""
