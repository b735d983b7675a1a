"""Nothing that MCP servers do hangs a turn, ends an actor, leaves a process or a call open, or spoils a request."""

from collections import Counter
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.mcp_ledger import McpLedger
from tests.support.mcp_storm import BLOWS, settled, storming
from torpor.records.journal import SubagentFinished, SubagentStarted
from torpor.records.terms import Outcome


async def stormed(folder: Path, *, seed: int, count: int) -> tuple[Counter[str], Counter[Outcome]]:
    with capture_logs() as told:
        async with storming(folder, seed=seed) as storm:
            await storm.blow(count=count)
            journals = await storm.journals()
    assert [entry for entry in told if entry["log_level"] in {"error", "critical"}] == []
    begun = sum(isinstance(record, SubagentStarted) for journal in journals for record in journal)
    assert begun == sum(isinstance(record, SubagentFinished) for journal in journals for record in journal)
    outcomes = sum((settled(journal, McpLedger(folder / "ledger.txt")) for journal in journals), Counter())
    return storm.blows, outcomes


@pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.soak)])
async def test_a_short_storm_leaves_nothing_open(tmp_path: Path) -> None:
    blows, outcomes = await stormed(tmp_path, seed=1, count=4)

    assert blows.total() == 4
    assert outcomes[Outcome.SUCCEEDED] > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
async def test_a_thousand_blows_leave_nothing_open(tmp_path: Path, seed: int) -> None:
    """Fifty of each seed on each backend."""
    blows, outcomes = await stormed(tmp_path, seed=seed, count=50)

    assert blows.keys() == set(BLOWS)
    assert outcomes.keys() >= {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.UNKNOWN}
