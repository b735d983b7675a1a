"""What an actor can be asked to do, and what it answers.

A command is a request; what became of it is in the journal. Answers are given only once the record they speak of is
durable.
"""

from enum import StrEnum

import msgspec

from torpor.records.attachments import Attachment
from torpor.records.context import WorkingContext
from torpor.records.ids import MessageId
from torpor.records.terms import Offer, Usage, WhenBusy


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Proof that a message is durable; a resend of the same id gets the first one again."""

    message_id: MessageId
    event: int
    """Number of its ``message.received`` event."""
    at_us: int
    position: int = 0
    """Messages that were ahead of it, the running turn's included."""


class CreateConversation(msgspec.Struct, frozen=True, kw_only=True):
    """Begin the conversation without a message. Answered by True once it is durable; one that is there with the same
    agent is left as it is."""

    agent: str = ""
    """Empty for the home's default agent."""
    title: str = ""
    """Has been cleaned."""


class RenameConversation(msgspec.Struct, frozen=True, kw_only=True):
    """Answered by True once it is durable."""

    principal: str
    title: str
    """Has been cleaned; empty for none."""


class ArchiveConversation(msgspec.Struct, frozen=True, kw_only=True):
    """Have lists leave it out, or show it again. Answered by True once it is durable."""

    principal: str
    is_archived: bool = True


class RetractMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Take a message back, with its turn. Answered by True once it is durable; one that was taken back lately stays
    so."""

    principal: str
    message_id: MessageId


class SendMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Answered by a ``Receipt``. ``text`` has been cleaned, and is not blank unless it resumes."""

    message_id: MessageId
    principal: str
    text: str
    cleaned: int = 0
    when_busy: WhenBusy = WhenBusy.QUEUE
    agent: str = ""
    """Only read when this message creates the conversation; empty for the home's default agent."""
    resume: Offer | None = None
    """Taken up of a turn that failed; what that means to the model stands before ``text``."""
    lookback: int = 0
    """Exchanges that are quoted to the model in the turn that this message begins."""
    attachments: tuple[Attachment, ...] = ()
    """Shown to the model before the text, which may be blank then."""


class TellContext(msgspec.Struct, frozen=True, kw_only=True):
    """Answered by the version of the context once it is durable."""

    principal: str
    context: WorkingContext
    agent: str = ""
    """Only read when this creates the conversation; empty for the home's default agent."""


class TellLiveContext(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a job that was to make the live context anew. Answered by True once it is durable; a job that is not
    the one that was ordered last is no news."""

    job: str
    begun_us: int = 0
    """When the conversation was begun that ordered it; 0 where nobody knows. Another one may have its id by now."""
    words: str
    """Empty when it failed; ``code`` and ``detail`` tell how."""
    messages: int
    usage: Usage = Usage()
    model: str = ""
    code: str = ""
    detail: str = ""


class Refreshed(StrEnum):
    """What came of asking for a new live context."""

    ORDERED = "ordered"
    OUTSTANDING = "outstanding"
    """One is being made already; it answers this too."""
    NOT_DUE = "not_due"
    NO_LIVE_CONTEXT = "no_live_context"
    """The agent has none, or the conversation does not exist."""
    SWITCHED_OFF = "switched_off"
    """By a flag."""
    NOTHING_SAID = "nothing_said"
    """There is no message that it could be made from."""


class RefreshLiveContext(msgspec.Struct, frozen=True, kw_only=True):
    """Make the live context anew: by hand, or because the conversation is opened, if it is old then. Answered by a
    ``Refreshed``."""

    is_opened: bool = False


class CancelTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Answered by the number of the turn that ended, once its end is durable."""

    principal: str
    reason: str = "client"


class Hibernate(msgspec.Struct, frozen=True, kw_only=True):
    """Answered by True once the actor has left, or ``NotNow`` after ``deadline_s`` of a running turn."""

    deadline_s: float = 0.0


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    """Thaw, and go on with whatever is due. Answered by True once the state is loaded."""


Command = (
    CreateConversation
    | RenameConversation
    | ArchiveConversation
    | RetractMessage
    | SendMessage
    | TellContext
    | TellLiveContext
    | RefreshLiveContext
    | CancelTurn
    | Hibernate
    | Wake
)
