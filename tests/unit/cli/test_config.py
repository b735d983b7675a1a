"""What ``torpor config check`` finds in a home."""

import sys
from pathlib import Path

import msgspec
import pytest

from torpor.cli.config import Finding, findings_of
from torpor.cli.main import main

AGENT = """
name = "clerk"
system = "You help."
tools = {tools}
[model]
kind = "scripted"
rehearsal = "clerk"
"""
ENGINE_TOOLS = [
    ("read_result", 138, "in every request"),
    ("read_earlier", 175, "from the first fold on"),
    ("load_skill", 69, "where the agent has skills"),
    ("read_skill_file", 95, "where the agent has skills"),
    ("search_skills", 99, "where the index leaves some of them out"),
]
REHEARSAL = """
[[rule]]
[[rule.step]]
say = "I look."
call = [{ tool = "look" }]
[[rule.step]]
say = "{result.look}"
"""
TOOL = '''
from torpor import tool

@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A small home without a fault and without a settings file."""
    for name, text in {
        "config/agents/clerk.toml": AGENT.replace("{tools}", '["look", "read_result"]'),
        "config/rehearsals/clerk.toml": REHEARSAL,
        "tools/looking.py": TOOL,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def wrong(home: Path) -> list[tuple[str, str, str]]:
    return [(found.part, found.name, found.detail) for found in findings_of(home, {}) if not found.ok]


SKILL = "---\nname: greeting\ndescription: How to greet people. Use at the beginning.\n---\nSay hello.\n"
COST = (
    "scripted model, 1 of 1 tools, about 180 fixed tokens (instructions 9, tools 171), 355 from the first fold on, by "
    "which caps are judged"
)


def test_skills_are_told_with_their_cost_and_those_that_cannot_be_loaded_are_wrong(home: Path) -> None:
    for name, text in (("greeting", SKILL), ("silent", "no front matter"), ("other", SKILL)):
        (home / "skills" / name).mkdir(parents=True)
        (home / "skills" / name / "SKILL.md").write_text(text)

    found = {(each.name, each.state) for each in findings_of(home, {}) if each.part == "skill"}

    assert ("greeting", "ok") in found
    assert ("skills/silent/SKILL.md", "WRONG") in found
    assert any(state == "doubtful" and place.startswith("skills/other") for place, state in found)
    (cost,) = [each.detail for each in findings_of(home, {}) if each.name == "greeting"]
    assert cost == "about 19 tokens in the index, 3 when it is loaded"


def test_a_skill_costs_the_same_wherever_it_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "skills" / "greeting"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "references" / "words.md").write_text("Good day.\n")

    main(["skills", "list", "--json", "--home", str(home)])
    main(["skills", "check", "--json", "--home", str(home)])

    listed, checked = map(msgspec.json.decode, capsys.readouterr().out.splitlines())
    (cost,) = [each.detail for each in findings_of(home, {}) if each.name == "greeting"]
    assert listed["loaded_tokens"] == checked["loaded_tokens"]
    assert cost == f"about 19 tokens in the index, {listed['loaded_tokens']} when it is loaded"


def test_agent_whose_fixed_parts_have_grown_over_its_cap_is_wrong_with_the_numbers(home: Path) -> None:
    file = home / "config" / "agents" / "clerk.toml"
    file.write_text("fixed_tokens_max = 100\n" + file.read_text())

    assert wrong(home) == [
        (
            "agent",
            "config/agents/clerk.toml",
            "the total of its fixed parts is 355 tokens (instructions 9, tools 346), expected at most 100 by "
            "fixed_tokens_max; shorten the prompt, allow fewer tools or skills",
        )
    ]


def test_flawless_home_is_told_part_by_part(home: Path) -> None:
    assert list(findings_of(home, {})) == [
        Finding(
            part="settings",
            name="config/torpor.toml",
            ok=True,
            detail="not there, every option has its default",
        ),
        Finding(part="agent", name="config/agents/clerk.toml", ok=True, detail=COST),
        Finding(part="rehearsal", name="config/rehearsals/clerk.toml", ok=True, detail="calls look"),
        Finding(part="tool", name="look", ok=True, detail="read, about 33 tokens"),
        *(
            Finding(part="tool", name=name, ok=True, detail=f"the engine's, about {tokens} tokens {when}")
            for name, tokens, when in ENGINE_TOOLS
        ),
    ]


def test_a_tool_that_no_agent_may_call_is_doubtful(home: Path) -> None:
    (home / "tools" / "hearing.py").write_text(TOOL.replace("look", "listen"))

    assert told(home, "tool")[:2] == [
        ("listen", "doubtful", "no agent may call it; read, about 33 tokens"),
        ("look", "ok", "read, about 33 tokens"),
    ]


def test_a_tool_that_only_a_sub_agent_may_call_is_not_doubtful(home: Path) -> None:
    (home / "tools" / "hearing.py").write_text(TOOL.replace("look", "listen"))
    (home / "config" / "subagents").mkdir()
    (home / "config" / "subagents" / "scout.toml").write_text(
        'name = "scout"\ndescription = "Have it heard."\nsystem = "You listen."\ntools = ["listen"]\n'
    )

    assert {state for _, state, _ in told(home, "tool")} == {"ok"}


def test_an_agent_without_a_list_of_tools_may_call_all_of_them(home: Path) -> None:
    (home / "tools" / "hearing.py").write_text(TOOL.replace("look", "listen"))
    agent = home / "config" / "agents" / "clerk.toml"
    agent.write_text(AGENT.replace("{tools}", "[]"))

    assert {state for _, state, _ in told(home, "tool")} == {"ok"}


def test_faults_of_settings_and_agents_are_told_beside_the_tools(home: Path) -> None:
    (home / "config" / "torpor.toml").write_text("[turn]\nmodel_calls_max = 'all'\n")
    (home / "config" / "agents" / "smith.toml").write_text('name = "smith"\n')

    assert wrong(home) == [
        ("settings", "config/torpor.toml", "turn.model_calls_max is 'all', expected int"),
        ("agent", "config/agents/smith.toml", "system is missing, expected a value, since it has no default"),
        ("agent", "config/agents/smith.toml", "model is missing, expected a value, since it has no default"),
    ]


def test_rehearsal_that_cannot_be_played_is_told_with_its_file(home: Path) -> None:
    (home / "config" / "rehearsals" / "clerk.toml").unlink()

    ((part, name, detail),) = wrong(home)

    assert (part, name) == ("agent", "config/rehearsals/clerk.toml")
    assert detail.startswith("file is missing, expected the rehearsal that config/agents/clerk.toml names")


def test_rehearsal_that_calls_what_its_agent_has_not_is_told(home: Path) -> None:
    agent = home / "config" / "agents" / "clerk.toml"
    agent.write_text(AGENT.replace("{tools}", '["read_result"]'))

    assert wrong(home) == [("rehearsal", "config/rehearsals/clerk.toml", "calls look, which its agent has not")]


def test_agent_that_allows_what_is_not_there_is_doubtful_as_a_start_only_warns_of_it(home: Path) -> None:
    (home / "tools" / "looking.py").write_text("1 +\n")

    (agent,) = [found for found in findings_of(home, {}) if found.part == "agent"]
    found = wrong(home)

    assert agent.state == "doubtful"
    assert agent.detail.startswith("tools names look, which this home has not; scripted model, 0 of 0 tools")
    assert found[0] == ("rehearsal", "config/rehearsals/clerk.toml", "calls look, which its agent has not")
    assert found[1][:2] == ("tool", "tools/looking.py:1")
    assert "SyntaxError" in found[1][2]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ('skills = ["greeting", "greting"]', "skills names greting, which this home has not; "),
        ('policies = ["fees", "feees", "*"]', "policies names feees, which this home has not; "),
        ('labels = ["publik", "clinical"]', "labels names 'publik', perhaps 'public'; "),
        ('skills = ["*"]\npolicies = ["*"]\nlabels = ["public", "clinical"]', "scripted model"),
    ],
)
def test_names_in_an_agents_lists_that_stand_for_nothing_are_doubtful(home: Path, line: str, detail: str) -> None:
    for name, text in {
        "skills/greeting/SKILL.md": SKILL,
        "config/policies/fees.md": "---\nid: fees\nversion: '1'\n---\nFees are due.\n",
    }.items():
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text(text)
    file = home / "config" / "agents" / "clerk.toml"
    file.write_text(f"{line}\n{file.read_text()}")

    (agent,) = [found for found in findings_of(home, {}) if found.part == "agent"]

    assert agent.state == ("ok" if detail == "scripted model" else "doubtful")
    assert agent.detail.startswith(detail)


def test_label_that_no_context_can_carry_is_wrong(home: Path) -> None:
    file = home / "config" / "agents" / "clerk.toml"
    file.write_text(f'labels = ["Staff only"]\n{file.read_text()}')

    ((part, name, detail),) = wrong(home)

    assert (part, name) == ("agent", "config/agents/clerk.toml")
    assert detail.startswith("labels[0] is 'Staff only', expected 1 to 32 characters among a-z, 0-9")


def test_variables_are_checked_as_well(home: Path) -> None:
    (found,) = [found for found in findings_of(home, {"TORPOR__TURN__CALLS": "1"}) if not found.ok]

    assert (found.part, found.name) == ("settings", "environment")
    assert found.detail.startswith("TORPOR__TURN__CALLS is unknown")


def test_what_a_variable_set_is_told_of_the_variable_and_not_of_the_file(home: Path) -> None:
    (home / "config/torpor.toml").write_text("[gateway]\ntls_key = 'gone.pem'\n")
    environ = {"TORPOR__GATEWAY__ORIGINS": '["a.example"]', "TORPOR__AUTH__SECRET_ENV": "GONE"}

    told = [(found.name, found.detail.partition(",")[0]) for found in findings_of(home, environ) if not found.ok]

    assert told == [
        ("environment", "TORPOR__AUTH__SECRET_ENV is GONE"),
        ("environment", "TORPOR__GATEWAY__ORIGINS is 'a.example'"),
        ("config/torpor.toml", "gateway.tls_certificate is ''"),
    ]


def test_an_exporter_of_traces_that_is_not_installed_is_wrong(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.delitem(sys.modules, "torpor.operations.tracing_export", raising=False)
    (found,) = [each for each in findings_of(home, {"TORPOR__TRACING__EXPORTER": "console"}) if not each.ok]

    assert found.name == "environment"
    assert found.detail.startswith("TORPOR__TRACING__EXPORTER is 'console', expected opentelemetry.sdk")


def test_all_that_an_object_store_lacks_is_told_at_once_and_the_settings_are_not_called_right(home: Path) -> None:
    table = {"KIND": "s3", "BUCKET": "b", "ACCESS_KEY_ENV": "BLOBS_KEY_ID", "SECRET_KEY_ENV": "BLOBS_KEY"}
    (found,) = [
        found
        for found in findings_of(home, {f"TORPOR__BLOBS__{name}": value for name, value in table.items()})
        if found.part == "settings"
    ]

    expected = (
        "TORPOR__BLOBS__ACCESS_KEY_ENV is BLOBS_KEY_ID and BLOBS_KEY, which are not set, expected variables that hold "
        "the key"
    )
    assert (found.ok, found.detail) == (False, expected)


@pytest.mark.parametrize(
    ("option", "detail"),
    [
        ('effort = "huge"', "model.effort is 'huge', expected one of 'high', 'low', 'max', 'medium', 'xhigh'"),
        ('cache_ttl = "2h"', "model.cache_ttl is '2h', expected one of '1h', '5m', 'off'"),
        ("proxy = 3", "model.proxy is 3, expected str"),
    ],
)
def test_option_of_a_model_that_does_not_fit_is_told_with_what_would(home: Path, option: str, detail: str) -> None:
    agent = AGENT.replace("{tools}", "[]").replace('kind = "scripted"', f'kind = "anthropic"\nmodel = "m"\n{option}')
    (home / "config" / "agents" / "clerk.toml").write_text(agent)

    assert wrong(home) == [("agent", "config/agents/clerk.toml", detail)]


def declare(home: Path, text: str) -> None:
    (home / "config" / "flags.toml").write_text(text)


def told(home: Path, part: str) -> list[tuple[str, str, str]]:
    return [(found.name, found.state, found.detail) for found in findings_of(home, {}) if found.part == part]


def test_flags_are_told_with_their_defaults(home: Path) -> None:
    declare(
        home,
        '[flags."tool.look"]\ndefault = true\n[[flags."tool.look".rules]]\nagent = "clerk"\nvalue = false\n'
        '[flags."tool.read_result"]\ndefault = false\n[flags.memory]\ndefault = true\n',
    )

    assert told(home, "flag") == [
        ("memory", "ok", "on by default, nothing asks for it yet"),
        ("tool.look", "ok", "on by default, 1 rule"),
        ("tool.read_result", "ok", "off by default"),
    ]


def test_flag_that_gates_nothing_known_is_doubtful(home: Path) -> None:
    (home / "skills" / "greeting").mkdir(parents=True)
    (home / "skills" / "greeting" / "SKILL.md").write_text(SKILL)
    declare(
        home,
        '[flags."tool.lok"]\ndefault = true\n[flags."skill.greeting"]\ndefault = true\n'
        '[[flags."skill.greeting".rules]]\nagent = ["clerk", "smith"]\nvalue = true\n'
        '[flags."subagent.plan"]\ndefault = true\n',
    )

    assert told(home, "flag") == [
        ("skill.greeting", "doubtful", "has a rule for smith, which is no agent of this home"),
        ("subagent.plan", "doubtful", "gates nothing: there is no subagent 'plan' in this home"),
        ("tool.lok", "doubtful", "gates nothing: there is no tool 'lok' in this home, perhaps 'look'"),
    ]
    assert wrong(home) == []


def test_rules_beside_another_provider_are_doubtful(home: Path) -> None:
    declare(home, "[flags.memory]\ndefault = true\n[[flags.memory.rules]]\nvalue = false\n")
    (home / "config" / "torpor.toml").write_text('[flags]\nprovider = "elsewhere:make"\n')

    assert told(home, "flag") == [("memory", "doubtful", "has rules, which elsewhere:make does not read")]


def test_every_fault_of_the_flags_is_told_with_its_line(home: Path) -> None:
    declare(home, '[flags."tool.look"]\ndefault = 1\n[flags.tol]\ndefault = true\n')

    assert [name for name, state, _ in told(home, "flag") if state == "WRONG"] == [
        "config/flags.toml:1",
        "config/flags.toml:3",
    ]


def test_policies_are_told_and_files_that_are_none(home: Path) -> None:
    folder = home / "config" / "policies"
    folder.mkdir()
    (folder / "visits.md").write_text("---\nid: visits\nversion: 3\n---\n# Late\nWait.\n# Missed\nPay.\n")
    (folder / "notes.md").write_text("Remember the milk.\n")

    assert told(home, "policy") == [
        ("config/policies/visits.md", "ok", "visits 3, 2 excerpts"),
        (
            "config/policies/notes.md:1",
            "WRONG",
            "does not begin with front matter, expected id and version between two lines of ---",
        ),
    ]


def test_a_secret_that_others_may_read_is_doubtful(home: Path) -> None:
    (home / "config/torpor.toml").write_text('[auth]\nsecret_file = "secret.txt"\n')
    (home / "secret.txt").write_text("s" * 48)
    for mode, state in ((0o600, []), (0o644, ["doubtful"])):
        (home / "secret.txt").chmod(mode)
        told = [found for found in findings_of(home, {}) if found.detail.startswith("auth.secret_file: ")]
        assert [found.state for found in told] == state


def test_a_data_folder_that_no_server_could_use_is_wrong_and_another_one_may_be_named(home: Path) -> None:
    (home / ".torpor").write_text("")

    assert wrong(home) == [
        (
            "data",
            str(home / ".torpor"),
            "data folder is unusable (file exists), expected one that this user may write in: make it so, or name "
            "another one with --data",
        )
    ]
    assert [found for found in findings_of(home, {}, data=home / "other") if not found.ok] == []
    assert not (home / "other").exists()
