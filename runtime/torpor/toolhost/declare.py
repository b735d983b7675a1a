"""``@tool``: a typed function becomes something a model can call.

Above: the loader, which finds tools in a home's modules; the registry, which offers them to agents; tool authors, by
way of ``from torpor import tool``. A declaration knows its function and its schema, not how a call is contained: the
defaults of deadlines and caps are the toolbox's.
"""

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Generic, Literal, NamedTuple, ParamSpec, TypeVar, overload

from torpor.errors import ConfigError
from torpor.records.terms import Effect
from torpor.toolhost.docstrings import described
from torpor.toolhost.options import RESULT_CAP_MIN_BYTES
from torpor.toolhost.signature import Routine, read_signature

TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a tool name must match in full, or the model host refuses every request that offers it."""

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Runs(StrEnum):
    """Where the function of a tool runs."""

    LOOP = "loop"
    """Beside everything else, as every async function does: it must not block."""
    THREAD = "thread"
    """In a thread of its own, where it may wait."""
    PROCESS = "process"
    """In a process of its own, where it may compute, and can be stopped."""


class Origin(NamedTuple):
    """The file that declares a tool, as it was when the server started."""

    path: Path
    source: bytes


class Fault(NamedTuple):
    """Why a function is no tool."""

    error: ConfigError
    file: str
    """Empty, and line 0, where nobody can tell."""
    line: int


_FAULTS: Final[ContextVar[list[Fault] | None]] = ContextVar("faults", default=None)


@contextmanager
def faults_kept() -> Iterator[list[Fault]]:
    """Within it a declaration that is at fault raises nothing, so that all of a file can be told at once."""
    faults: list[Fault] = []
    token = _FAULTS.set(faults)
    try:
        yield faults
    finally:
        _FAULTS.reset(token)


class NeverHappened:
    """What a probe returns when it knows that the call never took effect and never will."""


class Tool(Generic[P, R]):
    """A declared tool; calling it calls its function, as its tests do."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        effect: str = "write",
        deadline_s: float | None = None,
        accepts_key: bool = False,
        result_cap_bytes: int | None = None,
        name: str | None = None,
        runs: str | None = None,
    ) -> None:
        """Read ``function``; see ``tool``. Raises: ConfigError: it cannot be offered to a model."""
        self.function = function
        self.name = name if name is not None else getattr(function, "__name__", "")
        self._require(TOOL_NAME.fullmatch(self.name), "name", self.name, f"a match of {TOOL_NAME.pattern}")
        self._require(effect in tuple(Effect), "effect", effect, "read or write")
        self.effect = Effect(effect)
        usable_deadline = deadline_s is None or (deadline_s > 0 and math.isfinite(deadline_s))
        self._require(usable_deadline, "deadline_s", deadline_s, "seconds above 0")
        self.deadline_s = deadline_s
        self.accepts_key = accepts_key
        usable_cap = result_cap_bytes is None or result_cap_bytes >= RESULT_CAP_MIN_BYTES
        self._require(usable_cap, "result_cap_bytes", result_cap_bytes, f"at least {RESULT_CAP_MIN_BYTES} bytes")
        self.result_cap_bytes = result_cap_bytes
        self.description, descriptions = described(function.__doc__ or "")
        self._require(self.description, "docstring", function.__doc__, "words that tell a model when to call it")
        self.routine, self.parameters = read_signature(function, tool=self.name, descriptions=descriptions)
        self.runs = self._where_it_runs(runs)
        self.gate = ""
        """Key of the flag that switches it; empty for ``tool.<name>``."""
        self.server = ""
        """The MCP server that has it; empty for one of the home or the engine."""
        self.origin: Origin | None = None
        """Set by the loader for tools that run in a process, which loads the same file."""
        self.probe_routine: Routine | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def probe(self, function: F) -> F:
        """Decorator: ``function`` tells what became of a call that was interrupted.

        It takes the tool's own parameters, or some of them, and the context, in which the idempotency key stands. It
        returns the call's result if it took effect, ``NeverHappened()`` if it is known not to have, and None if
        nobody can tell; whatever it raises means the last. It must not act.

        Raises: ConfigError: it asks for what the tool does not take.
        """
        routine, _ = read_signature(function, tool=self.name, descriptions={})
        foreign = [name for name in routine.names if name not in self.routine.names]
        self._require(not foreign, "probe", foreign, f"parameters among {', '.join(self.routine.names) or 'none'}")
        self.probe_routine = routine
        return function

    def _where_it_runs(self, runs: str | None) -> Runs:
        usual = Runs.LOOP if self.routine.is_async else Runs.THREAD
        others = {Runs.THREAD, Runs.PROCESS}
        if self.routine.is_async:
            # Neither a thread nor a process has the event loop that an async function waits on.
            self._require(runs is None, "runs", runs, "a plain function, since an async one runs on the event loop")
        self._require(runs is None or runs in others, "runs", runs, "thread or process")
        return usual if runs is None else Runs(runs)

    def _require(self, is_met: object, key: str, found: object, expected: str) -> None:
        if not is_met:
            raise ConfigError(f"tool {self.name!r}", key=key, found=found, expected=expected)

    def __repr__(self) -> str:
        return f"<Tool {self.name} effect={self.effect}>"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    effect: Literal["read", "write"] = "write",
    deadline_s: float | None = None,
    accepts_key: bool = False,
    result_cap_bytes: int | None = None,
    name: str | None = None,
    runs: Literal["thread", "process"] | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[P, R] | None = None, /, **declared: Any) -> Any:
    """Declare a function, synchronous or not, as a tool: ``@tool``, or ``@tool(effect="read", deadline_s=5)``.

    The docstring is the description, and its ``Args`` section describes the parameters. The annotations are the schema:
    anything msgspec knows, ``Annotated`` constraints included. A parameter annotated ``ToolContext`` is filled in by
    the engine. A ``str`` is returned to the model as it is, None as ``done``, anything else as JSON. A synchronous
    function runs in a thread of its own, where it may wait; its deadline gives it up, but cannot stop it. One that
    computes belongs in a process (``runs="process"``), which is killed at the deadline.

    Args:
        effect: ``read`` may be repeated after a crash; ``write``, the default, never is without the model knowing.
        deadline_s: seconds for one call; by default what the engine's options say.
        accepts_key: the tool keeps ``context.idempotency_key`` and does nothing twice under the same one, so that an
            interrupted call may be retried.
        result_cap_bytes: UTF-8 size of a result before it is shortened; by default what the engine's options say.
        name: instead of the function's own.
        runs: ``thread`` or ``process``, of a synchronous function; by default ``thread``. An async one runs on the
            event loop.

    Raises: ConfigError: the function cannot be offered to a model.
    """
    if function is not None:
        return _declared(function)
    return functools.partial(_declared, **declared)


def _declared(function: Callable[P, R], **declared: Any) -> Tool[P, R] | Callable[P, R]:
    """The tool; the function itself where its fault was kept for later."""
    try:
        return Tool(function, **declared)
    except ConfigError as exc:
        faults = _FAULTS.get()
        if faults is None:
            raise
        code = getattr(inspect.unwrap(function), "__code__", None)
        faults.append(Fault(exc, code.co_filename if code else "", code.co_firstlineno if code else 0))
        return function
