"""Sub-agents against a host that reads strictly: every request is accepted, and the parent sees the answer alone."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.home.houses import House, kinds, living
from tests.integration.home.research_house import (
    KEY,
    PARENT,
    PLAN,
    RESEARCH,
    Part,
    agent,
    calls,
    cast,
    make_home,
    of,
    results,
    shown_ids,
    sources,
    statuses,
    violations,
    who,
)
from torpor_fake_api.scripting.faults import Stall
from torpor_fake_api.scripting.replies import Reply, ToolUse, says
from torpor_fake_api.server import FakeApi, serving

TASK = "What helps against falls?"
WORDS = ("falls", "sleep", "blood pressure", "smoking", "pain", "mood", "diabetes", "alcohol")
PLANNED: dict[str, Any] = {
    "patient_ref": "p-1",
    "summary": "Look at the sleep first.",
    "goals": [{"id": "g1", "text": "Sleeps through", "problem": "insomnia", "due_in_weeks": 6}],
    "interventions": [{"id": "sleep-diary", "dose_option": "two-weeks", "goal_ids": ["g1"], "rationale": "To see."}],
    "follow_up": {"in_weeks": 2, "text": "Look at the diary."},
}
ORDINARY = '''
from pathlib import Path
from typing import Annotated

import msgspec

from torpor import tool

Task = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]


@tool(effect="read", result_cap_bytes=16_384)
def spawn_research_agent(task: Task) -> str:
    """{description}

    Args:
        task: What it is to do, with everything that it needs to know: it sees nothing of this conversation.
    """
    return (Path(__file__).parent.parent / "bundle.json").read_text()
'''


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-any")


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving(profile="strict", seed="a") as api:
        yield api
        assert violations(api) == []


def asks_once(*names: str, answer: str = "Done.") -> Part:
    """A parent that has these work side by side, whenever it is asked something new."""

    def part(number: int, body: dict[str, Any]) -> Reply | str:
        last = body["messages"][-1]["content"]
        if any(block["type"] == "tool_result" for block in last):
            return answer
        return says(*(ToolUse(name, {"task": TASK}, id=f"toolu_{number}_{at}") for at, name in enumerate(names)))

    return part


def searcher(*words: str, answer: str, ids: tuple[str, ...] = ()) -> Part:
    """A sub-agent that makes a search for each of ``words``, selects ``ids``, and answers."""

    def part(number: int, _: dict[str, Any]) -> Reply | str:
        steps = [calls(("search_evidence", {"query": word, "limit": 5})) for word in words]
        steps += [calls(("select_sources", {"ids": ids}))] if ids else []
        return steps[number] if number < len(steps) else answer

    return part


async def finished(house: House) -> list[dict[str, Any]]:
    return await house.records("subagent_finished")


async def test_a_research_of_eight_searches_costs_its_parent_less_than_1500_tokens(
    tmp_path: Path, api: FakeApi
) -> None:
    def thorough(number: int, body: dict[str, Any]) -> Reply | str:
        if number < len(WORDS):
            return calls(("search_evidence", {"query": WORDS[number], "limit": 5}))
        return sources(*list(dict.fromkeys(shown_ids(body)))[::5])

    api.otherwise(cast(parent=asks_once(RESEARCH), spawn_research_agent=thorough))
    async with living(make_home(tmp_path / "home", api), is_asking=True) as house:
        assert kinds(await house.ask("Find out about falls."))[-1] == "turn.finished"
        (ended,) = await finished(house)
        replies = await house.records("model_replied")

    assert len(shown_ids(of(api, RESEARCH)[-1].body)) == 40
    (told,) = results(of(api, PARENT)[-1].body)
    assert set(json.loads(told)) == {"research_bundle_id", "sources", "planner_reflection"}
    assert len(json.loads(told)["sources"]) == 8
    before, after = (reply["usage"]["input_tokens"] for reply in replies)
    assert 0 < after - before < 1_500
    assert (ended["rounds"], ended.get("code", "")) == (9, "")
    assert ended["usage"]["input_tokens"] > 10 * (after - before)


async def test_later_requests_are_those_of_a_parent_that_an_ordinary_tool_handed_the_answer(tmp_path: Path) -> None:
    replies = {"parent": asks_once(RESEARCH), RESEARCH: searcher("falls", answer=sources("ev-falls-006"))}
    messages = ("Find out about falls.", "Thank you.")

    async def told_by(home: Any, api: FakeApi) -> list[bytes]:
        async with living(home, is_asking=True) as house:
            for message in messages:
                await house.ask(message)
        return [request.raw for request in of(api, PARENT)]

    async with serving(profile="strict", seed="a") as api:
        api.otherwise(cast(**replies))
        isolated = make_home(tmp_path / "isolated", api)
        agent(isolated, api, subagents=[RESEARCH])
        of_a_parent = await told_by(isolated, api)
        (bundle, *_) = results(of(api, PARENT)[1].body)
    (tool,) = (each for each in json.loads(of_a_parent[0])["tools"] if each["name"] == RESEARCH)

    async with serving(profile="strict", seed="a") as other:
        other.otherwise(cast(**replies))
        plain = make_home(tmp_path / "plain", other)
        agent(plain, other)
        for file in (plain.path / "config" / "subagents").iterdir():
            file.unlink()
        plain.module("research.py", ORDINARY.replace("{description}", tool["description"]))
        (plain.path / "bundle.json").write_text(bundle)
        of_an_heir = await told_by(plain, other)

    assert len(of_a_parent) == 4
    assert of_a_parent == of_an_heir


async def test_children_side_by_side_are_accepted_and_each_answers_its_own_call(tmp_path: Path, api: FakeApi) -> None:
    def planner(number: int, _: dict[str, Any]) -> Reply | str:
        return json.dumps({"needs_clarification": {"questions": ["Since when?"]}})

    api.otherwise(
        cast(
            parent=asks_once(RESEARCH, PLAN, RESEARCH),
            spawn_research_agent=searcher("falls", answer=sources("ev-falls-006")),
            build_plan=planner,
        )
    )
    async with living(make_home(tmp_path / "home", api), is_asking=True) as house:
        events = await house.ask("All at once.")
        ended = await finished(house)
        first, second, third = results(of(api, PARENT)[-1].body)

    assert kinds(events).count("research.started") == kinds(events).count("research.finished") == 2
    assert kinds(events).count("subagent.started") == kinds(events).count("subagent.finished") == 1
    assert sorted(each["name"] for each in ended) == [PLAN, RESEARCH, RESEARCH]
    assert first == third
    assert json.loads(first)["sources"][0]["id"] == "ev-falls-006"
    assert json.loads(second) == {"needs_clarification": {"questions": ["Since when?"]}}
    assert statuses(api.requests) == {200}


async def test_a_child_cancelled_in_mid_search_leaves_a_conversation_that_goes_on(tmp_path: Path, api: FakeApi) -> None:
    def stalls(number: int, _: dict[str, Any]) -> Reply | str:
        search = calls(("search_evidence", {"query": "falls"}))
        return search if number == 0 else Reply(content=search.content, fault=Stall(at="first_event", name="search"))

    api.otherwise(cast(parent=asks_once(RESEARCH), spawn_research_agent=stalls))
    async with living(make_home(tmp_path / "home", api), is_asking=True) as house:
        message = await house.say("Find out about falls.")
        await api.reached("search")
        await house.client.cancel("c1")
        cut = await house.ended(message)
        api.otherwise(cast(parent=lambda number, body: "Nothing was found out."))
        after = await house.ask("And now?")
        (ended,) = await finished(house)  # a child that is slow to leave ends after the turn
        work = await house.client.inspect(f"default/developer/c1/{ended['child']}")

    assert kinds(cut)[-1] == "turn.cancelled"
    assert kinds(after)[-1] == "turn.finished"
    assert (ended.get("code", ""), ended["rounds"], ended["findings"]) == ("cancelled", 1, 5)
    assert work[-1]["kind"] == "turn_cancelled"
    assert [who(request.body) for request in api.requests] == [PARENT, RESEARCH, RESEARCH, PARENT]


@pytest.mark.parametrize(
    ("budget", "code"), [({"steps_max": 2}, "steps"), ({"tokens_max": 900}, "tokens")], ids=["steps", "tokens"]
)
async def test_a_child_over_its_budget_gives_what_it_had_selected(
    tmp_path: Path, api: FakeApi, budget: dict[str, int], code: str
) -> None:
    endless = searcher("falls", *["more"] * 50, answer="")

    def selects_early(number: int, body: dict[str, Any]) -> Reply | str:
        both = ("search_evidence", {"query": "sleep"}), ("select_sources", {"ids": ["ev-falls-006", "ev-none"]})
        return calls(*both) if number == 1 else endless(number, body)

    api.otherwise(cast(parent=asks_once(RESEARCH), spawn_research_agent=selects_early))
    home = make_home(tmp_path / "home", api, spawn_research_agent=budget)
    async with living(home, is_asking=True) as house:
        assert kinds(await house.ask("Find out about falls."))[-1] == "turn.finished"
        (ended,) = await finished(house)

    (told,) = results(of(api, PARENT)[-1].body)
    selected = ["ev-falls-006"] if code == "steps" else []
    assert [source["id"] for source in json.loads(told)["sources"]] == selected
    assert (ended.get("code", ""), ended["outcome"], ended["rounds"]) == (code, "succeeded", len(of(api, RESEARCH)))
    assert ended["findings"] > len(selected)


async def test_ids_that_nothing_found_are_dropped_and_counted(tmp_path: Path, api: FakeApi) -> None:
    answer = sources("ev-falls-006", "ev-falls-999", "ev-falls-006", "made-up")
    api.otherwise(cast(parent=asks_once(RESEARCH), spawn_research_agent=searcher("falls", answer=answer)))
    async with living(make_home(tmp_path / "home", api), is_asking=True) as house:
        await house.ask("Find out about falls.")
        (ended,) = await finished(house)

    (told,) = results(of(api, PARENT)[-1].body)
    assert [source["id"] for source in json.loads(told)["sources"]] == ["ev-falls-006"]
    assert "made-up" not in told
    assert ended["dropped"] == ["ev-falls-999", "made-up"]


async def test_a_plan_that_does_not_fit_is_mended_within_the_budget(tmp_path: Path, api: FakeApi) -> None:
    wrong = {**PLANNED, "interventions": [{**PLANNED["interventions"][0], "id": "sleep-diaries"}]}

    def planner(number: int, _: dict[str, Any]) -> Reply | str:
        return json.dumps(wrong if number == 0 else PLANNED)

    api.otherwise(cast(parent=asks_once(PLAN), build_plan=planner))
    async with living(make_home(tmp_path / "home", api), is_asking=True) as house:
        await house.ask("Make a plan.")
        (ended,) = await finished(house)

    (told,) = results(of(api, PARENT)[-1].body)
    assert json.loads(told)["interventions"][0]["dose"] == "Each morning for two weeks"
    assert (ended["rounds"], ended["outcome"], ended["bundle"] != "") == (2, "succeeded", True)
    repair = of(api, PLAN)[1].body["messages"][-1]["content"][-1]["text"]
    assert "sleep-diaries" in repair


async def test_a_sub_agent_may_have_another_one_work_and_is_told_its_answer_alone(tmp_path: Path, api: FakeApi) -> None:
    def planner(number: int, body: dict[str, Any]) -> Reply | str:
        return calls((RESEARCH, {"task": TASK})) if number == 0 else json.dumps(PLANNED)

    research = searcher("falls", answer=sources("ev-falls-006"))
    api.otherwise(cast(parent=asks_once(PLAN), build_plan=planner, spawn_research_agent=research))
    home = make_home(tmp_path / "home", api, build_plan={"subagents": [RESEARCH]})
    async with living(home, is_asking=True) as house:
        await house.ask("Make a plan.")
        (plan,) = await finished(house)
        path = f"default/developer/c1/{plan['child']}"
        (below,) = (each for each in await house.client.inspect(path) if each["kind"] == "subagent_finished")
        work = await house.client.inspect(f"{path}/{below['child']}")
        rows = await house.client.list()

    (answer,) = results(of(api, PLAN)[-1].body)
    assert [source["id"] for source in json.loads(answer)["sources"]] == ["ev-falls-006"]
    (told,) = results(of(api, PARENT)[-1].body)
    assert "ev-falls" not in told
    assert [each["name"] for each in work if each["kind"] == "tool_started"] == ["search_evidence"]
    assert plan["usage"]["input_tokens"] > below["usage"]["input_tokens"] > 0
    assert [row["path"] for row in rows] == ["default/developer/c1"]


async def test_a_sub_agent_that_is_switched_off_is_not_offered(tmp_path: Path, api: FakeApi) -> None:
    api.otherwise(cast(parent=lambda number, body: "Hello."))
    home = make_home(tmp_path / "home", api)
    home.flags(subagent__build_plan=False)
    async with living(home, is_asking=True) as house:
        await house.ask("Hello?")

    offered = {tool["name"] for tool in of(api, PARENT)[0].body["tools"]}
    assert RESEARCH in offered
    assert PLAN not in offered
