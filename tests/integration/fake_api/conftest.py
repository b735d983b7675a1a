"""The real SDK and the fake API, joined by a real socket, on both event loops."""

from collections.abc import AsyncIterator, Callable

import anthropic
import pytest

from torpor_fake_api.server import FakeApi, serving

Client = anthropic.AsyncAnthropic
MakeClient = Callable[[FakeApi], Client]


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """A host that reads strictly and echoes."""
    async with serving(profile="strict") as running:
        yield running


@pytest.fixture
async def client(api: FakeApi) -> AsyncIterator[Client]:
    """A client of that host, which tries once."""
    async with anthropic.AsyncAnthropic(api_key="any", base_url=api.url, max_retries=0, timeout=30.0) as client:
        yield client
