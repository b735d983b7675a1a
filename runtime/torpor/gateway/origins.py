"""Which web pages may open a WebSocket here. Pure.

Above: the server, before it upgrades a connection. A browser names the page's origin in a header that the page cannot
choose; programs send none, and are not asked. Pages of this server are welcome under the names by which this machine
knows it, never because their origin equals the ``Host`` they asked for: a page that had its own name lead here would
pass such a test.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from torpor.errors import ConfigError

OPAQUE: Final = "null"
"""What pages without an origin of their own send: files, sandboxed frames. Welcome only when it is listed."""
_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Origins:
    """Those that are listed, and this server's own.

    Raises: ConfigError: one that is listed is not an origin.
    """

    def __init__(self, listed: Iterable[str]) -> None:
        listed = tuple(listed)
        for problem in origin_problems(listed):
            raise problem
        self._welcome = frozenset(filter(None, map(normal, listed)))

    def admit(self, headers: Sequence[str], *, own: frozenset[str] = frozenset()) -> bool:
        """Whether a request with these ``Origin`` headers may go on."""
        if not headers:
            return True
        origin = normal(headers[0]) if len(headers) == 1 else None
        return origin is not None and (origin in self._welcome or origin in own)


def own_origins(*, host: str, port: int, is_tls: bool, is_loopback: bool) -> frozenset[str]:
    """Under which a browser on this machine may know the server."""
    scheme = "https" if is_tls else "http"
    hosts = {host, *_LOOPBACK} if is_loopback else {host}
    told = (normal(f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}") for name in hosts)
    return frozenset(origin for origin in told if origin is not None)


def normal(origin: str) -> str | None:
    """One spelling for each: lower case, without the port that goes without saying. None for what is no origin."""
    if origin == OPAQUE:
        return origin
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    # Anything else behind the host, be it a slash, is not in the header that browsers send.
    if parts.scheme not in _PORTS or not parts.hostname or origin.count("/") != 2 or set("@?#\\ ") & set(origin):
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    is_usual = port is None or port == _PORTS[parts.scheme]
    return f"{parts.scheme}://{host}" if is_usual else f"{parts.scheme}://{host}:{port}"


def origin_problems(listed: Iterable[str]) -> Iterator[ConfigError]:
    """Those that are listed and are no origins."""
    expected = "origins like 'https://app.example.org', without a path"
    for origin in listed:
        if normal(origin) is None:
            yield ConfigError("config/torpor.toml", key="gateway.origins", found=origin, expected=expected)
