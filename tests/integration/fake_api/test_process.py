"""The fake API as a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.fake_api.asking import asking

HEADERS = {"x-api-key": "any", "anthropic-version": "2026-10-21"}
SCRIPT = """
replies = ["Good day."]

[[rules]]
match = "weather"
replies = [{ misbehave = "overloaded" }]
"""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def running(*options: str) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """A process that listens, and what it says of itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "torpor_fake_api", *options], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout
    try:
        yield json.loads(process.stdout.readline()), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def post(url: str, body: Any) -> httpx2.Response:
    return httpx2.post(url, json=body, headers=HEADERS, timeout=30, trust_env=False)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_process_says_where_it_listens_answers_by_its_script_and_ends_at_a_signal(
    backend: str, tmp_path: Path
) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    options = ("--profile", "strict", "--script", str(tmp_path / "script.toml"), "--backend", backend)

    with running(*options) as (told, process):
        said = post(f"{told['url']}/v1/messages", asking())
        failed = post(f"{told['url']}/v1/messages", asking("the weather?"))
        received = httpx2.get(f"{told['control']}/_fake/requests", trust_env=False).json()["requests"]
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=30)

    assert (said.json()["content"][0]["text"], failed.status_code, code) == ("Good day.", 529, 0)
    assert [request["body"] for request in received] == [asking(), asking("the weather?")]


def test_a_process_takes_scripts_and_refuses_connections_while_it_runs() -> None:
    with running() as (told, _):
        post(f"{told['control']}/_fake/script", {"replies": ["One."]})
        assert post(f"{told['url']}/v1/messages", asking()).json()["content"][0]["text"] == "One."
        post(f"{told['control']}/_fake/refuse", {"seconds": 60})
        with pytest.raises(httpx2.ConnectError):
            post(f"{told['url']}/v1/messages", asking())
        assert httpx2.get(f"{told['control']}/_fake/state", trust_env=False).json()["asked"] == 1


def test_two_processes_give_different_ids_unless_they_are_told_the_same_seed() -> None:
    def request_id(*options: str) -> str:
        with running(*options) as (told, _):
            return post(f"{told['url']}/v1/messages", asking()).headers["request-id"]

    assert request_id() != request_id()
    assert request_id("--seed", "a") == request_id("--seed", "a")


@pytest.mark.parametrize(
    ("script", "reason"), [('replies = [{ misbehave = "sing" }]', "misbehave is 'sing'"), (None, "No such file")]
)
def test_a_script_that_cannot_be_used_ends_the_process_with_a_reason(
    tmp_path: Path, script: str | None, reason: str
) -> None:
    path = tmp_path / "script.toml"
    if script is not None:
        path.write_text(script)

    ended = subprocess.run(
        [sys.executable, "-m", "torpor_fake_api", "--script", str(path)], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"torpor fake-api: {path}: ")
    assert reason in ended.stderr


def test_a_port_that_is_taken_ends_the_process_with_a_reason() -> None:
    with running() as (told, _):
        port = told["url"].rpartition(":")[2]
        ended = subprocess.run(
            [sys.executable, "-m", "torpor_fake_api", "--port", port], capture_output=True, text=True, check=False
        )

    assert ended.returncode == 1
    assert "in use" in ended.stderr
