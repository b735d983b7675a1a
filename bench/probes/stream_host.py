"""A host that streams, and a client that listens, each a process of its own, so that only the middle is measured."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

from bench.measure import environment
from bench.work import prose

DELTAS: Final = 200
"""Of one reply: a word each."""
PACED_S: Final = 0.01
"""Between two deltas of one reply: a fast model, and slow enough that each is a read of its own."""
MODEL: Final = "claude-haiku-4-5"


@contextmanager
def fake_api(*, interval_s: float) -> Iterator[str]:
    """The URL of a Messages API that answers everything with ``DELTAS`` words, one in ``interval_s``; 0: at once."""
    words = [f"{word} " for word in prose(12 * DELTAS).split()[:DELTAS]]
    reply = {"content": [{"type": "text", "text": "".join(words), "pieces": words}], "delta_interval_s": interval_s}
    with TemporaryDirectory(prefix="torpor-bench-") as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"otherwise": reply}))
        with spoken_to("torpor_fake_api", "--script", str(script), "--seed", "bench") as (_, answers):
            yield json.loads(answers.readline())["url"]


@contextmanager
def spoken_to(module: str, *arguments: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """A process, by its standard input and output; asked to end with the block."""
    command: Sequence[str] = (sys.executable, "-m", module, *arguments)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.terminate()
