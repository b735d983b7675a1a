"""What all tests share: the two backends, and Hypothesis without a stopwatch.

An asynchronous test runs once on asyncio and once on trio. Tests of a part that only asyncio can run (sockets, the
command line's client) opt out by overriding ``anyio_backend`` in their module or in the conftest.py of their folder:

    @pytest.fixture(scope="module")
    def anyio_backend() -> str:
        return "asyncio"
"""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from anyio._backends._asyncio import AsyncIOBackend
from hypothesis import is_hypothesis_test, settings

# No test talks to a real host, whoever runs it.
os.environ.pop("ANTHROPIC_API_KEY", None)

# A slow machine is no failure, and no run may depend on what an earlier one left behind.
settings.register_profile("torpor", deadline=None, derandomize=True, database=None, max_examples=30)
settings.register_profile("soak", settings.get_profile("torpor"), max_examples=1_000)
settings.load_profile("torpor")


def pytest_configure(config: pytest.Config) -> None:
    """The soak looks at many more examples of each property."""
    if _is_soak(config):
        settings.load_profile("soak")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Each test of a property belongs to the soak as well."""
    if _is_soak(item.config) and isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
        item.add_marker("soak")


def _is_soak(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "soak")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The backend of an asynchronous test; both, one after the other."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def loggers_follow_their_configuration() -> Iterator[None]:
    """A command that a test runs in this process configures logging as for a process of its own, where each logger
    keeps what it found first; here later tests listen in their own way."""
    configure = structlog.configure

    def unkept(**options: Any) -> None:
        configure(**options | {"cache_logger_on_first_use": False})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", unkept)
        yield


@pytest.fixture(autouse=True)
def logging_is_left_as_it_was() -> Iterator[None]:
    """That command also chooses a level, below which later tests would hear nothing."""
    was_set, before = structlog.is_configured(), structlog.get_config()
    yield
    if was_set:
        structlog.configure(**before)
    elif structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def nobody_sleeps_until_all_tasks_wait() -> Iterator[None]:
    """On asyncio, ``wait_all_tasks_blocked`` looks again every tenth of a second, which adds up to minutes; here it
    looks again at once, with time for threads and sockets in between."""

    async def look_often(_: type[AsyncIOBackend]) -> None:
        await AsyncIOBackend.checkpoint()
        mine = asyncio.current_task()
        while any(task is not mine and _may_run(task) for task in asyncio.all_tasks()):  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.001)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncIOBackend, "wait_all_tasks_blocked", classmethod(look_often))
        yield


def _may_run(task: "asyncio.Task[Any]") -> bool:
    waiter = getattr(task, "_fut_waiter", None)
    return waiter is None or bool(waiter.done())
