"""Every error the engine raises, grouped by who must act on it.

    TorporError
    ├─ ClientError      the client: a frame, an id or a moment that cannot be served
    ├─ ToolError        the model: becomes the error result of one tool call
    ├─ ProviderError    the turn loop: what a model host answered instead of a reply; see ``provider_errors``
    ├─ JobError         the runner of jobs: whether to try again
    ├─ StoreError       the actor: whether what it wrote is durable, and whether it may go on
    ├─ ConfigError      the operator, at start only
    └─ InvariantBroken  us: never caught, ends the actor, says whose bug it is

``code`` is what clients, logs and metrics see, and stable; the text is for people; ``retry`` tells whether to repeat.
"""

from enum import Enum
from typing import ClassVar


class Retry(Enum):
    """What repeating the failed action may do."""

    NEVER = "never"
    """The same request fails again."""
    SAFE = "safe"
    """Nothing happened; the same request may succeed later."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """It may have happened; find out before repeating."""


class TorporError(Exception):
    """Root of the tree; see above."""

    code: ClassVar[str] = "internal"
    retry: ClassVar[Retry] = Retry.NEVER


class ClientError(TorporError):
    """Answered to the client as ``error{code, message, retry_after_s?}``; mostly the connection goes on."""

    retry_after_s: float | None = None


class BadFrame(ClientError):
    """The frame is not JSON, not of a known type, or does not fit its schema."""

    code = "bad_frame"


class TooLong(ClientError):
    """What the frame carries is longer than the server takes."""

    code = "too_long"

    def __init__(self, what: str, *, size_bytes: int, max_bytes: int, bound: str) -> None:
        """Args: bound: the option that says so."""
        super().__init__(f"{what} has {size_bytes} bytes, expected at most {max_bytes}, see {bound}")


class TooManySubscriptions(ClientError):
    """The connection watches as many conversations as it may."""

    code = "too_many_subscriptions"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"too many conversations to watch, expected at most {most}; unsubscribe from one, "
            "see gateway.subscriptions_max"
        )


class TooManyConnections(ClientError):
    """The person has as many connections as they may; the new one is closed."""

    code = "too_many_connections"
    retry = Retry.SAFE

    def __init__(self, connections: int, *, retry_after_s: float) -> None:
        super().__init__(
            f"this principal has {connections} connections, which is the most; close one of them, "
            "see gateway.connections_per_principal_max"
        )
        self.retry_after_s = retry_after_s


class TooManyFrames(ClientError):
    """Frames came faster than the server takes them from one person; this one was not looked at."""

    code = "too_many_frames"
    retry = Retry.SAFE

    def __init__(self, *, rate: float, retry_after_s: float) -> None:
        super().__init__(
            f"frames come too fast, expected at most {rate:g} a second over all connections, see gateway.frames_per_s"
        )
        self.retry_after_s = retry_after_s


class EmptyMessage(ClientError):
    """The message holds nothing but blanks and invisible characters."""

    code = "empty_message"

    def __init__(self) -> None:
        super().__init__("message has no visible text, expected at least one visible character")


class Unauthenticated(ClientError):
    """No token, or one that is malformed, foreign or expired."""

    code = "unauthenticated"


class TokenExpired(Unauthenticated):
    """The token was good and has ended; a newer one for the same person goes on where it stopped."""

    code = "token_expired"

    def __init__(self) -> None:
        super().__init__("token has expired, expected a newer one")


class KeysUnavailable(ClientError):
    """The token may be good: the keys that could tell cannot be had from its issuer now."""

    code = "keys_unavailable"
    retry = Retry.SAFE

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__(f"keys of the token's issuer cannot be had now, retry in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class NotPermitted(ClientError):
    """The principal is known but lacks the scope that the frame needs."""

    code = "not_permitted"

    def __init__(self, action: str, *, scope: str) -> None:
        super().__init__(f"{action} needs the scope {scope!r}, which the token does not carry")
        self.action = action
        self.scope = scope


class UnknownConversation(ClientError):
    """It does not exist, or is another owner's: the two are indistinguishable on purpose."""

    code = "unknown_conversation"

    def __init__(self, conversation: str, *, otherwise: str = "") -> None:
        """Args: otherwise: what may be the case instead, where the two are not told apart."""
        super().__init__(f"no conversation {conversation!r} here{otherwise and f', {otherwise}'}")
        self.conversation = conversation


class ConversationExists(ClientError):
    """Something else has the id: a conversation with another agent, or one that is not the fork that was asked for."""

    code = "conversation_exists"

    def __init__(self, conversation: str, *, agent: str = "", named: str = "") -> None:
        """Args: agent: it has this one.  named: and was asked for with that one."""
        differs = f"with agent {agent!r}, not {named!r}: name no agent, or" if agent else "and is another one,"
        super().__init__(f"conversation {conversation!r} is there {differs} choose another id")


class ConversationDeleted(ClientError):
    """It was there, and somebody who may has deleted it; from now on the id is as if it had never been used."""

    code = "conversation_deleted"

    def __init__(self, conversation: str) -> None:
        super().__init__(f"conversation {conversation!r} was deleted")


class TooManyConversations(ClientError):
    """The owner has as many as one may have; archived ones count."""

    code = "too_many_conversations"

    def __init__(self, *, limit: int) -> None:
        super().__init__(
            f"owner has {limit} conversations, which is the most one may have: delete one, "
            "see gateway.conversations_per_owner_max"
        )


class NotForkable(ClientError):
    """There is no place before that message at which another conversation could begin."""

    code = "not_forkable"


class NotRetractable(ClientError):
    """Only the last message can be taken back, once, and not while it is being answered."""

    code = "not_retractable"


class UnknownAgent(ClientError):
    """A conversation names an agent that the home no longer defines; its history stays readable."""

    code = "unknown_agent"

    def __init__(self, agent: str, *, known: tuple[str, ...]) -> None:
        super().__init__(f"no agent {agent!r} in this home, expected one of {', '.join(known) or 'none'}")
        self.agent = agent
        self.known = known


class Busy(ClientError):
    """A bound was reached; resending the same message id later is safe."""

    code = "busy"
    retry = Retry.SAFE

    def __init__(self, what: str, *, waiting: int, bound: str, retry_after_s: float, awake: int | None = None) -> None:
        """Args: bound: the key of the configuration that an operator may raise.  awake: conversations that have all the
        room, where that is what is full."""
        again = f"retry in {retry_after_s:g} s"
        has = f"{waiting} waiting" if awake is None else f"{awake} awake, {waiting} waiting"
        super().__init__(f"{what} is full ({has}), {again}; an operator may raise {bound}")
        self.what = what
        self.waiting = waiting
        self.retry_after_s = retry_after_s


class TooManyUpdates(ClientError):
    """The context was told too often since a turn began; nothing is selected until it is told after the next one."""

    code = "too_many_updates"
    retry = Retry.SAFE

    def __init__(self, *, updates_max: int) -> None:
        super().__init__(
            f"context changed more than {updates_max} times since the last turn began: it is empty now, "
            "see actor.context_updates_max"
        )


class TooManyChanges(ClientError):
    """The conversation was renamed, archived, listed again or refreshed by hand too often since a message came."""

    code = "too_many_changes"
    retry = Retry.SAFE


class Rejected(ClientError):
    """A turn is running and the sender asked for ``when_busy=reject``."""

    code = "rejected"

    def __init__(self, *, turn: int) -> None:
        super().__init__(f"turn {turn} is running and the message asked to be rejected when busy")
        self.turn = turn


class NotNow(ClientError):
    """A hibernate met a turn that did not end within its deadline."""

    code = "not_now"
    retry = Retry.SAFE

    def __init__(self, *, turn: int, deadline_s: float) -> None:
        super().__init__(f"turn {turn} is still running after {deadline_s:g} s, cancel it or retry later")
        self.turn = turn
        self.deadline_s = deadline_s


class NothingToCancel(ClientError):
    """No turn is running."""

    code = "nothing_to_cancel"

    def __init__(self) -> None:
        super().__init__("no turn is running in this conversation")


class NotOffered(ClientError):
    """A message takes up what the last turn does not offer, or not any more: doing it twice may pay twice."""

    code = "not_offered"

    def __init__(self, offer: str) -> None:
        super().__init__(f"the last turn does not offer {offer!r}, or it was taken up already: send a message instead")
        self.offer = offer


class Quarantined(ClientError):
    """The conversation's journal cannot be trusted; only an operator brings it back."""

    code = "quarantined"

    def __init__(self, conversation: str, *, reason: str) -> None:
        super().__init__(f"conversation {conversation!r} is quarantined ({reason}), an operator must release it")
        self.reason = reason


class Unavailable(ClientError):
    """The server cannot serve this now: draining, restarting the actor, or out of storage."""

    code = "unavailable"
    retry = Retry.SAFE

    def __init__(self, why: str, *, retry_after_s: float) -> None:
        super().__init__(f"{why}, retry in {retry_after_s:g} s")
        self.why = why
        self.retry_after_s = retry_after_s


class UnknownJob(ClientError):
    """It does not exist, or is done, or is another owner's."""

    code = "unknown_job"

    def __init__(self, job: str) -> None:
        super().__init__(f"no job {job!r} here")
        self.job = job


class JobIsRunning(ClientError):
    """A job that runs can be neither retried nor dropped; it ends within the deadline of its kind."""

    code = "job_running"
    retry = Retry.SAFE

    def __init__(self, job: str, *, retry_after_s: float) -> None:
        super().__init__(f"job {job!r} is running, retry in {retry_after_s:g} s")
        self.job = job
        self.retry_after_s = retry_after_s


class ToolError(TorporError):
    """Raised by a tool or its host; the model reads the text as the call's error result."""

    code = "tool_failed"


class ToolInputInvalid(ToolError):
    """The model's arguments do not fit the tool's schema."""

    code = "tool_input_invalid"


class ToolUnknown(ToolError):
    """The model named a tool that is not offered."""

    code = "tool_unknown"

    def __init__(self, name: str, *, known: tuple[str, ...]) -> None:
        super().__init__(f"no tool {name!r} is offered, expected one of {', '.join(known)}")
        self.name = name
        self.known = known


class ToolTimedOut(ToolError):
    """The tool's own deadline passed."""

    code = "tool_timed_out"
    retry = Retry.UNKNOWN_OUTCOME

    def __init__(self, name: str, *, deadline_s: float) -> None:
        super().__init__(f"tool {name!r} did not finish within {deadline_s:g} s")
        self.name = name
        self.deadline_s = deadline_s


class ToolRefused(ToolError):
    """Raised by a tool to deny a call; nothing was done."""

    code = "tool_refused"


class ToolFailed(ToolError):
    """Raised by a tool that tried and failed in a way the model should read about."""

    code = "tool_failed"


class SkillFileUnreadable(ToolError):
    """A file of a skill is not there, or is nothing that can be read to the model."""

    code = "skill_file_unreadable"

    def __init__(self, skill: str, *, path: str, why: str) -> None:
        super().__init__(f"file {path!r} of skill {skill!r} cannot be read: {why}")
        self.skill = skill
        self.path = path
        self.why = why


class JobError(TorporError):
    """Raised by what does a job; its text is kept with the job and read by operators."""

    code = "job_failed"


class JobFailed(JobError):
    """It did not work out this time."""

    retry = Retry.SAFE

    def __init__(self, why: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s
        """When to try again at the earliest; None for the usual pause."""


class JobImpossible(JobError):
    """It will never work out; the job is kept as a dead letter."""

    code = "job_impossible"


class StoreError(TorporError):
    """Root of what the stores raise."""

    code = "store_failed"


class Fenced(StoreError):
    """A newer fencing token exists: stop at once, write nothing."""

    code = "fenced"

    def __init__(self, key: str, *, fence: int, newer: int) -> None:
        super().__init__(f"conversation {key!r} is fenced by {newer}, this writer holds {fence}")
        self.key = key
        self.fence = fence
        self.newer = newer


class WrongSequence(StoreError):
    """The journal's head is not where the writer expected it; nothing was written."""

    code = "wrong_sequence"

    def __init__(self, key: str, *, expected_seq: int, head_seq: int) -> None:
        super().__init__(f"conversation {key!r} has its head at {head_seq}, expected {expected_seq}")
        self.key = key
        self.expected_seq = expected_seq
        self.head_seq = head_seq


class DuplicateMessage(StoreError):
    """A client message id of the batch is already in the index; nothing was written."""

    code = "duplicate_message"

    def __init__(self, key: str, *, message_id: str, receipt: bytes) -> None:
        super().__init__(f"message {message_id!r} of conversation {key!r} was accepted before")
        self.key = key
        self.message_id = message_id
        self.receipt = receipt


class JobLost(StoreError):
    """The job is gone, or was replaced, or is somebody else's by now; nothing was written."""

    code = "job_lost"

    def __init__(self, key: str, *, job: str) -> None:
        super().__init__(f"job {job!r} of conversation {key!r} is not held by this claim any more")
        self.key = key
        self.job = job


class LeaseHeld(StoreError):
    """Another supervisor holds the conversation."""

    code = "lease_held"
    retry = Retry.SAFE

    def __init__(self, key: str, *, holder: str, until_us: int) -> None:
        super().__init__(f"conversation {key!r} is leased to {holder!r} until {until_us} us")
        self.key = key
        self.holder = holder
        self.until_us = until_us


class StoreFull(StoreError):
    """The medium is full; all of the batch is refused and nothing was written."""

    code = "store_full"
    retry = Retry.SAFE


class StoreGone(StoreError):
    """What the store writes into was moved away, deleted or replaced; nothing was written, since it would be lost."""

    code = "store_gone"
    retry = Retry.SAFE


class StoreUnavailable(StoreError):
    """The write may or may not have happened: re-read the head and compare the batch id."""

    code = "store_unavailable"
    retry = Retry.UNKNOWN_OUTCOME


class JournalCorrupt(StoreError):
    """Records that cannot be read, decoded or continued; the conversation is quarantined."""

    code = "journal_corrupt"

    def __init__(self, key: str, *, reason: str) -> None:
        super().__init__(f"journal of {key!r} cannot be continued: {reason}")
        self.key = key
        self.reason = reason


class StoreUnusable(StoreError):
    """The store as a whole cannot be opened: locked, corrupt, or of a newer schema."""

    code = "store_unusable"


class ConfigError(TorporError):
    """A value in the home or the environment is not usable; names file, key, what was found and what was expected."""

    code = "config_invalid"

    def __init__(self, where: str, *, key: str, found: object, expected: str) -> None:
        super().__init__(f"{where}: {key} is {found!r}, expected {expected}")
        self.where = where
        self.key = key
        self.found = found
        self.expected = expected


class InvariantBroken(TorporError):
    """A bug of ours; never caught."""

    code = "invariant_broken"


class IllegalTransition(InvariantBroken):
    """A state machine met a signal that its table does not list."""

    code = "illegal_transition"

    def __init__(self, state: Enum, signal: Enum) -> None:
        super().__init__(f"{signal.name} is not expected in state {state.name}")
        self.state = state
        self.signal = signal
