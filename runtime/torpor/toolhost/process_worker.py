"""A worker process: runs one tool call after another, for the server that started it and no longer than it.

Started by ``processes`` in a session of its own, with the reading end of a pipe that nobody writes into: its lifeline.
When the server ends, however it ends, the pipe does, and the system kills this process and what its tools started, also
in the middle of a call that holds the interpreter. Calls come by standard input and are answered by standard output;
for tools the first is empty and the second is the server's log.
"""

import contextlib
import fcntl
import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from torpor.conversation.text import clean
from torpor.errors import ToolError, ToolInputInvalid, ToolRefused
from torpor.records.ids import CallId, ConversationKey
from torpor.toolhost.contract import ToolContext
from torpor.toolhost.declare import Tool
from torpor.toolhost.descendants import adopt_orphans
from torpor.toolhost.failures import cause_of, place_of, said_by, words_of
from torpor.toolhost.modules import declared_tools, load_module
from torpor.toolhost.process_frames import (
    LENGTH,
    Begun,
    Call,
    Denied,
    Failed,
    FromWorker,
    Module,
    NotBegun,
    Reported,
    Returned,
    Setup,
    ToWorker,
    framed,
)
from torpor.toolhost.process_progress import Progress
from torpor.toolhost.results import rendered

NICENESS: Final = 5
"""The server, which answers everybody, goes before."""
_OOM_SCORE: Final = "500"
"""Where memory runs out, the system ends this process and not the server."""


class Worker:
    """Answers the frames of one server."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._writing = threading.Lock()
        self._pid = os.getpid()
        self._progress_cap_chars = 0
        self._tools: dict[tuple[str, str], Tool[..., Any]] = {}
        self._problems: dict[str, str] = {}

    def take(self, frame: ToWorker) -> None:
        match frame:
            case Setup():
                self._set_up(frame)
            case Module():
                self._load(Path(frame.path), source=frame.source)
            case Call():
                outcome = self._outcome(frame)
                if os.getpid() != self._pid:
                    os._exit(0)  # a tool that forked came back twice; only the first process has an answer to give
                self._answer(outcome)

    def _set_up(self, setup: Setup) -> None:
        self._progress_cap_chars = setup.progress_cap_chars
        if setup.memory_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (setup.memory_bytes, setup.memory_bytes))

    def _load(self, path: Path, *, source: bytes) -> None:
        try:
            module = load_module(path, source=source)
        except BaseException as exc:  # noqa: BLE001  # the edge to a tool author's code
            self._problems[str(path)] = f"{path.name} does not load in a process of its own: {words_of(exc)}"
            return
        self._tools.update({(str(path), tool.name): tool for tool in declared_tools(module)})

    def _outcome(self, call: Call) -> FromWorker:
        tool = self._tools.get((call.path, call.tool))
        if tool is None:
            why = self._problems.get(call.path, f"{Path(call.path).name} declares it no more")
            return NotBegun(call=call.number, text=f"tool {call.tool!r} was not started: {why}")
        try:
            given = tool.parameters.decode(call.arguments)
        except ToolInputInvalid as exc:
            return NotBegun(call=call.number, text=str(exc))
        with self._context(call) as context:
            if tool.routine.context_name:
                given[tool.routine.context_name] = context
            self._answer(Begun(call=call.number))
            return _run(tool, given, number=call.number)

    @contextlib.contextmanager
    def _context(self, call: Call) -> Iterator[ToolContext]:
        """What the tool knows of its caller; what it reports after its end is not heard, nor from what it forks."""
        progress = Progress(lambda text: self._answer(Reported(call=call.number, text=text)))

        def report(text: str) -> None:
            if os.getpid() == self._pid:
                progress.report(clean(str(text)[: self._progress_cap_chars]).text[: self._progress_cap_chars])

        try:
            yield ToolContext(
                key=ConversationKey(call.tenant, call.owner, call.conversation),
                principal=call.principal,
                turn=call.turn,
                call_id=CallId(call.call_id),
                idempotency_key=call.idempotency_key,
                report=report,
            )
        finally:
            if os.getpid() == self._pid:
                progress.end()

    def _answer(self, frame: FromWorker) -> None:
        try:
            encoded = framed(frame)
        except ValueError as exc:
            encoded = framed(
                Failed(call=frame.call, text=f"it ran to its end, but its result cannot be handed over: {exc}")
            )
        with self._writing:
            self._answers.write(encoded)
            self._answers.flush()


def _run(tool: Tool[..., Any], given: dict[str, Any], *, number: int) -> FromWorker:
    try:
        said = rendered(tool.function(**given))
    except BaseException as exc:  # noqa: BLE001  # the edge to a tool's own code, which may raise anything
        cause = cause_of(exc)
        said = clean(said_by(cause))
        if isinstance(cause, ToolRefused):
            return Denied(call=number, text=said.text)
        if isinstance(cause, ToolError):
            return Failed(call=number, text=said.text)
        return Failed(call=number, text=clean(words_of(cause)).text, error=type(cause).__name__, where=place_of(cause))
    return Returned(call=number, text=said.text, replaced=said.replaced)


def _standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Those of the server, put where no tool reads or prints by accident."""
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return calls, answers


def _hold_on_to(lifeline: int) -> None:
    """End, with the whole process group, when the server does."""
    # Where the system sends this signal at the end of a pipe, it needs no turn of the interpreter.
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        os.read(lifeline, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _keep_from_forks(*files: BinaryIO) -> None:
    """What a tool forks off neither takes calls nor answers them, nor keeps the pipes open that tell of our end."""

    def let_go() -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in files:
            os.dup2(nothing, file.fileno(), inheritable=False)
        os.close(nothing)

    os.register_at_fork(after_in_child=let_go)


def _stand_back() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the server decides what ends
    os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)


def _frames(calls: BinaryIO) -> Iterator[ToWorker]:
    decoder = msgspec.json.Decoder(ToWorker)
    while len(head := calls.read(LENGTH.size)) == LENGTH.size:
        yield decoder.decode(calls.read(*LENGTH.unpack(head)))


def main(lifeline: int) -> None:
    """Serve until the server closes standard input. Args: lifeline: a file descriptor."""
    calls, answers = _standard_streams()
    _hold_on_to(lifeline)
    _stand_back()
    _keep_from_forks(calls, answers)
    adopt_orphans()
    worker = Worker(answers)
    for frame in _frames(calls):
        worker.take(frame)
    os._exit(0)  # threads that a tool left behind are not waited for
