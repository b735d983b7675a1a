"""The ``torpor`` command as a person uses it: processes in a home, a server among them, a chat on a terminal.

All of them, also those in lines of a shell, are forked from a process that has imported the engine, see
``tests.support.forked``.
"""

import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.support import forked
from tests.support.forked import TORPOR, Fork

DEADLINE_S = 60.0
"""For anything at all; a loaded machine is slow, and a test that waits this long has failed."""


def set_pace(home: Path, cps: int) -> None:
    """Have what the starter's agent says come at that many characters per second, 0 for at once; people read slower."""
    agent = home / "config" / "agents" / "clinic.toml"
    agent.write_text(f"{agent.read_text()}\npace_cps = {cps}\n")


class Command:
    """``torpor`` in one directory and one environment."""

    def __init__(self, directory: Path, **environ: str) -> None:
        self.directory = directory
        ours = {name: value for name, value in os.environ.items() if not name.startswith("TORPOR")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self.environ = {**ours, "PATH": path, "PYTHONUNBUFFERED": "1", **environ}

    def run(self, *arguments: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run it to its end, which must have the exit code ``code``."""
        done = forked.run(arguments, cwd=self.directory, env=self.environ, stdin=stdin, within_s=DEADLINE_S)
        assert done.returncode == code, f"torpor {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def shell(self, line: str) -> str:
        """Standard output of a line as a person types it; it must succeed."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env={**self.environ, "PATH": f"{forked.shell_folder()}{os.pathsep}{self.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def output(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        return self.run(*arguments, code=code, stdin=stdin).stdout

    def facts(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """What it prints with ``--json``."""
        lines = self.output(*arguments, "--json", code=code).splitlines()
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]

    def complaint(self, *arguments: str, code: int = 1) -> str:
        """The one line with which it fails."""
        done = self.run(*arguments, code=code)
        (line,) = done.stderr.splitlines()
        return line

    @contextmanager
    def serving(self, *arguments: str, log: int = 2) -> Iterator["ServerProcess"]:
        """A server that is ready; stopped by SIGTERM at the end unless it is gone already.

        Args: log: the descriptor that is its standard error.
        """
        server = ServerProcess(self, *arguments, log=log)
        try:
            server.start()
            yield server
        finally:
            server.stop()

    def sending(self, *arguments: str) -> "Sending":
        """A ``torpor send`` that runs beside the test."""
        return Sending(["send", *arguments], cwd=self.directory, env=self.environ)

    def chat(self, *arguments: str) -> "Terminal":
        """A chat on a terminal of its own."""
        return Terminal(["chat", *arguments], cwd=self.directory, env=self.environ)


class ServerProcess:
    """One ``torpor serve --json``; may be killed and started again on the port that it had."""

    def __init__(self, command: Command, *arguments: str, log: int = 2) -> None:
        self._command = command
        self._arguments = arguments
        self._log = log
        self._process: Fork | None = None
        self.ready: dict[str, str] = {}

    @property
    def port(self) -> str:
        return self.ready["url"].rpartition(":")[2]

    @property
    def where(self) -> list[str]:
        """The options with which a client finds this very server."""
        return ["--url", self.ready["url"], "--token", self.ready["token"]]

    def start(self) -> None:
        """Start it, on its old port if it had one, and return when it is ready."""
        port = self.port if self.ready else "0"
        arguments = ["serve", "--json", "--port", port, "--log-level", "warning", *self._arguments]
        out, its = os.pipe()
        self._said = os.fdopen(out)
        try:
            self._process = Fork(
                TORPOR, arguments, cwd=self._command.directory, env=self._command.environ, streams=(0, its, self._log)
            )
        finally:
            os.close(its)
        line = self._said.readline()
        assert line, f"server ended with {self._process.wait(DEADLINE_S)} before it was ready"
        self.ready = msgspec.json.decode(line)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def tell(self, number: signal.Signals) -> None:
        """Send it, and wait for nothing."""
        assert self._process is not None
        self._process.send_signal(number)

    def ended(self) -> int:
        """The exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code, also of a process that had ended."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        code = self._process.wait(DEADLINE_S)
        self._said.close()
        return code


class Sending:
    """A ``torpor send`` on its way, and what it has said on standard error."""

    def __init__(self, arguments: list[str], *, cwd: Path, env: dict[str, str]) -> None:
        self._said: list[str] = []
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        said, its = os.pipe()
        self._err = os.fdopen(said)
        with Path(os.devnull).open() as nothing:
            streams = (nothing.fileno(), self._out.fileno(), its)
            try:
                self._process = Fork(TORPOR, arguments, cwd=cwd, env=env, streams=streams)
            finally:
                os.close(its)

    def until(self, text: str) -> None:
        """Return when a line has said ``text``."""
        for line in self._err:
            self._said.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} was not said: {self._said}")

    def end(self, *, code: int) -> subprocess.CompletedProcess[str]:
        """Wait for its end, which must have the exit code ``code``."""
        ended = self._process.wait(DEADLINE_S)
        with self._out, self._err:
            out, said = forked.text_of(self._out), "".join([*self._said, self._err.read()])
        assert ended == code, f"{ended}\n{out}\n{said}"
        return subprocess.CompletedProcess(self._process.args, code, out, said)


class Terminal:
    """A command with a terminal as its standard input and output, and everything that it has shown."""

    def __init__(self, command: list[str], *, cwd: Path, env: dict[str, str]) -> None:
        self._screen, inner = pty.openpty()
        self.shown = ""
        self._seen = 0
        streams = (inner, inner, inner)
        self._process = Fork(TORPOR, command, cwd=cwd, env=env, streams=streams, has_terminal=True)
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(DEADLINE_S)
        os.close(self._screen)

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def modes(self) -> list[Any]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._screen)

    def press_ctrl_c(self) -> None:
        self.type("\x03")

    def expect(self, text: str) -> None:
        """Return when ``text`` has been shown, behind what was expected before."""
        until = time.monotonic() + DEADLINE_S
        while (found := self.shown.find(text, self._seen)) < 0:
            assert self._read(until), f"{text!r} was not shown behind what is before it:\n{self.shown}"
        self._seen = found + len(text)

    def ended(self) -> int:
        """The exit code, once it has ended by itself."""
        until = time.monotonic() + DEADLINE_S
        while self._read(until):
            pass
        return self._process.wait(DEADLINE_S)

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._screen], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        try:
            piece = os.read(self._screen, 65_536)
        except OSError:  # Linux says so when the other side has closed
            return False
        self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)
