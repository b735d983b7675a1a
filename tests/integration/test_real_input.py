"""The main job on input that nobody wrote for it: public conversations, through a real server.

Their users' turns are sent by a real client, their assistant's replies and tool results come back from a model and a
tool that replay them; the server sleeps, restarts and is killed in the middle. ``python -m bench.replay`` does the same
and says what it took.
"""

from pathlib import Path

import pytest

from tests.support.recordings import Recording, data_folder, healthcare_sessions, tau_bench_trajectories
from tests.support.replay_run import ReplayRun

DATA = data_folder()
pytestmark = pytest.mark.skipif(DATA is None, reason="no public data here, TORPOR_TEST_DATA names no folder")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


def recordings() -> list[Recording]:
    assert DATA is not None
    return [*healthcare_sessions(DATA), *tau_bench_trajectories(DATA)]


async def test_recorded_conversations_are_kept_verbatim_and_replayed_over_a_restart_and_a_kill(tmp_path: Path) -> None:
    run = ReplayRun(tmp_path, recordings())
    figures = await run.play()
    assert run.faults() == []
    assert (figures.conversations, figures.turns, figures.restarts) == (93, 716, 2)
