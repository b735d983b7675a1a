"""What a run leaves behind for its judges: plain values, noted by the ports at the moment things happen.

A *moment* is an integer that grows with everything noted, so that "before" and "after" are exact; seconds are virtual.
A *life* is one run of one process, from its start to its crash or stop. ``conversation`` is the bare id.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = dict[str, Any]


class Row(NamedTuple):
    """One batch as it lies in the store."""

    first_seq: int
    last_seq: int
    last_event: int
    records: bytes
    """A JSON array."""


@dataclass(slots=True, kw_only=True)
class Journal:
    """One conversation as the store holds it at the end."""

    conversation: str
    rows: list[Row]
    is_due: bool
    quarantine: str
    receipts: dict[str, Json]
    """The index of accepted messages."""
    title: str | None = None
    """As lists show it; None where that was not looked at."""
    is_archived: bool = False
    epoch: int = 1
    """Of its events."""


@dataclass(slots=True, kw_only=True)
class Commit:
    """An append that became durable."""

    moment: int
    life: str
    conversation: str
    fence: int
    first_seq: int
    last_seq: int
    is_due: bool | None
    """None where more follows in the same write."""
    bytes_per_token: Mapping[str, float] = field(default_factory=dict)
    """By model, the agent's own without a name, as the process had learnt by then; with it ends what it learnt."""


@dataclass(slots=True, kw_only=True)
class Gone:
    """A conversation was taken away, durably."""

    moment: int
    life: str
    journal: Journal
    """What there was of it."""
    left: list[str]
    """What there still was behind that."""
    below: list[Journal] = field(default_factory=list)
    """Of its sub-agents and theirs, as they were."""


@dataclass(slots=True, kw_only=True)
class SnapshotPut:
    """A snapshot that the store took."""

    moment: int
    life: str
    conversation: str
    fence: int
    seq: int


@dataclass(slots=True, kw_only=True)
class Grant:
    """A lease that was given."""

    moment: int
    life: str
    conversation: str
    fence: int


@dataclass(slots=True, kw_only=True)
class RenewedInVain:
    """A lease that was not extended, since a newer one had been granted or it had been given back."""

    moment: int
    """When it was asked for."""
    life: str
    conversation: str
    fence: int


@dataclass(slots=True, kw_only=True)
class Released:
    """A lease that was given back while it was still held."""

    moment: int
    life: str
    conversation: str
    fence: int


@dataclass(slots=True, kw_only=True)
class Published:
    """A record on the bus."""

    moment: int
    life: str
    conversation: str
    record: Json


@dataclass(slots=True, kw_only=True)
class Delta:
    """A piece of a reply on the bus."""

    moment: int
    life: str
    conversation: str
    call: str
    offset: int
    text: str


@dataclass(slots=True, kw_only=True)
class ModelCall:
    """A request that reached the model."""

    moment: int
    life: str
    conversation: str
    call: str
    link: str
    body: bytes
    """Canonical JSON, as it would be sent."""
    is_holder: bool
    """Whether the asking life held the conversation's lease at that moment."""
    ended: int = 0
    """When it was answered; 0 when it never was."""
    blocks: list[Json] | None = None
    """The answer's, when it was a reply."""
    stop_reason: str = ""
    """Likewise."""
    attached: Mapping[str, str] = field(default_factory=dict)
    """Digests of the bytes that came for files, by the name of each."""


@dataclass(slots=True, kw_only=True)
class Spoilt:
    """The disk lost the bytes of a file, or has other ones now."""

    moment: int
    blob: str
    what: str
    """``gone`` or ``damaged``."""


@dataclass(slots=True, kw_only=True)
class SideCall:
    """A question to a model that works beside the conversation."""

    moment: int
    life: str
    conversation: str
    """Empty where the question does not tell it."""
    purpose: str
    """``summary`` or ``live``."""
    call: str
    question: str
    ended: int = 0
    """When it was answered; 0 when it never was."""
    answer: str = ""


@dataclass(slots=True, kw_only=True)
class JobLeft:
    """A job that the store still holds at the end."""

    conversation: str
    id: str
    is_dead: bool


@dataclass(slots=True, kw_only=True)
class Window:
    """What requests were allowed to take, in tokens; a token is four bytes here."""

    threshold_tokens: int
    """Above it older turns are to be folded."""
    limit_tokens: int
    """Above it no request is to be sent."""
    free_tokens: int
    """Below the limit, beside the largest fixed parts."""
    has_summariser: bool
    failures_max: int
    """Of the summariser in a row, after which it is left alone for a while."""


@dataclass(slots=True, kw_only=True)
class LiveRules:
    """When a live context was to be made anew."""

    first_messages: int
    every_messages: int
    retry_messages: int
    read_messages: int
    words_max: int


@dataclass(slots=True, kw_only=True)
class ChildRules:
    """What sub-agents were allowed."""

    steps_max: int
    tokens_max: int
    turn_tokens_max: int
    """Of all that work for one turn; 0 for no limit, like ``tokens_max``."""
    depth_max: int
    selected_max: int
    results: Mapping[str, str]
    """The type of what each owes, by its name: ``text`` or ``research``."""


@dataclass(slots=True, kw_only=True)
class ToolStep:
    """A line of the tools' own ledger."""

    moment: int
    life: str
    conversation: str
    turn: int
    call_id: str
    tool: str
    key: str
    what: str
    """``started``, ``effect``, ``returned`` (to the engine), ``probed``; in ``text`` an id that is ``finding`` its way
    to a collector or ``found`` it, or ids that are ``selecting``."""
    is_holder: bool
    outcome: str = ""
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Switched:
    """A flag was flipped, for everybody."""

    moment: int
    key: str
    """``tool.pay``, ``skill.refunds``."""
    is_on: bool


@dataclass(slots=True, kw_only=True)
class Shelved:
    """A skill was put in place of what was there."""

    moment: int
    skill: str
    digest: str
    """Of its text; empty when it is gone."""


@dataclass(slots=True, kw_only=True)
class Command:
    """What a client asked of a process, and what it heard."""

    moment: int
    life: str
    conversation: str
    kind: str
    """``send``, ``context``, ``refresh``, ``rename``, ``archive``, ``delete``, ``fork``, ``cancel``, ``hibernate`` or
    ``wake``."""
    message_id: str = ""
    text: str = ""
    """Of a message; the new title; ``archived`` or ``shown``; the fork."""
    files: list[str] = field(default_factory=list)
    """Of a message: names of their bytes."""
    posted_s: float = 0.0
    allowed_s: float = 0.0
    """How long the answer may take; pauses of the process come on top."""
    answered: int = 0
    """Moment of the answer; 0 when the connection was lost before one came."""
    waited_s: float = 0.0
    """Until the answer, or until the connection was lost."""
    is_lost: bool = False
    """The process ended before it answered."""
    error: str = ""
    """Code of the error it was answered with."""
    value: Any = None
    paused_s: float = 0.0
    """How long the process stood still meanwhile."""


@dataclass(slots=True, kw_only=True)
class Watch:
    """What one client saw of one conversation, between two reloads."""

    client: str
    conversation: str
    start: int
    """Number of the last event before the first that it saw."""
    seen: list[tuple[int, Json]] = field(default_factory=list)
    """Moment and event, in the order seen."""
    is_last: bool = False
    """It went on to the end of the run."""
    epoch: int = 0
    """Of what it saw; 0 as long as there was nothing."""


@dataclass(slots=True)
class Evidence:
    """Everything noted in one run."""

    commits: list[Commit] = field(default_factory=list)
    snapshots: list[SnapshotPut] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    renewed_in_vain: list[RenewedInVain] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    model_calls: list[ModelCall] = field(default_factory=list)
    side_calls: list[SideCall] = field(default_factory=list)
    jobs_left: list[JobLeft] = field(default_factory=list)
    tool_steps: list[ToolStep] = field(default_factory=list)
    switched: list[Switched] = field(default_factory=list)
    shelved: list[Shelved] = field(default_factory=list)
    spoilt: list[Spoilt] = field(default_factory=list)
    files_max: int = 0
    """In one request."""
    commands: list[Command] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)
    journals: list[Journal] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    blobs: frozenset[str] = frozenset()
    """That can be read at the end."""
    has_leases: bool = True
    """Whether every grant carries a fence of its own; without, a fence is that of the process's start."""
    attempts_max: int = 3
    retries_max: int = 6
    rounds_max: int = 25
    """Model calls of one turn, repeats not counted."""
    queue_max: int = 32
    """Messages that may wait."""
    window: Window | None = None
    """None where the window of the agent's model is large."""
    children: ChildRules | None = None
    """None where there are no sub-agents."""
    live: LiveRules | None = None
    """None for an agent without live contexts."""
    is_restricted: bool = False
    """Whether what a loaded skill says of tools binds the agent."""
    unanswered: list[str] = field(default_factory=list)
    """What the clients never got an answer to, although they asked until the end."""


class Violation(NamedTuple):
    """One broken promise."""

    kind: str
    """Stable, for those who look for a certain one."""
    where: str
    """Conversation and number."""
    fact: str

    def __str__(self) -> str:
        return f"{self.kind} [{self.where}] {self.fact}"
