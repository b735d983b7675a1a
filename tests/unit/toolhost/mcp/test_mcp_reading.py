"""``config/mcp.toml`` is read whole or told in what it fails, and no secret is told."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from torpor.errors import ConfigError
from torpor.toolhost.mcp.options import McpServer, Reference
from torpor.toolhost.mcp.reading import McpTables
from torpor.toolhost.mcp.session import Opening
from torpor.toolhost.mcp.values import NoCredential, Values

SECRET = "s3cret-value"


def tables(text: str, home: Path, environ: dict[str, str] | None = None) -> McpTables:
    return McpTables(tomllib.loads(text), home=home, environ=environ or {})


FAULTS: dict[str, tuple[str, str]] = {
    "neither": ("[mcp.a]", "mcp.a is neither, expected either command, for a program, or url"),
    "both": ('[mcp.a]\ncommand = "x"\nurl = "http://x"', "mcp.a is both"),
    "foreign": ('[mcp.a]\nurl = "http://x/"\nargs = ["x"]', "mcp.a.args is a value, expected nothing"),
    "headers": ('[mcp.a]\ncommand = "x"\nheaders = { A = "b" }', "mcp.a.headers is a value"),
    "scheme": ('[mcp.a]\nurl = "ftp://x"', "mcp.a.url is another kind of address"),
    "userinfo": (f'[mcp.a]\nurl = "https://me:{SECRET}@x/"', "mcp.a.url is an address with a name or password in it"),
    "unknown": ('[mcp.a]\ncommand = "x"\ncomand = "y"', "mcp.a.comand is unknown"),
    "name": ('[mcp.a__b]\ncommand = "x"', "mcp.a__b is the name 'a__b'"),
    "other": ("[servers]", "servers is unknown, expected tables [mcp.NAME]"),
    "no table": ("mcp = 1", "mcp is no table"),
    "wrong value": (f'[mcp.a]\ncommand = "x"\nenv = "{SECRET}"', "mcp.a.env is"),
    "wrong inner": ('[mcp.a]\ncommand = "x"\nenv = { A = 1 }', "mcp.a.env"),
    "no place": ('[mcp.a]\ncommand = "x"\nenv = { A = {} }', "mcp.a.env.A is no single place"),
    "no list": ('[mcp.a]\ncommand = "x"\nargs = "y"', 'mcp.a.args is a text, expected a list, as in args = ["..."]'),
    "variable": (
        '[mcp.a]\ncommand = "x"\nenv = { A = { env = "GONE" } }',
        "is the variable GONE, which is not set, expected a value in it",
    ),
    "file": (
        '[mcp.a]\ncommand = "x"\nenv = { A = { file = "gone" } }',
        "/gone', unreadable (no such file or directory)",
    ),
    "control": ('[mcp.a]\ncommand = "x"\nenv = { A = "a\\nb" }', "mcp.a.env.A is a value with control characters"),
    "credential": (
        '[mcp.a]\ncommand = "x"\nenv = { A = { credential = true } }',
        "mcp.a.env.A is the credential of each user, expected a reference by env or file",
    ),
    "unused": ('[mcp.a]\ncommand = "x"\ncredentials = "s/{principal}"', "mcp.a.credentials is not used"),
    "everybody's": (
        '[mcp.a]\ncommand = "x"\ncredentials = "s/all"\nenv = { A = { credential = true } }',
        "mcp.a.credentials is 's/all', expected a file name with {principal} in it",
    ),
    "program": ('[mcp.a]\ncommand = "x\\u0000y"', "mcp.a.command is a text with a NUL in it"),
    "argument": ('[mcp.a]\ncommand = "x"\nargs = ["a", "b\\u0000"]', "mcp.a.args[1] is a text with a NUL in it"),
    "variable's name": (
        '[mcp.a]\ncommand = "x"\nenv = { "A=B" = "c" }',
        "mcp.a.env is the variable 'A=B', expected names",
    ),
    "no variable's name": ('[mcp.a]\ncommand = "x"\nenv = { "" = "c" }', "mcp.a.env is the variable ''"),
    "cut variable": ('[mcp.a]\ncommand = "x"\nenv = { "A\\u0000" = "c" }', r"mcp.a.env is the variable 'A\x00'"),
    "header": (
        '[mcp.a]\nurl = "http://x"\nheaders = { "A:" = "c" }',
        "mcp.a.headers is the header 'A:', expected names",
    ),
    "deadline": ('[mcp.a]\ncommand = "x"\ndeadline_s = 0', "mcp.a.deadline_s"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_its_place_and_without_values(name: str, tmp_path: Path) -> None:
    text, expected = FAULTS[name]

    problems = [str(problem) for problem in tables(text, tmp_path).problems]

    assert any(expected in problem for problem in problems), problems
    assert not any(SECRET in problem for problem in problems)


def test_a_faulty_server_leaves_the_others(tmp_path: Path) -> None:
    read = tables('[mcp.a]\n[mcp.b]\ncommand = "x"', tmp_path)

    assert set(read.servers) == {"b"}
    assert len(read.problems) == 1


def test_references_become_values(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f" {SECRET}\n")
    text = """
        [mcp.a]
        url = "https://x/mcp"
        headers = { A = "plain", B = { env = "TOKEN", prefix = "Bearer " }, C = { file = "token" } }
    """
    read = tables(text, tmp_path, {"TOKEN": "t"})
    values = Values(tmp_path, {"TOKEN": "t"})

    assert read.problems == []
    assert values.of("a", read.servers["a"], "headers", tenant="", principal="") == {
        "A": "plain", "B": "Bearer t", "C": SECRET,
    }  # fmt: skip


def server_of_users(credentials: str = "keys/{tenant}/{principal}") -> McpServer:
    return McpServer(url="https://x/", credentials=credentials, headers={"A": Reference(credential=True, prefix="B ")})


def header(values: Values, tenant: str, principal: str, server: McpServer | None = None) -> str:
    return values.of("a", server or server_of_users(), "headers", tenant=tenant, principal=principal)["A"]


def test_each_user_has_the_credential_of_their_own_file(tmp_path: Path) -> None:
    values = Values(tmp_path, {})
    for tenant, principal in (("north", "ada@example.org"), ("north", "bob"), ("south", "bob")):
        (tmp_path / "keys" / tenant).mkdir(parents=True, exist_ok=True)
        (tmp_path / "keys" / tenant / principal).write_text(f"{tenant}-{principal}")

    assert header(values, "north", "ada@example.org") == "B north-ada@example.org"
    assert header(values, "south", "bob") == "B south-bob"
    for tenant, principal in (("south", "ada"), ("north", ""), ("north", "x" * 999)):
        assert not values.has_credential(server_of_users(), tenant=tenant, principal=principal)
        with pytest.raises(NoCredential):
            header(values, tenant, principal)


@pytest.mark.parametrize("principal", ["../other", "..", ".", "/etc/passwd", "a/../b", "{tenant}", "\0"])
def test_no_name_leads_to_another_file(principal: str, tmp_path: Path) -> None:
    (tmp_path / "keys" / "north").mkdir(parents=True)
    (tmp_path / "keys" / "other").write_text("other's")

    with pytest.raises(NoCredential):
        header(Values(tmp_path, {}), "north", principal)


def test_secrets_that_others_may_read_are_told_by_their_files(tmp_path: Path) -> None:
    for name, mode in {"open": 0o640, "closed": 0o600, "t/ada": 0o600, "t/bob": 0o604, "t/cy": 0o644}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SECRET)
        (tmp_path / name).chmod(mode)
    values = Values(tmp_path, {})
    env = {name: Reference(file=file) for name, file in {"A": "open", "B": "closed", "C": "gone", "D": "open"}.items()}
    own = McpServer(command="x", env={"A": Reference(credential=True)}, credentials="{tenant}/{principal}")

    (shared,) = values.readable_by_others(McpServer(command="x", env={**env, "E": "plain"}))
    (users,) = values.readable_by_others(own)

    file = tmp_path / "open"
    assert shared == f"{file} has mode 0640, so that others may read it, expected 0600: chmod 600 {file}"
    assert users.startswith(f"{tmp_path / 't' / 'bob'} has mode 0604")


def test_a_reference_tells_no_more_than_its_place(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "odd").write_bytes(b"\xff")
    for file in ("empty", "odd"):
        server = McpServer(command="x", env={"A": Reference(file=file, prefix=SECRET)})
        with pytest.raises(ConfigError) as caught:
            Values(tmp_path, {}).of("a", server, "env", tenant="", principal="")
        assert SECRET not in str(caught.value)
    assert SECRET not in repr(Reference(env="NAME", prefix=SECRET))


def test_where_a_server_is_is_told_without_its_query() -> None:
    shown: Any = [McpServer(url=f"https://x:8/{SECRET}?k={SECRET}").told_as, McpServer(command="npx").told_as]

    assert shown == ["https://x:8", "npx"]
    addresses = (f"https://x:8/v1/mcp?k={SECRET}", f"https://x/{SECRET}/model-context#{SECRET}", "https://x?k=1")
    places = [McpServer(url=url).place for url in addresses] + [McpServer(command="npx").place]
    assert places == ["https://x:8/v1/mcp", "https://x/…/model-context", "https://x", "npx"]


def test_nothing_secret_is_in_what_a_server_looks_like() -> None:
    server = McpServer(url="https://x/", headers={"A": SECRET})
    opening = Opening(
        server=server,
        cwd="",
        env={},
        headers={"A": SECRET},
        changed=print,
        ended=print,
        stale=print,
        printed=print,
        message_bytes_max=1,
        pages_max=1,
    )

    assert SECRET not in f"{server!r} {opening!r}"
