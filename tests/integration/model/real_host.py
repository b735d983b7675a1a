"""An engine whose model is the real SDK, talking over a real socket to a fake API that reads strictly."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.support.doubles import FakeTool, Ledger, ManualClock, writes
from tests.support.engine import Engine, running_engine
from torpor.clock import Clock
from torpor.conversation.retry import RetryOptions
from torpor.conversation.steps import StepOptions
from torpor.model.anthropic_host import AnthropicHost
from torpor.model.anthropic_options import AnthropicOptions
from torpor.model.circuit import Circuit, CircuitOptions
from torpor.store.memory_data import MemoryData
from torpor.turn.options import TurnOptions
from torpor_fake_api.scripting.replies import Reply, ToolUse, says
from torpor_fake_api.scripting.script import Asked
from torpor_fake_api.server import FakeApi

KEY: Final = "sk-very-secret"
MODEL: Final = "claude-haiku-4-5"
TOOL_ROUND: Final = says("Let me look.", ToolUse("look", {"what": "the weather"}))
ANSWER: Final = says("It rains today.")
ORDINARY: Final = "an ordinary message"
SOON: Final = RetryOptions(retries_max=2, base_s=0.0, retry_after_max_s=0.02, fallback_after=2)


def host_of(
    api: FakeApi | str, *, clock: Clock | None = None, circuit: Circuit | None = None, **options: Any
) -> AnthropicHost:
    """The real adapter, impatient."""
    clock = clock or ManualClock()
    table = {"kind": "anthropic", "model": MODEL, "progress_deadline_s": 10.0, **options}
    base_url = api if isinstance(api, str) else api.url
    return AnthropicHost(
        AnthropicOptions(base_url=base_url, **table),
        key=KEY,
        circuit=circuit or Circuit(CircuitOptions(), clock=clock),
        clock=clock,
    )


def two_steps(asked: Asked) -> Reply:
    """A tool round, then an answer; an ordinary message is answered at once."""
    return ANSWER if asked.has_results or ORDINARY in asked.text else TOOL_ROUND


@asynccontextmanager
async def talking_to(
    api: FakeApi | str,
    *,
    data: MemoryData | None = None,
    ledger: Ledger | None = None,
    retry: RetryOptions = SOON,
    tools: Sequence[FakeTool] = (),
    host: AnthropicHost | None = None,
    steps: StepOptions | None = None,
    turn: TurnOptions | None = None,
    **options: Any,
) -> AsyncIterator[Engine]:
    """An engine that asks ``api``."""
    model = host or host_of(api, **options)
    await model.warm()
    table = {"kind": "anthropic", "model": MODEL, **options}
    try:
        async with running_engine(
            host=model,
            table=table,
            data=data,
            ledger=ledger,
            retry=retry,
            steps=steps,
            turn=turn,
            tools=(writes("pay"), *tools),
        ) as engine:
            yield engine
    finally:
        await model.aclose()


def refused(api: FakeApi) -> list[Any]:
    """What of the requests broke a rule."""
    return [violation for request in api.requests for violation in request.violations]
