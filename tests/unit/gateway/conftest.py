"""A world, and lines into it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.gateway_line import Line, principal
from tests.support.gateway_world import World
from torpor.gateway.options import GatewayOptions


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def opened(world: World) -> Callable[..., AbstractAsyncContextManager[Line]]:
    """A line for the length of a block, of Alice unless said otherwise; with options of the gateway."""

    @asynccontextmanager
    async def open_line(who: Any = None, **options: Any) -> Any:
        async with anyio.create_task_group() as tasks:
            line = Line(world, tasks, options=GatewayOptions(**options), principal=who or principal("alice"))
            yield line
            line.session.end()
            tasks.cancel_scope.cancel()

    return open_line
