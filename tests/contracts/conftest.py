"""The backends that every contract suite runs over."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from torpor.store.contract import Store
from torpor.store.in_memory import InMemoryStore
from torpor.store.options import StoreOptions
from torpor.store.sqlite.engine import open_sqlite, open_sqlite_inline

OPTIONS = StoreOptions(synchronous="normal")


@pytest.fixture(params=["in_memory", "sqlite", "sqlite_inline"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    async with AsyncExitStack() as stack:
        match request.param:
            case "in_memory":
                yield await stack.enter_async_context(InMemoryStore())
            case "sqlite":
                yield await stack.enter_async_context(open_sqlite(tmp_path / "data", options=OPTIONS))
            case _:
                yield await stack.enter_async_context(open_sqlite_inline(tmp_path / "data", options=OPTIONS))
