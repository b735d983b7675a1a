"""A server that logs all it can, and what it keeps to itself."""

import http.client
import json
from pathlib import Path

import pytest

from tests.support.command_line import Command

KEY = "sk-ant-api03-n0b0dysh0uldseeth1skey"
PIN = "4711-0815"
SAID = f"my PIN is {PIN} and my key is {KEY}"
AGENT = """
name = "{name}"
default = {default}
system = "You are a clerk who knows that the vault is on the left."
max_tokens = 1024

[model]
"""
HOSTED = 'kind = "anthropic"\nmodel = "a-model"\nbase_url = "http://127.0.0.1:9"\nkey_env = "OUR_KEY"\n'
REHEARSED = 'kind = "scripted"\nrehearsal = "lines"\n'
LINES = """
[[rule]]
match = 'PIN is (?P<pin>[0-9-]+)'
[[rule.step]]
call = [{ tool = "check_pin", arguments = { pin = "{pin}" } }]
[[rule.step]]
say = "I shall remember {pin}."

[[rule]]
match = ''
[[rule.step]]
say = "Hello."
"""
TOOLS = '''
from torpor import tool


@tool(effect="read")
def check_pin(pin: str) -> str:
    """Check a PIN."""
    raise ValueError(f"no such PIN: {pin}")
'''


@pytest.fixture
def office(tmp_path: Path) -> Command:
    """A home with an agent that is rehearsed, and one whose host nobody reaches."""
    files = {
        "config/agents/clerk.toml": AGENT.format(name="clerk", default="true") + REHEARSED,
        "config/agents/hosted.toml": AGENT.format(name="hosted", default="false") + HOSTED,
        "config/rehearsals/lines.toml": LINES,
        "config/torpor.toml": "[retry]\nretries_max = 0\n",
        "tools/pins.py": TOOLS,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Command(tmp_path, OUR_KEY=KEY, TORPOR__LOGS__FORMAT="json", TORPOR__LOGS__LEVEL="debug")


def knock(port: str, token: str) -> int:
    """Ask for the numbers with a token, as whoever comes through a proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
    headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "192.0.2.7"}
    connection.request("GET", "/metrics", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_log_at_debug_level_holds_no_secret_and_nothing_that_was_said(
    office: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    with office.serving("--log-level", "debug") as server:
        token = server.ready["token"]
        office.run("send", SAID, "--conversation", "c1", *server.where)
        office.run("send", SAID, "--conversation", "c2", "--agent", "hosted", *server.where, code=3)
        office.run("send", SAID, "--conversation", "c1", "--url", server.ready["url"], "--token", f"{token}x", code=1)
        assert (knock(server.port, token), knock(server.port, f"{token}x")) == (200, 401)
    log = capfd.readouterr().err
    events = [json.loads(line) for line in log.splitlines() if line.startswith("{")]

    assert {"server.ready", "tool.failed", "turn.failed", "server.stopping"} <= {event["event"] for event in events}
    assert any(event["level"] == "debug" for event in events)
    for hidden in (KEY, PIN, "vault", "remember", token, token.rpartition(".")[2]):
        assert hidden not in log
