"""What a host recognises of its own replies."""

from typing import Any

import pytest

from torpor_fake_api import memory as memory_module
from torpor_fake_api.memory import Memory
from torpor_fake_api.signing import Claim, Signer

SIGNER = Signer()
OK: dict[str, Any] = {"type": "text", "text": "ok"}
USE: dict[str, Any] = {"type": "tool_use", "id": "call_1", "name": "look_up", "input": {}}


def thought(message: str, ordinal: int = 0, *, model: str = "a") -> dict[str, Any]:
    return {"type": "thinking", "thinking": "so", "signature": SIGNER.sign("so", Claim(model, message, ordinal))}


@pytest.fixture
def memory() -> Memory:
    return Memory(SIGNER)


def test_a_reply_is_recognised_by_its_call_when_its_thinking_is_gone(memory: Memory) -> None:
    memory.remember("msg_1", [thought("msg_1"), USE])

    assert memory.alteration([USE]) == "1 of 1 are missing or altered"
    assert memory.alteration([thought("msg_1"), USE]) is None


def test_words_that_another_reply_said_without_thinking_prove_nothing(memory: Memory) -> None:
    memory.remember("msg_1", [OK])
    memory.remember("msg_2", [thought("msg_2"), OK])

    assert memory.alteration([OK]) is None
    assert memory.alteration([thought("msg_2"), OK]) is None


def test_words_said_too_often_prove_nothing(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "SOURCES_MAX", 1)
    for message in ("msg_1", "msg_2"):
        memory.remember(message, [thought(message), OK])

    assert memory.alteration([OK]) is None


def test_a_reply_from_before_a_restart_is_judged_by_its_signatures(memory: Memory) -> None:
    assert memory.alteration([thought("old"), OK, thought("old", 1)]) is None
    assert memory.alteration([OK, thought("old", 1)]) == "of one message, those at [1] were kept"


def test_the_same_text_twice_is_no_move(memory: Memory) -> None:
    content = [thought("msg_1"), OK, thought("msg_1", 1), OK]
    memory.remember("msg_1", content)

    assert memory.alteration(content) is None


def test_one_message_may_hold_two_replies_of_a_paused_turn(memory: Memory) -> None:
    memory.remember("msg_1", [thought("msg_1"), OK])
    memory.remember("msg_2", [thought("msg_2"), USE])

    assert memory.alteration([thought("msg_1"), OK, thought("msg_2"), USE]) is None
    assert memory.alteration([thought("msg_1"), OK, USE]) is not None


def test_the_oldest_reply_is_forgotten_first(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "REPLIES_MAX", 1)
    memory.remember("msg_1", [thought("msg_1"), USE])
    memory.remember("msg_2", [OK])

    assert memory.alteration([USE]) is None
    assert repr(memory) == "<Memory replies=1 paused=0>"


def test_a_turn_is_paused_as_it_was_sent_marks_aside(memory: Memory) -> None:
    memory.pause([OK])

    assert memory.was_paused([OK | {"cache_control": {"type": "ephemeral"}}])
    assert not memory.was_paused([OK, OK])


def test_a_message_that_ends_in_the_hosts_own_tool_waits_for_the_host(memory: Memory) -> None:
    assert memory.was_paused([OK, {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}])


def test_thinking_of_another_model_is_foreign(memory: Memory) -> None:
    assert memory.is_foreign(thought("msg_1", model="b"), "a")
    assert not memory.is_foreign(thought("msg_1"), "a")
    assert not memory.is_foreign(OK, "a")
