"""``make transcript``: runs the commands that README.md shows and writes down what they say.

A real server serves this home on a free port, with a data folder that was never used before.
"""

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command_line import Command

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
_SECTION = re.compile(r"(<!-- transcript: begin.*?-->\n).*?(<!-- transcript: end -->)", re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def shown_in(text: str) -> list[tuple[str, str]]:
    """The commands of all console blocks in ``text``, each with the output that is shown below it."""
    shown: list[tuple[str, str]] = []
    for block in _CONSOLE.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            shown.append((command, output))
    return shown


@contextmanager
def served() -> Iterator[Command]:
    """``torpor`` in this home, where a server runs that nobody has used."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = {"CLINIC_LEDGER": str(Path(folder) / "ledger.sqlite3")}
        with Command(ROOT, **ledger).serving("--data", str(Path(folder) / "data")) as server:
            yield Command(ROOT, TORPOR_URL=server.ready["url"], TORPOR_TOKEN=server.ready["token"])


def written(text: str) -> str:
    """``text`` with a new transcript of the commands in its transcript section."""
    section = _SECTION.search(text)
    if section is None:
        sys.exit(f"{README.name} has no section between the marks of a transcript")
    with served() as torpor:
        runs = [f"$ {command}\n{torpor.shell(command)}" for command, _ in shown_in(section.group())]
    return _SECTION.sub(lambda marks: f"{marks[1]}```console\n{''.join(runs)}```\n{marks[2]}", text)


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
    print(f"{README.name} shows what its commands said just now")
