"""A person who lives through a whole scenario in one conversation, whatever becomes of the server meanwhile.

The scenario has a plain turn, turns with two tools, messages that wait, steer and interrupt, cancelled turns, one with
a payment that ends afterwards, a model that fails, sleep and thaw, and somebody who looks on from the middle.
"""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.support.speaker import CANCELLED, FINISHED, Follower, Log, Speaker, path_of
from torpor.client.failures import RequestRefused
from torpor.client.torpor_client import TorporClient
from torpor.records.frames import Cursor
from torpor.records.journal import WhenBusy


class Visitor(Speaker):
    """One conversation of one client; ``lives`` counts the servers so far."""

    def __init__(
        self,
        client: TorporClient,
        onlooker: TorporClient,
        conversation: str,
        *,
        home: Path,
        log: Log,
        number: int,
        lives: Callable[[], int],
    ) -> None:
        super().__init__(client, conversation, home=home, log=log, number=number)
        self._lives = lives
        self._onlooker = Follower(onlooker, conversation, name="onlooker", log=log)

    def server_changed(self) -> None:
        """The server is another one than before."""
        self.heard.look_again()

    async def live(self) -> None:
        """Go through the whole scenario."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.heard.follow, Cursor(event=0))
            for step in (self._chatting, self._using_tools, self._waiting, self._steering, self._interrupting):
                await step()
            tasks.start_soon(self._onlooker.follow, None)
            for step in (self._cancelling, self._paying_late, self._failing, self._sleeping):
                await step()
            await self._onlooker.until(lambda: self._onlooker.seen == self.heard.seen)
            tasks.cancel_scope.cancel()

    async def _chatting(self) -> None:
        await self.answered(await self.say())

    async def _using_tools(self) -> None:
        for tools in ("look_up, pay_keyed", "look_up, pay_probed", "dig_out, pay_blindly"):
            await self.answered(await self.say(tools))

    async def _waiting(self) -> None:
        first = await self.begun("hold")
        behind = [await self.say(), await self.say()]
        self.release(first)
        await self.answered(first, *behind)

    async def _steering(self) -> None:
        first = await self.paying(ends=(FINISHED,))
        joining = await self.say(when_busy=WhenBusy.STEER)
        self.release(first)
        await self.answered(first, joining)

    async def _interrupting(self) -> None:
        first = await self.begun("hold", ends=(FINISHED, CANCELLED))
        await self.answered(first, await self.say(when_busy=WhenBusy.INTERRUPT))

    async def _cancelling(self) -> None:
        first = await self.begun("hold", ends=(FINISHED, CANCELLED))
        await self.cancel(first)
        await self.answered(await self.say())

    async def _paying_late(self) -> None:
        life = self._lives()
        first = await self.paying(ends=(FINISHED, CANCELLED))
        await self.cancel(first)
        self.release(first)
        # A payment that was under way when its process died is never heard of again.
        await self.heard.until(lambda: self.heard.has_ended_late(first, "pay_slowly") or self._lives() != life)
        await self.answered(await self.say())

    async def _failing(self) -> None:
        await self.answered(await self.say("fail", ends=("failed",)))
        await self.answered(await self.say("refuse", ends=("refused",)))
        await self.answered(await self.say())
        with pytest.raises(RequestRefused, match="no visible text"):
            await self.client.send(self.conversation, " ")

    async def _sleeping(self) -> None:
        path = path_of(self.conversation)
        await self.client.hibernate(path, deadline_s=10.0)
        assert any(row["path"] == path for row in await self.client.list())
        await self.client.thaw(path)
        assert await self.client.inspect(path)
        await self.answered(await self.say("look_up"))
