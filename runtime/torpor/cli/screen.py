"""What a conversation looks like in a plain terminal: events and deltas in, text out; knows no client and no terminal.

Text streams as it is written. Everything that is not the agent's words stands on a line of its own, in parentheses or
behind a dot. A reply whose deltas had a gap, or never came, is completed from its event. Nothing that was said reaches
the terminal as a control character, which it would obey. What a person types while a reply streams stays
whole below it.
"""

from collections.abc import Callable
from typing import Final, assert_never

from torpor.cli.faults import CUT_SHORT, IS_CUT, asked_again, one_line, remedy
from torpor.cli.happenings import in_words
from torpor.cli.line_editor import width
from torpor.cli.terminal import harmless
from torpor.records.events import (
    AnyEvent,
    CompactionFailedEvent,
    ContextChangedEvent,
    ContextReplacedEvent,
    ConversationArchivedEvent,
    ConversationForkedEvent,
    ConversationRenamedEvent,
    ConversationUnarchivedEvent,
    LiveContextFailedEvent,
    LiveContextReplacedEvent,
    MessageReceivedEvent,
    MessageRetractedEvent,
    ModelFailedEvent,
    ReplyFinishedEvent,
    SkillLoadedEvent,
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
from torpor.records.terms import Outcome

OUTCOMES: Final = {
    Outcome.SUCCEEDED: "done",
    Outcome.FAILED: "failed",
    Outcome.DENIED: "denied",
    Outcome.NEVER_STARTED: "never started",
    Outcome.INTERRUPTED: "interrupted",
    Outcome.UNKNOWN: "outcome unknown",
}
_WORK_ENDED: Final = {
    "": "answered",
    "steps": "used up its steps",
    "tokens": "used up its tokens",
    "seconds": "used up its time",
    "context_too_long": "ran out of its window",
    "output_limit": "had its reply cut off",
    "cancelled": "was cancelled",
    "lost": "was lost",
}
_CUT_BY: Final = {"client": "cancelled", "operator": "cancelled by an operator", "interrupt": "cut by a new message"}


_COLUMNS: Final = 80


def _ended_by(event: SubagentFinishedEvent) -> str:
    """How the work of a sub-agent ended, in a few words."""
    steps = f"{event.rounds} step{'' if event.rounds == 1 else 's'}"
    found = f", {event.findings} finding{'' if event.findings == 1 else 's'}" if event.bundle else ""
    return f"{_WORK_ENDED.get(event.code, event.code)} after {steps}{found}"


class Screen:
    """See the module docstring. ``write`` takes text and shows it at once."""

    def __init__(
        self, write: Callable[[str], None], *, prompt: str, columns: Callable[[], int] = lambda: _COLUMNS
    ) -> None:
        """Args: prompt: empty where nobody types.  columns: how wide the terminal is now."""
        self._write = write
        self._prompt = prompt
        self._columns = columns
        self._call = ""
        self._shown = ""
        """Of the reply being written, as far as it stands on the screen."""
        self._has_spoken = False
        """Whether the agent has said something in this turn."""
        self._at_line_start = True
        self._at_prompt = False
        """Whether the prompt, and what is typed behind it, is what stands there last."""
        self._typed = ""
        self._entered: list[str] = []
        """Lines that were ended in the middle of a reply, which they would cut in two."""
        self._held = ""
        """The line that a reply has begun, while something typed stands where it would go."""

    def prompt(self) -> None:
        """Ask for the next line, unless that is what stands there last."""
        if self._prompt and not self._at_prompt:
            self._draw()
        elif not self._prompt:
            self._fresh_line()

    def typed(self, text: str) -> None:
        """The line that is being typed; what comes meanwhile is shown above it, line by line."""
        if text == self._typed and (self._at_prompt or not text):
            return
        is_there = self._at_prompt
        if is_there:
            self._erase()
        self._typed = text
        if not text and self._held:
            self._release()
        elif is_there:
            self._show_prompt()
        else:
            self._draw()

    def entered(self) -> None:
        """The person has ended the line, which stands on the screen; of one in mid-reply, when that has ended."""
        if self._at_prompt:
            if self._shown:
                self._entered.append(self._prompt + self._typed)
                self._erase()
            else:
                self._write("\n")
            self._typed = ""
            self._at_line_start, self._at_prompt = True, False
            self._release()

    def interrupted(self) -> None:
        """The person has pressed Ctrl-C."""
        if self._at_prompt:
            self._write("\n")
            self._at_line_start, self._at_prompt = True, False
            self._release()

    def redraw(self) -> None:
        """Something else has used the terminal meanwhile."""
        if self._at_prompt:
            self._write("\n")
            self._at_line_start, self._at_prompt = True, False
            self._draw()

    def close(self) -> None:
        """Nothing more comes."""
        self.interrupted()
        self._fresh_line()
        self._show_entered()

    def note(self, text: str) -> None:
        """Something about the conversation that nobody said."""
        self._line(f"({text})")

    def said(self, who: str, text: str) -> None:
        """What a person said, where the terminal did not show it."""
        self._line(f"{who}> {text}")

    def delta(self, call: str, *, offset: int, text: str) -> None:
        """The next piece of ``call``; what stands there already is not repeated, what would leave a hole is skipped."""
        if call != self._call:
            if self._shown:
                self.note("the reply begins again")
            self._call, self._shown = call, ""
        if offset <= len(self._shown):
            self._stream(text[len(self._shown) - offset :])

    def progress(self, name: str, text: str) -> None:
        """What a running tool says of itself."""
        self._line(f"  · {name}: {text}")

    def event(self, event: AnyEvent) -> None:
        """Show what happened; what a person said is shown by ``said``."""
        match event:
            case MessageReceivedEvent() | ContextChangedEvent() | LiveContextReplacedEvent():
                pass
            case TurnStartedEvent():
                self._has_spoken = False
            case (
                MessageRetractedEvent()
                | ConversationRenamedEvent()
                | ConversationArchivedEvent()
                | ConversationUnarchivedEvent()
                | ConversationForkedEvent()
                | ContextReplacedEvent()
                | CompactionFailedEvent()
                | LiveContextFailedEvent()
            ):
                self.note(in_words(event))
            case SkillLoadedEvent():
                self._line(f"  · skill {event.skill}")
            case SubagentStartedEvent():
                self._line(f"  · {event.name} at work")
            case SubagentFinishedEvent():
                self._line(f"  · {event.name} {_ended_by(event)}")
            case ReplyFinishedEvent():
                self._complete(event.text, call=event.call)
                if event.stop_reason in CUT_SHORT and not event.tool_calls:
                    self.note(IS_CUT)
            case ToolStartedEvent():
                self._line(f"  · {event.name} ({event.effect.value})")
            case ToolFinishedEvent():
                self._line(f"  · {event.name}: {OUTCOMES[event.outcome]}")
            case ToolLateEvent():
                self._line(f"  · {event.name} of turn {event.of_turn}, after all: {OUTCOMES[event.outcome]}")
            case TurnFinishedEvent():
                self._fresh_line()
            case TurnCancelledEvent():
                self._complete(event.text, call=self._call)
                self.note(_CUT_BY.get(event.reason, f"cancelled, {event.reason}"))
            case TurnFailedEvent():
                self._complete(event.text, call=self._call)
                self.note(f"failed, {event.code}: {one_line(event.detail)}")
                if told := remedy(event.code, program="torpor"):
                    self.note(told)
                if event.offers:
                    self.note(f"type {' or '.join(f'/{offer}' for offer in event.offers)} to go on from here")
            case TurnRefusedEvent():
                self._withdraw(event.detail)
            case ModelFailedEvent():
                if told := asked_again(event):
                    self.note(told)
            case _:
                assert_never(event)

    def _withdraw(self, why: str) -> None:
        """What stands on a terminal, or has left through a pipe, cannot be taken back; so it is said that it counts no
        more."""
        self._call, self._shown = "", ""
        withdrawn = "what it said above is withdrawn, and " if self._has_spoken else ""
        self.note(f"{why}; {withdrawn}the message was taken out of the conversation")
        self._show_entered()

    def _complete(self, text: str, *, call: str) -> None:
        """Bring the reply on the screen to its end; ``text`` is all of it."""
        if call == self._call and text.startswith(self._shown):
            self._stream(text[len(self._shown) :])
        elif text:
            self._fresh_line()
            self._stream(text)
        self._call, self._shown = "", ""
        self._fresh_line()
        self._show_entered()

    def _show_entered(self) -> None:
        entered, self._entered = self._entered, []
        for line in entered:
            self._line(line)

    def _stream(self, text: str) -> None:
        if not text:
            return
        if not self._shown:
            self._fresh_line()
        self._put(harmless(text))
        self._shown += text
        self._has_spoken = True

    def _line(self, text: str) -> None:
        self._fresh_line()
        self._put(harmless(text) + "\n")

    def _fresh_line(self) -> None:
        if not self._at_line_start:
            self._put("\n")

    def _put(self, text: str) -> None:
        """Write ``text`` where the last one ended; above what is being typed, once a line of it is whole."""
        self._at_line_start = text.endswith("\n")
        if self._at_prompt and not self._typed:
            self._erase()
        if not self._at_prompt:
            self._write(text)
            return
        whole, newline, self._held = (self._held + text).rpartition("\n")
        if newline:
            self._erase()
            self._write(whole + newline)
            self._show_prompt()

    def _release(self) -> None:
        held, self._held = self._held, ""
        if held:
            self._write(held)
            self._at_line_start = False

    def _draw(self) -> None:
        self._fresh_line()
        self._show_prompt()

    def _show_prompt(self) -> None:
        self._write(self._prompt + self._typed)
        self._at_prompt = True

    def _erase(self) -> None:
        """Take the prompt away, however many rows it fills; the cursor stands at its end."""
        rows = max(0, width(self._prompt + self._typed) - 1) // max(1, self._columns())
        self._write("\r" + (f"\x1b[{rows}A" if rows else "") + "\x1b[J")
        self._at_prompt = False
