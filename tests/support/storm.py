"""A storm over a server: guests who come and go as they like, operators who put conversations to sleep, and a
supervisor that ends the server again and again, by SIGKILL and by SIGTERM.

After it everybody comes to rest: all that was meant to be said is said, and every guest has heard all. Then the guests
leave and all conversations are put to sleep, and what the process holds then is compared with what it holds after it
has been through the same once more, until once it is no more than before. What is left is judged: the database, the
tools' book, the guests' logs.
"""

import json
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import jwt
from websockets.asyncio.client import ClientConnection

from tests.support.child_checker import accounts_of, child_faults
from tests.support.effects_checker import deeds_of, effect_faults, lines_of
from tests.support.journal_checker import journal_faults, read_journals
from tests.support.kill_run import make_home
from tests.support.scrape import scraped
from tests.support.server_process import ServerProcess, process_of
from tests.support.storm_census import Held, growth, restless
from tests.support.storm_checker import storm_faults
from tests.support.storm_guest import Guest, Leave, Line, Manners, Person, Room
from tests.support.storm_operator import Operator

HOME_OPTIONS = Path(__file__).parent / "storm_home.toml"
PEOPLE_PER_OWNER = 3
TABS = 2
"""Of each person in each of the conversations."""
MOMENT_S = 5.0
"""For how long something may still be open that is not held for good."""
ROUNDS_MOST = 5
"""What a round leaves behind grows in each of them; a stock that is filled, as the allocator's is, does not."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How large a storm is, and how long it lasts."""

    seed: int
    rooms: int
    guests: int
    kills: int
    """SIGKILLs at least, beside which every fourth end of a server is a SIGTERM."""
    life_s: tuple[float, float]
    """Between the moment a server is ready and its end."""
    manners: Manners
    disconnects: int = 0
    """The storm goes on until there were as many, ..."""
    lasts_s: float = 0.0
    """... and until it has lasted for as long."""
    live_max: int = 2_000
    """Conversations that may be awake."""
    patience_s: float = 3.0
    """Of the server with clients that do not take what is sent, or do not say that they are there."""
    again_s: float = 2.0
    """How long it goes on over the last server, twice."""
    rest_s: float = 60.0
    """Within which everybody comes to rest."""
    operators: int = 1


class Storm:
    """Implements ``storm_guest.Scene``; ``rage`` goes through all of it."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self.url = ""
        self.is_storming = False
        self.is_over = False
        self.count = Counter[str]()
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._changed = anyio.Event()
        self._parked: list[ClientConnection] = []
        self._attending = 0
        """Guests and operators who have not gone for good."""
        self._data = folder / "data"
        self._secret = self._chance.randbytes(32)
        self._database = self._data / "torpor.db"
        self._logs = folder / "logs"
        self._files = ExitStack()
        self.rooms: list[Room] = []
        self.guests: list[Guest] = []
        self.unrest: list[str] = []
        """Who did not come to rest, and what is missing."""
        self.held: list[Held] = []

    async def pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._changed.wait()

    def park(self, socket: ClientConnection) -> None:
        self._parked.append(socket)
        if len(self._parked) > len(self.guests) // 10 + 3:
            self._parked.pop(0).transport.abort()

    async def rage(self) -> None:
        """Go through all of it. Raises: ServerEnded: a server ended by itself."""
        self._make_folders()
        with self._files:
            for number in range(self._plan.rooms):
                self.rooms.append(self._room(number))
            self._invite()
            async with anyio.create_task_group() as tasks:
                began_s = anyio.current_time()
                for number in count():
                    if self._is_done(lasted_s=anyio.current_time() - began_s):
                        break
                    await self._life(number, tasks)
                async with self._server() as server:
                    await server.until("ready")
                    self.url = server.url
                    for _ in range(ROUNDS_MOST):
                        self._begin(tasks)
                        await self._again(server)
                        if len(self.held) > 1 and not any(self.grown()):
                            break
                    await server.stop()

    def grown(self) -> Iterator[str]:
        """Of what the last server held more after its last round than after the one before."""
        return growth(*self.held[-2:])

    def _is_done(self, *, lasted_s: float) -> bool:
        plan = self._plan
        return self.kills >= plan.kills and self.disconnects >= plan.disconnects and lasted_s >= plan.lasts_s

    @property
    def kills(self) -> int:
        """Servers that got SIGKILL."""
        return self.count["killed"] + self.count["killed early"]

    @property
    def disconnects(self) -> int:
        """Connections that ended, but for those that ended with their server."""
        return sum(self.count[f"went {leave.name}"] for leave in Leave if leave is not Leave.LOST)

    def _make_folders(self) -> None:
        make_home(self.folder / "home")
        options = HOME_OPTIONS.read_text().replace("live_max = 1", f"live_max = {self._plan.live_max}")
        options = options.replace("deadline_s = 3.0", f"deadline_s = {self._plan.patience_s}")
        (self.folder / "home" / "config" / "torpor.toml").write_text(options)
        self._logs.mkdir()
        self._data.mkdir(mode=0o700)
        (self._data / "secret").write_bytes(self._secret)
        (self._data / "secret").chmod(0o600)

    def faults(self) -> list[str]:
        """What the judges find."""
        journals = read_journals(self._database)
        accounts = accounts_of(journals)
        found = list(self.unrest)
        own = {path for path, journal in journals.items() if not journal.is_child}
        for path, journal in journals.items():
            if path in own:
                found += storm_faults(journal, accounts[path], lines_of(self._log_of(path)))
            else:
                found += journal_faults(journal, accounts[path])
        found += child_faults(journals, accounts)
        said = {room.path for room in self.rooms if lines_of(self._log_of(room.path))}
        found += (f"{path}: is not in the database" for path in said - journals.keys() if self._accepted_in(path))
        found += (f"{path}: nobody made it" for path in own - said)
        found += effect_faults(accounts, deeds_of(lines_of(self.folder / "home" / "book.jsonl")))
        log = (self.folder / "server.log").read_text(errors="replace").splitlines()
        found += (f"a server said: {line}" for line in log if "[error" in line or "[critical" in line)
        return found

    def _accepted_in(self, path: str) -> bool:
        return any(line["what"] == "accepted" for line in lines_of(self._log_of(path)))

    def _log_of(self, path: str) -> Path:
        return self._logs / f"{path.replace('/', '-')}.jsonl"

    def _room(self, number: int) -> Room:
        owner = f"house{number // 20}"
        path = f"default/{owner}/c{number}"
        log = self._files.enter_context(self._log_of(path).open("w", encoding="utf-8"))

        def note(line: Line) -> None:
            log.write(json.dumps(line) + "\n")

        return Room(path=path, is_calm=number % 2 == 0, note=note)

    def _invite(self) -> None:
        """Several people for each owner, each with a few tabs; most tabs watch one conversation."""
        people: dict[str, Person] = {}
        for number in range(self._plan.guests):
            round_number, place = divmod(number, len(self.rooms))
            room = self.rooms[place]
            name = f"{room.owner}-p{(round_number // TABS + place) % PEOPLE_PER_OWNER}"
            person = people.setdefault(name, Person(name=name, token=self._token(name, owner=room.owner)))
            neighbours = [each for each in self.rooms if each.owner == room.owner and each is not room]
            more = self._chance.sample(neighbours, min(2, len(neighbours))) if number % 5 == 4 else []
            self.guests.append(
                Guest(
                    self,
                    person,
                    [room, *more],
                    name=f"g{number}",
                    manners=self._plan.manners,
                    chance=random.Random(self._chance.random()),
                )
            )

    def _token(self, subject: str, *, owner: str, scope: str = "chat") -> str:
        claims = {"sub": subject, "owner": owner, "scope": scope, "exp": 4_000_000_000}
        return jwt.encode(claims, self._secret, algorithm="HS256")

    def _begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Have everybody come, unless they are there already."""
        if self.is_storming:
            return
        self._turn(is_storming=True)
        for guest in self.guests:
            tasks.start_soon(self._attend, guest.live, name=f"guest:{guest.name}")
        for number in range(self._plan.operators):
            meddle = partial(self._operator(number).meddle, [room.path for room in self.rooms])
            tasks.start_soon(self._attend, meddle, name=f"operator:{number}")

    async def _attend(self, live: Callable[[], Awaitable[None]]) -> None:
        self._attending += 1
        try:
            await live()
        finally:
            self._attending -= 1

    def _operator(self, number: int) -> Operator:
        token = self._token(f"op{number}", owner="nobody", scope="operator")
        return Operator(self, token, chance=random.Random(self._chance.random()))

    @asynccontextmanager
    async def _server(self) -> AsyncIterator[ServerProcess]:
        seed = str(self._chance.randrange(10**6))
        async with process_of("storm_server", "--seed", seed, folder=self.folder) as server:
            yield server

    async def _life(self, number: int, tasks: anyio.abc.TaskGroup) -> None:
        """A server that is ended: every sixth before it is ready, every fourth in peace, the others in the middle."""
        async with self._server() as server:
            if number % 6 == 5:
                with anyio.move_on_after(self._chance.uniform(0.3, 2.5)):
                    await server.until("ready")
                await server.kill()
                self.count["killed early"] += 1
                return
            await server.until("ready")
            self.url = server.url
            self._begin(tasks)
            await anyio.sleep(self._chance.uniform(*self._plan.life_s))
            if number % 4 == 3:
                await server.stop()
                self.count["stopped"] += 1
            else:
                await server.kill()
                self.count["killed"] += 1

    async def _again(self, server: ServerProcess) -> None:
        """Storm for a while, come to rest, leave, sleep, and say what the process holds then."""
        await anyio.sleep(self._plan.again_s)
        self._turn(is_storming=False)
        with anyio.move_on_after(self._plan.rest_s) as scope:
            while any(self._unrest()):  # noqa: ASYNC110 - the database is another process's
                await anyio.sleep(0.2)
        if scope.cancelled_caught:
            self.unrest += self._unrest()
        self._turn(is_over=True)
        for socket in self._parked:
            socket.transport.abort()
        self._parked.clear()
        with anyio.fail_after(self._plan.rest_s):
            while self._attending:  # noqa: ASYNC110 - who is on the way finds out in time
                await anyio.sleep(0.1)
            await self._operator(99).put_to_sleep([path for path, *_ in self._heads()])
            while restless(await scraped(server.url)):  # noqa: ASYNC110 - likewise
                await anyio.sleep(0.1)
        held = await self._look(server)
        with anyio.move_on_after(MOMENT_S):
            while any(growth(self.held[-1], held) if self.held else ()):  # what is open for a moment is none
                await anyio.sleep(0.1)
                held = await self._look(server)
        self.held.append(held)

    async def _look(self, server: ServerProcess) -> Held:
        server.ask_for_census()
        fact = await server.fact()
        return Held(census=fact["census"], names=fact["names"])

    def _turn(self, *, is_storming: bool = False, is_over: bool = False) -> None:
        """The weather changes."""
        self.is_storming, self.is_over = is_storming, is_over
        self._changed.set()
        self._changed = anyio.Event()

    def _heads(self) -> list[tuple[str, int, int | None]]:
        """Path, last event and due mark of every conversation, as other programs read them."""
        with sqlite3.connect(f"file:{self._database}?mode=ro", uri=True) as connection:
            rows = connection.execute("SELECT tenant, owner, conversation, event, due_us FROM conversations").fetchall()
        connection.close()
        return [
            (f"{tenant}/{owner}/{name}", event, due_us)
            for tenant, owner, name, event, due_us in rows
            if "/" not in name or due_us is not None
        ]

    def _unrest(self) -> Iterator[str]:
        heads = self._heads()
        yield from (f"{path}: is still due" for path, _, due_us in heads if due_us is not None)
        by_path = {path: event for path, event, _ in heads}
        for guest in self.guests:
            for room, message in guest.pending:
                yield f"{guest.name}: message {message} in {room} is not answered"
            for name, room_ in guest.rooms.items():
                if guest.seen.get(name, 0) != by_path.get(room_.path, 0):
                    yield f"{guest.name}: has heard {name} up to {guest.seen.get(name)}, not {by_path.get(room_.path)}"
