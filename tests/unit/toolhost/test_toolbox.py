import re
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.tools import DictBlobs, a_context, a_registry, called
from torpor import NeverHappened, ToolContext, ToolFailed, ToolRefused, tool
from torpor.errors import StoreFull, StoreUnavailable
from torpor.records.ids import ConversationKey
from torpor.records.terms import Effect, Outcome
from torpor.toolhost.declare import Tool
from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES


@tool(effect="read")
async def greet(name: str = "Ada") -> str:
    """Greet."""
    return f"Good day, {name}"


@tool(effect="read", deadline_s=0.01)
async def read_for_ever() -> str:
    """Read."""
    await anyio.sleep_forever()
    return ""


@tool(deadline_s=0.01)
async def write_for_ever() -> str:
    """Write."""
    await anyio.sleep_forever()
    return ""


class Panic(BaseException):
    """What a compiled extension raises when it breaks."""


class Mute(ToolRefused):
    """Cannot be asked what it says."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raising(error: BaseException) -> Tool[..., Any]:
    @tool
    async def fail() -> str:
        """Fail."""
        raise error

    return fail


def returning(value: Any, **declared: Any) -> Tool[..., Any]:
    @tool(**declared)
    async def give() -> Any:
        """Give."""
        return value

    return give


async def test_a_call_returns_what_the_tool_said() -> None:
    result = await called(greet, {"name": "Grace"})
    assert (result.outcome, result.text, result.handle) == (Outcome.SUCCEEDED, "Good day, Grace", "")


def test_tools_are_offered_sorted_by_name_the_engines_among_them() -> None:
    box = a_registry(read_for_ever, greet, write_for_ever).toolbox()
    assert [spec.name for spec in box.specs()] == sorted(
        {"greet", "read_for_ever", "write_for_ever", *ENGINE_TOOL_NAMES}
    )


def test_an_allow_list_leaves_the_others_out_but_never_the_engines() -> None:
    registry = a_registry(read_for_ever, greet)
    assert [spec.name for spec in registry.toolbox(("greet", "gone")).specs()] == sorted({"greet", *ENGINE_TOOL_NAMES})
    assert [spec.name for spec in registry.toolbox(("gone",)).specs()] == sorted(ENGINE_TOOL_NAMES)
    assert registry.missing(("greet", "gone", "read_result")) == ("gone",)
    assert registry.names() == ("greet", "read_for_ever")


def test_a_spec_says_what_was_declared_or_what_the_options_say() -> None:
    box = a_registry(greet, write_for_ever, deadline_s=7).toolbox()
    spec = box.spec("write_for_ever")
    assert spec is not None
    assert (spec.effect, spec.deadline_s, spec.accepts_key, spec.has_probe) == (Effect.WRITE, 0.01, False, False)
    spec = box.spec("greet")
    assert spec is not None
    assert (spec.effect, spec.deadline_s) == (Effect.READ, 7)
    assert box.spec("gone") is None


async def test_an_unknown_name_fails_and_says_what_is_offered() -> None:
    box = a_registry(greet).toolbox()
    result = await box.call("great\ud800", msgspec.Raw(b"{}"), a_context())
    assert result.outcome is Outcome.FAILED
    known = ", ".join(sorted({"greet", *ENGINE_TOOL_NAMES}))
    assert result.text == f"no tool 'great\\ud800' is offered, expected one of {known}"


async def test_a_tool_off_the_allow_list_is_unknown() -> None:
    box = a_registry(greet, read_for_ever).toolbox(("greet",))
    result = await box.call("read_for_ever", msgspec.Raw(b"{}"), a_context())
    assert result.text.startswith("no tool 'read_for_ever' is offered")


@pytest.mark.parametrize("arguments", [[], "Ada", 7, {"name": 1}, {"nom": "Ada"}])
async def test_unusable_arguments_fail_and_nothing_is_run(arguments: object) -> None:
    runs: list[str] = []

    @tool
    async def note(name: str) -> str:
        """Note."""
        runs.append(name)
        return ""

    result = await called(note, msgspec.Raw(msgspec.json.encode(arguments)))
    assert result.outcome is Outcome.FAILED
    assert "arguments of 'note' do not fit its schema, nothing was run" in result.text
    assert runs == []


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (ValueError("no such day"), Outcome.FAILED, "tool 'fail' failed: ValueError: no such day"),
        (KeyError("day"), Outcome.FAILED, "tool 'fail' failed: KeyError: 'day'"),
        (TimeoutError(), Outcome.FAILED, "tool 'fail' failed: TimeoutError"),
        (RecursionError("too deep"), Outcome.FAILED, "tool 'fail' failed: RecursionError: too deep"),
        (SystemExit(2), Outcome.FAILED, "tool 'fail' failed: SystemExit: 2"),
        (KeyboardInterrupt(), Outcome.FAILED, "tool 'fail' failed: KeyboardInterrupt"),
        (GeneratorExit("gone"), Outcome.FAILED, "tool 'fail' failed: GeneratorExit: gone"),
        (Panic("rust"), Outcome.FAILED, "tool 'fail' failed: Panic: rust"),
        (BaseExceptionGroup("group", [Panic("rust")]), Outcome.FAILED, "tool 'fail' failed: Panic: rust"),
        (Mute("no"), Outcome.DENIED, "its message cannot be read"),
        (ToolFailed("the ledger is closed"), Outcome.FAILED, "the ledger is closed"),
        (ToolRefused("only her doctor may see this"), Outcome.DENIED, "only her doctor may see this"),
        (ToolRefused(""), Outcome.DENIED, "denied, without a word of explanation"),
        (ToolFailed(" \n"), Outcome.FAILED, "failed, without a word of explanation"),
        (ExceptionGroup("group", [ToolRefused("not yours")]), Outcome.DENIED, "not yours"),
        (ValueError("\ud800\0"), Outcome.FAILED, "tool 'fail' failed: ValueError: \ufffd\u2400"),
    ],
)
async def test_what_a_tool_raises_becomes_a_result(error: BaseException, outcome: Outcome, text: str) -> None:
    result = await called(raising(error))
    assert (result.outcome, result.text) == (outcome, text)


async def test_an_exception_that_cannot_be_printed_still_becomes_a_result() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    result = await called(raising(Mute()))
    assert result.text == "tool 'fail' failed: Mute: its message cannot be read"


async def test_a_read_past_its_deadline_has_failed() -> None:
    result = await called(read_for_ever)
    assert result.outcome is Outcome.FAILED
    expected = "tool 'read_for_ever' did not finish within 0.01 s; it only reads, so nothing was changed"
    assert result.text == expected


async def test_a_write_past_its_deadline_is_unknown() -> None:
    result = await called(write_for_ever)
    assert result.outcome is Outcome.UNKNOWN
    assert "it may or may not have taken effect" in result.text


async def test_a_write_that_answers_its_deadline_with_an_error_is_unknown() -> None:
    @tool(deadline_s=0.01)
    async def post() -> str:
        """Post."""
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise ConnectionError("cancelled") from None  # as some drivers do
        return ""

    assert (await called(post)).outcome is Outcome.UNKNOWN


async def test_a_write_that_gives_its_own_account_at_its_deadline_is_believed() -> None:
    @tool(deadline_s=0.01)
    async def post() -> str:
        """Post."""
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise ToolFailed("withdrawn in time") from None
        return ""

    result = await called(post)
    assert (result.outcome, result.text) == (Outcome.FAILED, "withdrawn in time")


async def test_a_timeout_of_the_tools_own_is_not_its_deadline() -> None:
    @tool
    async def post() -> str:
        """Post."""
        with anyio.fail_after(0.01):
            await anyio.sleep_forever()
        return ""

    result = await called(post)
    assert (result.outcome, result.text) == (Outcome.FAILED, "tool 'post' failed: TimeoutError")


async def test_cancelling_a_call_cancels_the_tool() -> None:
    begun, seen = anyio.Event(), []

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            seen.append("cancelled")
            raise
        return ""

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, wait)
            await begun.wait()
            tasks.cancel_scope.cancel()
    assert seen == ["cancelled"]


async def test_a_cancellation_that_nobody_asked_for_ends_the_tool_only(anyio_backend_name: str) -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        raise anyio.get_cancelled_exc_class()  # as an awaited future that somebody cancelled does

    result = await called(wait)
    assert result.outcome is Outcome.FAILED
    if anyio_backend_name == "asyncio":  # trio lets nobody raise it
        assert result.text == "tool 'wait' was cancelled from within"


async def test_results_are_cleaned_and_counted() -> None:
    result = await called(returning("a\0\ud800"))
    assert (result.text, result.cleaned) == ("a\u2400\ufffd", 2)


async def test_a_blank_success_is_empty_since_blank_text_may_be_refused() -> None:
    result = await called(returning(" \n\t"))
    assert (result.outcome, result.text) == (Outcome.SUCCEEDED, "")


async def test_a_result_without_a_json_form_has_failed_and_says_that_the_tool_ran() -> None:
    result = await called(returning(object()))
    assert result.outcome is Outcome.FAILED
    assert "it ran to its end, but its result of type object cannot be written as JSON" in result.text


async def test_a_long_result_keeps_head_and_tail_and_can_be_read_whole() -> None:
    whole = "".join(f"line {number} \U0001f600\n" for number in range(5000))
    blobs = DictBlobs()
    result = await called(returning(whole), blobs=blobs, result_cap_bytes=4096)
    assert len(result.text.encode()) <= 4096
    assert result.text.startswith("line 0 ")
    assert result.text.endswith("line 4999 \U0001f600\n")
    assert blobs.kept["clinic", "ada", result.handle].decode() == whole
    assert f'read_result with handle="{result.handle}"' in result.text
    assert await read_through(blobs, result.handle, result_cap_bytes=4096) == whole


async def read_through(blobs: DictBlobs, handle: str, **options: Any) -> str:
    """Read a kept result page by page, as the pages say."""
    box = a_registry(blobs=blobs, **options).toolbox()
    text, offset = "", 0
    while True:
        arguments = msgspec.Raw(msgspec.json.encode({"handle": handle, "offset": offset}))
        result = await box.call("read_result", arguments, a_context())
        assert result.outcome is Outcome.SUCCEEDED
        assert result.handle == ""
        header, _, part = result.text.partition("\n")
        text += part
        if header.endswith("the end]"):
            return text
        following = re.search(r"continue with offset=(\d+)", header)
        assert following is not None
        assert int(following[1]) > offset
        offset = int(following[1])


async def test_a_tools_own_cap_wins_over_the_options() -> None:
    assert (await called(returning("x" * 2000, result_cap_bytes=1024))).handle
    assert not (await called(returning("x" * 2000, result_cap_bytes=4096), result_cap_bytes=1024)).handle


async def test_a_long_error_is_shortened_like_any_result() -> None:
    result = await called(raising(ValueError("x" * 50_000)))
    assert result.outcome is Outcome.FAILED
    assert result.handle
    assert len(result.text.encode()) <= 16_384


async def test_a_result_that_cannot_be_kept_is_a_store_error() -> None:
    blobs = DictBlobs()
    blobs.failing = StoreFull("the disk is full")
    with pytest.raises(StoreFull):
        await called(returning("x" * 50_000), blobs=blobs)


async def test_a_result_that_is_not_kept_in_time_is_a_store_error() -> None:
    class Stuck(DictBlobs):
        async def put(self, key: ConversationKey, data: bytes) -> str:
            await anyio.sleep_forever()
            return ""

    with pytest.raises(StoreUnavailable, match="a tool result of 50000 bytes was not stored within"):
        await called(returning("x" * 50_000), blobs=Stuck(), blob_deadline_s=0.01)


async def test_progress_reaches_whoever_watches_cleaned_and_cut() -> None:
    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.report("half\0way")
        context.report("x" * 100)
        return context.idempotency_key

    heard: list[str] = []
    result = await called(work, context=a_context(report=heard.append), progress_cap_chars=10)
    assert heard == ["half\u2400way", "x" * 10]
    assert result.text == "key-1"


async def test_a_tool_acts_for_the_owner_it_is_called_for() -> None:
    @tool(effect="read")
    async def whose(context: ToolContext) -> list[str]:
        """Tell."""
        return [context.tenant, context.owner, context.conversation, context.principal]

    assert (await called(whose)).text == '["clinic","ada","c1","ada"]'


def probed_by(answer: Any) -> Tool[..., Any]:
    @tool
    async def pay(patient: str, amount: int = 1) -> str:
        """Pay."""
        return ""

    @pay.probe
    async def paid(amount: int, context: ToolContext) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer(amount, context.idempotency_key) if callable(answer) else answer

    return pay


async def probe(paying: Tool[..., Any], arguments: bytes = b'{"patient":"Ada","amount":3}') -> Any:
    return await a_registry(paying, deadline_s=0.01).toolbox().probe("pay", msgspec.Raw(arguments), a_context())


async def test_a_probe_finds_the_result_of_a_call_that_took_effect() -> None:
    result = await probe(probed_by(lambda amount, key: f"receipt for {amount} under {key}"))
    assert (result.outcome, result.text) == (Outcome.SUCCEEDED, "receipt for 3 under key-1")


async def test_a_probe_may_know_that_the_call_never_took_effect() -> None:
    result = await probe(probed_by(NeverHappened()))
    assert result.outcome is Outcome.NEVER_STARTED
    assert "never took effect" in result.text


@pytest.mark.parametrize("answer", [None, ValueError("closed"), ToolRefused("no"), SystemExit(1), Panic("rust")])
async def test_a_probe_that_cannot_tell_leaves_the_outcome_unknown(answer: Any) -> None:
    assert await probe(probed_by(answer)) is None


async def test_a_probe_past_its_deadline_leaves_the_outcome_unknown() -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        return ""

    @pay.probe
    async def paid() -> None:
        await anyio.sleep_forever()

    assert await probe(pay, b"{}") is None


async def test_a_probe_cannot_speak_of_arguments_that_no_longer_fit() -> None:
    assert await probe(probed_by("receipt"), b'{"payer":"Ada"}') is None


async def test_what_offers_no_probe_is_unknown() -> None:
    box = a_registry(greet).toolbox()
    assert await box.probe("greet", msgspec.Raw(b"{}"), a_context()) is None
    assert await box.probe("gone", msgspec.Raw(b"{}"), a_context()) is None


async def test_a_long_answer_of_a_probe_is_shortened_and_kept() -> None:
    result = await probe(probed_by("x" * 50_000))
    assert result.handle
    assert len(result.text.encode()) <= 16_384
