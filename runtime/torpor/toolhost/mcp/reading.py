"""The tables of ``config/mcp.toml`` become servers, and all that is wrong with them; no value is ever told.

Above: settings. A server with one fault is none.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from torpor.errors import ConfigError
from torpor.misfits import Words, misfit_in_toml
from torpor.toolhost.mcp.options import MCP_FILE, SERVER_NAME, SERVER_NAME_MAX, McpServer, Servers, faults_of
from torpor.toolhost.mcp.values import Values

TABLE: Final = "mcp"
_NAME: Final = re.compile(SERVER_NAME)
_KINDS: Final = {"str": "a text", "int": "a number", "float": "a number", "array": "a list", "object": "a table"}
"""What a value is, which may be secret."""


class McpTables:
    """What one file comes to."""

    def __init__(self, tables: Mapping[str, Any], *, home: Path, environ: Mapping[str, str]) -> None:
        """Args: tables: of the file; empty where there is none."""
        self._values = Values(home, environ)
        self.problems: list[ConfigError] = []
        servers = dict[str, McpServer]()
        for name in tables.keys() - {TABLE}:
            self._report(name, Words("unknown"), "tables [mcp.NAME]")
        named = tables.get(TABLE, {})
        if not isinstance(named, dict):
            self._report(TABLE, Words("no table"), "tables [mcp.NAME]")
            named = {}
        for name, table in sorted(named.items()):
            known = len(self.problems)
            server = self._server(name, table)
            if server is not None and len(self.problems) == known:
                servers[name] = server
        self.servers: Servers = servers

    def _server(self, name: str, table: object) -> McpServer | None:
        where = f"{TABLE}.{name}"
        if not _NAME.fullmatch(name) or len(name) > SERVER_NAME_MAX:
            expected = f"a name of letters, digits, '-' and single '_', at most {SERVER_NAME_MAX} of them"
            self._report(where, Words(f"the name {name[:80]!r}"), expected)
            return None
        try:
            server = msgspec.convert(table, McpServer)
        except msgspec.ValidationError as exc:
            unfit = misfit_in_toml(exc, McpServer, key=where)
            found = unfit.found if isinstance(unfit.found, Words) else Words(_KINDS.get(unfit.found, "unusable"))
            self._report(f"{where}{unfit.path}", found, unfit.expected)
            return None
        self.problems += faults_of(name, server)
        self.problems += self._values.faults_of(name, server)
        return server

    def _report(self, key: str, found: Words, expected: str) -> None:
        self.problems.append(ConfigError(MCP_FILE, key=key, found=found, expected=expected))
