"""Files and variables become settings, and everything wrong in them is told with its place."""

import itertools
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torpor.actor.options import ActorOptions
from torpor.conversation.budget import PROFILES, Profile
from torpor.errors import ConfigError
from torpor.gateway.options import GatewayOptions
from torpor.settings import SECTIONS, Settings, SettingsInvalid, read_section, read_settings

SHIPPED = Path(__file__).parents[2] / "config" / "torpor.toml"
AGENT = """
name = "clerk"
system = "You help."
[model]
kind = "scripted"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with one agent and no settings file."""
    (tmp_path / "config" / "agents").mkdir(parents=True)
    (tmp_path / "config" / "agents" / "clerk.toml").write_text(AGENT)
    return tmp_path


def write_settings(home: Path, text: str) -> None:
    (home / "config" / "torpor.toml").write_text(text)


def write_agent(home: Path, name: str, text: str) -> None:
    (home / "config" / "agents" / f"{name}.toml").write_text(text)


def problems_of(home: Path, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsInvalid) as caught:
        read_settings(home, environ or {})
    return [str(problem) for problem in caught.value.problems]


def test_shipped_file_says_every_default_and_nothing_else() -> None:
    defaults = {name: msgspec.json.decode(msgspec.json.encode(options())) for name, options in SECTIONS.items()}

    told = tomllib.loads(SHIPPED.read_text())
    profiles = {name: msgspec.convert(table, Profile) for name, table in told.pop("profiles").items()}

    assert told == defaults
    assert profiles == PROFILES


def test_shipped_file_explains_every_value_and_names_its_unit() -> None:
    lines = SHIPPED.read_text().splitlines()
    values = [(above, line) for above, line in itertools.pairwise(lines) if re.match(r"\w+ = ", line)]

    bare = [line for above, line in values if not (re.match("# .", above) and re.search(r" # \S", line))]

    assert bare == []
    profiles = tomllib.loads(SHIPPED.read_text())["profiles"].values()
    told = sum(len(msgspec.structs.fields(options)) for options in SECTIONS.values()) + sum(map(len, profiles))
    assert len(values) >= told


def test_home_without_a_settings_file_lives_on_the_defaults(home: Path) -> None:
    settings = read_settings(home, {})

    assert settings == Settings(home=home, agents=settings.agents)
    assert [agent.name for agent in settings.agents] == ["clerk"]


def test_file_changes_what_it_names_and_leaves_the_rest(home: Path) -> None:
    write_settings(home, "[actor]\nmailbox_capacity = 3\nsnapshot_share = 1\n")

    assert read_settings(home, {}).actor == ActorOptions(mailbox_capacity=3, snapshot_share=1.0)


def test_variable_wins_over_the_file_and_takes_the_type_of_its_field(home: Path) -> None:
    write_settings(home, "[actor]\nmailbox_capacity = 3\n[gateway]\nport = 1\n")
    environ = {
        "TORPOR__ACTOR__MAILBOX_CAPACITY": "5",
        "TORPOR__ACTOR__BUSY_RETRY_AFTER_S": "2.5",
        "TORPOR__GATEWAY__HOST": "0",
        "TORPOR__STORE__SYNCHRONOUS": "normal",
        "TORPOR_TOKEN": "not a setting",
        "PATH": "neither",
    }

    settings = read_settings(home, environ)

    assert settings.actor == ActorOptions(mailbox_capacity=5, busy_retry_after_s=2.5)
    assert settings.gateway == GatewayOptions(host="0", port=1)
    assert settings.store.synchronous == "normal"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[actor]\nmailbox_size = 3\n", "actor.mailbox_size is unknown, expected perhaps 'mailbox_capacity'"),
        ("[actor]\nmailbox_capacity = '3'\n", "actor.mailbox_capacity is '3', expected int"),
        ("[actor]\nsnapshot_share = true\n", "actor.snapshot_share is True, expected float"),
        ("[acto]\n", "acto is unknown, expected perhaps 'actor'"),
        ("actor = 3\n", "actor is 3, expected a table [actor]"),
        ("[store]\nsynchronous = 'off'\n", "store.synchronous is 'off', expected one of 'full', 'normal'"),
        ("[tools]\nworker_threads = 0\n", "tools.worker_threads is 0, expected int >= 1"),
        (
            "[profiles.small]\nbudget_tokens = 2000\nfixed_tokens = 1200\npolicies_tokens = 1000\n",
            "profiles.small is 2,200 tokens in its allotments together, expected at most its budget_tokens of 2,000",
        ),
        ("[actor\n", "content is not TOML (Expected ']' at the end of a table declaration"),
    ],
)
def test_unusable_setting_is_told_with_file_key_found_and_expected(home: Path, text: str, problem: str) -> None:
    write_settings(home, text)

    (told,) = problems_of(home)

    assert told.startswith(f"config/torpor.toml: {problem}")


def test_a_variable_that_is_like_none_is_told_the_nearest_ones_and_not_all(home: Path) -> None:
    (told,) = problems_of(home, {"TORPOR__ZOO__ZEBRA": "1"})

    assert "names, the nearest are TORPOR__" in told
    assert told.count("TORPOR__") == 4


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("TORPOR__ACTOR__MAILBOX_CAPACITY", "many", "is 'many', expected int"),
        ("TORPOR__ACTOR__MAILBOX_SIZE", "1", "is unknown, expected perhaps 'TORPOR__ACTOR__MAILBOX_CAPACITY'"),
        ("TORPOR__GATEWAY__LIVE_MAX", "1", "is unknown, expected perhaps 'TORPOR__SUPERVISOR__LIVE_MAX'"),
        ("TORPOR__SERVER__PORT", "1", "is unknown, expected perhaps 'TORPOR__GATEWAY__PORT'"),
        ("TORPOR__GATWAY__HST", "1", "is unknown, expected perhaps 'TORPOR__GATEWAY__HOST'"),
        ("TORPOR__GATEWAY_PORT", "1", "is unknown, expected perhaps 'TORPOR__GATEWAY__PORT'"),
        ("TORPOR__ACTOR", "1", "is unknown, expected one of TORPOR__ACTOR__"),
        ("TORPOR__TURN__MODEL_CALL_DEADLINE_S", "1", "is unknown, expected perhaps 'TORPOR__TURN__MODEL_DEADLINE_S'"),
        ("TORPOR__LOGS__DEADLINE_S", "1", "is unknown, expected one of TORPOR__LOGS__FORMAT, TORPOR__LOGS__LEVEL"),
        ("TORPOR__TOOLS__DEADLINE_S", "0", "is '0', expected float > 0"),
        ("TORPOR_GATEWAY__PORT", "1", "is unknown, expected perhaps 'TORPOR__GATEWAY__PORT'"),
        ("TORPOR_SERVER__PORT", "1", "is unknown, expected perhaps 'TORPOR__GATEWAY__PORT'"),
        (
            "TORPOR__GATEWAY__ORIGINS",
            "https://a.example",
            """is 'https://a.example', expected a list as JSON, like ["https://a.example"]""",
        ),
        (
            "TORPOR__GATEWAY__ORIGINS",
            "[https://a.example,https://b.example]",
            "is '[https://a.example,https://b.example]', expected a list as JSON, like "
            """["https://a.example", "https://b.example"]""",
        ),
        ("TORPOR__GATEWAY__ORIGINS", "[3]", "is '[3]', expected str"),
        ("TORPOR__FLAGS__PROVIDER_OPTIONS", "url", """is 'url', expected a table as JSON, like {"NAME": "..."}"""),
    ],
)
def test_unusable_variable_is_told_with_its_name(home: Path, variable: str, value: str, problem: str) -> None:
    (told,) = problems_of(home, {variable: value})

    assert told.startswith(f"environment: {variable} {problem}")


NUMBERS = [
    (section, field.name)
    for section, options in SECTIONS.items()
    for field in msgspec.structs.fields(options)
    if isinstance(field.default, int | float) and not isinstance(field.default, bool)
]


@pytest.mark.parametrize(("section", "name"), NUMBERS)
def test_every_number_has_a_range(home: Path, section: str, name: str) -> None:
    write_settings(home, f"[{section}]\n{name} = -1\n")
    (problem,) = problems_of(home)
    assert f"{section}.{name} is -1" in problem


@pytest.mark.parametrize(
    "text", ["[gateway]\nport = 99999", "[actor]\nsnapshot_share = 1.5", "[actor]\nmailbox_capacity = 0"]
)
def test_a_number_out_of_its_range_is_told(home: Path, text: str) -> None:
    write_settings(home, text)
    assert len(problems_of(home)) == 1


def test_settings_file_in_another_encoding_is_told(home: Path) -> None:
    (home / "config" / "torpor.toml").write_bytes("# Größe\n".encode("latin-1"))

    (told,) = problems_of(home)

    assert told.startswith("config/torpor.toml: content is not TOML ('utf-8' codec")


def test_settings_file_that_cannot_be_read_is_told(home: Path) -> None:
    (home / "config" / "torpor.toml").mkdir()

    expected = "expected a file that this user may read"
    assert problems_of(home) == [f"config/torpor.toml: file is unreadable (is a directory), {expected}"]


def test_agents_that_cannot_be_read_are_told_one_by_one(home: Path) -> None:
    (home / "config" / "agents" / "folder.toml").mkdir()
    (home / "config" / "agents" / "gone.toml").symlink_to("nowhere")
    (home / "config" / "agents" / ".#clerk.toml").symlink_to("what an editor leaves")

    assert problems_of(home) == [
        "config/agents/folder.toml: file is unreadable (is a directory), expected a file that this user may read",
        "config/agents/gone.toml: file is unreadable (a link that leads to no file), "
        "expected a file that this user may read",
    ]


def test_a_home_that_is_not_there_is_told(home: Path) -> None:
    nowhere = home / "nowhere"

    assert problems_of(nowhere) == [f"{nowhere}: home is missing, expected a directory; `torpor init DIR` makes one"]


def test_a_folder_of_agents_that_cannot_be_listed_is_told(home: Path) -> None:
    (home / "config" / "agents" / "clerk.toml").unlink()
    (home / "config" / "agents").rmdir()
    (home / "config" / "agents").write_text("a file")

    expected = "expected a folder that this user may read"
    assert problems_of(home) == [f"config/agents: folder is unreadable (not a directory), {expected}"]


def test_text_nested_without_end_is_told_and_never_followed(home: Path) -> None:
    endless = "[" * 50_000 + "]" * 50_000
    write_settings(home, f"x = {endless}")

    told = problems_of(home, {"TORPOR__GATEWAY__PORT": endless})

    assert told[0] == "config/torpor.toml: content is nested too deeply, expected a few levels of tables and lists"
    assert told[1].endswith("expected int")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": None}, "name is missing, expected a value, since it has no default"),
        ({"name": "baker"}, "name is 'baker', expected the name of its file, 'clerk'"),
        ({"prompt": "x"}, "prompt is unknown, expected one of "),
        ({"tools": ["pay", 3]}, "tools[1] is 3, expected str"),
        ({"mcp": "web"}, "mcp is 'web', expected a list, as in mcp = [\"web\"]"),
        ({"max_tokens": "many"}, "max_tokens is 'many', expected int"),
        (
            {"system": None, "model": {"kind": "scripted", "system": "You help."}},
            "system is missing, expected it above [model]",
        ),
        ({"model": {}}, "model.kind is missing, expected the name of a model adapter"),
    ],
)
def test_unusable_agent_is_told_with_its_file(home: Path, change: dict[str, Any], problem: str) -> None:
    fields = {"name": "clerk", "system": "You help.", "model": {"kind": "scripted"}, **change}
    write_agent(home, "clerk", as_toml({key: value for key, value in fields.items() if value is not None}))

    (told,) = problems_of(home)

    assert told.startswith(f"config/agents/clerk.toml: {problem}")


def test_unknown_key_in_a_table_of_an_agent_is_told_with_its_place(home: Path) -> None:
    text = 'name = "clerk"\nsystem = "s"\n[model]\nkind = "scripted"\n[summary]\nmodle = "x"\n'
    write_agent(home, "clerk", text)

    (told,) = problems_of(home)

    assert told == ("config/agents/clerk.toml: summary.modle is unknown, expected one of max_tokens, model, prompt")


def as_toml(fields: dict[str, Any]) -> str:
    """Enough of TOML for the agents here: JSON values, tables last."""
    plain = [f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in fields.items() if key != "model"]
    model = [f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in fields["model"].items()]
    return "".join([*plain, "[model]\n", *model])


def test_second_default_agent_is_told(home: Path) -> None:
    write_agent(home, "clerk", "default = true\n" + AGENT)
    write_agent(home, "smith", "default = true\n" + AGENT.replace("clerk", "smith"))

    assert problems_of(home) == [
        "config/agents/smith.toml: default is True, expected one default agent, which 'clerk' is already"
    ]


def test_home_without_agents_is_told_the_remedy(tmp_path: Path) -> None:
    assert problems_of(tmp_path) == [
        f"{tmp_path}: config/agents/*.toml is missing, expected at least one agent; "
        "`torpor init DIR` makes a home with one"
    ]


def test_all_that_is_wrong_is_told_at_once(home: Path) -> None:
    write_settings(home, "[actor]\nmailbox_capacity = 'x'\nsweep = 1\n")
    write_agent(home, "smith", "name = ")

    told = problems_of(home, {"TORPOR__GATEWAY__PORT": "http"})

    assert [line.partition(" is ")[0] for line in told] == [
        "config/torpor.toml: actor.mailbox_capacity",
        "config/torpor.toml: actor.sweep",
        "environment: TORPOR__GATEWAY__PORT",
        "config/agents/smith.toml: content",
    ]


def test_error_reads_as_one_line_for_each_problem_and_is_one_kind_of_config_error(home: Path) -> None:
    write_settings(home, "[actor]\nmailbox_capacity = 'x'\nsweep = 1\n")

    with pytest.raises(ConfigError) as caught:
        read_settings(home, {})

    assert len(str(caught.value).splitlines()) == 2
    assert (caught.value.where, caught.value.key, caught.value.found) == (
        "config/torpor.toml",
        "actor.mailbox_capacity",
        "x",
    )


def test_variables_of_this_test_run_would_not_be_mistaken_for_settings(home: Path) -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TORPOR__")}

    assert read_settings(home, ours) == read_settings(home, {})


def test_one_section_is_read_whatever_is_wrong_elsewhere(home: Path) -> None:
    write_settings(home, "[auth]\nissuer = 'us'\n[actor]\nmailbox_capacity = 'many'\n[actr]\n")

    auth = read_section(home, {"TORPOR__AUTH__AUDIENCE": "torpor", "TORPOR__ACTOR__GONE": "1"}, name="auth")

    assert (auth.issuer, auth.audience) == ("us", "torpor")


@pytest.mark.parametrize(
    ("text", "environ", "problem"),
    [
        ("[auth]\nisuer = 'us'\n", {}, "auth.isuer is unknown"),
        ("", {"TORPOR__AUTH__ISUER": "us"}, "TORPOR__AUTH__ISUER is unknown"),
        ("[auth\n", {}, "content is not TOML"),
    ],
)
def test_what_is_wrong_in_one_section_is_told(home: Path, text: str, environ: dict[str, str], problem: str) -> None:
    write_settings(home, text)

    with pytest.raises(SettingsInvalid, match=problem):
        read_section(home, environ, name="auth")


def test_without_a_home_a_section_has_its_defaults(tmp_path: Path) -> None:
    assert read_section(tmp_path / "gone", {}, name="auth") == SECTIONS["auth"]()
