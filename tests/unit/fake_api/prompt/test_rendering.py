"""A request as the model reads it."""

from typing import Any

from tests.unit.fake_api.parts import HELLO, TOOL, USE, assistant, mark, request, rounds, tool, user
from torpor_fake_api.models import MODELS
from torpor_fake_api.prompt.rendering import Segment, segments, total

TOY = MODELS["toy-4k"]
THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "so", "signature": "x"}


def rendered(body: dict[str, Any], *dropped: dict[str, Any]) -> list[Segment]:
    return segments(body, model=TOY, is_dropped=lambda block: block in dropped)


def test_tools_come_before_system_before_messages() -> None:
    found = rendered(request(user(HELLO), tools=[TOOL, tool(name="other")]))

    assert [segment.text.partition(b"{")[0] for segment in found] == [b"tool", b"tool", b"system", b""]
    assert found[-1].text.endswith(b'user{"type":"text","text":"hello"}')


def test_marks_are_taken_out_of_what_is_compared() -> None:
    plain, marked = rendered(request(user(HELLO))), rendered(request(user(HELLO | mark("1h")), tools=[tool(**mark())]))

    assert [segment.text for segment in plain] == [segment.text for segment in marked]
    assert [segment.ttl for segment in marked] == ["5m", None, "1h"]


def test_a_string_reads_like_a_text_block_and_two_messages_of_one_role_like_one() -> None:
    joined = request({"role": "user", "content": "hello"}, user(HELLO))

    assert rendered(joined) == rendered(request(user(HELLO, HELLO)))


def test_only_the_first_tool_pays_for_the_telling_how() -> None:
    one, two = rendered(request(tools=[TOOL])), rendered(request(tools=[TOOL, TOOL]))

    assert total(two) - total(one) < one[0].tokens


def test_thinking_may_not_be_marked_and_may_be_dropped() -> None:
    body = request(user(HELLO), assistant(THOUGHT, HELLO), user(HELLO))

    assert [segment.may_be_marked for segment in rendered(body)[-4:]] == [True, False, True, True]
    assert total(rendered(body, THOUGHT)) < total(rendered(body))


def test_a_message_begins_with_its_role_even_when_its_first_block_is_dropped() -> None:
    body = request(user(HELLO), assistant(THOUGHT, USE), *rounds(1)[2:])

    assert rendered(body, THOUGHT) == rendered(request(*rounds(1)))
