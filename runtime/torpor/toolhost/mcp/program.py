"""A program that speaks MCP over its standard input and output: its process, its lines, its end.

Above: ``sdk``, which hands the two streams to a client. It stands for the library's own transport, which reads a line
however long it is: here a line that never ends, ends the connection. The program has a session of its own, and in the
end nothing is left of it, nor of what it started; also where this process is killed.
"""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from torpor.toolhost.descendants import kill_descendants
from torpor.toolhost.mcp.lifeline import Lifeline
from torpor.toolhost.mcp.lines import TooLong, message_of
from torpor.toolhost.mcp.printed import Printed

INHERITED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Variables that a program has of the server's own environment."""
_GRACE_S: Final = 2.0
"""From the end of its input to the signal to end, and from that to the one that nobody survives."""
_EXIT_S: Final = 0.5
"""From the end of its output to that of a program which ends by itself."""
_LOOK_S: Final = 0.01
_GONE: Final = (
    anyio.EndOfStream,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    OSError,
)

Item = SessionMessage | Exception


@asynccontextmanager
async def program_streams(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    secrets: Iterable[str],
    shows_errors: bool,
    line_bytes_max: int,
    died: Callable[[str, str], None],
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Item], MemoryObjectSendStream[SessionMessage]]]:
    """What comes from the program, and what goes to it.

    Args:
        env: beside ``INHERITED``.
        secrets: what must not be told of it.
        shows_errors: whether its standard error is ours.
        died: called where it ended by itself, before its output does: with how, and with what it wrote last to a
            standard error that is not ours.
    Cancellation: the process ends all the same, within 6 s.
    Raises: OSError: it cannot be started.
    """
    inherited = {name: value for name in INHERITED if (value := os.environ.get(name)) is not None}
    with Lifeline() as lifeline:
        process = await anyio.open_process(
            list(command),
            env={**inherited, **env},
            cwd=cwd,
            stderr=None if shows_errors else subprocess.PIPE,
            start_new_session=True,
            pass_fds=lifeline.passed,
        )
        # Nothing may be awaited from here to the block, or a cancellation would leave the process alone.
        lifeline.tie(process.pid)
        to_session, incoming = anyio.create_memory_object_stream[Item](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        end = _End(process, Printed(secrets), died)
        async with anyio.create_task_group() as tasks:
            if process.stderr is None:
                end.printed.is_over.set()
            else:
                tasks.start_soon(end.printed.read, process.stderr)
            tasks.start_soon(_read, process, to_session, line_bytes_max, end)
            tasks.start_soon(_write, process, from_session, to_session, end)
            try:
                yield incoming, outgoing
            finally:
                end.is_asked_for = True
                incoming.close()
                outgoing.close()
                with anyio.CancelScope(shield=True):  # each wait within it is bounded
                    await _stop(process)
                tasks.cancel_scope.cancel()


class _End:
    """That of a program, which may come by itself."""

    def __init__(self, process: anyio.abc.Process, printed: Printed, died: Callable[[str, str], None]) -> None:
        self._process = process
        self._died = died
        self.printed = printed
        self.is_asked_for = False

    async def tell(self) -> None:
        """Called when its output has ended, or it hears nothing any more, which may be all that has ended."""
        with anyio.move_on_after(_EXIT_S):
            while self._process.returncode is None:  # noqa: ASYNC110 - as in `_has_ended`
                await anyio.sleep(_LOOK_S)
            await self.printed.is_over.wait()
        status = self._process.returncode
        if status is not None and not self.is_asked_for:
            self._died(_how_it_ended(status), self.printed.last)


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"its program ended with exit status {status}"
    name = next((known.name for known in signal.Signals if known == -status), str(-status))
    return f"its program was killed by {name}"


async def _read(
    process: anyio.abc.Process, to_session: MemoryObjectSendStream[Item], line_bytes_max: int, end: _End
) -> None:
    assert process.stdout is not None
    async with to_session:
        try:
            await _lines(process.stdout, to_session, line_bytes_max)
        except anyio.EndOfStream:
            await end.tell()
        except _GONE:
            pass
    # What nobody reads would keep it from ending by itself.
    with suppress(*_GONE):
        while True:
            await process.stdout.receive()


async def _lines(
    stdout: anyio.abc.ByteReceiveStream, to_session: MemoryObjectSendStream[Item], line_bytes_max: int
) -> None:
    buffer, seen = bytearray(), 0
    while True:
        buffer += await stdout.receive()
        while (end := buffer.find(b"\n", seen)) >= 0:
            line, seen = bytes(buffer[:end]), 0
            del buffer[: end + 1]
            await to_session.send(_message(line))
        seen = len(buffer)
        if seen > line_bytes_max:
            await to_session.send(TooLong(f"a line of more than {line_bytes_max:,} bytes"))
            return


def _message(line: bytes) -> Item:
    try:
        return message_of(line)
    except ValueError as exc:
        return exc


async def _write(
    process: anyio.abc.Process,
    from_session: MemoryObjectReceiveStream[SessionMessage],
    to_session: MemoryObjectSendStream[Item],
    end: _End,
) -> None:
    assert process.stdin is not None
    try:
        async with from_session:
            async for item in from_session:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode() + b"\n")
    except _GONE:
        await end.tell()
        await to_session.aclose()  # it hears nothing any more, so nothing is to be waited for


async def _stop(process: anyio.abc.Process) -> None:
    """End of input, then a signal, then the one that nobody survives; the others of its session with it."""
    await _closed(process.stdin)
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if await _has_ended(process):
            break
        if kind is signal.SIGKILL:
            kill_descendants(process.pid)  # also those that left its session
        _signal_all(process, kind)
    await _has_ended(process)
    _signal_all(process, signal.SIGKILL)
    await _closed(process.stdout)
    with anyio.move_on_after(_GRACE_S), suppress(*_GONE):
        await process.aclose()


async def _closed(stream: Any) -> None:
    with anyio.move_on_after(_GRACE_S), suppress(*_GONE):
        await stream.aclose()


async def _has_ended(process: anyio.abc.Process) -> bool:
    """Within the grace; asked again and again, since waiting for it would wait for whoever has its pipes as well."""
    with anyio.move_on_after(_GRACE_S):
        while process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(_LOOK_S)
    return process.returncode is not None


def _signal_all(process: anyio.abc.Process, kind: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, kind)
