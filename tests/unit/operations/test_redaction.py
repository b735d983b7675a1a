"""What a log line never shows, whoever put it into the event."""

import json
import subprocess
import sys
from typing import Any

import pytest

from torpor.operations.redaction import LEFT_OUT, MASK, masked, redact

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJlLW9mLWl0"
KEY = "sk-ant-api03-abcdefghijklmnop"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Authorization: Bearer {TOKEN}", f"Authorization: Bearer {MASK}"),
        ("authorization: basic dXNlcjpwYXNzd29yZA==", f"authorization: basic {MASK}"),
        (f"got {TOKEN} from ada", f"got {MASK} from ada"),
        (f"key {KEY} was refused", f"key {MASK} was refused"),
        ("https://host/path?api_key=0123456789abcdef", f"https://host/path?api_key={MASK}"),
        ("https://ann:hunter2@host/path", f"https://{MASK}@host/path"),
        ("{'token': 'abcdefgh12345678'}", f"{{'token': '{MASK}'}}"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", MASK),
        ("AKIAIOSFODNN7EXAMPLE", MASK),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "expected one Authorization header with a Bearer token",
        "token has expired",
        "risk-assessment-of-a-task finished",
        "mailbox of conversation 'c_9f' is full (64 commands waiting)",
        "ws://127.0.0.1:8765",
        "office/.torpor/torpor.db",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("name", ["token", "api_key", "development_token", "Authorization", "db-password", "secret"])
def test_field_of_a_secret_is_masked_whatever_it_looks_like(name: str) -> None:
    assert redact({name: "plain"}) == {name: MASK}
    assert redact({"headers": {name: "plain"}}) == {"headers": {name: MASK}}


@pytest.mark.parametrize("name", ["text", "arguments", "blocks", "content", "prompt"])
def test_field_of_content_is_left_out(name: str) -> None:
    assert redact({name: "my knee hurts"}) == {name: LEFT_OUT}


def test_facts_stay_as_they_are() -> None:
    event = {"event": "turn.failed", "turn": 3, "tokens": 40, "lag_s": 0.5, "names": ["a", "b"], "why": None}

    assert redact(event) == event


def test_secret_is_found_within_lists_and_objects() -> None:
    class Held:
        def __repr__(self) -> str:
            return f"<Held {KEY}>"

    assert redact({"held": [Held(), (KEY,)]}) == {"held": [f"<Held {MASK}>", [MASK]]}


LOGGING = """
import logging, structlog
from torpor.operations.logs import LogOptions, configure_logs
configure_logs(LogOptions(level="debug", format={format!r}))
log = structlog.get_logger()
log.debug("model.asked", api_key="{key}", why="host said: Bearer {token}", text="my knee hurts")
try:
    raise ValueError("refused with {key}")
except ValueError:
    log.exception("turn.crashed")
    logging.getLogger("websockets.server").error("handshake with %s failed", "{token}", exc_info=True)
logging.getLogger("websockets.server").debug("> TEXT 'my knee hurts'")
"""


def logged(format_: str) -> str:
    code = LOGGING.format(format=format_, key=KEY, token=TOKEN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr


@pytest.mark.parametrize("format_", ["console", "json"])
def test_log_at_its_most_talkative_shows_no_secret_and_no_content(format_: str) -> None:
    log = logged(format_)

    assert "model.asked" in log
    assert "handshake with" in log
    for hidden in (KEY, TOKEN, "knee"):
        assert hidden not in log


def test_lines_of_libraries_become_events() -> None:
    events: list[dict[str, Any]] = [json.loads(line) for line in logged("json").splitlines()]

    told = [event for event in events if event["event"] == "library.logged"]
    assert [(event["library"], event["level"], event["why"]) for event in told] == [
        ("websockets.server", "error", f"handshake with {MASK} failed")
    ]
    assert "ValueError" in told[0]["exception"]
