"""A conversation in a plain terminal."""

import pytest

from tests.support.glass import Glass
from torpor.cli.screen import OUTCOMES, Screen
from torpor.records.events import (
    ContextReplacedEvent,
    MessageReceivedEvent,
    ReplyFinishedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    ToolFinishedEvent,
    ToolLateEvent,
    ToolStartedEvent,
    TurnCancelledEvent,
    TurnFailedEvent,
    TurnFinishedEvent,
    TurnRefusedEvent,
    TurnStartedEvent,
)
from torpor.records.ids import CallId, MessageId
from torpor.records.terms import Effect, FoldReason, Outcome


class Shown:
    """A screen and what stands on it."""

    def __init__(self, *, prompt: str = "") -> None:
        self.text = ""
        self.screen = Screen(self._write, prompt=prompt)

    def _write(self, text: str) -> None:
        self.text += text


@pytest.fixture
def shown() -> Shown:
    return Shown()


def reply(text: str, *, call: str = "1-1-1") -> ReplyFinishedEvent:
    return ReplyFinishedEvent(event=3, at_us=0, turn=1, call=call, text=text)


def test_text_streams_piece_by_piece(shown: Shown) -> None:
    shown.screen.delta("1-1-1", offset=0, text="Hel")
    assert shown.text == "Hel"

    shown.screen.delta("1-1-1", offset=3, text="lo")
    shown.screen.event(reply("Hello"))

    assert shown.text == "Hello\n"


def test_reply_that_was_not_streamed_is_shown_from_its_event(shown: Shown) -> None:
    shown.screen.event(reply("Hello"))

    assert shown.text == "Hello\n"


def test_gap_in_the_deltas_is_filled_from_the_event(shown: Shown) -> None:
    shown.screen.delta("1-1-1", offset=0, text="one ")
    shown.screen.delta("1-1-1", offset=8, text="three")
    shown.screen.event(reply("one two three"))

    assert shown.text == "one two three\n"


def test_text_so_far_that_comes_again_is_not_repeated(shown: Shown) -> None:
    shown.screen.delta("1-1-1", offset=0, text="Hel")
    shown.screen.delta("1-1-1", offset=0, text="Hello")
    shown.screen.delta("1-1-1", offset=2, text="ll")
    shown.screen.event(reply("Hello"))

    assert shown.text == "Hello\n"


def test_new_call_begins_the_reply_again(shown: Shown) -> None:
    shown.screen.delta("1-1-1", offset=0, text="Hel")
    shown.screen.delta("1-1-2", offset=0, text="Good day")
    shown.screen.event(reply("Good day", call="1-1-2"))

    assert shown.text == "Hel\n(the reply begins again)\nGood day\n"


def test_reply_that_differs_from_what_was_streamed_is_shown_whole(shown: Shown) -> None:
    shown.screen.delta("1-1-1", offset=0, text="Hel")
    shown.screen.event(reply("Good day"))

    assert shown.text == "Hel\nGood day\n"


def test_tools_are_told_between_the_words(shown: Shown) -> None:
    call = CallId("call_1")
    shown.screen.delta("1-1-1", offset=0, text="Let me see")
    shown.screen.event(reply("Let me see"))
    shown.screen.event(ToolStartedEvent(event=4, at_us=0, call_id=call, name="pay", effect=Effect.WRITE))
    shown.screen.progress("pay", "asking the bank")
    shown.screen.event(ToolFinishedEvent(event=5, at_us=0, call_id=call, name="pay", outcome=Outcome.UNKNOWN))
    shown.screen.event(ToolLateEvent(event=9, at_us=0, call_id=call, name="pay", of_turn=1, outcome=Outcome.SUCCEEDED))

    assert shown.text.splitlines() == [
        "Let me see",
        "  · pay (write)",
        "  · pay: asking the bank",
        "  · pay: outcome unknown",
        "  · pay of turn 1, after all: done",
    ]


@pytest.mark.parametrize(
    ("code", "rounds", "findings", "words"),
    [
        ("", 3, 2, "answered after 3 steps, 2 findings"),
        ("steps", 1, 1, "used up its steps after 1 step, 1 finding"),
        ("tokens", 2, 0, "used up its tokens after 2 steps"),
        ("seconds", 2, 0, "used up its time after 2 steps"),
        ("context_too_long", 2, 1, "ran out of its window after 2 steps, 1 finding"),
        ("output_limit", 2, 1, "had its reply cut off after 2 steps, 1 finding"),
        ("cancelled", 0, 0, "was cancelled after 0 steps"),
        ("lost", 0, 0, "was lost after 0 steps"),
        ("failed", 1, 0, "failed after 1 step"),
    ],
)
def test_a_sub_agent_is_told_when_it_begins_and_when_it_ends(
    shown: Shown, code: str, rounds: int, findings: int, words: str
) -> None:
    call = CallId("a")
    shown.screen.event(SubagentStartedEvent(event=3, at_us=0, call_id=call, name="digger"))
    shown.screen.event(
        SubagentFinishedEvent(
            event=4,
            at_us=0,
            call_id=call,
            name="digger",
            outcome=Outcome.SUCCEEDED,
            code=code,
            rounds=rounds,
            bundle="b" if findings else "",
            findings=findings,
        )
    )

    assert shown.text.splitlines() == ["  · digger at work", f"  · digger {words}"]


def test_every_outcome_has_a_word() -> None:
    assert set(OUTCOMES) == set(Outcome)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("client", "cancelled"),
        ("operator", "cancelled by an operator"),
        ("interrupt", "cut by a new message"),
        ("flood", "cancelled, flood"),
    ],
)
def test_cancelled_turn_keeps_what_was_said_and_tells_why(shown: Shown, reason: str, words: str) -> None:
    shown.screen.delta("1-1-1", offset=0, text="Once upon")
    shown.screen.event(TurnCancelledEvent(event=4, at_us=0, turn=1, reason=reason, text="Once upon a"))

    assert shown.text == f"Once upon a\n({words})\n"


def test_failed_turn_tells_why(shown: Shown) -> None:
    shown.screen.event(TurnFailedEvent(event=4, at_us=0, turn=1, code="model_unavailable", detail="no route"))

    assert shown.text == (
        "(failed, model_unavailable: no route)\n(`torpor doctor` tells whether the host can be reached)\n"
    )


@pytest.mark.parametrize("reason", list(FoldReason))
def test_a_fold_says_what_the_model_reads_from_here_on(shown: Shown, reason: FoldReason) -> None:
    shown.screen.event(ContextReplacedEvent(event=4, at_us=0, turn=9, reason=reason, generation=1, turns=(1, 6)))

    assert shown.text.startswith("(from here on the model reads ")


def test_reply_that_was_cut_at_the_output_limit_says_so(shown: Shown) -> None:
    cut = ReplyFinishedEvent(event=3, at_us=0, turn=1, call="1-1-1", text="And so", stop_reason="max_tokens")

    shown.screen.event(cut)

    assert shown.text.splitlines() == [
        "And so",
        "(the reply was cut at the output limit; ask for the rest, or raise max_tokens of the agent)",
    ]


def test_words_of_a_turn_that_was_refused_are_withdrawn(shown: Shown) -> None:
    refused = TurnRefusedEvent(event=9, at_us=0, turn=1, detail="the model refused to answer")
    shown.screen.event(TurnStartedEvent(event=2, at_us=0, turn=1, messages=()))
    shown.screen.delta("1-1-1", offset=0, text="You take")

    shown.screen.event(refused)
    shown.screen.delta("2-1-1", offset=0, text="Hello")

    assert shown.text == (
        "You take\n(the model refused to answer; what it said above is withdrawn, and the message was taken out of the "
        "conversation)\nHello"
    )


def test_refusal_without_a_word_withdraws_none(shown: Shown) -> None:
    shown.screen.delta("1-1-1", offset=0, text="Hello")
    shown.screen.event(reply("Hello"))
    shown.screen.event(TurnStartedEvent(event=5, at_us=0, turn=2, messages=()))

    shown.screen.event(TurnRefusedEvent(event=6, at_us=0, turn=2, detail="the model refused to answer"))

    assert "withdrawn" not in shown.text
    assert shown.text.endswith("(the model refused to answer; the message was taken out of the conversation)\n")


class Seen:
    """A screen on a terminal, where somebody types."""

    def __init__(self, *, columns: int = 40) -> None:
        self.glass = Glass(columns=columns)
        self.screen = Screen(self.glass.write, prompt="> ", columns=lambda: columns)

    @property
    def rows(self) -> list[str]:
        return self.glass.rows

    def enter(self, line: str) -> None:
        self.screen.typed(line)
        self.screen.entered()
        self.screen.typed("")


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_prompt_stands_on_a_line_of_its_own_and_the_answer_below_it(seen: Seen) -> None:
    seen.screen.event(reply("Hello"))
    seen.screen.prompt()
    seen.enter("hi")
    seen.screen.delta("2-1-1", offset=0, text="Hello again")

    assert seen.rows == ["Hello", "> hi", "Hello again"]


def test_note_takes_the_place_of_the_prompt(seen: Seen) -> None:
    seen.screen.prompt()
    seen.screen.note("connection lost")
    seen.screen.prompt()

    assert seen.rows == ["(connection lost)", ">"]


def test_what_is_typed_while_a_reply_streams_stays_whole_below_it(seen: Seen) -> None:
    seen.screen.delta("1-1-1", offset=0, text="one two")
    seen.screen.typed("n")
    seen.screen.delta("1-1-1", offset=7, text=" three\nfour")
    seen.screen.typed("no")
    seen.screen.progress("pay", "2 s")
    assert seen.rows == ["one two", " three", "four", "  · pay: 2 s", "> no"]

    seen.enter("now")
    seen.screen.event(reply("one two three\nfour five"))
    seen.screen.prompt()
    assert seen.rows == ["one two", " three", "four", "  · pay: 2 s", " five", "> now", ">"]


@pytest.mark.parametrize("is_entered", [True, False])
def test_line_that_was_held_back_for_what_was_typed_comes_when_that_has_gone(seen: Seen, is_entered: bool) -> None:
    seen.screen.typed("x")
    seen.screen.delta("1-1-1", offset=0, text="half a li")
    assert seen.rows == ["> x"]

    if is_entered:
        seen.enter("x")
    else:
        seen.screen.typed("")
    seen.screen.delta("1-1-1", offset=9, text="ne")
    assert seen.rows == ["half a line"]

    seen.screen.event(reply("half a line"))
    assert seen.rows == ["half a line", *(["> x"] if is_entered else []), ""]


def test_lines_that_are_entered_while_a_reply_streams_stand_below_it_in_their_order(seen: Seen) -> None:
    seen.screen.delta("1-1-1", offset=0, text="one")
    seen.enter("first")
    seen.screen.delta("1-1-1", offset=3, text=" two")
    seen.enter("second")
    seen.screen.delta("1-1-1", offset=7, text=" three")
    seen.screen.typed("thi")
    seen.screen.event(reply("one two three"))

    assert seen.rows == ["one", " two", " three", "> first", "> second", "> thi"]


def test_lines_that_were_entered_are_not_lost_with_a_reply_that_never_ends(seen: Seen) -> None:
    seen.screen.delta("1-1-1", offset=0, text="one")
    seen.enter("first")
    seen.screen.close()

    assert seen.rows == ["one", "> first", ""]


def test_prompt_that_nobody_types_at_makes_room_for_a_reply(seen: Seen) -> None:
    seen.screen.prompt()
    seen.screen.delta("1-1-1", offset=0, text="Hel")
    seen.screen.typed("")
    assert seen.rows == ["Hel"]


@pytest.mark.parametrize("length", [7, 8, 9, 18, 19, 40])
def test_line_longer_than_the_terminal_is_taken_away_whole(length: int) -> None:
    seen = Seen(columns=10)
    seen.screen.prompt()
    for end in range(1, length + 1):
        seen.screen.typed("x" * end)
    seen.screen.note("note")

    typed = "> " + "x" * length
    assert seen.rows == ["(note)", *(typed[at : at + 10] for at in range(0, len(typed), 10))]


def test_what_was_typed_is_asked_for_again_after_a_stop(seen: Seen) -> None:
    seen.screen.prompt()
    seen.screen.typed("half")
    seen.screen.redraw()
    assert seen.rows == ["> half", "> half"]


def test_chat_that_ends_leaves_the_cursor_on_a_fresh_line(seen: Seen) -> None:
    seen.screen.prompt()
    seen.screen.interrupted()
    seen.screen.close()
    assert seen.rows == [">", ""]


def test_without_a_terminal_there_is_no_prompt(shown: Shown) -> None:
    shown.screen.prompt()
    shown.screen.said("you", "hello")

    assert shown.text == "you> hello\n"


def test_what_people_and_turns_begin_with_is_not_shown_twice(shown: Shown) -> None:
    message = MessageId("m1")
    shown.screen.event(MessageReceivedEvent(event=1, at_us=0, message_id=message, principal="ada", text="hello"))
    shown.screen.event(TurnStartedEvent(event=2, at_us=0, turn=1, messages=(message,)))
    shown.screen.event(TurnFinishedEvent(event=4, at_us=0, turn=1))

    assert shown.text == ""
