"""Examples of docs/client.md run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.command_line import DEADLINE_S, Command

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
OF_FILES = """
import os, anyio

async def main():
    async with TorporClient(os.environ["TORPOR_URL"], os.environ["TORPOR_TOKEN"]) as client:
        await show_scan(client, Path("scan.txt"))
        print(await fetch_all(client, "desk-1"))

anyio.run(main)
"""


def ran(program: str, *arguments: str, office: Command, address: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**office.environ, **address},
        cwd=office.directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_examples_tell_a_context_send_a_message_show_the_reply_and_send_a_file(tmp_path: Path) -> None:
    first, _, _, of_files, of_blobs = EXAMPLES
    office = Command(tmp_path)
    office.run("init", ".")
    (tmp_path / "scan.txt").write_text("No shadow.")
    with office.serving() as server:
        address = {"TORPOR_URL": server.ready["url"], "TORPOR_TOKEN": server.ready["token"]}
        chat = ran(first, office=office, address=address)
        files = ran(of_files + of_blobs + OF_FILES, office=office, address=address)
        again = [ran(EXAMPLES[1], "order-17", office=office, address=address) for _ in range(2)]
        journal = office.facts("inspect", "desk-1")
        orders = office.facts("inspect", "orders")

    assert (chat.stdout, chat.stderr) == ("Let me look.\nThursday: 8:00 to 20:00\n", "")
    assert [(each.stdout, each.stderr) for each in again] == [("Thursday: 8:00 to 20:00\n", "")] * 2
    assert [row["kind"] for row in orders].count("message_received") == 1
    assert "context_changed" in {row["kind"] for row in journal}
    assert files.stderr == ""
    assert re.fullmatch(r"text/plain \n/attachments/\S+\n{'scan.txt': b'No shadow.'}\n", files.stdout)
    assert (tmp_path / "kept").read_text() == "No shadow."
