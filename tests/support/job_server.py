"""A server whose turns each order a job, for tests that kill it: ``python -m tests.support.job_server``.

The job keeps a book beside the data folder: a line when an attempt begins and one when the job is done, each on the
disk before it goes on. Told to ``--hold N``, the Nth attempt of this process goes no further than its first line, and
says so on stdout as ``tests.support.kill_server`` does.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import anyio
import msgspec

from tests.support.doubles import PlayedModel
from tests.support.fault_points import Announce
from tests.support.kill_server import announcer, end_with_the_test
from torpor.actor.commit import Journal
from torpor.app import Wrapping, running
from torpor.jobs.options import JobOptions
from torpor.records.journal import JournalRecord, TurnFinished
from torpor.settings import read_settings
from torpor.store.contract import Job
from torpor.store.job_contract import StoredJob

KIND = "note"


class Note:
    """Implements ``jobs.contract.JobHandler``."""

    def __init__(self, book: Path, *, hold: int, announce: Announce) -> None:
        self._book = book
        self._hold = hold
        self._announce = announce
        self._begun = 0

    async def run(self, job: StoredJob, *, attempt: int) -> None:
        name = f"{job.key.conversation}/{job.id}"
        self._write(f"began {name} {attempt}")
        self._begun += 1
        if self._begun == self._hold:
            self._announce(held=name)
            await anyio.sleep_forever()
        await anyio.sleep(0.01)
        self._write(f"did {name} {attempt}")

    def _write(self, line: str) -> None:
        with self._book.open("a") as book:
            book.write(line + "\n")
            book.flush()
            os.fsync(book.fileno())


def ordering(add: Callable[..., None]) -> Callable[..., None]:
    """``Journal.add`` that orders a job with the end of each turn."""

    def add_and_order(journal: Journal, *drafts: JournalRecord) -> None:
        add(journal, *drafts)
        for draft in drafts:
            if isinstance(draft, TurnFinished):
                journal.add_job(Job(id=f"turn-{draft.turn}", kind=KIND, due_us=0))

    return add_and_order


async def serve(arguments: argparse.Namespace, announce: Announce) -> None:
    """Serve until SIGTERM, or until this process is killed."""
    note = Note(arguments.data.parent / "book", hold=arguments.hold, announce=announce)
    wrapping = Wrapping(model=lambda _: PlayedModel(), job_handlers={KIND: note})
    # Nothing but a ring finds a job in time.
    settings = msgspec.structs.replace(
        read_settings(arguments.home, os.environ), jobs=JobOptions(poll_s=3600.0, stop_deadline_s=0.2)
    )
    with patch.object(Journal, "add", ordering(Journal.add)), anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with running(settings, data=arguments.data, host="127.0.0.1", port=0, wrapping=wrapping) as server:
            announce(ready=server.url, token=server.development_token)
            async for _ in signals:
                break
    announce(ended=True)


def main(argv: list[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.job_server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--hold", type=int, default=0, help="the attempt of this process that is not to end")
    arguments = parser.parse_args(argv)
    end_with_the_test()
    anyio.run(serve, arguments, announcer())


if __name__ == "__main__":
    main(sys.argv[1:])
