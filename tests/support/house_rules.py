"""Rules about the whole repository that no linter knows: ``python -m tests.support.house_rules``.

Four of them: no module passes its size; nothing names the machine it was written on or a package index; what judges,
imitates or extends the engine does not import the parts it must not see; and what an error has found is either a value
or ``Words``, which are not quoted as one.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MAX_LINES = 600

_NAMES_A_MACHINE = re.compile(
    r"(?<![\w.~-])/(?:root|work|workspace|Users|home/(?!agent\b)\w+)/[\w.-]"  # the image's own user is agent
    r"|\bpypi\.(?:org|python)|\bpythonhosted\.|\bregistry\.(?:npmjs|yarnpkg)\."
)


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """Files that must not reach certain modules, directly or through other test code."""

    applies: Callable[[PurePosixPath], bool]
    forbidden: re.Pattern[str]
    """Matched against the dotted name of an imported module."""
    because: str


def _judges(path: PurePosixPath) -> bool:
    words = re.split(r"[/_.]", str(path))
    is_judge = not {"checker", "checkers", "oracle", "oracles"}.isdisjoint(words)
    return path.parts[0] == "tests" and is_judge and not path.name.startswith("test_")


BOUNDARIES = (
    Boundary(
        applies=_judges,
        forbidden=re.compile(r"torpor(\.|$)"),  # the fake API judges requests too, and knows no engine
        because="a judge shares no code with what it judges",
    ),
    Boundary(
        applies=lambda path: path.is_relative_to("runtime/torpor_fake_api"),
        forbidden=re.compile(r"(torpor|tests|bench)(\.|$)"),
        because="the fake API enforces the rules by its own reading of them",
    ),
    Boundary(
        applies=lambda path: path.is_relative_to("runtime/torpor"),
        forbidden=re.compile(r"(torpor_fake_api|tests|bench)(\.|$)"),
        because="the engine does not know its tests",
    ),
    Boundary(
        applies=lambda path: path.is_relative_to("tools"),
        forbidden=re.compile(r"torpor\.|(torpor_fake_api|tests|bench)(\.|$)"),
        because="a tool module uses the names that torpor itself exports",
    ),
)


def oversized(path: PurePosixPath, text: str) -> Iterator[str]:
    """A line when the module ``path`` is longer than ``MAX_LINES``."""
    lines = len(text.splitlines())
    if path.suffix == ".py" and lines > MAX_LINES:
        yield f"{path}: {lines} lines, a module has at most {MAX_LINES}"


def machine_names(path: PurePosixPath, text: str) -> Iterator[str]:
    """A line for each place that names a path of one machine or the host of a package index."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _NAMES_A_MACHINE.search(line):
            yield f"{path}:{number}: names a machine or a package index: {found.group()}"


def quoted_reasons(path: PurePosixPath, text: str) -> Iterator[str]:
    """A line for each error of the engine that would quote a sentence of ours as the value that was found."""
    if path.suffix != ".py" or not path.is_relative_to("runtime/torpor"):
        return
    for function in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            sentences = {name for name, value in _assigned(function) if _is_sentence(value)}
            for node in ast.walk(function):
                if isinstance(node, ast.keyword) and node.arg == "found":
                    is_one = isinstance(node.value, ast.Name) and node.value.id in sentences
                    if is_one or _is_sentence(node.value):
                        yield f"{path}:{node.value.lineno}: what was found is words of ours, expected Words(...)"


def _assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                match target, node.value:
                    case ast.Name(), value:
                        yield target.id, value
                    case ast.Tuple(), ast.Tuple(elts=values):
                        names = (each.id if isinstance(each, ast.Name) else "" for each in target.elts)
                        yield from zip(names, values, strict=False)


def _is_sentence(value: ast.expr) -> bool:
    """Words with values in them, several words, or what an exception says."""
    match value:
        case ast.JoinedStr():
            return True
        case ast.Constant(value=str() as told):
            return " " in told or told == "missing"
        case ast.Call(func=ast.Attribute(value=inner)):
            return _is_sentence(inner)
        case ast.Subscript(value=inner):
            return _is_sentence(inner)
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id="exc")]):
            return True
    return False


def crossings(root: Path, path: PurePosixPath) -> Iterator[str]:
    """A line for each import by which ``path`` crosses one of the ``BOUNDARIES``, with the way it took."""
    for boundary in BOUNDARIES:
        if path.suffix == ".py" and boundary.applies(path):
            for way, module in _reached(root, path):
                if boundary.forbidden.match(module):
                    through = " > ".join(str(step) for step in way)
                    yield f"{through}: imports {module}, but {boundary.because}"


def _reached(root: Path, start: PurePosixPath) -> Iterator[tuple[tuple[PurePosixPath, ...], str]]:
    """Every module that ``start`` imports, itself or through test code, after the files that lead there."""
    seen = {start}
    ways: list[tuple[PurePosixPath, ...]] = [(start,)]
    while ways:
        way = ways.pop()
        for module in _imports(root, way[-1]):
            yield way, module
            file = _test_file(root, module)
            if file and file not in seen:
                seen.add(file)
                ways.append((*way, file))


def _imports(root: Path, path: PurePosixPath) -> Iterator[str]:
    for node in ast.walk(ast.parse((root / path).read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.parts[: len(path.parts) - node.level] if node.level else ()
            module = ".".join((*package, *filter(None, [node.module])))
            yield module
            # "from tests.support import ledger" imports a module as well as a name.
            yield from (name for name in (f"{module}.{a.name}" for a in node.names) if _test_file(root, name))


def _test_file(root: Path, module: str) -> PurePosixPath | None:
    if module.partition(".")[0] not in ("tests", "bench"):
        return None
    stem = PurePosixPath(*module.split("."))
    candidates = (stem.with_suffix(".py"), stem / "__init__.py")
    return next((file for file in candidates if (root / file).is_file()), None)


def findings(root: Path, paths: Iterable[PurePosixPath]) -> Iterator[str]:
    """Everything among ``paths`` of the checkout at ``root`` that breaks a rule."""
    for path in paths:
        try:
            text = (root / path).read_text()
        except UnicodeDecodeError:
            continue  # a picture or a database
        yield from oversized(path, text)
        yield from machine_names(path, text)
        yield from quoted_reasons(path, text)
        yield from crossings(root, path)


def _committed(root: Path) -> Iterator[PurePosixPath]:
    """Files that git has, or would have after ``git add``."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in sorted(set(listing.stdout.split("\0"))):
        if name and (root / name).is_file():
            yield PurePosixPath(name)


if __name__ == "__main__":
    broken = list(findings(Path.cwd(), _committed(Path.cwd())))
    print("\n".join(broken) or "Every rule of the house is kept.")
    sys.exit(1 if broken else 0)
