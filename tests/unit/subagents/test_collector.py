"""Findings go past the model through a bounded channel that ends when its last sending end is closed."""

from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from tests.support.tools import a_context, a_registry
from tests.unit.subagents.finding import a_finding
from torpor import ToolContext, tool
from torpor.errors import ToolFailed, ToolRefused
from torpor.records.terms import Outcome
from torpor.subagents.collector import Collector, Inlet, Sink
from torpor.toolhost.contract import FindingSink, Selection, ToolResult
from torpor.toolhost.declare import Tool

LONG_S = 60.0


def a_collector(*, capacity: int = 2, findings_max: int = 99, selected_max: int = 8) -> Collector:
    return Collector(capacity=capacity, findings_max=findings_max, selected_max=selected_max)


def ids(collector: Collector) -> list[str]:
    return [finding.id for finding in collector.findings.found]


async def test_what_tools_find_arrives_in_order_and_once() -> None:
    with anyio.fail_after(LONG_S), a_collector() as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            sink: FindingSink = collector.sink
            for id_ in ("c", "a", "c", "b"):
                await sink.found(a_finding(id_))
            findings = await collector.finish(deadline_s=LONG_S)

    assert findings is collector.findings
    assert ids(collector) == ["c", "a", "b"]
    assert findings.duplicates == 1


async def test_who_finds_too_fast_waits_until_there_is_room() -> None:
    handed: list[str] = []

    async def find(sink: Sink, *found: str) -> None:
        for id_ in found:
            await sink.found(a_finding(id_))
            handed.append(id_)

    with anyio.fail_after(LONG_S), a_collector(capacity=2) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(find, collector.sink, "a", "b", "c", "d")
            await anyio.wait_all_tasks_blocked()
            assert handed == ["a", "b"]
            assert "waiting=2/2" in repr(collector)

            tasks.start_soon(collector.drain)
            await anyio.wait_all_tasks_blocked()
            assert handed == ["a", "b", "c", "d"]
            await collector.finish(deadline_s=LONG_S)

    assert ids(collector) == ["a", "b", "c", "d"]


async def test_a_selection_is_judged_by_all_that_was_found_before_it() -> None:
    with anyio.fail_after(LONG_S), a_collector(capacity=9) as collector:
        async with anyio.create_task_group() as tasks:
            for id_ in ("a", "b"):
                await collector.sink.found(a_finding(id_))
            tasks.start_soon(collector.drain)
            selection = await collector.sink.select(["b", "x"])
            await collector.finish(deadline_s=LONG_S)

    assert selection == Selection(counted=("b",), unknown=("x",))
    assert [finding.id for finding in collector.findings.selected] == ["b"]


async def test_it_ends_only_when_the_last_clone_is_closed() -> None:
    async def find_later(sink: Sink, go: anyio.Event) -> None:
        with sink:
            await go.wait()
            await sink.found(a_finding("late"))

    with anyio.fail_after(LONG_S), a_collector() as collector:
        go, ended = anyio.Event(), anyio.Event()

        async def finish() -> None:
            await collector.finish(deadline_s=LONG_S)
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            tasks.start_soon(find_later, collector.sink.clone(), go)
            tasks.start_soon(finish)
            await anyio.wait_all_tasks_blocked()
            assert not ended.is_set()
            go.set()

    assert ids(collector) == ["late"]


async def test_a_clone_that_is_never_closed_is_not_waited_for() -> None:
    with anyio.fail_after(LONG_S), a_collector() as collector, collector.sink.clone() as left_open:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            await left_open.found(a_finding("a"))
            await collector.finish(deadline_s=0.01)

        with pytest.raises(ToolRefused, match="nothing is collected any more"):
            await left_open.found(a_finding("b"))
        with pytest.raises(ToolRefused, match="nothing is collected any more"):
            await left_open.select(["a"])
    assert ids(collector) == ["a"]


async def test_what_is_on_its_way_at_the_end_is_taken_though_nobody_drains() -> None:
    selections: list[Selection] = []

    async def select(sink: Sink) -> None:
        selections.append(await sink.select(["a"]))

    with anyio.fail_after(LONG_S), a_collector(capacity=1) as collector:
        async with anyio.create_task_group() as tasks:
            await collector.sink.found(a_finding("a"))
            with collector.sink.clone() as clone:
                tasks.start_soon(select, clone)  # waits, since there is room for one
                await anyio.wait_all_tasks_blocked()
                await collector.finish(deadline_s=0.01)

    assert ids(collector) == ["a"]
    assert selections == [Selection(counted=("a",))]


async def test_a_closed_end_takes_nothing_and_has_no_clones() -> None:
    with a_collector() as collector, collector.sink.clone() as other:
        collector.sink.close()
        with pytest.raises(ToolRefused):
            await collector.sink.found(a_finding("a"))
        with pytest.raises(ToolRefused):
            collector.sink.clone()
        await other.found(a_finding("b"))
    assert ids(collector) == ["b"]


async def test_an_id_that_cannot_be_selected_is_refused_and_goes_nowhere() -> None:
    with a_collector() as collector, pytest.raises(ToolFailed, match="expected 1 to 64 plain characters"):
        await collector.sink.found(a_finding(""))
    assert ids(collector) == []


async def test_a_tool_is_told_that_an_id_cannot_be_selected() -> None:
    @tool(effect="read")
    async def find(context: ToolContext) -> str:
        """Find."""
        assert context.collector is not None
        await context.collector.found(a_finding(""))
        return "found"

    with a_collector() as collector:
        result = await called_with(find, collector)

    assert result.outcome is Outcome.FAILED
    assert "a finding has the id '', expected 1 to 64 plain characters" in result.text
    assert ids(collector) == []


async def test_a_tool_that_cannot_wait_is_given_no_collector() -> None:
    @tool(effect="read")
    def find(context: ToolContext) -> str:
        """Find."""
        return str(context.collector)

    with a_collector() as collector:
        result = await called_with(find, collector)

    assert result.text == "None"


async def called_with(tool: Tool[..., Any], collector: Collector) -> ToolResult:
    context = msgspec.structs.replace(a_context(), collector=collector.sink)
    return await a_registry(tool).toolbox().call(tool.name, msgspec.Raw(b"{}"), context)


@pytest.mark.parametrize("ids", ["abc", [["x"]], ["a", 7], 7, None])
async def test_a_selection_of_anything_but_ids_is_refused_and_ends_nothing(ids: Any) -> None:
    with anyio.fail_after(LONG_S), a_collector() as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            await collector.sink.found(a_finding("a"))
            with pytest.raises(ToolFailed, match="expected a list of ids"):
                await collector.sink.select(ids)
            assert (await collector.sink.select(["a"])).counted == ("a",)
            await collector.finish(deadline_s=LONG_S)


async def test_a_tool_cannot_close_what_it_writes_into() -> None:
    with anyio.fail_after(LONG_S), a_collector() as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            inlet: FindingSink = Inlet(collector.sink)
            await inlet.found(a_finding("a"))
            assert (await inlet.select(["a", "b"])).unknown == ("b",)
            await collector.finish(deadline_s=LONG_S)
    assert not {"close", "clone", "__enter__", "__exit__"} & set(dir(inlet))


async def test_no_more_than_the_bound_are_kept_and_the_rest_is_counted() -> None:
    with anyio.fail_after(LONG_S), a_collector(findings_max=3) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            for number in range(10):
                await collector.sink.found(a_finding(f"f{number}"))
            findings = await collector.finish(deadline_s=LONG_S)

    assert ids(collector) == ["f0", "f1", "f2"]
    assert findings.left_out == 7


async def test_many_tools_at_once_lose_nothing() -> None:
    async def find(sink: Sink, tool: int) -> None:
        with sink:
            for number in range(20):
                await sink.found(a_finding(f"{tool}-{number}"))
                await checkpoint()

    with anyio.fail_after(LONG_S), a_collector(capacity=3, findings_max=1_000) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            for tool in range(8):
                tasks.start_soon(find, collector.sink.clone(), tool)
            await collector.finish(deadline_s=LONG_S)

    assert sorted(ids(collector)) == sorted(f"{tool}-{number}" for tool in range(8) for number in range(20))
    for tool in range(8):
        of_tool = [id_ for id_ in ids(collector) if id_.startswith(f"{tool}-")]
        assert of_tool == [f"{tool}-{number}" for number in range(20)]


async def test_cancelling_leaves_nothing_open() -> None:
    with anyio.fail_after(LONG_S), anyio.CancelScope() as scope, a_collector(capacity=1) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            await collector.sink.found(a_finding("a"))
            scope.cancel()
            await checkpoint()

    with pytest.raises(ToolRefused):
        await collector.sink.found(a_finding("b"))
    collector.close()
