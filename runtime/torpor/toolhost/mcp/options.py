"""What ``config/mcp.toml`` says of MCP servers, and the numbers that hold for all of them."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import msgspec

from torpor.errors import ConfigError
from torpor.misfits import Words
from torpor.records.bounds import Count, Pause, Seconds, Share
from torpor.toolhost.options import RESULT_CAP_MIN_BYTES

MCP_FILE: Final = "config/mcp.toml"
SERVER_NAME: Final = r"^[a-zA-Z0-9-]+(_[a-zA-Z0-9-]+)*$"
"""Without two underscores in a row, which divide it from the tool's name."""
SERVER_NAME_MAX: Final = 40
TENANT: Final = "{tenant}"
PRINCIPAL: Final = "{principal}"

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, section 5.6.2."""
_SECRET: Final = re.compile(r".{24}|(?=.*\d).{8}")
"""A part of a path that may be one."""
Variable = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class McpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of every server."""

    start_deadline_s: Seconds = 20.0
    """Starting or reaching a server, and hearing which tools it has."""
    list_deadline_s: Seconds = 10.0
    """Hearing again which tools it has."""
    turn_wait_s: Pause = 5.0
    """The longest that the beginning of a turn waits for servers that were not heard yet; then it goes on without."""
    call_deadline_s: Seconds = 30.0
    """One call, where the server's table says nothing else."""
    backoff_s: Seconds = 1.0
    """Before a server that was lost, or did not start, is tried again; doubles each time."""
    backoff_max_s: Seconds = 60.0
    """The longest such pause."""
    backoff_jitter: Share = 0.2
    """The part of a pause that is drawn by lot."""
    idle_stop_s: Pause = 600.0
    """A server that was not called for this long is stopped, and started again by the next call; 0 for never."""
    close_deadline_s: Seconds = 8.0
    """Closing a connection; a process that heeds nothing takes 4 s of it."""
    relist_pause_s: Pause = 1.0
    """The least time between two looks at the tools of a server that keeps changing them."""
    connections_max: Count = 64
    """Of all servers together; of those that are one user's, the one that was not used for longest makes room."""
    tools_max: Count = 64
    """Of one server; more of them are left out."""
    schema_bytes_max: Annotated[int, msgspec.Meta(ge=256)] = 32_768
    """Of one tool's schema as JSON; a tool with a larger one is left out."""
    schemas_bytes_max: Annotated[int, msgspec.Meta(ge=1_024)] = 131_072
    """Of what one server's tools take in a request; those beyond it are left out."""
    description_bytes_max: Annotated[int, msgspec.Meta(ge=64)] = 4_096
    """Of one tool's description; the rest is cut off."""
    result_cap_bytes: Annotated[int, msgspec.Meta(ge=RESULT_CAP_MIN_BYTES)] = 16_384
    """As the model reads it; a longer result keeps its head and tail and a handle to the whole."""
    result_bytes_max: Annotated[int, msgspec.Meta(ge=RESULT_CAP_MIN_BYTES)] = 4_194_304
    """Of a result as it comes; more is no result."""
    message_bytes_max: Annotated[int, msgspec.Meta(ge=65_536)] = 16_777_216
    """Of anything that a server sends at once; more of it ends the connection."""


class Reference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that stands elsewhere; exactly one of the three says where."""

    env: Variable = ""
    """A variable of the server's own environment."""
    file: str = ""
    """A file, from the home on; its text without the blanks around it."""
    credential: bool = False
    """The credential of whoever the call is for; see ``McpServer.credentials``."""
    prefix: str = ""
    """Put before it, such as ``Bearer`` and a blank."""

    def __repr__(self) -> str:
        where = "the credential" if self.credential else repr(self.env or self.file)
        return f"<Reference to {where}>"


Value = str | Reference


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table ``[mcp.NAME]``."""

    command: str = ""
    """A program that speaks over its standard input and output; found as a shell would, or a path from the home on."""
    args: tuple[str, ...] = ()
    env: dict[str, Value] = {}
    """Variables of the program, beside ``HOME``, ``PATH``, ``USER``, ``SHELL``, ``LOGNAME`` and ``TERM``."""
    url: str = ""
    """Instead of a program, an address that speaks streamable HTTP."""
    headers: dict[str, Value] = {}
    """Sent with every request to it."""
    credentials: str = ""
    """The file with the credential of each user, from the home on, with ``{principal}`` and perhaps ``{tenant}`` in its
    name. With it every user has a connection of their own, and nobody without such a file has the tools."""
    tools: tuple[str, ...] = ()
    """Those that may be used, as the server calls them; empty for all of them."""
    trust_read_only: bool = False
    """Whether a tool that the server says is read-only is taken for one. Any other one is a write."""
    reads: tuple[str, ...] = ()
    """Tools that only read, whatever the server says of them, as it calls them."""
    deadline_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """One call; what ``[mcp]`` of the settings says, if left out."""
    deadlines_s: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = {}
    """The same for tools of their own."""
    idle_stop_s: Pause | None = None
    """As in ``[mcp]`` of the settings."""
    flag: str = ""
    """Key of the flag that switches all of its tools; empty for ``mcp.<name>``."""

    @property
    def is_users_own(self) -> bool:
        """Each user has a connection of their own."""
        return bool(self.credentials)

    @property
    def may_read(self) -> bool:
        """Whether somebody vouches for tools of it that only read."""
        return bool(self.reads) or self.trust_read_only

    @property
    def told_as(self) -> str:
        """Where it is, without anything that may be secret."""
        if self.url:
            scheme, _, rest = self.url.partition("://")
            return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}"
        return self.command

    @property
    def place(self) -> str:
        """As ``told_as``, with the path of its address, but for parts of it that may be secret."""
        if not self.url:
            return self.command
        _, divider, path = self.url.partition("://")[2].partition("?")[0].partition("#")[0].partition("/")
        parts = ["…" if _SECRET.match(part) else part for part in path.split("/")]
        return self.told_as + divider + "/".join(parts)

    def __repr__(self) -> str:
        return f"<McpServer {self.told_as}>"


Servers = Mapping[str, McpServer]
"""By name."""


def faults_of(name: str, server: McpServer) -> Iterator[ConfigError]:
    """What its type allows and a server is not."""
    key = f"mcp.{name}"

    def fault(part: str, found: object, expected: str) -> ConfigError:
        return ConfigError(MCP_FILE, key=f"{key}.{part}" if part else key, found=found, expected=expected)

    if bool(server.command) == bool(server.url):
        found = Words("both" if server.url else "neither")
        yield fault("", found, "either command, for a program, or url, for an address")
        return
    foreign = ("headers",) if server.command else ("args", "env")
    of = "url" if server.command else "command"
    for part in foreign:
        if getattr(server, part):
            yield fault(part, Words("a value"), f"nothing, since it belongs to a server with {of}")
    if server.url:
        yield from (fault("url", Words(found), expected) for found, expected in _url_faults(server.url))
    yield from (fault(part, found, expected) for part, found, expected in _name_faults(server))
    yield from (fault(part, found, expected) for part, found, expected in _value_faults(server))
    if server.credentials and PRINCIPAL not in server.credentials:
        yield fault("credentials", server.credentials, f"a file name with {PRINCIPAL} in it, one for each user")


def _name_faults(server: McpServer) -> Iterator[tuple[str, object, str]]:
    """Of what no program can be given, and no request hold."""
    for part, text in (("command", server.command), *((f"args[{at}]", each) for at, each in enumerate(server.args))):
        if "\0" in text:
            yield part, Words("a text with a NUL in it"), "one without, since it would end there"
    for name in server.env:
        if not name or "=" in name or "\0" in name:
            yield (
                "env",
                Words(f"the variable {name[:80]!r}"),
                "names with neither = nor NUL in them, of one character at least",
            )
    for name in server.headers:
        if not _HEADER.fullmatch(name):
            yield "headers", Words(f"the header {name[:80]!r}"), "names as HTTP has them, such as Authorization"


def _url_faults(url: str) -> Iterator[tuple[str, str]]:
    scheme, divider, rest = url.partition("://")
    if scheme not in {"http", "https"} or not divider or not rest:
        yield "another kind of address", "an address that begins with http:// or https://"
    elif "@" in rest.partition("/")[0]:
        yield "an address with a name or password in it", "one without; a reference in headers says who asks"


def _value_faults(server: McpServer) -> Iterator[tuple[str, object, str]]:
    uses = False
    for part, values in (("env", server.env), ("headers", server.headers)):
        for name, value in values.items():
            if not isinstance(value, Reference):
                continue
            uses = uses or value.credential
            if sum(map(bool, (value.env, value.file, value.credential))) != 1:
                yield f"{part}.{name}", Words("no single place"), "one of env, file and credential"
            elif value.credential and not server.credentials:
                expected = "a reference by env or file, or `credentials` beside it, which says where each user's lies"
                yield f"{part}.{name}", Words("the credential of each user"), expected
    if server.credentials and not uses:
        expected = "a value { credential = true } in env or headers, or no `credentials`"
        yield "credentials", Words("not used"), expected
