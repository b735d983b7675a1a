"""What a call tells of the sub-agent it had, against that one's journal and the ledger of what it found."""

import json
from collections.abc import Iterator

from tests.support.oracle_case import Case
from tests.support.oracle_children import Broken
from tests.support.oracle_evidence import ChildRules, Json
from tests.support.oracle_offers import ENGINE_TOOLS

_BUDGETS = frozenset({"steps", "tokens", "seconds", "context_too_long", "output_limit"})


def judge_answer(case: Case, finished: Json, *, told: str, rules: ChildRules) -> Iterator[Broken]:
    """Args: case: the sub-agent's.  finished: the record of its end.  told: what the model is told."""
    code = finished.get("code", "")
    if code and code not in _BUDGETS:
        yield "answer_invented", f"{told!r} is told of a sub-agent that ended as {code}"
        return
    replies = [record for record in case.story.records if record["kind"] == "model_replied"]
    said = "".join(block.get("text", "") for block in replies[-1]["blocks"]) if replies else ""
    if rules.results[finished["name"]] == "text":
        answer = {"answer": "" if code else said.strip()}
        if any(json.loads(told).get(name) != text for name, text in answer.items()):
            yield "answer_invented", f"{told!r} is told, it said {said!r} and ended as {code!r}"
        return
    yield from _research(case, finished, told=json.loads(told), said="" if code else said, rules=rules)


def _research(case: Case, finished: Json, *, told: Json, said: str, rules: ChildRules) -> Iterator[Broken]:
    """Args: said: its answer; empty where a budget was over."""
    perhaps, surely = _ids(case, "finding"), _ids(case, "found")
    ids, dropped = [source["id"] for source in told["sources"]], finished.get("dropped", [])
    if unknown := [id_ for id_ in ids if id_ not in perhaps or id_ in dropped]:
        yield "unknown_id_kept", f"{unknown} of {ids} were never found, dropped are {dropped}"
    if len(ids) > rules.selected_max or len(set(ids)) != len(ids):
        yield "sources_too_many", f"{ids} are told"
    if said:
        asked = list(dict.fromkeys(json.loads(said)["source_ids"]))
        sure = [id_ for id_ in asked if id_ in surely]
        if ids != [id_ for id_ in asked if id_ in ids] or (perhaps == surely and ids != sure[: rules.selected_max]):
            yield "sources_differ", f"{ids} are told of {asked}, found are {sorted(perhaps)}"
        if (perhaps == surely) and dropped != [id_ for id_ in asked if id_ not in surely]:
            yield "unknown_id_kept", f"{dropped} are dropped of {asked}, found are {sorted(surely)}"
    else:
        selected = {id_ for names in _ids(case, "selecting") for id_ in names.split()}
        if unselected := set(ids) - selected:
            yield "unselected_told", f"{sorted(unselected)} are told, selected were {sorted(selected)}"
    if not len(surely) <= finished.get("findings", 0) <= len(perhaps):
        yield "child_differs", f"{finished.get('findings', 0)} findings are told, found are {sorted(perhaps)}"
    if told["research_bundle_id"] != finished.get("bundle"):
        yield "bundle_differs", f"{told['research_bundle_id']} is told, kept is {finished.get('bundle')}"
    if set(told) != {"research_bundle_id", "sources", "planner_reflection"}:
        yield "answer_invented", f"{sorted(told)} are told"
    yield from _searches(case, note=told["planner_reflection"])


def _searches(case: Case, *, note: str) -> Iterator[Broken]:
    """Failed ones are told, and none that did not fail. Args: note: as it is told."""
    begun = {record["call_id"] for record in case.story.records if record["kind"] == "tool_started"}
    ended = [
        record for record in case.story.records if record["kind"] == "tool_finished" and record["call_id"] in begun
    ]
    outcomes = [record["outcome"] for record in ended if record["name"] not in ENGINE_TOOLS]
    says_all = note.startswith(("[All ", "[The only ", "[No search "))
    if outcomes and "succeeded" not in outcomes and not says_all:
        yield "answer_invented", f"{note!r} is told where nothing was found out: {outcomes}"
    if "succeeded" in outcomes and says_all:
        yield "answer_invented", f"{note!r} is told where something was found out: {outcomes}"
    if {"failed", "denied"} & set(outcomes) and not note.startswith("["):
        yield "answer_invented", f"{note!r} is told of {outcomes}"


def _ids(case: Case, what: str) -> set[str]:
    return {step.text for step in case.tool_steps if step.what == what}
