"""Conversations of one seed in a window so small that compaction is everywhere.

Users write, steer, interrupt and cancel; models think, call tools side by side, refuse, pause, break off and fail;
tools return far too much; the summariser is good, lazy, broken or gone; the process is killed and goes on. All that is
kept is the journal and what the models were sent.
"""

import contextlib
import itertools
import json
import math
import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tests.support.doubles import (
    Crash,
    FakeTool,
    Ledger,
    ManualClock,
    Play,
    PlayedModel,
    fails,
    reads,
    replies,
    use,
    writes,
)
from tests.support.engine import Engine, running_engine
from torpor.conversation.budget import Profile
from torpor.conversation.retry import RetryOptions
from torpor.conversation.state import PAUSED
from torpor.conversation.steps import StepOptions
from torpor.conversation.summary import CompactionOptions
from torpor.conversation.view import request_body
from torpor.errors import NothingToCancel, ToolFailed, Unavailable
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import ContextTooLong, Overloaded, ProviderUnavailable, StreamLost
from torpor.records.blocks import Block, canonical, text_block
from torpor.records.journal import JournalRecord
from torpor.records.terms import Usage, WhenBusy
from torpor.store.memory_data import MemoryData
from torpor.supervisor.options import SupervisorOptions
from torpor.toolhost.contract import ToolContext

TINY: Final = Profile(budget_tokens=2_500, headroom_tokens=300)
LIMIT_TOKENS: Final = TINY.budget_tokens - TINY.headroom_tokens
COMPACTION: Final = CompactionOptions(deadline_s=2.0, result_bytes=300)
STEPS: Final = StepOptions(step_limit=6)
RETRY: Final = RetryOptions(retries_max=2, base_s=0.0, fallback_after=2)
PATIENT: Final = SupervisorOptions(
    sweep_s=0.01, restart_backoff_s=0.0, stop_deadline_s=0.0, restarts_max=1_000, crashes_max=1_000
)
"""Crashes on purpose are no reason to quarantine."""
_WORDS: Final = (
    "naïve ",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 ",
    'quo"ted\\ ',
    "], ",
    "plain words and ",
    "\n- ",
)


def words(rng: random.Random, size: int) -> str:
    """About so many characters."""
    text = ""
    while len(text) < size:
        text += rng.choice(_WORDS)
    return text


class Host(PlayedModel):
    """A model that does something at every call, and counts four bytes a token."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._numbers = itertools.count(1)

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        self.plays.append(self._play())
        reply = await super().reply(request, sink)
        size_bytes = len(request_body(request.preamble, request.view, live=request.live))
        said_bytes = sum(len(memoryview(block)) for block in reply.blocks)
        usage = Usage(input_tokens=math.ceil(size_bytes / 4), output_tokens=math.ceil(said_bytes / 4))
        return msgspec.structs.replace(reply, usage=usage)

    def _play(self) -> Play:
        rng = self._rng
        said = text_block(words(rng, rng.choice((10, 80, 400, 900))))
        thought = (self._thought(),) if rng.random() < 0.4 else ()
        match rng.randrange(20):
            case 0:
                return replies(stop_reason="refusal")
            case 1:
                return replies(*thought, said, stop_reason=PAUSED)
            case 2:
                return replies(said, stop_reason="max_tokens")
            case 3:
                return fails(Overloaded("busy"))
            case 4:
                return fails(StreamLost("cut"), said=("half a sent",))
            case 5:
                return fails(ContextTooLong("too long"))
            case 6 | 7 | 8 | 9 | 10 | 11:
                uses = (self._use() for _ in range(rng.choice((1, 1, 2, 3))))
                return replies(*thought, said, *uses, stop_reason="tool_use")
            case _:
                return replies(*thought, said)

    def _thought(self) -> Block:
        number = next(self._numbers)
        return canonical({"type": "thinking", "thinking": words(self._rng, 60), "signature": f"c2ln{number}=="})

    def _use(self) -> Block:
        name = self._rng.choice(("look", "look", "pay"))
        return use(name, f"toolu_{next(self._numbers)}", about=words(self._rng, 20))


class Summarising(PlayedModel):
    """Good, lazy, broken or gone."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        self.plays.append(self._play())
        return await super().reply(request, sink)

    def _play(self) -> Play:
        rng = self._rng
        match rng.randrange(12):
            case 0:
                return fails(ProviderUnavailable("down"))
            case 1:
                return replies(text_block(" "))
            case 2:
                return replies(text_block("x" * 9_000))
            case 3:
                return replies(use("look", "a"), stop_reason="tool_use")
            case 4:
                return fails(Crash())
            case 5 | 6:
                return replies(text_block("ok."))
            case _:
                return replies(text_block(self._summary()))

    def _summary(self) -> str:
        rng = self._rng
        kinds = ("correction", "denial", "question", "proposal")
        opened = [
            {"kind": rng.choice(kinds), "text": words(rng, 30), "turn": rng.randrange(1, 20)}
            for _ in range(rng.choice((0, 0, 1, 2)))
        ]
        closed = [{"id": f"i{rng.randrange(1, 6)}-1", "turn": rng.randrange(1, 30)}] if rng.random() < 0.3 else []
        return json.dumps({"facts": [words(rng, 40)], "entities": ["Ann"], "open": opened, "closed": closed})


class Life:
    """What became of one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.host = Host(self._rng)
        self.summariser = Summarising(self._rng)
        self._ledger = Ledger()
        self._clock = ManualClock()
        self.records: tuple[JournalRecord, ...] = ()
        self.lost: set[int] = set()
        """Requests that may have been under way before their record was durable when the process was killed."""

    async def live(self) -> None:
        data: MemoryData | None = None
        for _ in range(3):
            data = await self._until_killed(data)
        async with self._engine(data) as engine:
            await engine.wake()
            await engine.rested()
            await engine.insist("the end")
            await engine.rested()
            self.records = await engine.records()

    def _engine(self, data: MemoryData | None) -> Any:
        return running_engine(
            host=self.host,
            tools=self._tools(),
            data=data,
            ledger=self._ledger,
            clock=self._clock,
            steps=STEPS,
            retry=RETRY,
            options=PATIENT,
            table={"kind": "played", "fallback": "other"},
            profile=TINY,
            summariser=self.summariser,
            compaction=COMPACTION,
        )

    async def _until_killed(self, data: MemoryData | None) -> MemoryData:
        async with self._engine(data) as engine:
            for _ in range(self._rng.randrange(4, 9)):
                await self._act(engine)
            image: MemoryData = engine.store.image()
            last = len(self.host.requests) - 1
        self.lost.update(range(last, len(self.host.requests)))
        return image

    async def _act(self, engine: Engine) -> None:
        rng = self._rng
        text = words(rng, rng.choice((5, 60, 300, 900, 900, 4_000)))
        await engine.insist(text)
        match rng.randrange(8):
            case 0:
                engine.post(words(rng, 60), when_busy=WhenBusy.STEER)
            case 1:
                engine.post(words(rng, 60), when_busy=WhenBusy.INTERRUPT)
            case 2:
                await self._cancelled(engine)
            case 3:
                self._clock.advance(400)
            case 4:
                return
            case 5:
                await engine.rested()
                await engine.hibernate()
            case _:
                pass
        await engine.rested()

    @staticmethod
    async def _cancelled(engine: Engine) -> None:
        """Where there is still something to cancel, and the actor did not crash meanwhile."""
        with contextlib.suppress(NothingToCancel, Unavailable):
            await engine.cancel()

    def _tools(self) -> Iterator[FakeTool]:
        async def answer(arguments: dict[str, Any], context: ToolContext) -> str:
            if self._rng.random() < 0.1:
                raise ToolFailed(words(self._rng, self._rng.choice((9, 3_000))))
            return words(self._rng, self._rng.choice((0, 40, 300, 1_500, 6_000)))

        yield reads("look", answer)
        yield writes("pay", answer, accepts_key=True)
