"""A server and its many clients, each a process of its own, and what is measured of the two.

The engine and the bare server are asked the same by the same clients, one after the other. CPU and memory are the
server's alone; seconds are those that a client sees, and hold the clients' own work, which is the same for both.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from bench.measure import Figures, folder_in_memory
from bench.probes.stream_host import spoken_to

_HOST: Final = "bench.probes.gateway_host"
_CLIENT: Final = "bench.probes.gateway_client"


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything; these are what the rows are about."""

    warm: int = 200
    """Connections that are there before the first look at the memory."""
    idle: int = 4000
    """Memory comes from the system a MB at a time: that many, so that one more or less does not count."""
    echoing: int = 20
    rounds: int = 200
    watchers: int = 100
    fan_turns: int = 50
    talking: int = 500
    words: int = 20
    pace_s: float = 0.3
    turns: int = 2
    storm: int = 2000


FULL: Final = Sizes()
QUICK: Final = Sizes(
    warm=5, idle=20, echoing=3, rounds=5, watchers=5, fan_turns=2, talking=5, words=4, pace_s=0.01, turns=1, storm=10
)
"""Shows that everything runs; its figures mean nothing."""


class Talk:
    """One process, asked line by line."""

    def __init__(self, pipes: tuple[IO[str], IO[str]]) -> None:
        self._ask, self._answers = pipes

    def ask(self, line: str = "") -> dict[str, Any]:
        """Raises: RuntimeError: the process has ended; what it printed tells why."""
        self._ask.write(f"{line}\n")
        return self.hear()

    def order(self, do: str, **arguments: object) -> Figures:
        return self.ask(json.dumps({"do": do, **arguments}))

    def hear(self) -> dict[str, Any]:
        if not (answer := self._answers.readline()):
            raise RuntimeError("a process of the benchmark has ended, its last words are above")
        found: dict[str, Any] = json.loads(answer)
        return found


@contextmanager
def _served(kind: str, folder: Path, sizes: Sizes, *, pace_s: float = 0.0) -> Iterator[tuple[Talk, dict[str, str]]]:
    with spoken_to(_HOST, kind, str(folder), str(sizes.words), str(pace_s)) as pipes:
        host = Talk(pipes)
        yield host, host.hear()


@contextmanager
def _pair(kind: str, sizes: Sizes, *, pace_s: float = 0.0) -> Iterator[tuple[Talk, Talk]]:
    with (
        folder_in_memory() as folder,
        _served(kind, folder, sizes, pace_s=pace_s) as (host, address),
        spoken_to(_CLIENT) as pipes,
    ):
        client = Talk(pipes)
        client.order("at", **address)
        yield host, client


def idle(kind: str, sizes: Sizes, *, watch: str = "none") -> Figures:
    """Bytes of a connection that has said hello, and of a server without one."""
    with _pair(kind, sizes) as (host, client):
        alone = host.ask()["bytes"]
        client.order("open", count=sizes.warm, watch=watch)
        before = host.ask()
        client.order("open", count=sizes.idle, watch=watch)
        after = host.ask()
        opened_s = (after["cpu_s"] - before["again_s"]) / sizes.idle
        return {"bytes": (after["bytes"] - before["bytes"]) / sizes.idle, "alone": alone, "open us": opened_s * 1e6}


def echo(kind: str, sizes: Sizes) -> Figures:
    """Microseconds of CPU for a message and its answer, and how many there are in a second."""
    with _pair(kind, sizes) as (host, client):
        client.order("open", count=sizes.echoing, watch="none")
        client.order("echo", connections=sizes.echoing, rounds=max(1, sizes.rounds // 10))
        samples = [_cost(host, client, "echo", connections=sizes.echoing, rounds=sizes.rounds) for _ in range(3)]
        best = min(samples, key=lambda found: found["cpu_s"])
        return {"us": best["cpu_s"] / best["echoes"] * 1e6, "per s": best["echoes"] / best["s"]}


def fan(kind: str, sizes: Sizes) -> Figures:
    """Microseconds of CPU for an event and one of its watchers, and how many reach watchers in a second."""
    with _pair(kind, sizes) as (host, client):
        client.order("open", count=sizes.watchers, watch="one")
        client.order("fan", turns=max(1, sizes.fan_turns // 10))
        samples = [_cost(host, client, "fan", turns=sizes.fan_turns) for _ in range(3)]
        best = min(samples, key=lambda found: found["cpu_s"])
        return {"us": best["cpu_s"] / best["events"] * 1e6, "per s": best["events"] / best["s"]}


def talk(kind: str, sizes: Sizes) -> Figures:
    """Microseconds from an event's record to its client, while many conversations stream."""
    with _pair(kind, sizes, pace_s=sizes.pace_s) as (host, client):
        client.order("open", count=sizes.talking, watch="own")
        found = _cost(host, client, "talk", turns=sizes.turns, spread_s=sizes.words * sizes.pace_s)
        return {**found, "busy": found["cpu_s"] / found["s"]}


def storm(kind: str, sizes: Sizes) -> Figures:
    """Seconds until all clients are back after a restart, and the server's CPU for it."""
    with folder_in_memory() as folder, spoken_to(_CLIENT) as pipes:
        client = Talk(pipes)
        with _served(kind, folder, sizes) as (_, address):
            client.order("at", **address)
            client.order("open", count=sizes.storm, watch="own")
            if kind == "torpor":
                client.order("talk", turns=1, spread_s=sizes.storm / 400)
        with _served(kind, folder, sizes) as (host, address):
            client.order("at", **address)
            return _cost(host, client, "resume", cursor=2)


def _cost(host: Talk, client: Talk, do: str, **arguments: object) -> Figures:
    """What the clients found, and the CPU of the server while they did it."""
    before = host.ask()["again_s"]
    found = client.order(do, **arguments)
    return {**found, "cpu_s": host.ask()["cpu_s"] - before}
