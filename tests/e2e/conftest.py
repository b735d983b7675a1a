"""These tests talk through sockets, whose adapters know asyncio only."""

import logging
from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def quiet_logs() -> Iterator[None]:
    """Clients that find no server say so many times a second, which drowns what a failure has to tell."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    yield
    structlog.reset_defaults()
