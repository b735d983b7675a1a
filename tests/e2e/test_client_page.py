"""The example of docs/client.md runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import DEADLINE_S, Command

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()


def test_example_tells_a_context_sends_a_message_and_shows_the_reply(tmp_path: Path) -> None:
    example, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    office = Command(tmp_path)
    office.run("init", ".")
    with office.serving() as server:
        address = {"TORPOR_URL": server.ready["url"], "TORPOR_TOKEN": server.ready["token"]}
        done = subprocess.run(
            [sys.executable, "-c", example],
            env={**office.environ, **address},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        journal = office.facts("inspect", "desk-1")

    assert (done.stdout, done.stderr) == ("Let me look.\nThursday: 8:00 to 20:00\n", "")
    assert "context_changed" in {row["kind"] for row in journal}
