"""The ``torpor`` command in forks of a process that has imported what most verbs need: that takes longer than they do.

Below: ``tests.support.command_line``. A fork has the arguments, the directory, the environment and the standard streams
that it is given, and leaves its process as any other would; what the engine imports late, it imports late. Run as
``python -m tests.support.forked_torpor FD``, this is that process: on its socket comes one command after the other,
with the descriptors of its streams and of a pipe that hears its process id and, at its end, its exit code.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from torpor.cli.main import VERBS, command_of, main

_ROOT: Final = Path(__file__).parents[2]
_REQUEST_BYTES_MAX: Final = 200_000
_TOLD: Final = struct.Struct("=i")


def run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str, within_s: float
) -> subprocess.CompletedProcess[str]:
    """Run ``torpor`` with ``arguments`` to its end. Raises: subprocess.TimeoutExpired: it was killed."""
    request = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)}).encode()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        hears, tells = os.pipe()
        with os.fdopen(hears, "rb", buffering=0) as told:
            try:
                socket.send_fds(_parent(), [request], [given.fileno(), out.fileno(), err.fileno(), tells])
            finally:
                os.close(tells)
            (pid,) = _TOLD.unpack(told.read(_TOLD.size))
            if not select.select([told], [], [], within_s)[0]:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["torpor", *arguments], within_s)
            (code,) = _TOLD.unpack(told.read(_TOLD.size))
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["torpor", *arguments], code, _text(out.read()), _text(err.read()))


def _text(said: bytes) -> str:
    return said.decode().replace("\r\n", "\n")


@cache
def _parent() -> socket.socket:
    """The line to the process that forks, started when first needed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-m", __name__, str(its.fileno())]
        process = subprocess.Popen(command, cwd=_ROOT, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def serve(line: socket.socket) -> None:
    """Fork for each command, until nobody asks any more."""
    for verb in VERBS:
        command_of(verb)
    importlib.import_module("torpor.app")
    gc.freeze()  # or each fork would copy what its collector looks at
    while True:
        request, streams, _, _ = socket.recv_fds(line, _REQUEST_BYTES_MAX, 4)
        _reap()
        if not request:
            return
        if os.fork() == 0:
            line.close()
            _keep(json.loads(request), streams)
        for stream in streams:
            os.close(stream)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _keep(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Fork once more, and tell how that ended."""
    *standard, tells = streams
    pid = os.fork()
    if pid == 0:
        os.close(tells)
        _be(request, standard)
    os.write(tells, _TOLD.pack(pid))
    os.write(tells, _TOLD.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    os._exit(0)


def _be(request: dict[str, Any], standard: Sequence[int]) -> None:
    """Be the command."""
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[1:] = request["arguments"]
    sys.path[0] = request["cwd"]
    code = main()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking the interpreter apart would copy all of it first


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
