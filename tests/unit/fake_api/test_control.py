"""Control over HTTP."""

from typing import Any

import msgspec
import pytest

from tests.unit.fake_api.hosts import host, post, raw_request
from tests.unit.fake_api.parts import request
from torpor_fake_api.control import Control
from torpor_fake_api.delivery.plan import Head, Send
from torpor_fake_api.wire.gates import Gates

BODY = request(model="toy-4k", max_tokens=500, tools=None)


class Desk:
    """A host, its control, and what was asked of its port."""

    def __init__(self) -> None:
        self.host = host()
        self.gates = Gates()
        self.refused: list[float] = []
        self.control = Control(self.host, gates=self.gates, refuse=self.refused.append)

    def ask(self, method: str, what: str, body: Any = None) -> tuple[int, Any]:
        content = b"" if body is None else msgspec.json.encode(body)
        head, sent, _ = self.control.react(raw_request(method, f"/_fake/{what}", content, headers={}))
        assert isinstance(head, Head)
        assert isinstance(sent, Send)
        return head.status, msgspec.json.decode(sent.data)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_script_is_added_and_forgotten(desk: Desk) -> None:
    assert desk.ask("POST", "script", {"replies": ["one", "two"]})[1]["queued"] == 2
    assert post(desk.host, BODY).body["content"][0]["text"] == "one"
    assert desk.ask("DELETE", "script")[1]["queued"] == 0


def test_a_script_may_bring_models(desk: Desk) -> None:
    desk.ask("POST", "script", {"models": {"tiny": {"window_tokens": 1}}})

    assert post(desk.host, BODY | {"model": "tiny"}).status == 400
    assert post(desk.host, BODY).status == 200


def test_requests_are_told_from_the_nth_on(desk: Desk) -> None:
    post(desk.host, BODY)
    post(desk.host, BODY | {"max_tokens": -1})

    _, told = desk.ask("GET", "requests?after=1")

    [received] = told["requests"]
    assert (received["status"], received["violations"][0][0]) == (400, "V-05")
    assert desk.ask("GET", "state")[1] == {
        "profile": "strict",
        "requests": 2,
        "asked": 1,
        "queued": 0,
        "waiting": [],
    }


def test_a_gate_is_opened_by_its_name(desk: Desk) -> None:
    desk.gates["here"].reached.set()

    assert desk.ask("GET", "state")[1]["waiting"] == ["here"]
    assert desk.ask("POST", "release", {"name": "here"})[1]["waiting"] == []


def test_the_port_is_closed_for_a_while(desk: Desk) -> None:
    desk.ask("POST", "refuse", {"seconds": 1.5})

    assert desk.refused == [1.5]


def test_the_catalogue_is_told(desk: Desk) -> None:
    _, told = desk.ask("GET", "misbehaviours")

    assert told["overloaded"] == {"summary": "529: Overloaded", "at": ["before_headers"]}


@pytest.mark.parametrize(
    ("method", "what", "body", "status", "error"),
    [
        ("POST", "script", {"words": []}, 400, "unknown field `words`"),
        ("POST", "script", {"models": {"toy-4k": {"windows": 1}}}, 400, "unknown field `windows`"),
        ("POST", "refuse", {}, 400, "missing required field `seconds`"),
        ("GET", "requests?after=x", None, 400, "invalid literal"),
        ("GET", "dance", None, 404, "no GET /_fake/dance here"),
    ],
)
def test_what_cannot_be_done_is_told_with_its_reason(
    desk: Desk, *, method: str, what: str, body: Any, status: int, error: str
) -> None:
    answered, told = desk.ask(method, what, body)

    assert answered == status
    assert error in told["error"]
