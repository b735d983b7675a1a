"""What was said, as text."""

from torpor.conversation.segments import Said
from torpor.conversation.transcript import first_words, text_of_result, transcript
from torpor.records.blocks import canonical, text_block, tool_result_block

USE = canonical({"type": "tool_use", "id": "a", "name": "look", "input": {"id": 7}})
THINKING = canonical({"type": "thinking", "thinking": "secret", "signature": "s"})
HIDDEN = canonical({"type": "redacted_thinking", "data": "secret"})
PICTURE = canonical({"type": "image", "source": {"type": "base64", "data": "secret"}})
PARTS = canonical(
    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}, {"type": "image"}, 3]}
)
TURN = (
    Said(
        "user", (text_block("[The note.]"), text_block("<context version='1'/>"), text_block("which\n one?"), PICTURE)
    ),
    Said("assistant", (THINKING, HIDDEN, text_block("Let me see."), USE)),
    Said("user", (tool_result_block("a", "the red one", is_error=False), text_block("quick!"))),
    Said("assistant", (USE,)),
    Said(
        "user", (tool_result_block("a", "gone", is_error=True), text_block("[Skill pay, version ab, loaded earlier:]"))
    ),
    Said("assistant", (text_block("The red one."),)),
)


def test_a_turn_is_told_speaker_by_speaker_without_thinking_and_without_what_the_engine_told() -> None:
    (text,) = transcript([(3, TURN)], text_chars=100, part_chars=100)
    assert text.splitlines() == [
        "Turn 3",
        "user: [The note.]",
        "user: which one?",
        "user: (image)",
        "assistant: Let me see.",
        'calls look({"id":7})',
        "result: the red one",
        "user: quick!",
        'calls look({"id":7})',
        "error: gone",
        "assistant: The red one.",
    ]


def test_a_reply_that_begins_like_what_the_engine_tells_is_the_models_own() -> None:
    for reply in ("<context >Monday", "[Summary of earlier conversation: Tuesday]", "[Skill a, version b] Wednesday"):
        turn = (Said("user", (text_block("when?"),)), Said("assistant", (text_block(reply),)))
        (text,) = transcript([(1, turn)], text_chars=100, part_chars=100)
        assert text == f"Turn 1\nuser: when?\nassistant: {reply}"
        assert first_words(turn, chars=100) == ("when?", reply)


def test_what_is_long_is_cut() -> None:
    said = (Said("user", (text_block("one two three"), tool_result_block("a", "four five six", is_error=False))),)
    (text,) = transcript([(1, said)], text_chars=8, part_chars=4)
    assert text.splitlines() == ["Turn 1", "user: one two…", "result: four…"]


def test_a_turn_in_which_nothing_was_said_has_its_line() -> None:
    assert transcript([(1, ())], text_chars=9, part_chars=9) == ["Turn 1\n"]
    assert transcript([], text_chars=9, part_chars=9) == []


def test_the_first_words_are_those_that_opened_the_turn_and_of_the_last_reply() -> None:
    assert first_words(TURN, chars=100) == ("which one?", "The red one.")
    assert first_words(TURN, chars=6) == ("which…", "The re…")
    assert first_words((), chars=6) == ("", "")
    assert first_words(TURN[:1], chars=99) == ("which one?", "")


def test_a_result_is_its_text_whatever_it_is_made_of() -> None:
    assert text_of_result(tool_result_block("a", "plain", is_error=False)) == "plain"
    assert text_of_result(PARTS) == "one\n"
    assert text_of_result(canonical({"type": "tool_result", "tool_use_id": "a"})) == ""
