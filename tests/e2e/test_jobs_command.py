"""``torpor jobs`` as an operator uses it, on a file and on a running server."""

from pathlib import Path

import anyio
import pytest

from tests.support.command_line import Command
from tests.support.sample_records import KEY, START_US, opening
from tests.support.writing import lease_of, put
from torpor.store.contract import Job
from torpor.store.sqlite.engine import open_sqlite

LATE_US = 4_000_000_000_000_000


@pytest.fixture
def torpor(tmp_path: Path) -> Command:
    """In a folder with a home, whose data folder holds two jobs that nobody serves, one of them dead."""
    command = Command(tmp_path)
    command.run("init", "home")
    anyio.run(_order, tmp_path / "home" / ".torpor")
    return command


async def _order(data: Path) -> None:
    jobs = [
        Job(id="digest:1", kind="digest", due_us=START_US),
        Job(id="digest:2", kind="digest", due_us=LATE_US),
    ]
    async with open_sqlite(data) as store:
        await put(store, await lease_of(store), opening(), jobs=jobs)
        job = await store.job_store.find_job(KEY, "digest:1")
        assert job is not None
        claimed = await store.job_store.claim_job(job, holder="s", until_us=START_US, now_us=START_US)
        await store.job_store.bury_job(claimed, reason="its\x1b[31m turn is gone")


def test_jobs_are_listed_from_a_file_with_state_attempts_and_the_last_error(torpor: Command) -> None:
    *rows, counts = torpor.facts("jobs", "--data", "home/.torpor")
    assert [(row["id"], row["state"], row["attempts"]) for row in rows] == [
        ("digest:1", "dead", 1),
        ("digest:2", "waiting", 0),
    ]
    assert (counts["waiting"], counts["running"], counts["dead"], counts["oldest_due_us"]) == (1, 0, 1, None)
    assert [row["id"] for row in torpor.facts("jobs", "--data", "home/.torpor", "--state", "dead")[:-1]] == ["digest:1"]
    shown = torpor.output("jobs", "--data", "home/.torpor")
    first, dead, waiting, last = shown.splitlines()
    assert first.split() == ["ID", "KIND", "STATE", "AGE", "DUE", "ATTEMPTS", "LAST", "ERROR"]
    assert dead.split()[:3] == [f"{KEY.path}/digest:1", "digest", "dead"]
    assert dead.endswith("its␛[31m turn is gone")
    assert " in " in waiting
    assert last == "1 waiting, 0 running, 1 dead; nothing is due"


def test_an_operator_lists_retries_and_drops_jobs_of_a_running_server(torpor: Command) -> None:
    with torpor.serving("--home", "home", "--port", "0") as server:
        here = ("--home", "home")
        assert [row["id"] for row in torpor.facts("jobs", *here)[:-1]] == ["digest:1", "digest:2"]
        assert torpor.facts("jobs", "list", *here) == torpor.facts("jobs", *here)
        assert torpor.output("jobs", "retry", "digest:1", *here) == f"{KEY.path}/digest:1 runs next\n"
        (first, *_) = torpor.facts("jobs", *here)
        assert (first["state"], first["attempts"]) == ("waiting", 0)
        assert "; 1 due, the oldest for " in torpor.output("jobs", *here)
        assert torpor.facts("jobs", "drop", "digest:2", *here) == [{"path": f"{KEY.path}/digest:2", "state": "dropped"}]
        assert torpor.complaint("jobs", "drop", "digest:2", *here) == (
            "torpor: no job 'digest:2' here, `torpor jobs` lists them"
        )
        assert "expected them behind 'drop'" in torpor.run("jobs", *here, "drop", "digest:1", code=2).stderr
        eve = torpor.output("token", "--subject", "eve", "--ttl", "5m", *here).strip()
        assert "jobs needs the scope 'operator'" in torpor.complaint("jobs", "--token", eve, *here)
        assert server.stop() == 0
