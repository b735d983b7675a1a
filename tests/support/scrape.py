"""What stands at ``/metrics`` of a server, read by the parser of those who scrape it."""

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_as_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parsed

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
DEADLINE_S = 10.0


class Answer(NamedTuple):
    """To one HTTP request."""

    status: int
    headers: dict[str, str]
    body: str


class Numbers:
    """Every sample of a page by its name and labels."""

    def __init__(self, page: str, *, is_openmetrics: bool = False) -> None:
        parse: Callable[[str], Any] = parsed_as_openmetrics if is_openmetrics else parsed
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.kinds: dict[str, str] = {}
        for family in parse(page):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                self.samples[sample.name, frozenset(sample.labels.items())] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        """None when there is no such sample."""
        return self.samples.get((name, frozenset(labels.items())))

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The samples of a name by the values of some labels."""
        found = ((dict(told), value) for (each, told), value in self.samples.items() if each == name)
        return {tuple(told[label] for label in labels): value for told, value in found}


async def get(url: str, path: str, *, method: str = "GET", **headers: str) -> Answer:
    """What the server that has its socket at ``url`` answers at ``path``."""
    where = urlsplit(url)
    host = headers.pop("host", where.netloc)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    with anyio.fail_after(DEADLINE_S):
        async with await anyio.connect_tcp(str(where.hostname), int(where.port or 0)) as stream:
            await stream.send("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
            data = b""
            try:
                while True:
                    data += await stream.receive()
            except anyio.EndOfStream:
                pass
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    told = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return Answer(int(first.split()[1]), told, body.decode())


async def scraped(url: str, **headers: str) -> Numbers:
    """The numbers of a server that gives them."""
    answer = await get(url, "/metrics", **headers)
    assert answer.status == 200, answer
    return Numbers(answer.body)
