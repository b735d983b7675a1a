"""A server listens on a socket, which only one of the two backends can do here."""

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"
