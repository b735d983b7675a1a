"""The spans of known work, as an exporter gets them."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.integration.home.houses import Home, living
from tests.support.doubles import Gate, calls, fails, replies, use, waits
from torpor.provider_errors import RequestInvalid
from torpor.records.blocks import text_block

SECRET_WORDS = "the combination is 4711"
DONE = replies(text_block(f"Done, {SECRET_WORDS}."))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    # A client may read of an end before the actor hears that it is durable: give a stopping one the time for that.
    home.settings(retry={"retries_max": 0}, supervisor={"stop_deadline_s": 10.0})
    home.tools("file_it")
    return home


class Forest:
    """Spans that have ended, as trees."""

    def __init__(self, spans: tuple[ReadableSpan, ...]) -> None:
        self.spans = sorted(spans, key=lambda span: span.start_time or 0)

    def roots(self) -> list[ReadableSpan]:
        return [span for span in self.spans if span.parent is None]

    def below(self, span: ReadableSpan) -> list[ReadableSpan]:
        own = span.get_span_context()
        return [each for each in self.spans if each.parent is not None and own and each.parent.span_id == own.span_id]

    def tree(self, span: ReadableSpan) -> tuple[str, Any]:
        """Name and children, commits left out: how many there are is a matter of time."""
        return span.name, [self.tree(each) for each in self.below(span) if each.name != "commit"]

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def text(self) -> str:
        return "\n".join(str(span.to_json()) for span in self.spans)


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_turn_holds_its_steps_and_they_hold_calls_and_commits(home: Home) -> None:
    exporter = InMemorySpanExporter()
    async with living(home, calls(use("file_it", "a")), DONE, spans=exporter) as house:
        await house.ask("File it.")
        records = await house.records()
    forest = Forest(exporter.get_finished_spans())
    turn = forest.roots()[0]

    assert [span.name for span in forest.roots()] == ["invoke_agent clerk"]
    assert forest.tree(turn) == (
        "invoke_agent clerk",
        [
            ("prepare_turn", []),
            ("call_model", [("chat scripted", [])]),
            ("run_tools", [("execute_tool file_it", [])]),
            ("call_model", [("chat scripted", [])]),
            ("finish_turn", []),
        ],
    )
    assert {span.context.trace_id for span in forest.spans if span.context} == {
        turn.context.trace_id if turn.context else 0
    }
    assert sum(told(commit)["torpor.records"] for commit in forest.of("commit")) == len(records)
    assert all((span.end_time or 0) <= (turn.end_time or 0) for span in forest.spans)


async def test_turn_of_a_sub_agent_stands_below_the_call_that_it_works_for(home: Home) -> None:
    scout = 'name = "scout"\ndescription = "Looks."\nsystem = "You look."\n'
    (home.path / "config" / "subagents").mkdir()
    (home.path / "config" / "subagents" / "scout.toml").write_text(scout)
    home.agent(subagents=["scout"])
    exporter = InMemorySpanExporter()
    found = replies(text_block("It is there."))
    async with living(home, calls(use("scout", "a", task="Look.")), found, DONE, spans=exporter) as house:
        await house.ask("Where is it?")
    forest = Forest(exporter.get_finished_spans())

    assert [span.name for span in forest.roots()] == ["invoke_agent clerk"]
    assert forest.tree(forest.of("execute_tool scout")[0]) == (
        "execute_tool scout",
        [
            (
                "invoke_agent scout",
                [("prepare_turn", []), ("call_model", [("chat scripted", [])]), ("finish_turn", [])],
            )
        ],
    )
    assert told(forest.of("invoke_agent scout")[0])["torpor.turn.outcome"] == "finished"


async def test_spans_speak_the_conventions_for_generative_ai(home: Home) -> None:
    exporter = InMemorySpanExporter()
    async with living(home, calls(use("file_it", "a")), DONE, spans=exporter) as house:
        message = await house.say("File it.")
        await house.ended(message)
        replied = (await house.records("model_replied"))[-1]
    forest = Forest(exporter.get_finished_spans())
    turn, model, tool = forest.roots()[0], forest.of("chat scripted")[-1], forest.of("execute_tool file_it")[0]

    assert told(turn) | {"gen_ai.conversation.id": ""} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.agent.name": "clerk",
        "gen_ai.conversation.id": "",
        "torpor.turn": 1,
        "torpor.messages": (message,),
        "torpor.turn.outcome": "finished",
    }
    assert told(model) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
        "gen_ai.response.id": "",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": replied["usage"]["input_tokens"],
        "gen_ai.usage.output_tokens": replied["usage"]["output_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "torpor.call": "1-2-1",
    }
    assert [event.name for event in model.events] == ["torpor.first_delta"]
    assert told(tool)["torpor.tool.outcome"] == "succeeded"
    assert told(tool)["gen_ai.tool.name"] == "file_it"
    assert told(tool)["torpor.tool.effect"] == "write"


async def test_failure_is_told_by_its_code_alone(home: Home) -> None:
    exporter = InMemorySpanExporter()
    async with living(home, fails(RequestInvalid(SECRET_WORDS)), spans=exporter) as house:
        await house.ask("Fail.")
    forest = Forest(exporter.get_finished_spans())

    for name in ("invoke_agent clerk", "chat scripted"):
        span = forest.of(name)[0]
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None
        assert told(span)["error.type"] == "model_request_invalid"
        assert not span.events


async def test_cancel_ends_the_spans_it_met(home: Home) -> None:
    exporter, gate = InMemorySpanExporter(), Gate()
    async with living(home, waits(gate, DONE), spans=exporter) as house:
        message = await house.say("Wait.")
        with anyio.fail_after(10):
            await gate.reached.wait()
        await house.client.cancel("c1")
        await house.ended(message)
    forest = Forest(exporter.get_finished_spans())

    assert told(forest.of("chat scripted")[0])["error.type"] == "cancelled"
    assert told(forest.roots()[0])["torpor.turn.outcome"] == "cancelled"


async def test_no_span_holds_what_was_said_or_who_said_it(home: Home) -> None:
    exporter = InMemorySpanExporter()
    async with living(home, calls(use("file_it", "a", why=SECRET_WORDS)), DONE, spans=exporter) as house:
        await house.ask(f"File it, {SECRET_WORDS}.", conversation="ann_and_bob")
    text = Forest(exporter.get_finished_spans()).text()

    for word in (SECRET_WORDS, "File it", "ann_and_bob/", "developer", house.server.development_token):
        assert word not in text


@pytest.mark.parametrize(("how", "shown"), [("plain", "default/developer/c1"), ("left_out", None)])
async def test_name_of_a_conversation_is_as_it_was_configured(home: Home, how: str, shown: str | None) -> None:
    home.settings(tracing={"conversations": how})
    exporter = InMemorySpanExporter()
    async with living(home, DONE, spans=exporter) as house:
        await house.ask("Hello.")

    assert told(Forest(exporter.get_finished_spans()).roots()[0]).get("gen_ai.conversation.id") == shown


async def test_turn_that_a_restart_cut_in_two_has_a_span_in_each_life(home: Home) -> None:
    first, second, gate = InMemorySpanExporter(), InMemorySpanExporter(), Gate()
    home.settings(retry={"retries_max": 0}, supervisor={"stop_deadline_s": 0.0})
    async with living(home, waits(gate, DONE), spans=first) as house:
        await house.say("Wait.")
        with anyio.fail_after(10):
            await gate.reached.wait()
    home.settings(retry={"retries_max": 0}, supervisor={"stop_deadline_s": 10.0})
    async with living(home, DONE, spans=second) as house:
        await house.until_turn("c1", 1)

    cut, whole = Forest(first.get_finished_spans()).roots()[0], Forest(second.get_finished_spans()).roots()[0]
    assert told(cut)["error.type"] == "interrupted"
    assert told(whole)["torpor.turn.resumed"] is True
    assert told(whole)["torpor.turn.outcome"] == "finished"
    assert told(cut)["gen_ai.conversation.id"] == told(whole)["gen_ai.conversation.id"]
