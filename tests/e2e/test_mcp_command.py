"""`torpor mcp` as an operator uses it, over servers that are up and servers that are not."""

import sys
from pathlib import Path

import msgspec

from tests.support.command_line import Command
from tests.support.mcp_ledger import McpLedger

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
SECRET = "s3cret-value"
OF_EACH = """
    [mcp.own]
    command = "python3"
    env = { CREDENTIAL = { credential = true } }
    credentials = "secrets/{principal}"
"""


def test_servers_are_listed_tested_and_checked(tmp_path: Path) -> None:
    office = Command(tmp_path, WIKI_TOKEN=SECRET)
    office.run("init", ".")
    assert office.output("mcp", "list").strip() == "config/mcp.toml names no server"
    mcp_file, flags_file = tmp_path / "config" / "mcp.toml", tmp_path / "config" / "flags.toml"
    nothing_is_down(office, mcp_file)
    flags = flags_file.read_text()
    flags_file.write_text('[flags."mcp.odd"]\ndefault = false\n')
    ledger = McpLedger(tmp_path / "ledger.txt")
    (tmp_path / "key").write_text("other")
    (tmp_path / "key").chmod(0o644)
    mcp_file.write_text(f"""
        [mcp.odd]
        command = "{sys.executable}"
        args = ["{SERVER}", "{ledger.path}"]
        reads = ["look", "lok"]
        [mcp.gone]
        command = "there-is-no-such-program"
        [mcp.brief]
        command = "sh"
        args = ["-c", "echo no key $KEY >&2; exit 7"]
        env = {{ KEY = {{ env = "WIKI_TOKEN" }}, OTHER = {{ file = "key" }} }}
        [mcp.closed]
        url = "http://127.0.0.1:9/mcp?key={SECRET}"
        headers = {{ Authorization = {{ env = "WIKI_TOKEN", prefix = "Bearer " }} }}
        [mcp.own]
        command = "{sys.executable}"
        env = {{ CREDENTIAL = {{ credential = true }} }}
        credentials = "secrets/{{principal}}"
    """)

    listed = office.run("mcp", "list", "--json", code=1)
    rows = {row["server"]: row for row in map(_json, listed.stdout.splitlines())}
    assert {name: row["state"] for name, row in rows.items()} == {
        "brief": "its program ended with exit status 7",
        "closed": "nothing answers at its address",
        "gone": "there is no such program",
        "odd": "up",
        "own": "not tried: each user has a credential, --user says whose",
    }
    assert (rows["odd"]["tools"], rows["odd"]["rejected"]) == (12, 0)

    assert rows["brief"]["printed"] == "no key [masked]"
    assert "is shown by `torpor mcp test brief`" in listed.stderr
    assert (rows["closed"]["at"], rows["odd"]["off"]) == ("http://127.0.0.1:9/mcp", "off by mcp.odd")

    tested = office.run("mcp", "test", "odd")
    look = next(line.split() for line in tested.stdout.splitlines() if line.startswith("odd__look"))
    assert look[1:4] == ["look", "read", "offered"]
    assert int(look[4]) > 0
    assert "reads names it, and the server has no such tool" in tested.stdout
    assert "no credential" in office.run("mcp", "test", "own", "--user", "ada", code=1).stdout
    flags_file.write_text(flags)
    assert "there is no server 'nope'" in office.run("mcp", "test", "nope", code=2).stderr

    agent = tmp_path / "config" / "agents" / "clinic.toml"
    rehearsal = tmp_path / "config" / "rehearsals" / "clinic.toml"
    agent.write_text(agent.read_text().replace("[model]", 'mcp = ["odd"]\n\n[model]', 1))
    looks = 'call = [{ tool = "odd__look", arguments = { words = "hi" } }]'
    step = f'[[rule]]\nmatch = "odd"\n[[rule.step]]\n{looks}\n[[rule.step]]\nsay = "So."\n'
    rehearsal.write_text(rehearsal.read_text().replace("[[rule]]", f"{step}\n[[rule]]", 1))
    checked = office.output("config", "check")
    assert "no agent has its tools; http://127.0.0.1:9, shared" in " ".join(checked.split())
    assert "there is no program 'there-is-no-such-program'" in " ".join(checked.split())
    assert f"{tmp_path}/key has mode 0644, so that others may read it" in " ".join(checked.split())
    assert SECRET not in "".join((listed.stdout, listed.stderr, tested.stdout, tested.stderr, checked))
    assert ledger.alive() == set()

    with office.serving():
        a_running_server_tells(office)

    missing = Command(tmp_path).run("config", "check", code=1).stdout
    assert "mcp.closed.headers.Authorization is the variable WIKI_TOKEN, which is not set" in " ".join(missing.split())


def a_running_server_tells(office: Command) -> None:
    idle = [_json(line) for line in office.output("mcp", "list", "--json").splitlines()]
    assert [row["server"] for row in idle] == ["brief", "closed", "gone", "odd", "own"]
    assert {(row["state"], row["generation"]) for row in idle} == {("idle", 0)}
    assert [row["off"] for row in idle] == [""] * 5
    office.run("send", "odd things")
    used = office.run("mcp", "list")
    head, *lines = used.stdout.splitlines()
    assert head.split() == [
        "SERVER",
        "USER",
        "STATE",
        "FLAG",
        "STARTS",
        "LOST",
        "TOOLS",
        "LEFT",
        "OUT",
        "TOKENS",
        "LAST",
        "ERROR",
    ]
    odd = next(line.split() for line in lines if line.startswith("odd"))
    assert odd[1:8] == ["-", "up", "-", "1", "0", "12", "0"]
    assert "--start starts each once instead" in used.stderr
    assert office.run("mcp", "list", "--start", code=1).stdout.startswith("SERVER  AT")


def nothing_is_down(office: Command, mcp_file: Path) -> None:
    """Where there is no server, or one that nobody could have tried."""
    assert (
        "there is no server 'x' in config/mcp.toml, which names none" in office.run("mcp", "test", "x", code=2).stderr
    )
    mcp_file.write_text(OF_EACH)
    alone = office.run("mcp", "list")
    assert "not tried: each user has a credential" in alone.stdout
    assert alone.stderr == ""


def _json(line: str) -> dict[str, object]:
    return msgspec.json.decode(line, type=dict[str, object])
