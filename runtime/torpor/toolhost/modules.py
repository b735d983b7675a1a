"""A file of tools as a Python module, under a private name and from its source alone.

Above: the loader, which reads the files of a home, and worker processes, which are handed the source that the server
read. Nothing is imported by name and no folder joins the import path.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from torpor.ordinary_files import read_ordinary
from torpor.toolhost.declare import Tool

_PRIVATE_PREFIX: Final = "_torpor_home_tools"
_SOURCE_BYTES_MAX: Final = 16_777_216
"""A larger module is not loaded."""


class _SourceOnly(SourceFileLoader):
    """Compiles the source that it is given; reads and leaves no cache, whose clock misses quick edits."""

    def __init__(self, name: str, path: str, *, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self._source, self.get_filename(fullname))
        return code


def read_source(path: Path) -> bytes:
    """What the file says now. Raises: OSError: it is no ordinary file, too large, or cannot be read."""
    return read_ordinary(path, cap_bytes=_SOURCE_BYTES_MAX)


def load_module(path: Path, *, source: bytes) -> ModuleType:
    """Run ``source`` as the module at ``path``. Raises: whatever the module does."""
    name = f"{_PRIVATE_PREFIX}.{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.{path.stem}"
    loader = _SourceOnly(name, str(path), source=source)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path.name} is not a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and annotations look their module up there
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def declared_tools(module: ModuleType) -> Iterator[Tool[..., Any]]:
    """Each tool once, also those that the module took from a package."""
    seen: set[int] = set()
    for value in vars(module).values():
        if isinstance(value, Tool) and id(value) not in seen:
            seen.add(id(value))
            yield value
