"""Research: the tools fill the collector, the model sees little, and the parent is told of a few real sources."""

import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.tools import a_context, called
from tests.unit.subagents.finding import a_finding
from torpor.records.terms import Outcome
from torpor.subagents.collector import Collector
from torpor.subagents.evidence import EvidenceIndex, read_evidence
from torpor.subagents.findings import Findings
from torpor.subagents.research import REFLECTION_BYTES, SOURCES_MAX, TOLD_BYTES_MAX, Research, research_tools
from torpor.subagents.results import ResultType, Unacceptable
from torpor.toolhost.contract import Finding, FindingSink, ToolResult

EVIDENCE = EvidenceIndex(read_evidence(Path(__file__).parents[3]))
SEARCH, SELECT = research_tools(EVIDENCE)
RESEARCH: ResultType = Research()
UNKNOWN = "so it is not known whether there are sources"


def some(*ids: str, selected: tuple[str, ...] = (), **fields: Any) -> Findings:
    findings = Findings(findings_max=99, selected_max=8)
    for id_ in ids:
        findings.add(a_finding(id_, **fields))
    findings.select(selected)
    return findings


def an_answer(*ids: str, reflection: str = "Searched twice.") -> str:
    return json.dumps({"source_ids": ids, "planner_reflection": reflection})


def told(data: bytes) -> Any:
    return json.loads(data)


def told_ids(data: bytes) -> list[str]:
    return [source["id"] for source in told(data)["sources"]]


async def search(sink: FindingSink | None, query: str, **arguments: Any) -> ToolResult:
    context = msgspec.structs.replace(a_context(), collector=sink)
    return await called(SEARCH, {"query": query, **arguments}, context=context)


async def select(sink: FindingSink | None, *ids: str) -> ToolResult:
    return await called(SELECT, {"ids": ids}, context=msgspec.structs.replace(a_context(), collector=sink))


def test_a_reflection_has_no_controls_in_it_for_the_parent_and_the_panel() -> None:
    accepted = RESEARCH.accept(an_answer("a", reflection="Search\x00ed\ntwice.\x1b[2J"), some("a"))

    assert told(accepted.told)["planner_reflection"] == "Search\u2400ed twice.\u241b[2J"
    assert told(accepted.kept)["planner_reflection"] == told(accepted.told)["planner_reflection"]


def test_the_parent_is_told_three_fields_in_canonical_form() -> None:
    accepted = RESEARCH.accept(an_answer("b"), some("a", "b", year=2020, kind="trial", strength="low"))

    assert told(accepted.told) == {
        "research_bundle_id": hashlib.sha256(accepted.kept).hexdigest(),
        "sources": [{"id": "b", "title": "about b", "locator": "here:b", "excerpt": "words"}],
        "planner_reflection": "Searched twice.",
    }
    assert told(accepted.kept) == {
        "type": "research",
        "sources": [msgspec.to_builtins(a_finding("b", year=2020, kind="trial", strength="low"))],
        "planner_reflection": "Searched twice.",
    }
    for data in (accepted.told, accepted.kept):
        assert data == json.dumps(told(data), sort_keys=True, separators=(",", ":")).encode()


def test_sources_stand_as_selected_once_each_and_unknown_ids_are_dropped_and_told() -> None:
    accepted = RESEARCH.accept(an_answer("c", "x", "a", "c", "y", "x"), some("a", "b", "c", selected=("b",)))

    assert told_ids(accepted.told) == ["c", "a"]
    assert accepted.dropped == ("x", "y")
    assert b"x" not in accepted.told.replace(b"excerpt", b"")


def test_no_more_than_eight_sources_are_told() -> None:
    ids = tuple(f"s{number}" for number in range(20))
    accepted = RESEARCH.accept(an_answer(*ids), some(*ids))

    assert told_ids(accepted.told) == list(ids[:SOURCES_MAX])
    assert len(told(accepted.kept)["sources"]) == SOURCES_MAX == 8


def test_an_answer_without_sources_is_one() -> None:
    accepted = RESEARCH.accept(an_answer(), some("a", selected=("a",)))
    assert (told_ids(accepted.told), accepted.dropped) == ([], ())


@pytest.mark.parametrize(
    "text",
    [
        "I found ev-sleep-001.",
        '{"source_ids": []}',
        '{"source_ids": [], "planner_reflection": "", "sources": []}',
        an_answer("x" * 65),
        an_answer(*map(str, range(65))),
    ],
)
def test_what_is_no_such_object_is_unacceptable(text: str) -> None:
    with pytest.raises(Unacceptable, match=r"^Your answer "):
        RESEARCH.accept(text, some("a"))


def test_an_overrun_tells_what_was_selected_and_never_what_was_merely_found() -> None:
    accepted = RESEARCH.overrun(some("a", "b", "c", selected=("c", "a")))
    assert told_ids(accepted.told) == ["c", "a"]
    assert told(accepted.told)["planner_reflection"].endswith("these sources were selected by then.")

    nothing = RESEARCH.overrun(some("a", "b"))
    assert told_ids(nothing.told) == []
    assert told(nothing.told)["planner_reflection"].endswith("no source was selected by then.")
    assert told(nothing.kept)["sources"] == []


@pytest.mark.parametrize(
    ("failures", "note"),
    [
        (["out of reach"], f"[The only search failed, {UNKNOWN}. Why: out of reach.]"),
        (["out of reach", "out of\nreach."], f"[All 2 searches failed, {UNKNOWN}. Why: out of reach.]"),
        (["a", "a", None, "b"], "[3 of 4 searches failed. Why: a; also: b.]"),
        ([None, "out of reach"], "[1 of 2 searches failed. Why: out of reach.]"),
    ],
)
def test_searches_that_failed_are_told_whatever_the_answer_says_of_them(failures: list[str | None], note: str) -> None:
    findings = some()
    for failure in failures:
        findings.searched(failure=failure)

    accepted, overrun = RESEARCH.accept(an_answer(reflection="Nothing is known."), findings), RESEARCH.overrun(findings)

    assert told(accepted.told)["planner_reflection"] == f"{note} Nothing is known."
    assert told(overrun.told)["planner_reflection"].startswith(note)
    failed = sum(failure is not None for failure in failures)
    searches = {"made": len(failures), "failed": failed, "why": findings.why}
    assert told(accepted.kept)["searches"] == told(overrun.kept)["searches"] == searches
    assert told(accepted.kept)["planner_reflection"] == told(accepted.told)["planner_reflection"]


def test_the_reason_of_the_evidence_is_told_first_and_no_more_than_three_are() -> None:
    findings = some()
    for why in "abc":
        findings.searched(failure=why)
    findings.searched(failure="its server is down", of_evidence=True)

    note = told(RESEARCH.accept(an_answer(), findings).told)["planner_reflection"]

    assert note.startswith(
        f"[All 4 searches failed, {UNKNOWN}. Why: its server is down; also: a; also: b; also: 1 other reason.]"
    )


@pytest.mark.parametrize("reasons", [1, 2, 9])
def test_long_reasons_leave_room_for_the_reflection(reasons: int) -> None:
    findings = some()
    for number in range(reasons):
        findings.searched(failure=f"{number}{'é' * 4_000}")

    note = told(RESEARCH.accept(an_answer(reflection="w" * 4_000), findings).told)["planner_reflection"]

    assert len(note.encode()) <= 480
    assert ".] wwwwwwww" in note


def test_that_nothing_was_searched_is_told() -> None:
    accepted = RESEARCH.accept(an_answer(reflection="There is no search here."), some())

    assert told(accepted.told)["planner_reflection"] == f"[No search was made, {UNKNOWN}.] There is no search here."
    assert told(accepted.kept)["searches"] == {"made": 0, "failed": 0, "why": ""}


def test_a_search_that_found_nothing_is_no_failure() -> None:
    findings = some()
    findings.searched()

    accepted = RESEARCH.accept(an_answer(), findings)

    assert told(accepted.told)["planner_reflection"] == "Searched twice."
    assert "searches" not in told(accepted.kept)


def test_the_same_answer_is_the_same_bundle() -> None:
    first, again, other = (RESEARCH.accept(an_answer(id_), some("a", "b")) for id_ in ("a", "a", "b"))
    assert first == again
    assert told(first.told)["research_bundle_id"] != told(other.told)["research_bundle_id"]


@pytest.mark.parametrize("char", ["w", "é", "字", "😀", '"', "\\", "\U000e0041"])
def test_what_the_parent_is_told_is_short_whatever_is_found(char: str) -> None:
    ids = [number + char * 63 for number in "0123456789"]
    long = char * 20_000
    findings = some(*ids, title=long, locator=long, excerpt=long)

    accepted = RESEARCH.accept(an_answer(*ids, reflection=long), findings)

    assert len(accepted.told) <= TOLD_BYTES_MAX
    assert [(source["id"], set(source["excerpt"])) for source in told(accepted.told)["sources"]] == [
        (id_, {char}) for id_ in ids[:8]
    ]
    note = told(accepted.told)["planner_reflection"]
    assert REFLECTION_BYTES - 6 < len(json.dumps(note, ensure_ascii=False).encode()) - 2 <= REFLECTION_BYTES
    assert set(note) == {char}


def test_it_is_short_where_only_one_excerpt_is_long() -> None:
    ids = [number + "字" * 63 for number in "01234567"]
    findings = some(*ids[1:], title='"' * 300, locator='"' * 300, excerpt="")
    findings.add(a_finding(ids[0], title='"' * 300, locator='"' * 300, excerpt='"' * 900))
    full = RESEARCH.accept(an_answer(*ids, reflection='"' * 900), findings)
    assert len(full.told) <= TOLD_BYTES_MAX
    assert set(told(full.told)["sources"][0]["excerpt"]) == {'"'}


def test_a_reflection_of_what_has_to_be_escaped_is_short() -> None:
    accepted = RESEARCH.accept(an_answer(reflection="\x01" * 900), some())
    assert len(accepted.told) < REFLECTION_BYTES + 200


def test_the_instructions_name_the_object_and_the_tools() -> None:
    said = RESEARCH.instructions()
    assert RESEARCH.name == "research"
    assert all(word in said for word in ("source_ids", "planner_reflection", SELECT.name, "at most 8"))


async def test_a_search_hands_over_what_it_found_and_shows_the_model_little() -> None:
    with anyio.fail_after(60), Collector(capacity=2, findings_max=99, selected_max=8) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            result = await search(collector.sink, "insomnia programme", limit=4)
            findings = await collector.finish(deadline_s=60)

    lines = result.text.split("\n")
    assert (result.outcome, len(lines)) == (Outcome.SUCCEEDED, 4)
    assert [line.split(" | ")[0] for line in lines] == [finding.id for finding in findings.found]
    for line, finding in zip(lines, findings.found, strict=True):
        assert line.startswith(
            f"{finding.id} | {finding.title} | {finding.year}, {finding.kind}, {finding.strength} | "
        )
        assert finding.locator.partition(".jsonl:")[0] in finding.id
        shown = line.rpartition(" | ")[2].removesuffix("…")
        assert finding.excerpt.startswith(shown)
        assert len(shown) <= 110


async def test_nothing_found_is_said_and_nothing_is_handed_over() -> None:
    with Collector(capacity=1, findings_max=9, selected_max=8) as collector:
        result = await search(collector.sink, "xylophone")

    assert result.text == "Nothing in the evidence index shares a word with it; try others."
    assert collector.findings.found == ()


async def test_sources_are_selected_as_the_search_goes_on() -> None:
    with anyio.fail_after(60), Collector(capacity=2, findings_max=99, selected_max=2) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            shown = (await search(collector.sink, "sleep", limit=3)).text
            first, second, third = (line.partition(" | ")[0] for line in shown.split("\n"))
            some_of_them = await select(collector.sink, second, "ev-none-001")
            all_of_them = await select(collector.sink, first, second, third)
            findings = await collector.finish(deadline_s=60)

    assert some_of_them.text == f"Selected so far: {second}.\nNo search has found: ev-none-001."
    assert all_of_them.text == (
        f"Selected so far: {second}, {first}.\nNo room for more than 2: {third}. Your answer may name others."
    )
    assert told_ids(RESEARCH.overrun(findings).told) == [second, first]


async def test_selecting_what_nobody_found_selects_nothing() -> None:
    with anyio.fail_after(60), Collector(capacity=2, findings_max=99, selected_max=2) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            result = await select(collector.sink, "ev-sleep-001")
            await collector.finish(deadline_s=60)

    assert result.text == "Selected so far: none.\nNo search has found: ev-sleep-001."


async def test_without_a_collector_both_tools_decline() -> None:
    for result in (await search(None, "insomnia"), await select(None, "ev-sleep-001")):
        assert (result.outcome, result.text) == (
            Outcome.DENIED,
            "nothing is collected here, since this is no sub-agent that collects",
        )


async def test_after_the_end_nothing_is_found_any_more() -> None:
    with Collector(capacity=2, findings_max=9, selected_max=8) as collector:
        pass
    result = await search(collector.sink, "insomnia")
    assert (result.outcome, collector.findings.found) == (Outcome.DENIED, ())


async def test_eight_searches_cost_the_parent_less_than_a_thousand_tokens() -> None:
    queries = ("insomnia", "pain exercise", "salt", "glucose", "falls balance", "smoking", "reminders", "teach-back")
    with anyio.fail_after(60), Collector(capacity=8, findings_max=256, selected_max=8) as collector:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.drain)
            for query in queries:
                await search(collector.sink, query, limit=10)
            findings = await collector.finish(deadline_s=60)

    found: tuple[Finding, ...] = findings.found
    accepted = RESEARCH.accept(an_answer(*(finding.id for finding in found[::5]), reflection="r" * 900), findings)
    assert len(found) >= 40
    assert len(told_ids(accepted.told)) == 8
    assert len(accepted.told) < 4_000
