"""Keeps the live context: orders a job when it is due, and does the job beside the conversation.

The order is a record, and its job goes with the same append. The job reads the latest messages from the journal, asks a
model for a few words, and tells the actor, which records them: used from the next turn on. Whatever goes wrong, the
one before stays, and the journal says so.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
import msgspec

from torpor.conversation.live_context import LiveContextOptions, NotLive, words_of
from torpor.conversation.publish import text_of
from torpor.conversation.state import ConversationState
from torpor.conversation.view import View
from torpor.errors import ClientError, JobFailed, JobImpossible, Retry, StoreError, TorporError
from torpor.model.contract import Model, ModelRequest
from torpor.provider_errors import ModelTimedOut, ProviderError
from torpor.records.blocks import text_block
from torpor.records.bounds import Count
from torpor.records.commands import Command, TellLiveContext
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    JournalRecord,
    LiveContextFailed,
    LiveContextOrdered,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    ModelReplied,
    TurnCancelled,
    TurnFailed,
)
from torpor.records.terms import LiveReason, Usage
from torpor.store.contract import Job, Store
from torpor.store.job_contract import StoredJob
from torpor.turn.places import FairPlaces
from torpor.turn.side_model import Unheard, finished_text, side_preamble

JOB_KIND: Final = "live_context"
JOB_ID: Final = "live"
"""Of every job of a conversation: a new order takes the place of the one before, whatever became of that."""
PAGE_RECORDS: Final = 200
DEADLINE_S: Final = 60.0
_ENOUGH: Final = frozenset({"end_turn", "stop_sequence", "max_tokens"})
MESSAGE_CHARS: Final = 1_000
"""Of one message, in what the model reads."""
DEFAULT_PROMPT: Final = """\
You are given the latest messages of a conversation between a user and an assistant. Say in 20 to 30 words how things
stand now: the user's mood, what happened, what they need, and what it is about. Plain words in one paragraph; no
names of your own making, no advice, no greeting."""


class LiveModelOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[live_context]`` of an agent's file; with it, the agent has one."""

    model: dict[str, Any] = {}
    """Like ``[model]``; empty for the agent's own."""
    prompt: str = DEFAULT_PROMPT
    """The system prompt of the model that makes it."""
    max_tokens: Count = 256
    """Of its answer."""


class LiveModel:
    """A model that is asked for live contexts; shared by an agent's conversations."""

    def __init__(self, options: LiveModelOptions, *, model: Model, name: str) -> None:
        self.model = model
        self.name = name
        self.preamble = side_preamble(name, prompt=options.prompt, max_tokens=options.max_tokens)


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    order: str = ""
    """As the journal names it; in older payloads it is the job's id."""
    agent: str
    after_seq: int
    """Where to begin reading."""
    to_seq: int
    messages: int
    begun_us: int = 0
    """When the conversation was begun; 0 in older payloads."""


def order_of(
    state: ConversationState, reason: LiveReason, *, agent: str, now_us: int
) -> tuple[LiveContextOrdered, Job]:
    """The order of a new live context, and the job that goes with it."""
    name = f"live-{state.live.orders + 1}"
    payload = _Payload(
        order=name,
        agent=agent,
        # The messages that the first of these turns answers were received a little before it began.
        after_seq=max(state.recent[0] - PAGE_RECORDS, 0) if state.recent else 0,
        to_seq=state.seq,
        messages=state.said,
        begun_us=state.created_us,
    )
    order = LiveContextOrdered(job=name, reason=reason, messages=state.said)
    return order, Job(id=JOB_ID, kind=JOB_KIND, due_us=now_us, payload=msgspec.Raw(msgspec.json.encode(payload)))


class _NothingSaid(NotLive):
    """What was said was taken back since."""


class LiveContextJobs:
    """Implements ``jobs.contract.JobHandler``."""

    def __init__(
        self,
        models: Mapping[str, LiveModel],
        *,
        store: Store,
        tell: Callable[[ConversationKey, Command], Awaitable[object]],
        places: FairPlaces,
        options: LiveContextOptions,
        attempts_max: int,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """
        Args:
            models: by agent.
            tell: delivers a command to the conversation's actor, which is woken for it.
            attempts_max: of a job; the last one that fails is told.
            deadline_s: for the model; less than an attempt may take, or the last one could not be told.
        """
        self._models = models
        self._store = store
        self._tell = tell
        self._places = places
        self._options = options
        self._attempts_max = attempts_max
        self._deadline_s = deadline_s

    async def run(self, job: StoredJob, *, attempt: int) -> None:
        """See the contract. Telling twice is telling once: the actor knows the order by its name. Of an order that was
        answered or replaced nothing is asked, nothing is told."""
        payload = _payload_of(job)
        model = self._models.get(payload.agent)
        if model is None:
            await self._told(job, _failed(payload, "no_model", f"agent {payload.agent!r} has none any more"))
            return
        try:
            if not await self._is_awaited(job.key, payload):
                return
            words, usage = await self._words(job, payload, model)
        except StoreError as exc:
            raise JobFailed(f"{exc.code}: {exc}") from exc
        except (ProviderError, NotLive) as exc:
            code = exc.code if isinstance(exc, TorporError) else "bad_live_context"
            may_pass = exc.retry is Retry.SAFE if isinstance(exc, ProviderError) else not isinstance(exc, _NothingSaid)
            if may_pass and attempt < self._attempts_max:
                raise JobFailed(f"{code}: {exc}") from exc
            await self._told(job, _failed(payload, code, str(exc)))
            raise JobImpossible(f"{code}: {exc}") from exc
        told = TellLiveContext(
            job=payload.order,
            begun_us=payload.begun_us,
            words=words,
            messages=payload.messages,
            usage=usage,
            model=model.name,
        )
        await self._told(job, told)

    async def given_up(self, job: StoredJob, why: str) -> None:
        """See the contract: the order is answered by a failure, so that the next one need not wait for it."""
        await self._told(job, _failed(_payload_of(job), "given_up", why))

    async def _is_awaited(self, key: ConversationKey, payload: _Payload) -> bool:
        """Whether the journal holds no answer to the order and none that replaces it. Raises: StoreError."""
        seq = payload.to_seq
        while records := await self._store.records_after(key, seq=seq, limit=PAGE_RECORDS):
            for record in records:
                if isinstance(record, LiveContextOrdered) and record.job != payload.order:
                    return False
                if isinstance(record, LiveContextReplaced | LiveContextFailed) and record.job == payload.order:
                    return False
            seq = records[-1].seq
        return True

    async def _told(self, job: StoredJob, told: TellLiveContext) -> None:
        """Raises: JobFailed: the actor cannot be reached now, or not here."""
        try:
            await self._tell(job.key, told)
        except TorporError as exc:
            wait_s = exc.retry_after_s if isinstance(exc, ClientError) else None
            raise JobFailed(f"{exc.code}: {exc}", retry_after_s=wait_s) from exc

    async def _words(self, job: StoredJob, payload: _Payload, model: LiveModel) -> tuple[str, Usage]:
        """Raises: ProviderError, NotLive, StoreError."""
        said = await self._messages(job.key, payload)
        if not said:
            raise _NothingSaid("there are no messages to make it from")
        view = View().extended("user", [text_block("\n".join(said))])
        request = ModelRequest(call=payload.order, preamble=model.preamble, view=view)
        with anyio.move_on_after(self._deadline_s) as limit:
            async with self._places.of(job.key):
                reply = await model.model.reply(request, Unheard())
        if limit.cancelled_caught:
            raise ModelTimedOut(f"no live context within {self._deadline_s:g} s")
        options = self._options
        return words_of(
            finished_text(reply, who="the model", enough=_ENOUGH, error=NotLive),
            words_max=options.words_max,
            chars_max=options.chars_max,
        ), reply.usage

    async def _messages(self, key: ConversationKey, payload: _Payload) -> Sequence[str]:
        """The latest ones, oldest first, each with who said it."""
        said: list[tuple[JournalRecord, str]] = []
        seq, retracted = payload.after_seq, Retracted()
        while seq < payload.to_seq:
            records = await self._store.records_after(key, seq=seq, limit=PAGE_RECORDS)
            if not records:
                break
            records = tuple(record for record in records if record.seq <= payload.to_seq)
            said.extend((record, line) for record in records if (line := _said(record)))
            retracted.see(records)
            seq = records[-1].seq if records else payload.to_seq
        lines = [line for record, line in said if record not in retracted]
        return lines[-self._options.read_messages :]


class Retracted:
    """Messages and turns that were taken back, by the records that say so."""

    def __init__(self) -> None:
        self._messages: set[str] = set()
        self._turns: set[int] = set()

    def see(self, records: Iterable[JournalRecord]) -> None:
        for record in records:
            if isinstance(record, MessageRetracted):
                self._messages.update(record.messages)
                self._turns.update({record.turn} - {0})

    def __contains__(self, record: JournalRecord) -> bool:
        if isinstance(record, MessageReceived):
            return record.message_id in self._messages
        return record.turn in self._turns


def _said(record: JournalRecord) -> str:
    match record:
        case MessageReceived():
            who, text = "user", text_of(record.blocks)
        case ModelReplied():
            who, text = "assistant", text_of(record.blocks)
        case TurnCancelled() | TurnFailed():
            who, text = "assistant", text_of(record.partial)
        case _:
            return ""
    line = " ".join(text.split())
    return f"{who}: {line[:MESSAGE_CHARS]}" if line else ""


def _payload_of(job: StoredJob) -> _Payload:
    payload = msgspec.json.decode(job.payload, type=_Payload)
    return payload if payload.order else msgspec.structs.replace(payload, order=job.id)


def _failed(payload: _Payload, code: str, detail: str) -> TellLiveContext:
    return TellLiveContext(
        job=payload.order,
        begun_us=payload.begun_us,
        words="",
        messages=payload.messages,
        code=code,
        detail=detail,
    )
