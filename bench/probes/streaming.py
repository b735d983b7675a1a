"""CPU of a streamed reply, per delta: the whole server, and three readers that do nothing with what they read.

Every probe has its own fake API, whose CPU is not counted. Several replies stream at once; the best sample counts.
"""

import importlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import anyio
import anyio.to_thread
import httpx2
import msgspec
import structlog

from bench.measure import Cpu, Figures, folder_in_memory
from bench.probes.stream_host import DELTAS, MODEL, PACED_S, fake_api, spoken_to
from torpor import app
from torpor.settings import read_settings

AT_ONCE: Final = 8
_SAMPLES: Final = {"paced": 3, "at once": 20}
_KEY: Final = "sk-bench"
_REQUEST: Final = {"model": MODEL, "max_tokens": 4096, "messages": [{"role": "user", "content": "go on"}]}
_HEADERS: Final = {"x-api-key": _KEY, "anthropic-version": "2023-06-01"}
_PACES: Final = {"paced": PACED_S, "at once": 0.0}
_CLIENT: Final = "bench.probes.stream_client"
_AGENT: Final = """
name = "bench"
default = true
system = "You tell stories."
max_tokens = 4096
[model]
kind = "anthropic"
model = "{model}"
base_url = "{url}"
key_file = "{key}"
"""

Read = Callable[[], Awaitable[int]]
"""Reads one reply; how many deltas it found."""


async def bare() -> Figures:
    """``httpx2`` and ``msgspec``: nothing but what has to be read."""
    decode = msgspec.json.Decoder(_Event).decode

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Read]:
        async with httpx2.AsyncClient(base_url=url, headers=_HEADERS, verify=False) as client:

            async def read() -> int:
                found, rest = 0, b""
                async with client.stream("POST", "/v1/messages", json={**_REQUEST, "stream": True}) as response:
                    async for chunk in response.aiter_bytes():
                        *events, rest = (rest + chunk).split(b"\n\n")
                        for event in events:
                            found += decode(event.partition(b"\ndata: ")[2]).type == "content_block_delta"
                return found

            yield read

    return await _of_readers(opened)


class _Event(msgspec.Struct):
    type: str
    delta: dict[str, Any] = {}


async def raw() -> Figures:
    """The SDK's ``messages.create(stream=True)``."""
    return await _of_sdk(_read_raw)


async def helped() -> Figures:
    """The SDK's ``messages.stream``."""
    return await _of_sdk(_read_helped)


async def _read_raw(client: Any) -> int:
    stream = await client.messages.create(stream=True, **_REQUEST)
    async with stream:
        return sum([event.type == "content_block_delta" async for event in stream])


async def _read_helped(client: Any) -> int:
    async with client.messages.stream(**_REQUEST) as stream:
        return sum([event.type == "content_block_delta" async for event in stream])


async def _of_sdk(read: Callable[[Any], Awaitable[int]]) -> Figures:
    anthropic = importlib.import_module("anthropic")  # takes seconds, and the other probes do without

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Read]:
        async with anthropic.AsyncAnthropic(api_key=_KEY, base_url=url, max_retries=0) as client:
            yield lambda: read(client)

    return await _of_readers(opened)


async def _of_readers(opened: Callable[[str], Any]) -> Figures:
    figures: Figures = {}
    for pace, interval_s in _PACES.items():
        with fake_api(interval_s=interval_s) as url:
            async with opened(url) as read:
                figures[pace] = await _best_us(partial(_all, read), pace=pace)
    return figures


async def _all(read: Read) -> None:
    found: list[int] = []

    async def one() -> None:
        found.append(await read())

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(one)
    assert found == [DELTAS] * AT_ONCE, f"{found} deltas were read"


async def _best_us(run: Callable[[], Awaitable[None]], *, pace: str) -> float:
    await run()  # opens the connections and loads what is loaded late
    samples: list[float] = []
    for _ in range(_SAMPLES[pace]):
        cpu = Cpu()
        await run()
        samples.append(cpu.seconds / (DELTAS * AT_ONCE) * 1e6)
    return min(samples)


async def torpor() -> Figures:
    """The whole server, from the model's socket to the client's; and how many deltas make a frame."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    figures: Figures = {}
    for pace, interval_s in _PACES.items():
        with folder_in_memory() as folder, fake_api(interval_s=interval_s) as url:
            settings = read_settings(_home(folder, url), {})
            async with app.running(settings, data=folder / "data", host="127.0.0.1", port=0) as server:
                with spoken_to(_CLIENT, server.url, server.development_token, str(AT_ONCE)) as pipes:
                    frames: list[int] = []
                    figures[pace] = await _best_us(partial(_turns, *pipes, frames=frames), pace=pace)
                    figures[f"deltas per frame {pace}"] = DELTAS * AT_ONCE / max(frames)
    return figures


async def _turns(ask: IO[str], answers: IO[str], *, frames: list[int]) -> None:
    ask.write("\n")
    line = await anyio.to_thread.run_sync(answers.readline)
    heard = json.loads(line)
    assert heard["replies"] == AT_ONCE, f"the client heard {heard}"
    frames.append(heard["deltas"])


def _home(folder: Path, url: str) -> Path:
    key, agents = folder / "key", folder / "home" / "config" / "agents"
    key.write_text(_KEY)
    agents.mkdir(parents=True)
    (agents / "bench.toml").write_text(_AGENT.format(model=MODEL, url=url, key=key))
    return folder / "home"
