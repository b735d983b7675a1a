"""A person who lives through a whole scenario in one conversation, whatever becomes of the server meanwhile.

The scenario has a plain turn, turns with two tools, turns with a sub-agent, messages that wait, steer and interrupt,
cancelled turns, one of them with a sub-agent at work, one with a payment that ends afterwards, a message with a file, a
model that fails, sleep and thaw, and somebody who looks on from the middle. Beside that the application tells what is
selected, a skill is loaded, older turns are folded and cannot be, how things stand is kept and cannot be, and an
operator sees to the jobs that failed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.support.obedient_model import AWAITED, task_of
from tests.support.side_model import LIVE, MUDDLED, SUMMARY
from tests.support.speaker import CANCELLED, FINISHED, WORDS, Follower, Log, Speaker, path_of
from torpor.client.failures import RequestRefused
from torpor.client.torpor_client import Row, TorporClient
from torpor.records.context import SelectedRecord, WorkingContext
from torpor.records.events import CompactionFailedEvent, LiveContextFailedEvent, LiveContextReplacedEvent
from torpor.records.frames import Cursor
from torpor.records.terms import WhenBusy

_PATIENCE = "and take your time about it, since there is a lot of it. " * 6
"""Makes a message long enough to be worth a summary."""


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
        super().__init__(
            client, conversation, home=home, log=log, number=number, agent="keeper", words=f"{WORDS} {_PATIENCE}"
        )
        self._path = path_of(conversation)
        self._home = home
        self._muddled = home / MUDDLED
        self._lives = lives
        self._onlooker = Follower(onlooker, conversation, name="onlooker", log=log)

    def server_changed(self) -> None:
        """The server is another one than before."""
        self.heard.look_again()

    async def live(self) -> None:
        """Go through the whole scenario."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.heard.follow, Cursor(event=0))
            for step in (
                self._chatting,
                self._selecting,
                self._using_tools,
                self._attaching,
                self._delegating,
                self._waiting,
                self._steering,
                self._interrupting,
            ):
                await step()
            tasks.start_soon(self._onlooker.follow, None)
            for step in (
                self._cancelling,
                self._calling_back,
                self._paying_late,
                self._failing,
                self._misunderstood,
                self._seeing_to_jobs,
                self._sleeping,
                self._coming_to_rest,
            ):
                await step()
            await self._onlooker.until(lambda: self._onlooker.seen == self.heard.seen)
            tasks.cancel_scope.cancel()

    async def _chatting(self) -> None:
        await self.answered(await self.say())

    async def _using_tools(self) -> None:
        for tools in ("load_skill, look_up, pay_keyed", "look_up, pay_probed", "dig_out, pay_blindly"):
            await self.answered(await self.say(tools))

    async def _attaching(self) -> None:
        """A file goes to the server, into a message and back."""
        data = f"What {self.conversation} owes.\n".encode() * 100
        uploaded = await self.client.upload(data, name="bill.txt")
        await self.answered(await self.say(attachments=[uploaded["attachment"]]))
        assert await self.client.fetch(self.conversation, uploaded["blob"]) == data

    async def _delegating(self) -> None:
        for tools in ("scout", "scout_deep, pay_keyed"):
            await self.answered(await self.say(tools))

    async def _calling_back(self) -> None:
        """A sub-agent that is at work ends with its turn, and so does the one that works for it."""
        first = await self.begun("scout_long, look_up", ends=(FINISHED, CANCELLED))
        awaited = self._home / "released" / f"{task_of(task_of(first))}{AWAITED}"
        while not awaited.exists() and not self.heard.is_over(first):  # noqa: ASYNC110 - another process
            await anyio.sleep(0.01)
        await self.cancel(first)
        await self.answered(await self.say())

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
        await self.client.hibernate(self._path, deadline_s=10.0)
        assert any(row["path"] == self._path for row in await self.client.list())
        await self.client.thaw(self._path)
        assert await self.client.inspect(self._path)
        await self.answered(await self.say("read_earlier, load_skill"))

    async def _selecting(self) -> None:
        for number in (1, 2):
            selected = SelectedRecord(type="bill", id=f"{self.conversation}-{number}")
            self._log({"what": "told", "path": self._path, "id": selected.id})
            await self.client.update_context(self.conversation, WorkingContext(record=selected))
            self._log({"what": "heard", "path": self._path, "id": selected.id})
            await self.answered(await self.say())

    async def _misunderstood(self) -> None:
        """Until a summary could not be made, which is soon, since one is due after a few turns."""
        before = self.heard.count[CompactionFailedEvent]
        with self._muddling(SUMMARY):
            while self.heard.count[CompactionFailedEvent] == before:
                await self.answered(await self.say())

    async def _seeing_to_jobs(self) -> None:
        """Two that fail: one is run again, one is dropped."""
        for settle in (self.client.retry_job, self.client.drop_job):
            with self._muddling(LIVE):
                await self._refreshed(LiveContextFailedEvent)
                dead = await self._jobs_once(lambda job: job["state"] == "dead")
            for job in dead:
                with _no_matter():
                    await settle(job["path"])

    async def _coming_to_rest(self) -> None:
        """How things stand is told once more, and no job is left."""
        await self._refreshed(LiveContextReplacedEvent)
        for job in await self._jobs_once(lambda job: job["state"] == "dead"):
            with _no_matter():
                await self.client.drop_job(job["path"])

    async def _refreshed(self, ending: type[LiveContextFailedEvent | LiveContextReplacedEvent]) -> None:
        """Ask until it ends like this: one that was under way already may end in the other way."""
        before = self.heard.count[ending]
        while self.heard.count[ending] == before:
            ends = self._ends()
            await self.client.refresh(self.conversation)
            await self.heard.until(partial(self._has_ended_since, ends))

    def _has_ended_since(self, ends: int) -> bool:
        return self._ends() > ends

    def _ends(self) -> int:
        return self.heard.count[LiveContextFailedEvent] + self.heard.count[LiveContextReplacedEvent]

    async def _jobs_once(self, has_settled: Callable[[Row], bool]) -> list[Row]:
        """The jobs of this conversation, once all of them have settled."""
        while True:
            jobs = [job for job in await self.client.jobs() if job["path"].startswith(f"{self._path}/")]
            if all(map(has_settled, jobs)):
                return jobs
            await anyio.sleep(0.02)  # the jobs are in another process, and nobody tells when they end

    @contextmanager
    def _muddling(self, purpose: str) -> Iterator[None]:
        """Meanwhile nothing usable is said for ``purpose``."""
        mark = self._muddled / f"{purpose}-{self.conversation}"
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()


@contextmanager
def _no_matter() -> Iterator[None]:
    """Asked for again over another connection, it may have been done before."""
    try:
        yield
    except RequestRefused as refusal:
        if refusal.code not in {"unknown_job", "job_running"}:
            raise
