"""A home's ``tools/*.py``, each loaded by its path under a private name, and what was wrong with some of them.

Nothing is imported by name and no folder joins the import path, so a home's ``json.py`` shadows nothing and is shadowed
by nothing. Modules therefore cannot import one another; what they share belongs in an installed package. A file whose
name begins with an underscore is no tool module.
"""

import inspect
import traceback
from pathlib import Path
from typing import Any

import msgspec

from torpor.toolhost.declare import Origin, Runs, Tool, faults_kept
from torpor.toolhost.modules import declared_tools, load_module, read_source
from torpor.toolhost.reserved import RESERVED_NAMES


class ToolProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something an author must look at; the tools it concerns are not offered."""

    file: str
    line: int
    """From 1; 0 when no line is to blame."""
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class LoadedTools(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder of tool modules came to."""

    tools: tuple[Tool[..., Any], ...]
    """Under distinct names, in the order of their files."""
    problems: tuple[ToolProblem, ...]


def load_tools(folder: Path) -> LoadedTools:
    """Load every tool module of ``folder``, in the order of file names; never raises for what a module does.

    Of two tools with one name the first stays and the second is a problem, as is a name of the engine's own tools. A
    folder that is not there holds no tools.
    """
    loading = _Loading()
    for path in loading.listed(folder):
        if path.suffix == ".py" and not path.name.startswith(("_", ".")):
            loading.add(path)
    return LoadedTools(tools=tuple(loading.tools.values()), problems=tuple(loading.problems))


class _Loading:
    """One pass over a folder."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool[..., Any]] = {}
        self.problems: list[ToolProblem] = []
        self._homes: dict[str, Path] = {}

    def listed(self, folder: Path) -> list[Path]:
        """What is in ``folder``, in order."""
        try:
            return sorted(folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as exc:
            message = f"cannot be listed, {(exc.strerror or 'unusable').lower()}: no tool of this home is offered"
            self.problems.append(ToolProblem(file=folder.name, line=0, message=message))
            return []

    def add(self, path: Path) -> None:
        source, module = b"", None
        with faults_kept() as faults:
            try:
                source = read_source(path)
                module = load_module(path, source=source)
            except BaseException as exc:  # noqa: BLE001  # the edge to a tool author's code, at start
                if not faults:  # it may come of one of them
                    self._report_unloaded(path, _line(exc, path), exc)
        for fault in faults:
            self._report_unloaded(path, fault.line if fault.file == str(path) else 0, fault.error)
        if module is None or faults:
            return
        tools = list(declared_tools(module))
        if not tools:
            self._report(path, 0, "declares no tool, expected a function under @tool; other files begin with _")
        for tool in tools:
            if tool.runs is Runs.PROCESS and tool.origin is None:
                tool.origin = Origin(path, source)
            self._take(tool, path)

    def _take(self, tool: Tool[..., Any], path: Path) -> None:
        code = getattr(inspect.unwrap(tool.function), "__code__", None)
        line = code.co_firstlineno if code is not None and code.co_filename == str(path) else 0
        if tool.name in RESERVED_NAMES:
            self._report(path, line, f"declares {tool.name!r}, which is a tool of the engine: give it another name")
        elif tool.name in self.tools:
            first = self._homes[tool.name].name
            self._report(path, line, f"declares {tool.name!r}, which {first} has declared: give it another name")
        else:
            self.tools[tool.name] = tool
            self._homes[tool.name] = path

    def _report_unloaded(self, path: Path, line: int, exc: BaseException) -> None:
        self._report(path, line, f"is not loaded, its tools are not offered: {type(exc).__name__}: {exc}")

    def _report(self, path: Path, line: int, message: str) -> None:
        self.problems.append(ToolProblem(file=f"{path.parent.name}/{path.name}", line=line, message=message))


def _line(exc: BaseException, path: Path) -> int:
    """The last line of the file that had a part in ``exc``."""
    if isinstance(exc, SyntaxError) and exc.filename == str(path):
        return exc.lineno or 0
    frames = traceback.extract_tb(exc.__traceback__)
    return next((frame.lineno or 0 for frame in reversed(frames) if frame.filename == str(path)), 0)
