"""One agent's tools, and the edge at which whatever a tool does becomes a result the model can read.

Above: the turn, through ``contract.Toolbox``. Below: the declared tools, the threads for synchronous ones, the blobs
that keep what is too long to read at once. It knows nothing of journals: what a call's outcome means for the
conversation is decided above.

A call opens one cancel scope for its deadline and nothing else, so an instant tool costs microseconds.
"""

import math
from collections.abc import Collection, Iterable
from typing import Any

import anyio
import msgspec
import structlog

from torpor.conversation.text import CleanText, clean
from torpor.errors import StoreUnavailable, ToolError, ToolUnknown
from torpor.records.ids import ConversationKey
from torpor.records.terms import Outcome
from torpor.store.contract import Blobs
from torpor.toolhost.contract import ToolContext, ToolResult, ToolSpec
from torpor.toolhost.declare import NeverHappened, Tool
from torpor.toolhost.failures import cause_of, place_of
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.outcomes import failure, timed_out
from torpor.toolhost.places import Places, Run
from torpor.toolhost.results import excerpt, fits, rendered
from torpor.toolhost.signature import Routine

_log = structlog.get_logger()


class LocalToolbox:
    """Implements ``contract.Toolbox`` over tools of this process; immutable, and shared by an agent's conversations."""

    def __init__(
        self,
        tools: Iterable[Tool[..., Any]],
        *,
        blobs: Blobs,
        places: Places,
        options: ToolOptions,
        homes: Collection[str] = (),
    ) -> None:
        """Args: tools: with the engine's own among them; their names differ.  homes: names of those that are not."""
        self._homes = frozenset(homes)
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._specs = {name: _spec(tool, options) for name, tool in self._tools.items()}
        self._offered = tuple(self._specs.values())
        self._blobs = blobs
        self._places = places
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
        run = Run(tool, tool.routine, places=self._places, is_own=spec.name in self._homes)
        scope = anyio.move_on_after(spec.deadline_s)
        try:
            with scope:
                return Outcome.SUCCEEDED, await run.performed(arguments, context)
        except anyio.get_cancelled_exc_class():
            if anyio.current_effective_deadline() == -math.inf:
                raise
            # Nobody here cancelled anything: the tool let a cancellation of its own escape, which ends the tool only.
            return Outcome.FAILED, CleanText(f"tool {spec.name!r} was cancelled from within", 0)
        except BaseException as exc:  # the edge to a tool's own code, which may raise anything
            if isinstance(exc, BaseExceptionGroup) and anyio.current_effective_deadline() == -math.inf:
                raise  # a cancellation of the turn's is somewhere in it
            cause = cause_of(exc)
            if isinstance(cause, ToolError) or not scope.cancel_called:
                return failure(spec, cause)
        finally:
            run.is_over = True
        return timed_out(spec, tool.runs, has_begun=run.has_begun, taken=self._places.workers.taken())

    async def _ask(
        self,
        tool: Tool[..., Any],
        probe: Routine,
        spec: ToolSpec,
        arguments: msgspec.Raw,
        context: ToolContext,
    ) -> tuple[Outcome, CleanText] | None:
        run = Run(tool, probe, places=self._places, is_own=spec.name in self._homes)
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
            cause = cause_of(exc)
            _log.warning("tool.probe_failed", tool=spec.name, error=type(cause).__name__, where=place_of(cause))
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


def _spec(tool: Tool[..., Any], options: ToolOptions) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters.schema,
        effect=tool.effect,
        deadline_s=tool.deadline_s or options.deadline_s,
        accepts_key=tool.accepts_key,
        has_probe=tool.probe_routine is not None,
        gate=tool.gate,
        server=tool.server,
    )
