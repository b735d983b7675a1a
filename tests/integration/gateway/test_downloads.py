"""Links to files over real sockets: parts, clients that read slowly or not at all, and servers that end meanwhile."""

import asyncio
import hashlib
import logging
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
import pytest
from anyio.streams.tls import TLSStream
from structlog.testing import capture_logs

from tests.support.gateway_house import House, gateway_house
from tests.support.gateway_line import ManualClock
from tests.support.issuer import trusting, write_certificate
from tests.support.uploaded import uploads_in
from torpor.errors import StoreUnavailable
from torpor.gateway.tls import CertificateFiles
from torpor.records.ids import ConversationKey
from torpor.store.blobs import MemoryBlobs

ANN, BOB, CAROL = (ConversationKey("t", name, "") for name in ("ann", "bob", "carol"))
TEXT: Final = b"It rains, and it will not end.\n"
LARGE: Final = "".join(f"{number:07}\n" for number in range(262_144)).encode()
"""2 MiB: several reads of a blob, and more than the system holds for a client that has little room."""
LITTLE_ROOM: Final = 16_384
READ_BYTES: Final = 262_144


class Watched(MemoryBlobs):
    """Tells what was read, and waits before more than the head of a blob while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []
        self.held: anyio.Event | None = None
        self.waits = anyio.Event()

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        if size == READ_BYTES and self.held is not None:
            self.waits.set()
            await self.held.wait()
        data = await super().get(key, handle, offset=offset, size=size)
        self.reads.append(len(data or b""))
        return data

    async def reached(self) -> None:
        """Return once somebody waits."""
        with anyio.fail_after(10):
            await self.waits.wait()

    def hold(self) -> anyio.Event:
        """Until the event is set."""
        self.held, self.waits = anyio.Event(), anyio.Event()
        return self.held

    def spoil(self, key: ConversationKey, handle: str) -> None:
        data = self._data[key.tenant, key.owner, handle]
        self._data[key.tenant, key.owner, handle] = data[:-1] + b"?"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.body) == int(self.headers["content-length"])


class Line:
    """A client that reads when it is told to; what it has not read, the system holds as far as there is room."""

    def __init__(self, port: int, *, room_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_bytes)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setblocking(False)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._socket, data)

    def say_no_more(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    async def rest(self) -> bytes:
        """Everything that comes until the other end closes."""
        heard = b""
        with anyio.fail_after(10), suppress(ConnectionError):
            while data := await self._loop.sock_recv(self._socket, READ_BYTES):
                heard += data
        return heard


class Place:
    """A house with files behind links."""

    def __init__(self, house: House, blobs: Watched, clock: ManualClock, uploads: Any) -> None:
        self.house = house
        self.blobs = blobs
        self.clock = clock
        self.uploads = uploads

    async def link(self, data: bytes, *, key: ConversationKey = ANN) -> str:
        ticket, _ = self.uploads.link(key, await self.blobs.put(key, data))
        return f"/attachments/{ticket}"

    async def asks(self, path: str, *, method: str = "GET", room_bytes: int = READ_BYTES, **headers: Any) -> Line:
        """A client that has asked, and reads nothing yet."""
        line = Line(self.house.gateway.port, room_bytes=room_bytes)
        await line.send(request(path, method, headers))
        return line

    async def got(self, path: str, *, method: str = "GET", **headers: Any) -> Answer:
        with await self.asks(path, method=method, **headers) as line:
            return answer(await line.rest())

    async def ended(self, **expected: int) -> None:
        """Return once downloads have ended so, and none is under way."""
        with anyio.fail_after(10):
            while (told := self._ended()) != (expected, 0):
                assert sum(told[0].values()) <= sum(expected.values()), told
                await anyio.sleep(0.005)

    def _ended(self) -> tuple[dict[str, int], int]:
        told = self.house.gateway.statistics()
        return dict(told.downloads_ended), told.downloads


def request(path: str, method: str, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode()


def answer(heard: bytes) -> Answer:
    head, _, body = heard.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert len(headers) == len(lines), f"a header twice: {lines}"
    return Answer(int(status.split()[1]), headers, body)


@asynccontextmanager
async def place(folder: Path, **options: Any) -> AsyncIterator[Place]:
    blobs, clock = Watched(), ManualClock()
    uploads = uploads_in(folder, blobs=blobs, clock=clock)
    async with gateway_house(uploads=uploads, **options) as house:
        yield Place(house, blobs, clock, uploads)


async def test_a_link_gives_the_file_or_the_part_that_is_asked_for(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        path = await at.link(TEXT)
        size, etag = len(TEXT), f'"{hashlib.sha256(TEXT).hexdigest()}"'
        whole = await at.got(path)
        assert (whole.status, whole.body) == (200, TEXT)
        assert whole.headers | {"date": ""} == {
            "date": "",
            "connection": "close",
            "etag": etag,
            "accept-ranges": "bytes",
            "content-length": str(size),
            "content-type": "text/plain; charset=utf-8",
            "content-disposition": 'attachment; filename="attachment.txt"',
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; sandbox",
            "cache-control": "private, no-store",
            "referrer-policy": "no-referrer",
        }
        for asked, body in (("0-3", TEXT[:4]), ("3-", TEXT[3:]), ("-2", TEXT[-2:]), (f"0-{size}", TEXT)):
            part = await at.got(path, Range=f"bytes={asked}")
            start = TEXT.index(body)
            assert (part.status, part.body) == (206, body)
            assert part.headers["content-range"] == f"bytes {start}-{start + len(body) - 1}/{size}"
            assert part.headers["content-length"] == str(len(body))
            assert part.headers["content-type"] == whole.headers["content-type"]
        for headers in ({"Range": "bytes=0-1,3-4"}, {"Range": "lines=1-2"}, {"Range": "bytes=0-1", "If_Range": '"x"'}):
            assert (await at.got(path, **headers)).body == TEXT
        assert (await at.got(path, Range="bytes=0-1", If_Range=etag)).body == TEXT[:2]

        beyond = await at.got(path, Range=f"bytes={size}-")
        assert (beyond.status, beyond.headers["content-range"], beyond.body) == (416, f"bytes */{size}", b"")
        same = await at.got(path, If_None_Match=etag)
        assert (same.status, same.headers["etag"], same.body) == (304, etag, b"")
        assert "content-length" not in same.headers
        told = await at.got(path, method="HEAD", Range="bytes=0-1")
        assert (told.status, told.headers | {"date": ""}, told.body) == (200, whole.headers | {"date": ""}, b"")
        for method in ("POST", "DELETE"):
            assert (await at.got(path, method=method)).status == 405


async def test_what_no_link_leads_to_is_not_there(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        path = await at.link(TEXT)
        for wrong in (f"{path}x", path[:-3] + "AAA", "/attachments/", f"/attachments/{'A' * 3_000}"):
            assert (await at.got(wrong)).status == 404
        etag = f'"{hashlib.sha256(TEXT).hexdigest()}"'
        at.clock.advance(301)
        assert (await at.got(path)).status == 404
        path = await at.link(TEXT)
        at.blobs.let_go(ANN)
        await at.blobs.remove(ANN, [etag.strip('"')])
        for headers in ({}, {"If_None_Match": etag}, {"Range": "bytes=0-1"}):
            assert (await at.got(path, **headers)).status == 404
        await at.ended()


async def test_a_file_has_more_time_than_a_handshake(tmp_path: Path) -> None:
    """The loop's clock jumps while the storage is read, so that whatever has a deadline then has missed it."""
    loop = asyncio.get_running_loop()
    now, late_s = loop.time, 0.0
    async with place(tmp_path) as at:
        path = await at.link(LARGE)
        held = at.blobs.hold()

        async def jump() -> None:
            nonlocal late_s
            await at.blobs.reached()
            late_s = 10_000.0
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            held.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "time", lambda: now() + late_s)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(jump)
                address = f"http://127.0.0.1:{at.house.gateway.port}{path}"
                assert await anyio.to_thread.run_sync(read_by_a_library, address) == LARGE
        await at.ended(done=1)


def read_by_a_library(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as found:
        return bytes(found.read())


async def test_a_client_that_does_not_read_is_cut_and_little_is_held_for_it(tmp_path: Path) -> None:
    async with place(tmp_path, download_stall_s=0.2) as at:
        path = await at.link(LARGE)
        with await at.asks(path, room_bytes=LITTLE_ROOM) as line:
            await at.ended(stalled=1)
            assert not answer(await line.rest()).is_whole
        assert max(at.blobs.reads) <= READ_BYTES
        assert sum(at.blobs.reads) < len(LARGE) // 2
        with await at.asks(await at.link(TEXT)) as line:
            await at.ended(stalled=1, done=1)  # it has all of it, and does not leave
            assert answer(await line.rest()).body == TEXT


async def test_a_client_that_leaves_frees_its_place(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        held = at.blobs.hold()
        with await at.asks(await at.link(LARGE)):
            await at.blobs.reached()
        held.set()
        await at.ended(left=1)


async def test_a_client_that_has_said_all_is_answered_and_one_that_goes_on_is_cut(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        held, path = at.blobs.hold(), await at.link(LARGE)
        with await at.asks(path) as line:
            await at.blobs.reached()
            line.say_no_more()
            held.set()
            assert answer(await line.rest()).body == LARGE
        held = at.blobs.hold()
        with await at.asks(path) as line:
            await at.blobs.reached()
            await line.send(bytes(8_192))
            assert not answer(await line.rest()).is_whole
        held.set()
        await at.ended(done=1, left=1)


@pytest.mark.parametrize("behind", [b"", b"\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"x" * 3_000])
async def test_who_says_more_or_no_more_behind_a_request_is_answered(
    tmp_path: Path, behind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path) as at:
        pages = {"/healthz": b"ok\n", await at.link(b"small"): b"small", await at.link(LARGE): LARGE}
        for path, expected in pages.items():
            for is_all in (True, False):
                with Line(at.house.gateway.port, room_bytes=READ_BYTES) as line:
                    await line.send(request(path, "GET", {}) + behind)
                    if is_all:
                        line.say_no_more()
                    assert answer(await line.rest()).body == expected
        await at.ended(done=4)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_only_so_many_are_served_at_once(tmp_path: Path) -> None:
    async with place(tmp_path, downloads_max=2, downloads_per_owner_max=1, downloads_retry_s=1.5) as at:
        paths = {key.owner: await at.link(LARGE, key=key) for key in (ANN, BOB, CAROL)}
        held = at.blobs.hold()
        with await at.asks(paths["ann"]) as ann:
            await at.blobs.reached()
            again = await at.got(paths["ann"])
            assert (again.status, again.headers["retry-after"]) == (503, "2")
            assert again.body == b"too many files are fetched at once, try again later\n"
            at.blobs.waits = anyio.Event()
            with await at.asks(paths["bob"]) as bob:
                await at.blobs.reached()
                assert (await at.got(paths["carol"])).status == 503
                told = at.house.gateway.statistics()
                assert (told.downloads, told.downloads_refused) == (2, 2)
                held.set()
                assert answer(await bob.rest()).body == answer(await ann.rest()).body == LARGE
        await at.ended(done=2)
        assert (await at.got(paths["carol"])).body == LARGE


async def test_the_end_of_a_damaged_file_is_not_given(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        path = await at.link(LARGE)
        at.blobs.spoil(ANN, hashlib.sha256(LARGE).hexdigest())
        with capture_logs() as logs:
            found = await at.got(path)
        assert len(LARGE) - len(found.body) == READ_BYTES
        assert found.body == LARGE[: len(found.body)]
        await at.ended(damaged=1)
        assert [(line["event"], line["log_level"]) for line in logs] == [("gateway.download_damaged", "warning")]


@pytest.mark.parametrize("is_gone", [True, False])
async def test_storage_that_fails_meanwhile_cuts_the_connection(tmp_path: Path, *, is_gone: bool) -> None:
    class Failing(Watched):
        async def get(
            self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None
        ) -> bytes | None:
            if offset and is_gone:
                return None
            if offset:
                raise StoreUnavailable("the bucket does not answer")
            return await super().get(key, handle, offset=offset, size=size)

    blobs = Failing()
    uploads = uploads_in(tmp_path, blobs=blobs)
    async with gateway_house(uploads=uploads) as house:
        at = Place(house, blobs, ManualClock(), uploads)
        found = await at.got(await at.link(LARGE))
        assert (found.status, len(found.body)) == (200, READ_BYTES)
        await at.ended(unreadable=1)


async def test_storage_that_fails_before_is_told_and_counted(tmp_path: Path) -> None:
    class Gone(Watched):
        async def size_bytes(self, key: ConversationKey, handle: str) -> int | None:
            raise StoreUnavailable("the bucket does not answer")

    blobs = Gone()
    uploads = uploads_in(tmp_path, blobs=blobs)
    async with gateway_house(uploads=uploads) as house:
        at = Place(house, blobs, ManualClock(), uploads)
        assert (await at.got(await at.link(LARGE))).status == 503
        await at.ended(unreadable=1)


async def test_a_server_that_stops_lets_a_file_end_and_cuts_one_that_does_not(tmp_path: Path) -> None:
    async with place(tmp_path, close_deadline_s=10.0) as at:
        held, path = at.blobs.hold(), await at.link(LARGE)
        async with anyio.create_task_group() as tasks:
            line = await at.asks(path)
            await at.blobs.reached()
            tasks.start_soon(at.house.gateway.stop)
            held.set()
            with line:
                assert answer(await line.rest()).body == LARGE
        await at.ended(done=1)
    async with place(tmp_path, close_deadline_s=0.1) as at:
        at.blobs.hold()
        with await at.asks(await at.link(LARGE)) as line:
            await at.blobs.reached()
            with anyio.fail_after(10):
                await at.house.gateway.stop()
            await at.ended(stopped=1)
            assert not answer(await line.rest()).is_whole


async def test_a_link_is_followed_over_tls(tmp_path: Path) -> None:
    files = CertificateFiles(*write_certificate(tmp_path))
    async with place(tmp_path / "uploads", tls=files.context) as at:
        path = await at.link(LARGE)
        async with await anyio.connect_tcp("127.0.0.1", at.house.gateway.port) as plain:
            stream = await TLSStream.wrap(plain, hostname="127.0.0.1", ssl_context=trusting(files.certificate))
            await stream.send(request(path, "GET", {}))
            heard = b""
            with anyio.fail_after(10):
                while not heard.endswith(LARGE[-1_000:]):
                    heard += await stream.receive()
            assert answer(heard).body == LARGE
            await stream.aclose()
        await at.ended(done=1)
