"""Commands and servers in forks of a process that has imported the engine: that takes longer than most of them do.

A fork has the arguments, the directory, the environment and the standard streams that it is given, and leaves its
process as any other would; what the engine imports late, it imports late.

Run as ``python -m tests.support.forked FD FD``, this is the process that forks: on its line, or from whoever comes to
its door, it gets one request after the other, with the descriptors of the streams and of a pipe that hears the process
id and, at its end, the exit code.
"""

import atexit
import fcntl
import gc
import importlib
import io
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.support import asked_fork
from tests.support.asked_fork import REQUEST_BYTES_MAX, TOLD
from torpor.cli.main import VERBS, command_of

ROOT: Final = Path(__file__).parents[2]
TORPOR: Final = "torpor.cli.main"


class Fork:
    """A process that began as a fork; like one of ``subprocess``, whose methods these are."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        has_terminal: bool = False,
    ) -> None:
        """Start ``main`` of a module. Args: streams: descriptors. has_terminal: they are one, and it shall own it."""
        self.args = [module, *arguments]
        self.returncode: int | None = None
        request = asked_fork.request(module, arguments, cwd=str(cwd), env=env, has_terminal=has_terminal)
        line, _ = _parent()
        self.pid, self._told = asked_fork.ask(line, request, streams)

    @property
    def told(self) -> int:
        """A descriptor that can be read once the process has ended, until somebody has asked how."""
        return self._told

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, within_s: float | None = None) -> int:
        """The exit code. Raises: subprocess.TimeoutExpired: it goes on."""
        code = self._ended(within_s)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, within_s or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(self.pid, number)

    def _ended(self, within_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], within_s)[0]:
            (self.returncode,) = TOLD.unpack(os.read(self._told, TOLD.size))
            os.close(self._told)
        return self.returncode


def run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str, within_s: float
) -> subprocess.CompletedProcess[str]:
    """Run ``torpor`` with ``arguments`` to its end. Raises: subprocess.TimeoutExpired: it was killed."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        streams = (given.fileno(), out.fileno(), err.fileno())
        process = Fork(TORPOR, arguments, cwd=cwd, env=env, streams=streams)
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise
        return subprocess.CompletedProcess(["torpor", *arguments], code, text_of(out), text_of(err))


def text_of(file: Any) -> str:
    """All that was written into a file, as text."""
    file.seek(0)
    said: bytes = file.read()
    return said.decode().replace("\r\n", "\n")


def shell_folder() -> Path:
    """For the PATH of a shell: the ``torpor`` in it is a fork."""
    _, folder = _parent()
    return folder


@cache
def _parent() -> tuple[socket.socket, Path]:
    """The line to the process that forks, started when first needed, and a folder with a command that asks it."""
    folder = tempfile.TemporaryDirectory(prefix="torpor-forks-")
    path = Path(folder.name)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(str(path / "door"))
        door.listen()
        both = its.fileno(), door.fileno()
        command = [sys.executable, "-m", __name__, *map(str, both)]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=both, stdin=subprocess.DEVNULL)
    words = [sys.executable, "-IS", asked_fork.__file__, str(path / "door"), TORPOR]
    script = path / "torpor"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o700)

    def end() -> None:
        ours.close()
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return ours, path


class _Forks:
    """Forks for each request, and tells how that ended."""

    def __init__(self, line: socket.socket, door: socket.socket) -> None:
        self._line = line
        self._door = door
        self._running: dict[int, tuple[int, int]] = {}
        """By the descriptor of a process, its id and where to tell of its end."""

    def serve(self) -> None:
        """Until nobody asks any more."""
        while True:
            waited: list[Any] = [self._line, self._door, *self._running]
            ready, _, _ = select.select(waited, [], [])
            for each in ready:
                if each is self._door:
                    with self._door.accept()[0] as guest:
                        self._take(guest)
                elif each is not self._line:
                    self._settle(each)
                elif not self._take(self._line):
                    return

    def _take(self, line: socket.socket) -> bool:
        """Whether there was a request."""
        data, descriptors, _, _ = socket.recv_fds(line, REQUEST_BYTES_MAX, 4)
        if not data:
            return False
        request = json.loads(data)
        *streams, tells = descriptors
        if request["module"] not in sys.modules:
            importlib.import_module(request["module"])
            gc.freeze()
        if (pid := os.fork()) == 0:
            line.close()
            self._leave(tells)
            _be(request, streams)
        self._running[os.pidfd_open(pid)] = pid, tells
        _tell(tells, pid)
        for stream in streams:
            os.close(stream)
        return True

    def _settle(self, ended: int) -> None:
        pid, tells = self._running.pop(ended)
        os.close(ended)
        _tell(tells, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os.close(tells)

    def _leave(self, tells: int) -> None:
        """Let go of what is not the fork's."""
        self._line.close()
        self._door.close()
        for descriptor, (_, other) in self._running.items():
            os.close(descriptor)
            os.close(other)
        os.close(tells)


def _tell(tells: int, number: int) -> None:
    with suppress(BrokenPipeError):  # who asked has gone
        os.write(tells, TOLD.pack(number))


def _be(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Be the process that was asked for."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which is ignored where the tests run under nohup
    if request["has_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[:] = [request["module"].partition(".")[0], *request["arguments"]]
    sys.path[0] = request["cwd"]
    code = sys.modules[request["module"]].main(request["arguments"]) or 0
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking the interpreter apart would copy all of it first


def _stream(number: int) -> io.TextIOWrapper:
    """As with PYTHONUNBUFFERED."""
    return io.TextIOWrapper(
        open(number, "wb", buffering=0, closefd=False),
        errors="backslashreplace" if number == 2 else "strict",
        write_through=True,
    )


def serve(line: socket.socket, door: socket.socket) -> None:
    """Be the process that forks."""
    for verb in VERBS:
        command_of(verb)
    importlib.import_module("torpor.app")
    gc.freeze()  # or each fork would copy what its collector looks at
    _Forks(line, door).serve()


if __name__ == "__main__":
    serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
