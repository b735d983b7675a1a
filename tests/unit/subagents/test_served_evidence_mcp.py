"""What a server answers to a search, as findings."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.tools import a_context
from torpor.errors import ToolError, ToolFailed, ToolRefused, ToolTimedOut
from torpor.subagents.definition import EvidenceServer
from torpor.subagents.findings import fitted
from torpor.subagents.served_evidence import entries_in, served_search
from torpor.toolhost.contract import Finding, Selection, ToolContext
from torpor.toolhost.process import NotStarted

ENTRY: dict[str, Any] = {
    "id": "e-1", "title": "Sleep", "locator": "a:1", "excerpt": "Long.", "year": 2020, "kind": "trial",
    "strength": "low",
}  # fmt: skip


OF_PEOPLE = "nothing is known of Ada"
"""A server's own words."""


class Kept:
    """Implements ``FindingSink``."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    async def found(self, finding: Finding) -> None:
        self.findings.append(fitted(finding))

    async def select(self, ids: Sequence[str]) -> Selection:
        return Selection(counted=tuple(ids))


class Answers:
    """Implements ``contract.Asks``."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def gate(self, server: str) -> str:
        return f"mcp.{server}"

    def deadline_s(self, server: str, tool: str) -> float:
        return 7.0

    async def ask(self, server: str, tool: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        self.asked.append((server, tool, arguments))
        if isinstance(self.answer, ToolError):
            raise self.answer
        return self.answer


def test_an_entry_becomes_a_finding() -> None:
    (finding,), left_out = entries_in([ENTRY], limit=5)

    assert msgspec.to_builtins(finding) == ENTRY
    assert left_out == 0
    assert entries_in(ENTRY, limit=5) == ((finding,), 0), "alone, as some servers send it"


def test_other_names_of_the_fields_are_known() -> None:
    answer = {"results": [{"id": "x", "name": "N", "url": "https://x", "snippet": "S", "year": "1999", "type": "page"}]}

    (finding,), _ = entries_in(answer, limit=5)

    expected = Finding(id="x", title="N", locator="https://x", excerpt="S", kind="page")
    assert finding == expected
    (bare,), _ = entries_in([{"id": "x"}], limit=5)
    assert (bare.title, bare.locator, bare.excerpt) == ("x", "x", "")


def test_what_is_no_entry_is_counted_and_left_out() -> None:
    entries, left_out = entries_in([7, {"title": "no id"}, {"id": ""}, ENTRY, {**ENTRY, "id": "e-2"}], limit=4)

    assert ([entry.id for entry in entries], left_out) == (["e-1"], 3)


@pytest.mark.parametrize("answer", ["words", 7, None, {"rows": []}])
def test_an_answer_of_another_shape_is_an_error(answer: Any) -> None:
    with pytest.raises(ToolFailed, match="no list of entries"):
        entries_in(answer, limit=5)


async def test_what_a_server_finds_goes_into_the_collector() -> None:
    kept, asks = Kept(), Answers([ENTRY, {"id": "\u200b"}])
    search = served_search(EvidenceServer(server="lib", tool="find"), asks, named="scout")

    said = await search(context=msgspec.structs.replace(a_context(), collector=kept), query="sleep", limit=3)

    assert asks.asked == [("lib", "find", {"query": "sleep", "limit": 3})]
    assert [finding.id for finding in kept.findings] == ["e-1"]
    assert said.splitlines()[0] == "e-1 | Sleep | 2020, trial, low | Long."
    assert "1 more cannot be used" in said
    assert search.gate == "mcp.lib"
    asks.answer = []
    assert "try other words" in await search(
        context=msgspec.structs.replace(a_context(), collector=kept), query="sleep"
    )


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        (NotStarted("the server lib cannot be reached now"), ToolFailed, "cannot be reached now"),
        (ToolTimedOut("find", deadline_s=7.0), ToolFailed, "did not finish within 7 s"),
        (ToolRefused("there is no credential for the server lib"), ToolRefused, "no credential"),
        ("words", ToolFailed, "no list of entries"),
        (ToolFailed(OF_PEOPLE), ToolFailed, OF_PEOPLE),
        ([{"id": "\u200b"}, {}], ToolFailed, "none of the 2 entries that lib found can be used"),
    ],
)
async def test_a_search_that_fails_is_none_that_found_nothing(answer: Any, kind: type[ToolError], why: str) -> None:
    search = served_search(EvidenceServer(server="lib"), Answers(answer), named="scout")
    context = msgspec.structs.replace(a_context(), collector=Kept())

    with capture_logs() as logs, pytest.raises(kind, match=f"{why}.*; the search failed, which does not tell"):
        await search(context=context, query="sleep")

    (log,) = logs
    assert (log["event"], log["server"], log["subagent"]) == ("evidence.search_failed", "lib", "scout")
    assert log["conversation"] == context.key.path
    assert ("an error of its own" if why == OF_PEOPLE else why) in log["why"]


def test_a_search_has_the_time_that_its_server_has() -> None:
    deadline_s = served_search(EvidenceServer(server="lib"), Answers([]), named="scout").deadline_s

    assert deadline_s is not None
    assert deadline_s > 7.0
