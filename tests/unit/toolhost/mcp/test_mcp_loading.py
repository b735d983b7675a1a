"""Nobody without servers pays for the library, and whoever lacks it is told what to do."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from torpor.errors import ConfigError
from torpor.home import mcp_servers
from torpor.settings import Settings
from torpor.toolhost.mcp.options import McpServer, Reference
from torpor.turn.definition import AgentDefinition

AGENT = AgentDefinition(name="a", system="", model={"kind": "scripted"})


def settings(**servers: McpServer) -> Settings:
    return Settings(home=Path("/nowhere"), agents=(AGENT,), mcp_servers=servers)


def test_the_engine_does_without_the_library() -> None:
    probe = "import sys, torpor.app, torpor.cli.mcp; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert "'torpor'" in done.stdout
    assert "'mcp'" not in done.stdout
    assert "'jsonschema'" not in done.stdout


def test_a_missing_library_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mcp" else found(name))

    mcp_servers(settings(), environ={}, chance=lambda: 0.5)
    with pytest.raises(
        ConfigError, match=r"config/mcp\.toml: mcp is without its library.*the extra 'mcp', in a checkout: make"
    ):
        mcp_servers(settings(lib=McpServer(command="x")), environ={}, chance=lambda: 0.5)


def test_a_start_warns_of_a_secret_that_others_may_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret-value")
    (tmp_path / "key").chmod(0o644)
    lib = McpServer(command="x", env={"KEY": Reference(file="key")})
    with capture_logs() as told:
        mcp_servers(msgspec.structs.replace(settings(lib=lib), home=tmp_path), environ={}, chance=lambda: 0.5)

    (warning,) = told
    assert (warning["event"], warning["log_level"], warning["server"]) == ("mcp.secret_readable", "warning", "lib")
    assert "key has mode 0644" in warning["why"]
