"""Events that are told in a line beside what is said: in words, for a terminal. Pure."""

from typing import Final, TypeAlias, assert_never

from torpor.records.events import (
    CompactionFailedEvent,
    ContextReplacedEvent,
    ConversationArchivedEvent,
    ConversationForkedEvent,
    ConversationRenamedEvent,
    ConversationUnarchivedEvent,
    LiveContextFailedEvent,
    MessageRetractedEvent,
)
from torpor.records.terms import FoldReason

Happening: TypeAlias = (
    MessageRetractedEvent
    | ConversationRenamedEvent
    | ConversationArchivedEvent
    | ConversationUnarchivedEvent
    | ConversationForkedEvent
    | ContextReplacedEvent
    | CompactionFailedEvent
    | LiveContextFailedEvent
)

_REPLACED: Final = {
    FoldReason.SUMMARY: "from here on the model reads earlier turns as a summary",
    FoldReason.MECHANICAL: "from here on the model reads of earlier turns how each began and ended",
    FoldReason.WITHDRAWN: "from here on the model reads a note in place of an attachment",
    FoldReason.SHORTENED: "from here on the model reads the beginning and end of long tool results",
    FoldReason.EVERYTHING: "from here on the model reads of all turns before this one how each began and ended",
}


def in_words(event: Happening) -> str:
    """One line."""
    match event:
        case MessageRetractedEvent():
            count = f"{len(event.messages)} messages were" if len(event.messages) > 1 else "the message was"
            what = ", with what came of it" if event.turn else " before it was answered"
            return f"{count} taken back{what}"
        case ConversationRenamedEvent():
            return f"the conversation is called {event.title!r} now" if event.title else "the title was taken away"
        case ConversationArchivedEvent():
            return "the conversation was archived; a message brings it back"
        case ConversationUnarchivedEvent():
            return "the conversation is listed again"
        case ConversationForkedEvent():
            return f"what came before was copied from {event.source!r}; from here on it is a conversation of its own"
        case ContextReplacedEvent():
            return _REPLACED[event.reason]
        case CompactionFailedEvent():
            return f"no summary could be made, {event.code}; going on without"
        case LiveContextFailedEvent():
            return f"the live context could not be made anew, {event.code}; the one before stays"
        case _:
            assert_never(event)
