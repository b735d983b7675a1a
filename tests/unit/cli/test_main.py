"""Verbs by name, faults in one line, exit codes."""

import os
import subprocess
import sys
import traceback

import click
import pytest

from torpor.cli import main as command_line
from torpor.cli.main import VERBS, command_of, main
from torpor.errors import ConfigError, NothingToCancel, NotPermitted, TorporError


@pytest.fixture
def verb_that_raises(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A list; ``torpor serve`` raises what is put into it."""
    faults: list[BaseException] = []

    @click.command("serve")
    def command() -> None:
        raise faults[0]

    monkeypatch.setattr(command_line.torpor, "get_command", lambda *_: command)
    return faults


def test_help_names_every_verb_without_importing_one() -> None:
    probe = "import sys; from torpor.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"

    shown = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)

    assert [verb for verb in VERBS if f"\n  {verb} " not in shown.stdout] == []
    loaded = set(shown.stderr.split())
    assert loaded & {f"torpor.cli.{verb.replace('-', '_')}" for verb in VERBS} == set()
    assert loaded & {"anyio", "websockets", "jwt", "sqlite3", "anthropic", "structlog"} == set()


@pytest.mark.parametrize("verb", VERBS)
def test_verb_describes_itself_as_the_table_does(verb: str) -> None:
    assert command_of(verb).short_help == VERBS[verb]


def test_unknown_verb_is_used_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert capsys.readouterr().err == "torpor: no such command 'fly'; see `torpor --help`\n"


def test_missing_option_names_the_verb_whose_help_tells_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token"]) == 2
    assert capsys.readouterr().err == "torpor: missing option '--subject'; see `torpor token --help`\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("torpor 0.")


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (click.ClickException("no server here"), "torpor: no server here\n"),
        (
            ConfigError("config/torpor.toml", key="turn.x", found=1, expected="a b"),
            "torpor: config/torpor.toml: turn.x is 1, expected a b\n",
        ),
        (NothingToCancel(), "torpor: no turn is running in this conversation (nothing_to_cancel)\n"),
        (
            NotPermitted("thaw", scope="operator"),
            "torpor: thaw needs the scope 'operator', which the token does not carry (not_permitted); "
            "`torpor token --scope` signs one that does\n",
        ),
        (PermissionError(13, "Permission denied", "secret"), "torpor: secret: permission denied\n"),
        (ConnectionRefusedError(111, "Connection refused"), "torpor: Connection refused\n"),
        (
            ExceptionGroup("two", [TorporError("one\ntwo"), ExceptionGroup("more", [TorporError("two")])]),
            "torpor: one\ntorpor: two\n",
        ),
    ],
)
def test_foreseen_fault_is_told_without_a_traceback(
    verb_that_raises: list[BaseException], fault: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb_that_raises.append(fault)

    assert main(["serve"]) == 1
    assert capsys.readouterr().err == line


def test_debug_shows_where_a_fault_came_from(
    verb_that_raises: list[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORPOR_DEBUG", "1")
    verb_that_raises.append(TorporError("a fault"))

    assert main(["serve"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.endswith("torpor: a fault\n")


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_has_its_own_exit_code_and_says_nothing(
    verb_that_raises: list[BaseException], fault: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    verb_that_raises.append(fault)

    assert main(["serve"]) == 130
    assert capsys.readouterr().err.strip() == ""


@pytest.mark.parametrize("bug", [ValueError("a bug"), ExceptionGroup("both", [TorporError("a fault"), ValueError()])])
def test_bug_is_not_passed_off_as_a_fault(verb_that_raises: list[BaseException], bug: Exception) -> None:
    verb_that_raises.append(bug)

    with pytest.raises(type(bug)):
        main(["serve"])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_reader_that_has_gone_is_no_reason_for_a_traceback(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    try:
        run = subprocess.run(
            [sys.executable, "-m", "torpor.cli.main", *arguments], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)

    assert (run.returncode, run.stderr) == (1, b"")


def test_reader_who_has_gone_is_noticed_in_a_task_as_well() -> None:
    script = (
        "import sys; from torpor.cli import main as command_line\n"
        "def raising(*_, **__): raise ExceptionGroup('tasks', [BrokenPipeError(32, 'Broken pipe')])\n"
        "command_line.torpor.main = raising\n"
        "sys.exit(command_line.main([]))"
    )

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    assert (run.returncode, run.stdout, run.stderr) == (1, b"", b"")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if isinstance(command_of(verb), click.Group)])
def test_what_a_command_does_is_not_cut_short_in_the_help_of_its_group(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([verb, "--help"])

    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_bug_is_shown_however_many_task_groups_it_comes_through(verb_that_raises: list[BaseException]) -> None:
    bug: Exception = ValueError("a bug")
    for _ in range(12):
        bug = ExceptionGroup("unhandled errors in a TaskGroup", [bug])
    verb_that_raises.append(bug)

    with pytest.raises(ValueError, match="a bug") as raised:
        main(["serve"])

    assert "a bug" in "".join(traceback.format_exception(raised.value))
