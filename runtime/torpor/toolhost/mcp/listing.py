"""What a server says of its tools becomes tools that may be offered, and those that may not with the reason. Pure.

A bad tool is left out alone. What is kept is in the order of names, and no more than the bounds allow.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from torpor.conversation.budget import encoded_tokens
from torpor.conversation.quoting import prefix
from torpor.conversation.text import clean, is_blank
from torpor.records.terms import Effect
from torpor.toolhost.mcp.names import tool_name
from torpor.toolhost.mcp.options import McpOptions, McpServer
from torpor.toolhost.mcp.schemas import Unfit, as_json, offered_schema

LISTED_MAX: Final = 1_000
"""Tools of one list that are looked at."""
JUDGED_SHARE: Final = 2
"""Times ``schemas_bytes_max``, that are judged of the schemas of one list: bad ones cost as much time as good ones."""
BEYOND: Final = "torpor/beyond"
"""An entry that stands for those that are not."""
_TOLD_CHARS: Final = 80
_TITLES_TOLD: Final = 32


class ServedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server as it may be offered."""

    name: str
    """To the model."""
    title: str
    """As the server calls it."""
    description: str
    input_schema: dict[str, Any]
    effect: Effect
    deadline_s: float


def tokens_of(tool: ServedTool) -> int:
    """In each request that offers it, about."""
    offered = {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
    return encoded_tokens([offered])


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is not offered."""

    title: str
    """As the server calls it, cut to a line."""
    why: str


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """All that a server has."""

    tools: tuple[ServedTool, ...] = ()
    """Sorted by name."""
    rejected: tuple[Rejected, ...] = ()
    unmet: tuple[Rejected, ...] = ()
    """What the server's table names, or a tool of ours asks for, and the server has not; such a name in ``reads``
    vouches for nothing."""
    titles: tuple[str, ...] = ()
    """All that the server has, as it calls them, sorted."""
    digest: str = ""
    """Of the tools: the same while they are."""

    @property
    def told_titles(self) -> tuple[str, ...]:
        """The first ones, each as a line."""
        return tuple(map(_line, self.titles[:_TITLES_TOLD]))


NOTHING: Final = Listing()
NOBODY: Final[Mapping[str, str]] = {}


def read_listing(
    name: str, server: McpServer, told: Iterable[object], *, options: McpOptions, asked: Mapping[str, str] = NOBODY
) -> Listing:
    """Read what the server ``name`` tells, as JSON has it; entries of any kind. Takes milliseconds for each tool.

    Args: asked: who of ours asks for which of its tools, by the tool.
    """
    reading = _Reading(name, server, options, asked)
    for entry in told:
        reading.add(entry)
    return reading.listing()


class _Reading:
    def __init__(self, name: str, server: McpServer, options: McpOptions, asked: Mapping[str, str]) -> None:
        self._name = name
        self._server = server
        self._options = options
        self._asked = asked
        self._entries: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """By the name to the model."""
        self._judged_bytes = 0
        self._rejected: list[Rejected] = []
        self._crowd = 0
        self._titles = set[str]()

    def add(self, entry: object) -> None:
        if entry == BEYOND:
            self._reject("…", f"of one list the first {LISTED_MAX:,} tools are looked at")
            return
        title = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(entry, Mapping) or not isinstance(title, str) or not title:
            self._reject("?", "it has no name")
            return
        self._titles.add(title)
        if self._server.tools and title not in self._server.tools:
            return  # nobody asked for it
        name = tool_name(self._name, title)
        if name in self._entries:
            self._reject(title, "the server has two tools of that name, the first one counts")
        else:
            self._entries[name] = (title, entry)

    def listing(self) -> Listing:
        kept, size = list[ServedTool](), 0
        for name, (title, entry) in sorted(self._entries.items(), key=lambda each: each[0]):
            try:
                if len(kept) >= self._options.tools_max:
                    raise Unfit(f"of one server at most {self._options.tools_max} tools are offered")
                tool = self._read(name, title, entry)
                size_bytes = len(msgspec.json.encode((tool.name, tool.description, tool.input_schema)))
                if size + size_bytes > (most := self._options.schemas_bytes_max):
                    raise Unfit(f"the tools of one server take at most {most:,} bytes of a request")
            except Unfit as exc:
                self._reject(title, exc.reason)
                continue
            size += size_bytes
            kept.append(tool)
        if self._crowd:
            self._rejected.append(Rejected(title="…", why=f"{self._crowd:,} more are left out"))
        digest = hashlib.sha256(msgspec.json.encode((self._name, kept))).hexdigest()[:16]
        return Listing(
            tools=tuple(kept),
            rejected=tuple(self._rejected),
            unmet=self._unmet(),
            titles=tuple(sorted(self._titles)),
            digest=digest,
        )

    def _unmet(self) -> tuple[Rejected, ...]:
        server = self._server
        own = (("tools", server.tools), ("reads", server.reads), ("deadlines_s", server.deadlines_s))
        named = (*own, *((who, (title,)) for title, who in self._asked.items()))
        return tuple(
            Rejected(title=title, why=f"{key} names it, and the server has no such tool")
            for key, titles in named
            for title in titles
            if title not in self._titles
        )

    def _read(self, name: str, title: str, entry: Mapping[str, Any]) -> ServedTool:
        schema = self._schema(entry.get("inputSchema"))
        annotations = entry.get("annotations")
        hint = annotations.get("readOnlyHint") is True if isinstance(annotations, Mapping) else False
        server = self._server
        reads = title in server.reads or (server.trust_read_only and hint)
        return ServedTool(
            name=name,
            title=title,
            description=self._description(title, entry.get("description")),
            input_schema=schema,
            effect=Effect.READ if reads else Effect.WRITE,
            deadline_s=server.deadlines_s.get(title) or server.deadline_s or self._options.call_deadline_s,
        )

    def _schema(self, said: object) -> dict[str, Any]:
        size_bytes = len(as_json(said))
        if size_bytes <= self._options.schema_bytes_max:
            self._judged_bytes += size_bytes
        if self._judged_bytes > (most := self._options.schemas_bytes_max * JUDGED_SHARE):
            raise Unfit(f"of the schemas of one server {most:,} bytes are looked at")
        return offered_schema(said, size_bytes_max=self._options.schema_bytes_max)

    def _description(self, title: str, said: object) -> str:
        text = clean(said).text.strip() if isinstance(said, str) else ""
        if is_blank(text):
            return f"The tool {_line(title)} of {self._name}."
        return prefix(text, bytes_max=self._options.description_bytes_max)

    def _reject(self, title: str, why: str) -> None:
        """Each with its reason, of a crowd only the number."""
        if len(self._rejected) < self._options.tools_max:
            self._rejected.append(Rejected(title=_line(title), why=why))
        else:
            self._crowd += 1


def _line(text: str) -> str:
    return prefix(clean(" ".join(text.split())).text, bytes_max=_TOLD_CHARS)
