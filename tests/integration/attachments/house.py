"""A server on this machine whose agent asks a strict Messages API, and a client of it; files go all the way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from torpor.app import Running, running
from torpor.client.items import EventItem
from torpor.client.torpor_client import TorporClient
from torpor.records.events import AnyEvent
from torpor.settings import read_settings
from torpor_fake_api.server import FakeApi

DEADLINE_S: Final = 60.0
ENDS: Final = {"turn.finished", "turn.cancelled", "turn.failed", "turn.refused"}
KEY: Final = {"ANTHROPIC_API_KEY": "sk-test"}


class House:
    """A home in a folder, whose model is at ``api``."""

    def __init__(self, path: Path, api: FakeApi, *, blobs: str = "", **attachments: Any) -> None:
        """Args: blobs: the table of that name in the settings."""
        self.path = path
        self.data = path / "data"
        self.api = api
        (path / "config" / "agents").mkdir(parents=True)
        told = "".join(f"{name} = {value!r}\n" for name, value in attachments.items())
        (path / "config/torpor.toml").write_text(
            f'[store]\nsynchronous = "normal"\n[blobs]\n{blobs}[attachments]\n{told}'
        )
        model = f'kind = "anthropic"\nmodel = "claude-haiku-4-5"\nbase_url = "{api.url}"\n'
        agent = f'name = "clerk"\nsystem = "You are a clerk."\ndefault = true\n\n[model]\n{model}'
        (path / "config/agents/clerk.toml").write_text(agent)

    @asynccontextmanager
    async def served(self, monkeypatch: Any) -> AsyncIterator["Served"]:
        for name, value in KEY.items():
            monkeypatch.setenv(name, value)
        async with (
            running(read_settings(self.path, KEY), data=self.data, port=0) as server,
            TorporClient(server.url, server.development_token) as client,
        ):
            yield Served(server, client)


class Served:
    """While it runs."""

    def __init__(self, server: Running, client: TorporClient) -> None:
        self.server = server
        self.client = client

    async def said(self, conversation: str, text: str, *attachments: str) -> list[AnyEvent]:
        """Send, and everything that came of it."""
        events: list[AnyEvent] = []
        with anyio.fail_after(DEADLINE_S):
            async with self.client.watch(conversation) as watch:
                receipt = await self.client.send(conversation, text, attachments=attachments)
                async for item in watch:
                    if isinstance(item, EventItem) and item.event.event >= receipt.event:
                        events.append(item.event)
                        if str(item.event.__struct_config__.tag) in ENDS:
                            return events
        raise AssertionError("the watch ended")

    async def uploaded(self, data: bytes, *, name: str) -> dict[str, Any]:
        with anyio.fail_after(DEADLINE_S):
            return await self.client.upload(data, name=name)


def tags(events: list[AnyEvent]) -> list[str]:
    return [str(event.__struct_config__.tag) for event in events]
