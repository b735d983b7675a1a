"""What ``torpor config check`` finds in the sub-agents of a home."""

from pathlib import Path

import pytest

from torpor.cli.config import findings_of

AGENT = """
name = "clerk"
system = "You help."
subagents = ["scout"]
[model]
kind = "scripted"
rehearsal = "clerk"
"""
REHEARSAL = """
[[rule]]
[[rule.step]]
say = "I ask."
call = [{ tool = "scout", arguments = { task = "look" } }]
[[rule.step]]
say = "{result.scout}"
"""
SCOUT_PLAYS = """
[[rule]]
[[rule.step]]
say = "I look."
call = [{ tool = "look" }]
[[rule.step]]
say = "Seen."
"""
SCOUT = """
name = "scout"
description = "Have something looked for."
system = "You look for things."
rehearsal = "scout"
tools = ["look"]
"""
TOOLS = '''
from torpor import tool


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(effect="write")
def pay() -> str:
    """Pay."""
    return "paid"
'''
ENTRY = '{"id": "a", "title": "T", "year": 2020, "kind": "trial", "strength": "low", "abstract": "Text."}\n'
FILE = "config/subagents/scout.toml"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One whose agent has a sub-agent work, without a fault."""
    for name, text in {
        "config/agents/clerk.toml": AGENT,
        "config/rehearsals/clerk.toml": REHEARSAL,
        "config/rehearsals/scout.toml": SCOUT_PLAYS,
        FILE: SCOUT,
        "tools/looking.py": TOOLS,
    }.items():
        write(tmp_path, name, text)
    return tmp_path


def write(home: Path, name: str, text: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)


def scout(home: Path, **changes: str) -> None:
    """Write the definition again. Args: changes: keys and their values as TOML, instead of what stands there."""
    kept = [line for line in SCOUT.strip().splitlines() if line.partition(" ")[0] not in changes]
    write(home, FILE, "\n".join([*kept, *(f"{key} = {value}" for key, value in changes.items())]) + "\n")


def told(home: Path, part: str = "subagent") -> list[tuple[str, str, str]]:
    return [(found.name, found.state, found.detail) for found in findings_of(home, {}) if found.part == part]


def test_sub_agent_is_told_with_what_it_costs_itself_and_the_agents_that_may_have_it_work(home: Path) -> None:
    (agent,) = told(home, "agent")

    assert told(home) == [
        (
            FILE,
            "ok",
            "result text, scripted model, about 218 fixed tokens (instructions 47, tools 171), at most 12 steps, "
            "100,000 tokens, 120 s; about 81 tokens to each agent that may have it work",
        )
    ]
    assert "1 sub-agent, about 293 fixed tokens (instructions 9, tools 284)" in agent[2]
    assert told(home, "rehearsal") == [
        ("config/rehearsals/clerk.toml", "ok", "calls scout"),
        ("config/rehearsals/scout.toml", "ok", "calls look"),
    ]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        (
            {"tools": '["pay"]'},
            "tools is 'pay', expected tools that only read, and say so (effect=\"read\"): a sub-agent runs again after "
            "a crash, and nobody confirms what it does",
        ),
        ({"tools": '["peep"]'}, "tools is 'peep', expected tools among look"),
        ({"result": '"essay"'}, "result is 'essay', expected one of text, research, plan"),
        ({"subagents": '["scribe"]'}, "subagents is 'scribe', expected sub-agents among scout"),
        ({"name": '"scouts"'}, "name is 'scouts', expected the name of its file, 'scout'"),
        ({"description": '" "'}, "description is ' ', expected a word or more"),
        (
            {"rehearsal": '"scout.toml"'},
            "rehearsal is 'scout.toml', expected 0 to 64 characters among A-Z, a-z, 0-9, '_', '-'",
        ),
        ({"steps_max": "0"}, "steps_max is 0, expected int >= 1"),
        ({"stepsmax": "3"}, "stepsmax is unknown, expected perhaps 'steps_max'"),
        ({"model": '{ kind = "oracle" }'}, "model.kind is 'oracle', expected one of anthropic, local, scripted"),
    ],
)
def test_fault_of_a_definition_is_told_with_what_would_fit(home: Path, changes: dict[str, str], detail: str) -> None:
    scout(home, **changes)

    assert [(name, said) for name, state, said in told(home) if state == "WRONG"] == [(FILE, detail)]


def test_one_that_an_agent_names_among_its_tools_is_told_where_it_belongs(home: Path) -> None:
    write(home, "config/agents/clerk.toml", f'tools = ["scout", "look"]\n{AGENT.lstrip()}')

    ((_, state, detail),) = told(home, "agent")

    assert state == "doubtful"
    assert "tools names scout, which this home has not; scout in tools: sub-agents stand in subagents" in detail


def test_one_that_plays_the_rehearsal_of_whose_model_it_asks_is_told_to_have_its_own(home: Path) -> None:
    scout(home, rehearsal='""')

    ((file, state, detail),) = [found for found in told(home, "rehearsal") if found[1] != "ok"]

    assert (file, state) == ("config/rehearsals/clerk.toml", "WRONG")
    assert detail.endswith(
        "which sub-agent scout has not, and plays it for want of its own: name one by `rehearsal` in its file"
    )


def test_every_fault_of_a_definition_is_told(home: Path) -> None:
    scout(home, tools='["pay", "peep"]', result='"essay"', subagents='["scribe"]')

    assert [said.split(",")[0] for _, _, said in told(home)] == [
        "result is 'essay'",
        "tools is 'pay'",
        "tools is 'peep'",
        "subagents is 'scribe'",
    ]


@pytest.mark.parametrize("name", ["pay", "search_evidence", "load_skill"])
def test_name_of_a_tool_is_no_name_for_a_sub_agent(home: Path, name: str) -> None:
    write(home, f"config/subagents/{name}.toml", SCOUT.replace('"scout"', f'"{name}"', 1))

    assert [each for each in told(home) if each[0] != FILE] == [
        (
            f"config/subagents/{name}.toml",
            "WRONG",
            f"name is {name!r}, expected a name that no tool has, since it becomes one",
        )
    ]


def test_line_of_evidence_that_is_none_is_told_once_and_whom_it_keeps_from_working(home: Path) -> None:
    write(home, "config/evidence/sleep.jsonl", ENTRY + "not JSON\n")
    scout(home, result='"research"')
    write(home, "config/subagents/other.toml", SCOUT.replace('"scout"', '"other"', 1) + 'result = "research"\n')

    place = "config/evidence/sleep.jsonl"
    assert [(name, state) for name, state, _ in told(home)] == [
        ("config/subagents/other.toml", "WRONG"),
        (FILE, "WRONG"),
        (place, "WRONG"),
    ]
    assert told(home)[1][2] == f"result 'research' cannot be made, {place} is at fault"
    assert told(home)[2][2].startswith("line 2 is not JSON, expected one JSON object with id, ")


def test_research_without_evidence_is_wrong_unless_it_has_a_tool_of_the_home(home: Path) -> None:
    scout(home, result='"research"')
    with_a_tool = told(home)
    scout(home, result='"research"', tools="[]", rehearsal='""')

    assert [state for _, state, _ in with_a_tool] == ["ok"]
    assert told(home) == [
        (
            FILE,
            "WRONG",
            "config/evidence: folder is without an entry, expected entries in *.jsonl files, which scout searches, or "
            "tools of the home in its file",
        )
    ]


def test_plan_without_a_catalogue_and_with_a_faulty_one_is_wrong(home: Path) -> None:
    scout(home, result='"plan"')
    missing = told(home)
    write(home, "config/interventions.toml", '[problems]\na = "A"\n')

    assert missing[1] == (
        "config/interventions.toml",
        "WRONG",
        "file is missing, expected the interventions that plans are made of",
    )
    assert told(home)[1] == (
        "config/interventions.toml",
        "WRONG",
        "intervention is missing, expected a value, since it has no default",
    )


def test_rehearsal_that_calls_what_its_sub_agent_has_not_is_wrong(home: Path) -> None:
    scout(home, tools="[]")

    assert told(home, "rehearsal")[1] == (
        "config/rehearsals/scout.toml",
        "WRONG",
        "calls look, which sub-agent scout has not",
    )


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"skills": '["baking"]'}, "skills names baking, which this home has not"),
        ({"tokens_max": "300"}, "tokens_max is 300, not enough for two requests"),
    ],
)
def test_what_is_hardly_meant_is_doubtful(home: Path, changes: dict[str, str], doubt: str) -> None:
    scout(home, **changes)

    ((_, state, detail),) = told(home)
    assert (state, detail.split(";")[0]) == ("doubtful", doubt)


def test_sub_agents_that_may_have_themselves_work_or_stand_too_deep_are_doubtful(home: Path) -> None:
    scout(home, subagents='["second"]')
    for name, below in (("second", "third"), ("third", "second")):
        text = SCOUT.replace('name = "scout"', f'name = "{name}"') + f'subagents = ["{below}"]\n'
        write(home, f"config/subagents/{name}.toml", text)

    doubts = {name: detail.partition("result ")[0] for name, state, detail in told(home) if state == "doubtful"}
    itself = "it may have itself work, which only subagents.depth_max ends, 2 levels deep; "
    assert doubts == {
        "config/subagents/second.toml": itself,
        "config/subagents/third.toml": (
            f"it would stand at depth 3, where it is refused, since subagents.depth_max is 2; {itself}"
        ),
    }


def test_sub_agent_that_nobody_may_have_work_is_doubtful_and_one_that_an_agent_names_in_vain(home: Path) -> None:
    write(home, "config/agents/clerk.toml", AGENT.replace('"scout"', '"scouts"'))
    write(home, "config/rehearsals/clerk.toml", SCOUT_PLAYS)

    assert told(home)[0][1:] == ("doubtful", told(home)[0][2])
    assert told(home)[0][2].startswith("no agent may have it work; ")
    ((_, state, detail),) = told(home, "agent")
    assert state == "doubtful"
    assert detail.startswith("subagents names scouts, which this home has not; ")


def test_flag_of_a_sub_agent_gates_something(home: Path) -> None:
    write(
        home,
        "config/flags.toml",
        '[flags."subagent.scout"]\ndefault = false\n[flags."subagent.scouts"]\ndefault = true\n',
    )

    assert told(home, "flag") == [
        ("subagent.scout", "ok", "off by default"),
        ("subagent.scouts", "doubtful", "gates nothing: there is no subagent 'scouts' in this home, perhaps 'scout'"),
    ]


def test_tools_of_servers_belong_to_a_sub_agent_that_names_one_that_vouches_for_them(home: Path) -> None:
    write(home, "config/mcp.toml", '[mcp.odd]\ncommand = "sh"\nreads = ["look"]\n[mcp.till]\ncommand = "sh"\n')
    write(home, "config/rehearsals/scout.toml", SCOUT_PLAYS.replace('"look"', '"odd__look"'))
    scout(home, mcp='["odd"]')

    ((_, state, _),) = told(home)
    assert state == "ok"
    assert told(home, "rehearsal")[1] == ("config/rehearsals/scout.toml", "ok", "calls odd__look")
    assert [(name, "no agent has its tools" in detail) for name, _, detail in told(home, "mcp")] == [
        ("odd", False),
        ("till", True),
    ]
    scout(home, mcp='["till"]')
    ((_, state, detail),) = told(home)
    assert (state, "mcp is 'till', expected a server with tools that only read" in detail) == ("WRONG", True)
