"""The running server that a verb means, and short questions to it.

``--url`` and ``--token``, else ``TORPOR_URL`` and ``TORPOR_TOKEN``, else what the last server of the home left in its
data folder. The token found there is given to that server alone.
"""

import functools
import logging
import os
import shlex
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TextIO, TypeVar
from urllib.parse import urlsplit

import anyio
import click
import msgspec

from torpor.cli.faults import one_line
from torpor.cli.folders import data_folder, home_option, where
from torpor.cli.output import program
from torpor.cli.questions import Questions
from torpor.client.torpor_client import TorporClient
from torpor.errors import Unauthenticated
from torpor.local_files import ServerAddress, read_server_address
from torpor.operations.logs import LogOptions, configure_logs
from torpor.records.frames import Welcome
from torpor.store.sqlite.data_lock import identity

P = ParamSpec("P")
R = TypeVar("R")

REACH_DEADLINE_S: Final = 5.0
"""Within which a server accepts a connection, or is not there."""
ANSWER_DEADLINE_S: Final = 30.0
"""Within which it answers a question, beside the time that the question itself allows."""

_PORTS: Final = {"ws": 80, "wss": 443}
_END_OF_CERTIFICATE: Final = "-----END CERTIFICATE-----"

file_option: Final = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Read the database in this data folder and ask no server.",
)


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where to find it, as far as the command line says."""

    home: Path
    url: str | None
    token: str | None
    ca: Path | None = None

    def address(self) -> tuple[str, str]:
        """Its URL and the token for it. Raises: click.ClickException: one of them is not known."""
        if not self.home.is_dir():
            remedy = f"name an agent home, or make one with `{program()} init {shlex.quote(str(self.home))}`"
            raise click.ClickException(f"home {self.home} does not exist, {remedy}")
        left = self._left() if not (self.url and self.token) else None
        url = self.url or (left.url if left else None)
        if url is None:
            remedy = (
                f"start one with `{program()} serve{where(self.home)}`, or name it with --url and --token{_or_data()}"
            )
            raise click.ClickException(f"no server has run in {self.home.resolve()}, {remedy}")
        if _host_and_port(url) is None:
            expected = "expected the like of ws://127.0.0.1:8765"
            raise click.BadParameter(f"{url!r} is no address, {expected}", param_hint="--url")
        token = self.token or (left.token if left and left.url == url else None)
        if not token:
            raise click.ClickException(f"no token for {url}, name one with --token or TORPOR_TOKEN")
        return url, token

    def client(
        self,
        url: str,
        token: str,
        *,
        on_connection: Callable[[Welcome | None], None] = lambda _: None,
        on_put_off: Callable[[str], None] = lambda _: None,
    ) -> TorporClient:
        """One that checks the server's certificate as the command line says. Raises: click.ClickException."""
        return TorporClient(url, token, on_connection=on_connection, on_put_off=on_put_off, tls=self._tls(url))

    def _tls(self, url: str) -> ssl.SSLContext | None:
        """None for the system's own store."""
        if not url.startswith("wss:"):
            return None
        try:
            if self.ca is not None:
                return ssl.create_default_context(cafile=self.ca)
            left = self._left()
            return _this_very(Path(left.certificate)) if left and left.url == url and left.certificate else None
        except OSError as exc:  # an SSLError is one
            place = self.ca or "the server's certificate"
            raise click.ClickException(
                f"{place} is no certificate that can be read, name a PEM file with --ca"
            ) from exc

    async def reached(self) -> tuple[str, str]:
        """Its URL and token, once something listens there. Raises: click.ClickException: nothing does."""
        url, token = self.address()
        if not await self.listens(url):
            remedy = f"is it running? `{program()} serve{where(self.home)}` starts it"
            raise click.ClickException(f"cannot reach {url}, {remedy}")
        if not self.url and self._is_copy():
            remedy = f"`{program()} serve{where(self.home)} --port 0` starts one here"
            found = f"the server at {url} is that of the folder that it was copied from"
            raise click.ClickException(f"{self.home.resolve()} is a copy, and {found}; {remedy}, --url names another")
        if self._is_left_by_another(url, token):
            await self._refuse_another(url, token)
        return url, token

    async def listens(self, url: str) -> bool:
        """Whether anybody listens there now."""
        host, port = _host_and_port(url) or ("", 0)
        try:
            with anyio.fail_after(REACH_DEADLINE_S):
                stream = await anyio.connect_tcp(host, port)
            await stream.aclose()
        except (OSError, TimeoutError):
            return False
        return True

    def pid(self, url: str) -> int | None:
        """Of the process that serves ``url``, where that is the last server of the home on this machine."""
        left = None if self._is_copy() else self._left()
        return left.pid if left is not None and left.url == url and _runs(left.pid) else None

    async def ended(self, pid: int, *, within_s: float) -> bool:
        """Wait until the process is gone; whether it is."""
        with anyio.move_on_after(within_s):
            while _runs(pid):  # noqa: ASYNC110 - no system tells who is not the parent
                await anyio.sleep(0.05)
        return not _runs(pid)

    def _left(self) -> ServerAddress | None:
        """What the last server of the home left; None when none has run."""
        return read_server_address(data_folder(self.home, None))

    def _is_copy(self) -> bool:
        """Whether that lies in a copy of the folder that it was written into."""
        left = self._left()
        return left is not None and left.written_in not in {"", identity(data_folder(self.home, None))}

    def _is_left_by_another(self, url: str, token: str) -> bool:
        """Whether both are what a server of this home left that has ended, as far as this machine can tell."""
        if self.url and self.token:
            return False
        left = self._left()
        return left is not None and (left.url, left.token) == (url, token) and not _runs(left.pid)

    async def _refuse_another(self, url: str, token: str) -> None:
        """Raises: click.ClickException: whoever listens there now does not know the token that ours has left."""
        try:
            async with self.client(url, token) as client:
                with anyio.move_on_after(REACH_DEADLINE_S):
                    await client.connected()
        except Unauthenticated as exc:
            ended = f"the server at {url} is another home's, that of {self.home.resolve()} has ended"
            remedy = f"`{program()} serve{where(self.home)} --port 0` starts it on a free port"
            raise click.ClickException(f"{ended}; {remedy}") from exc


def _this_very(certificate: Path) -> ssl.SSLContext:
    """Trusts the server of this home by the certificate in its own file, whatever name it has and whoever signed it."""
    first, mark, _ = certificate.read_text().partition(_END_OF_CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=first + mark)
    return context


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] != "Z"  # ended, and nobody has asked how
    except OSError:
        return True


def _or_data() -> str:
    """That the verb that runs needs no server, where it does not."""
    context = click.get_current_context(silent=True)
    has_data = context is not None and any(each.name == "data" for each in context.command.params)
    return ", or have a data folder read with --data DIR" if has_data else ""


def _host_and_port(url: str) -> tuple[str, int] | None:
    """None when it is no address of a server."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    return parts.hostname, _PORTS[parts.scheme] if port is None else port


def standard_input() -> TextIO:
    """Raises: click.ClickException: there is none, since whoever started us closed it."""
    if sys.stdin is None:
        raise click.ClickException("standard input is closed, expected a terminal, a pipe or a file")
    return sys.stdin


def server_options(function: Callable[..., R]) -> Callable[..., R]:
    """``--home``, ``--url``, ``--token`` and ``--ca``, given to ``function`` as one ``server``."""

    @home_option
    @click.option("--url", envvar="TORPOR_URL", metavar="URL", help="The server, like ws://127.0.0.1:8765.")
    @click.option("--token", envvar="TORPOR_TOKEN", metavar="TOKEN", help="Who you are to it.")
    @click.option(
        "--ca",
        envvar="TORPOR_CA",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Who may vouch for the certificate of a wss:// server, instead of the system's own store.",
    )
    @functools.wraps(function)
    def with_server(home: Path, *, url: str | None, token: str | None, ca: Path | None, **rest: Any) -> R:
        is_debugged = os.environ.get("TORPOR_DEBUG") == "1"
        configure_logs(LogOptions(level="debug" if is_debugged else "error"))
        if is_debugged:
            client = logging.getLogger("torpor.client")
            client.setLevel(logging.DEBUG)
            client.addHandler(logging.StreamHandler())
        return function(server=Server(home=home, url=url, token=token, ca=ca), **rest)

    return with_server


def unanswered(url: str, client: TorporClient, *, within_s: float = ANSWER_DEADLINE_S) -> click.ClickException:
    """The server did not answer in time, and why, as far as the client knows."""
    return click.ClickException(f"{url} gave no answer within {within_s:g} s{troubled(client, before=': ')}")


def troubled(client: TorporClient, *, before: str) -> str:
    """What stands in the way of a connection, with ``before`` before it; empty where nothing does."""
    return f"{before}{one_line(client.trouble)}" if client.trouble else ""


def ask(server: Server, question: Callable[[Questions], Awaitable[R]], *, extra_s: float = 0.0) -> R:
    """Connect, ask, and leave. Raises: ClientError: the answer. click.ClickException: there was none in time."""

    async def asked() -> R:
        url, token = await server.reached()
        async with server.client(url, token) as client:
            try:
                with anyio.fail_after(ANSWER_DEADLINE_S + extra_s):
                    return await question(Questions(client))
            except TimeoutError as exc:
                raise unanswered(url, client, within_s=ANSWER_DEADLINE_S + extra_s) from exc

    return anyio.run(asked)
