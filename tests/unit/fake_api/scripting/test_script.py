"""Which reply a request gets."""

from typing import Any

import pytest

from tests.unit.fake_api.parts import HELLO, RESULT, USE, assistant, image, png, request, user
from torpor_fake_api.scripting.replies import Reply, Text, says
from torpor_fake_api.scripting.script import Asked, Script


def asked(text: str = "hello", *, number: int = 1) -> Asked:
    return Asked(number, request({"role": "user", "content": text}))


def words(reply: Reply) -> str:
    [block] = reply.content
    assert isinstance(block, Text)
    return block.text


def test_replies_are_given_in_line_and_then_the_user_is_echoed() -> None:
    script = Script("one", says("two"))

    assert [words(script.reply(asked())) for _ in range(3)] == ["one", "two", "You said: hello"]


@pytest.mark.parametrize(
    "beside",
    [
        "<policies>\n<policy id='fees'>25 euros</policy>\n</policies>",
        '<context version="3"><screen>Ledger</screen></context>',
        "<available_skills/>",
        "[Your previous reply was cut short by the user.]",
        "[Summary of earlier conversation: turns 1 to 3, records 1 to 40, none open]\nThey greeted.",
    ],
)
def test_what_a_program_put_beside_the_users_words_is_not_echoed(beside: str) -> None:
    texts = [{"type": "text", "text": text} for text in (beside, "hello", beside)]
    late = request({"role": "user", "content": "hello"}, assistant(), {"role": "user", "content": beside})

    assert words(Script().reply(Asked(1, request({"role": "user", "content": texts})))) == "You said: hello"
    assert words(Script().reply(Asked(1, late))) == "You said: hello"
    assert words(Script().reply(asked(beside))) == f"You said: {beside}"


@pytest.mark.parametrize("said", ["<b>bold</b> words", "is a < b > c?", "[A] or [B]", "[ok]", "<br> and so on"])
def test_words_of_a_user_that_look_like_it_are(said: str) -> None:
    texts = [{"type": "text", "text": text} for text in (said, "and more")]

    assert words(Script().reply(Asked(1, request({"role": "user", "content": texts})))) == f"You said: {said}\nand more"


@pytest.mark.parametrize("fallback", [says("no idea"), lambda asked: says("no idea")])
def test_a_fallback_is_given_whenever_nothing_is_left(fallback: Any) -> None:
    script = Script(otherwise=fallback)

    assert [words(script.reply(asked())) for _ in range(2)] == ["no idea", "no idea"]


def test_words_of_the_user_find_their_replies_one_a_request() -> None:
    script = Script("next")
    script.on("rain|sun", "weather one", "weather two")

    heard = [words(script.reply(asked(text))) for text in ("how?", "rain?", "will the sun shine?", "rain?")]

    assert heard == ["next", "weather one", "weather two", "You said: rain?"]


def test_a_number_goes_before_words_and_words_before_the_line() -> None:
    script = Script("next")
    script.on("hello", "hello yourself")
    script.at(2, "the second")

    assert [words(script.reply(asked(number=n))) for n in (1, 2, 3)] == ["hello yourself", "the second", "next"]


def test_a_cleared_script_keeps_its_fallback() -> None:
    script = Script("one", otherwise=says("no idea"))
    script.on("hello", "hello yourself")
    script.clear()

    assert (words(script.reply(asked())), repr(script)) == ("no idea", "<Script queued=0 rules=0>")


@pytest.mark.parametrize(
    ("messages", "text", "has_results"),
    [
        ([user(HELLO, {"type": "text", "text": "world"})], "hello\nworld", False),
        ([user(HELLO), assistant(USE), user(RESULT)], "hello", True),
        ([user(HELLO), assistant(USE), user(RESULT, {"type": "text", "text": "quick"})], "quick", True),
        ([user(image(png()))], "", False),
    ],
)
def test_a_request_is_known_by_what_the_user_said_last(messages: list[Any], text: str, has_results: bool) -> None:
    heard = Asked(1, request(*messages))

    assert (heard.text, heard.has_results) == (text, has_results)


def test_a_user_without_words_is_answered_too() -> None:
    assert words(Script().reply(Asked(1, request(user(image(png())))))) == "You said nothing."
