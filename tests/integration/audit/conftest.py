"""A server listens on a socket, which only one of the two backends can do here."""

import pytest

from tests.integration.audit.lived import Lived, lived_in


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


@pytest.fixture(scope="package")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return lived_in(tmp_path_factory.mktemp("audit") / "home")
