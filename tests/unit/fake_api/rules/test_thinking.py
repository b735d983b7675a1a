"""Thinking blocks before a host that remembers what it wrote."""

from typing import Any

import pytest

from tests.unit.fake_api.parts import HELLO, RESULT, USE, assistant, request, user
from torpor_fake_api.memory import Memory
from torpor_fake_api.rules.judge import violations
from torpor_fake_api.signing import Claim, Signer

SIGNER = Signer()
MODEL = "some-model"


def thought(text: str, ordinal: int = 0, *, message: str = "msg_1") -> dict[str, Any]:
    signature = SIGNER.sign(text, Claim(MODEL, message, ordinal))
    return {"type": "thinking", "thinking": text, "signature": signature}


FIRST, SECOND = thought("one"), thought("two", 1)
REPLY = [FIRST, HELLO, SECOND, USE]


@pytest.fixture
def memory() -> Memory:
    memory = Memory(SIGNER)
    memory.remember("msg_1", REPLY)
    return memory


def broken(memory: Memory, *content: Any) -> list[str]:
    """Rules broken by a request whose latest assistant message holds this."""
    last = user(RESULT) if USE in content else user(HELLO)
    return [found.rule for found in violations(request(user(HELLO), assistant(*content), last), witness=memory)]


def test_thinking_that_is_sent_back_untouched_is_accepted(memory: Memory) -> None:
    assert broken(memory, *REPLY) == []


@pytest.mark.parametrize(
    ("rule", "content"),
    [
        ("V-60d", [FIRST | {"thinking": "one!"}, HELLO, SECOND, USE]),
        ("V-60d", [FIRST | {"signature": SECOND["signature"]}, HELLO, SECOND, USE]),
        ("V-60d", [thought("one") | {"signature": "bm8="}, HELLO, SECOND, USE]),
        ("V-60d", [{"type": "redacted_thinking", "data": "not ours"}, *REPLY]),
        ("V-60e", [FIRST, HELLO, USE]),
        ("V-60e", [HELLO, SECOND, USE]),
        ("V-60e", [HELLO, USE]),
        ("V-60e", [HELLO, FIRST, SECOND, USE]),
        ("V-60e", [SECOND, HELLO, FIRST, USE]),
        ("V-60e", [FIRST, FIRST, HELLO, SECOND, USE]),
    ],
)
def test_any_change_of_the_thinking_in_the_latest_reply_is_refused(
    memory: Memory, rule: str, content: list[Any]
) -> None:
    assert rule in broken(memory, *content)


def test_thinking_may_be_left_out_of_an_older_reply_but_not_altered(memory: Memory) -> None:
    later = (assistant({"type": "text", "text": "more"}), user(HELLO))

    left_out = request(user(HELLO), assistant(HELLO, USE), user(RESULT), *later)
    altered = request(user(HELLO), assistant(SECOND | {"thinking": "2"}, USE), user(RESULT), *later)

    assert violations(left_out, witness=memory) == []
    assert [found.rule for found in violations(altered, witness=memory)] == ["V-60d"]


def test_a_paused_turn_is_continued_by_sending_it_back_as_it_was(memory: Memory) -> None:
    half = [thought("so far", message="msg_2"), {"type": "text", "text": "half of it"}]
    memory.remember("msg_2", half)
    memory.pause(half)

    def rules(*content: Any) -> list[str]:
        return [found.rule for found in violations(request(user(HELLO), assistant(*content)), witness=memory)]

    assert rules(*half) == []
    assert rules(HELLO) == ["V-23"]
