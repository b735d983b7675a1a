"""What operators ask a running server, about conversations that they call by short names."""

from typing import Any, Final

import click
import msgspec

from torpor.cli.paths import child_hint, child_of, is_whole, missing_child, resolved, resolved_job
from torpor.client.failures import RequestRefused
from torpor.client.torpor_client import TorporClient
from torpor.errors import UnknownConversation
from torpor.records.journal import JournalRecord, SubagentStarted

_RECORD: Final = msgspec.json.Decoder(JournalRecord)


class Questions:
    """What operators ask a server about the conversation that a name stands for."""

    def __init__(self, client: TorporClient) -> None:
        self._client = client

    @property
    def client(self) -> TorporClient:
        """For what concerns no conversation."""
        return self._client

    async def listed(self, *, archived: bool = False) -> list[dict[str, Any]]:
        """A row for each conversation."""
        return list(await self._client.list(archived=archived))

    async def records(self, name: str, *, child: str = "") -> list[JournalRecord]:
        """Its journal, or that of a sub-agent of it, whose name may be short.

        Raises: click.ClickException: it has no such sub-agent, or several.
        """
        path = await self.path(name)
        try:
            return await self._journal(f"{path}/{child}" if child else path)
        except RequestRefused as exc:
            if not child and exc.code == UnknownConversation.code and (hint := child_hint(name)):
                raise click.ClickException(f"{exc}{hint}") from exc
            if not child or exc.code != UnknownConversation.code:
                raise
        try:
            above = ""
            for part in child.split("/"):
                begun = (each.child for each in await self._journal(path) if isinstance(each, SubagentStarted))
                found = child_of(name, part, begun=begun, above=above)
                path, above = f"{path}/{found}", f"{above}/{found}".strip("/")
            return await self._journal(path)
        except RequestRefused as exc:
            if exc.code == UnknownConversation.code:
                raise missing_child(name, child) from exc
            raise

    async def _journal(self, path: str) -> list[JournalRecord]:
        return [_RECORD.decode(msgspec.json.encode(row)) for row in await self._client.inspect(path)]

    async def hibernate(self, name: str, *, deadline_s: float) -> str:
        """Put it to sleep; returns its path."""
        path = await self.path(name)
        await self._client.hibernate(path, deadline_s=deadline_s)
        return path

    async def thaw(self, name: str) -> str:
        """Wake it; returns its path."""
        path = await self.path(name)
        await self._client.thaw(path)
        return path

    async def create(self, name: str, *, agent: str, title: str) -> None:
        """Begin it; its name is new, so it is taken as it is."""
        await self._client.create(name, agent=agent, title=title)

    async def rename(self, name: str, *, title: str) -> str:
        """Give it another title; returns its path."""
        path = await self.path(name)
        await self._client.rename(path, title)
        return path

    async def archive(self, name: str) -> str:
        """Have lists leave it out; returns its path."""
        path = await self.path(name)
        await self._client.archive(path)
        return path

    async def unarchive(self, name: str) -> str:
        """Have lists show it again; returns its path."""
        path = await self.path(name)
        await self._client.unarchive(path)
        return path

    async def quarantine(self, name: str, *, reason: str) -> str:
        """Set it aside; returns its path."""
        path = await self.path(name)
        await self._client.quarantine(path, reason=reason)
        return path

    async def release(self, name: str) -> str:
        """Take it back; returns its path."""
        path = await self.path(name)
        await self._client.release(path)
        return path

    async def row(self, name: str) -> dict[str, Any]:
        """Where it stands."""
        path = await self.path(name)
        return next((row for row in await self.listed(archived=True) if row["path"] == path), {})

    async def fork(self, name: str, into: str, *, before: str, title: str) -> str:
        """Begin another one with the same beginning; returns the path of that."""
        path = await self.path(name)
        await self._client.fork(path, into, before=before, title=title)
        return f"{path.rpartition('/')[0]}/{into}"

    async def delete(self, name: str) -> str:
        """Take it away for good; returns the path that it had."""
        path = await self.path(name)
        await self._client.delete(path)
        return path

    async def forget(self, owner: str, *, limit: int, dry_run: bool) -> dict[str, Any]:
        """Delete some of an owner's conversations, or only count them; returns what it came to."""
        return await self._client.forget(owner, limit=limit, dry_run=dry_run)

    async def refresh(self, name: str) -> tuple[str, str]:
        """Have its live context made anew; returns its path and what was done."""
        path = await self.path(name)
        return path, await self._client.refresh(path)

    async def jobs(self) -> list[dict[str, Any]]:
        """A row for each job."""
        return list(await self._client.jobs())

    async def job_counts(self) -> dict[str, Any]:
        """How many there are, and since when the oldest is due."""
        return await self._client.job_counts()

    async def retry_job(self, name: str) -> str:
        """Have it run now; returns its path."""
        path = await self._job_path(name)
        await self._client.retry_job(path)
        return path

    async def drop_job(self, name: str) -> str:
        """Remove it; returns its path."""
        path = await self._job_path(name)
        await self._client.drop_job(path)
        return path

    async def _job_path(self, name: str) -> str:
        return resolved_job(name, [row["path"] for row in await self.jobs()])

    async def path(self, name: str) -> str:
        """The whole name of the conversation. Raises: click.ClickException: none is called so, or several are."""
        return name if is_whole(name) else resolved(name, [row["path"] for row in await self.listed(archived=True)])
