"""These tests talk through sockets, whose adapters know asyncio only."""

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"
