"""One run of the kill test: servers that are killed one after the other while visitors go through their scenario.

    python -m tests.support.kill_run [--conversations N] [--folder DIR] append.after:model_replied#3 model.start ...

Each server is told the point at which it is to be held; there it gets SIGKILL. The next one starts with another system
prompt and without a client, until nothing is due any more; only then may the clients come back. After the last one has
ended in peace the judges look at what is left: the database, the tools' book, the model's log, the clients' log.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from tests.support.gate import Gate, open_gate
from tests.support.journal_checker import Account, Turn, account_of, read_journals
from tests.support.kill_judges import judged
from tests.support.server_process import Fault, ServerProcess, server_process
from tests.support.side_model import MUDDLED
from tests.support.visitor import Visitor
from torpor.cli.folders import blobs_folder
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.operations.audit import verdict_on
from torpor.operations.logs import LogOptions, configure_logs
from torpor.store.blobs import LocalBlobs
from torpor.store.sqlite.auditing import open_to_audit

HOME = Path(__file__).parent / "kill_home"
DEADLINE_S = 90.0
_IMPATIENT = ClientOptions(backoff_s=0.05, backoff_max_s=0.1)


def make_home(home: Path) -> None:
    """An agent home whose tools keep a book, and whose model waits for marks in its folder of what is released."""
    shutil.copytree(HOME, home)
    (home / "released").mkdir()
    (home / MUDDLED).mkdir()


class KillRun:
    """A folder with a home and a data folder of its own, and what happens in it."""

    def __init__(self, folder: Path, *, conversations: int = 1) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._released = self.home / "released"
        self._data = folder / "data"
        self._database = self._data / "torpor.db"
        self._unverified: list[str] = []
        self._conversations = conversations
        self.passed: dict[str, int] = {}
        """How often the last server passed each point."""
        self._lives = 0
        self._visitors: list[Visitor] = []
        self._are_visiting = False
        self._are_done = anyio.Event()
        make_home(self.home)

    async def survive(self, plan: Sequence[Fault]) -> list[Fault]:
        """Go through the scenario; returns those of ``plan`` that were reached.

        A fault that the scenario ends without reaching ends the run, with those behind it untried.
        Raises: TimeoutError: somebody waits for what does not come.
        """
        reached: list[Fault] = []
        with anyio.fail_after(DEADLINE_S):
            async with open_gate() as gate, anyio.create_task_group() as tasks:
                for fault in (*plan, None):
                    async with server_process(self.folder, fault=fault) as server:
                        if await self._serves_to_the_end(server, gate, tasks):
                            break
                        assert fault is not None
                        reached.append(fault)
                        await server.kill()
                    await self._verify()
                    self._prepare_next(gate)
                tasks.cancel_scope.cancel()
        await self._verify()
        return reached

    async def _verify(self) -> None:
        """As ``torpor verify --all`` does it, whatever the last server left."""
        blobs = LocalBlobs(blobs_folder(self._data), in_threads=False)
        with open_to_audit(self._data) as reader:
            for key in reader.keys():  # noqa: SIM118  it is no dictionary
                verdict = await verdict_on(reader, key, blobs=blobs)
                if verdict.difference:
                    self._unverified.append(f"after life {self._lives}: {verdict}")

    def turns(self) -> list[Turn]:
        """Every turn of every conversation, in order."""
        return [turn for account in self._own() for turn in account.turns.values()]

    def fold_failures(self) -> list[str]:
        """Why summaries could not be made."""
        return [record["code"] for account in self._own() for record in account.folds_failed]

    def _own(self) -> list[Account]:
        """Of the conversations, without those of their sub-agents."""
        return [account_of(journal) for journal in read_journals(self._database).values() if not journal.is_child]

    def faults(self) -> list[str]:
        """What the judges find."""
        found, own = judged(self.folder)
        found += self._unverified
        if own != self._conversations:
            found.append(f"{own} conversations are left, expected {self._conversations}")
        return found

    async def _serves_to_the_end(self, server: ServerProcess, gate: Gate, tasks: anyio.abc.TaskGroup) -> bool:
        """False when the server is held at its fault."""
        self._lives += 1
        if not await server.until("idle"):
            return False
        (self._released / "everything").unlink(missing_ok=True)
        gate.open(server.port)
        if not self._are_visiting:
            self._are_visiting = True
            tasks.start_soon(self._visit, gate.url, server.token)
        for visitor in self._visitors:
            visitor.server_changed()
        if await self._is_held(server) or not await server.stop():
            return False
        self.passed = server.passed
        return True

    async def _is_held(self, server: ServerProcess) -> bool:
        """Wait for the server to be held or for the visitors to be done."""
        held = False

        async def wait_for_the_visitors() -> None:
            await self._are_done.wait()
            waiting.cancel_scope.cancel()

        async with anyio.create_task_group() as waiting:
            waiting.start_soon(wait_for_the_visitors)
            held = await server.until("held")
            waiting.cancel_scope.cancel()
        return held

    def _prepare_next(self, gate: Gate) -> None:
        """Let nobody in, let nobody who waits wait on, give the agent another system prompt and turn the flag."""
        gate.shut()
        (self._released / "everything").touch()
        agent = self.home / "config" / "agents" / "keeper.toml"
        text = agent.read_text().replace(f"Edition {self._lives - 1}.", f"Edition {self._lives}.")
        agent.write_text(text)
        flags = self.home / "config" / "flags.toml"
        text = flags.read_text()
        flags.write_text(text.replace("false", "true") if "false" in text else text.replace("true", "false"))

    async def _visit(self, url: str, token: str) -> None:
        with (self.folder / "client.jsonl").open("a", encoding="utf-8") as log:

            def note(line: dict[str, Any]) -> None:
                log.write(json.dumps(line) + "\n")

            async with (
                TorporClient(url, token, options=_IMPATIENT) as client,
                TorporClient(url, token, options=_IMPATIENT) as onlooker,
                anyio.create_task_group() as tasks,
            ):
                for number in range(self._conversations):
                    visitor = Visitor(
                        client,
                        onlooker,
                        f"c{number}",
                        home=self.home,
                        log=note,
                        lives=lambda: self._lives,
                        number=number,
                    )
                    self._visitors.append(visitor)
                    tasks.start_soon(visitor.live)
        self._are_done.set()


async def main(argv: list[str]) -> int:
    """Do one run again and say what the judges find; the folder stays."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.kill_run")
    parser.add_argument("--conversations", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="a new one; by default one among the temporary files")
    parser.add_argument("plan", nargs="*", type=Fault.named, help="point#passage, in order")
    arguments = parser.parse_args(argv)
    configure_logs(LogOptions(level="warning"))
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="torpor-kill-")) / "run"
    run = KillRun(folder, conversations=arguments.conversations)
    reached = await run.survive(arguments.plan)
    faults = run.faults()
    print(f"{folder}: reached {', '.join(map(str, reached)) or 'nothing'}", *faults or ["no faults"], sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1:]))
