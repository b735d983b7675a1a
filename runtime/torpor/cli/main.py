"""The ``torpor`` command: finds the verb, runs it, and turns whatever went wrong into one line and an exit code.

A verb is a module of this package with a click command named ``command``. It is imported when it is called and not
before, so the names and the help of all of them stand in a table here. Below: the composition root for ``serve``, the
Python client for the verbs that ask a running server.

Exit codes: 0 done, 1 failed, 2 used wrongly, 130 stopped by Ctrl-C; a verb's help names those of its own. With
``TORPOR_DEBUG=1`` a fault shows where it came from.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Final

import click

from torpor.errors import ClientError, ConfigError, TorporError
from torpor.variables import as_it_was_set

VERBS: Final = {
    "serve": "Start the engine in an agent home.",
    "chat": "Talk to an agent in the terminal.",
    "send": "Send one message and print the reply.",
    "ps": "List conversations and what they are doing.",
    "inspect": "Show the journal of a conversation as a timeline.",
    "verify": "Rebuild every request from the journal and compare.",
    "fetch": "Get a file back that somebody sent.",
    "link": "Give an address from which anybody may get a file.",
    "export": "Write a conversation into a file.",
    "import": "Read a conversation from a file.",
    "create": "Begin a conversation without a message.",
    "rename": "Give a conversation another title.",
    "archive": "Have lists leave a conversation out.",
    "unarchive": "Have lists show a conversation again.",
    "fork": "Begin a conversation with what another one began with.",
    "delete": "Delete a conversation, with everything that is stored of it.",
    "forget": "Delete everything that is stored of an owner.",
    "retention": "Show which conversations are not kept any longer, and why.",
    "hibernate": "Put a conversation to sleep.",
    "thaw": "Wake a conversation up.",
    "quarantine": "Set a conversation aside until it is released.",
    "release": "Let a quarantined conversation go on.",
    "refresh": "Make the live context of a conversation anew.",
    "jobs": "List background work, retry it or drop it.",
    "top": "Watch what a server is doing.",
    "drain": "End a server after the steps that run.",
    "token": "Sign a token for somebody.",
    "init": "Make a new agent home.",
    "config": "Check the configuration of a home.",
    "skills": "Check, list and begin skills.",
    "flags": "Show what is switched on, and for whom.",
    "policies": "Show what a message finds in the policies.",
    "mcp": "Show MCP servers, and test one.",
    "protocol": "Print the protocol of clients as JSON Schema.",
    "doctor": "Check keys, models and the network.",
    "fake-api": "Start a Messages API that misbehaves on request.",
}

_MODULES: Final = {"import": "importing"}
"""Where a verb is a word of Python's."""

FAILED: Final = 1
USED_WRONGLY: Final = 2
STOPPED: Final = 130


_REMEDIES: Final = {
    "unauthenticated": (
        "`torpor token` signs one with the secret of the server's home, unless an issuer of its own does"
    ),
    "token_expired": "`torpor token` signs a newer one, unless an issuer of its own does",
    "not_permitted": "`torpor token --scope` signs one that does",
    "unknown_conversation": "`torpor ps` lists those of this token",
    "unknown_agent": "`torpor config check` lists the agents",
    "unknown_job": "`torpor jobs` lists those that are not done",
    "job_running": "it ends within the deadline of its kind; try again in a while",
    "quarantined": "`torpor inspect` shows how far it can be read, `torpor release` lets it go on",
    "busy": "try again in a while",
    "not_now": "give it time with --wait, or try again in a while",
    "unavailable": "try again in a while; the server's log says more",
    "certificate_untrusted": "--ca FILE or TORPOR_CA names who vouches for it",
    "certificate_of_other": "use the name that it is for in --url; on the server's own machine, leave --url out",
}
"""By the code of a client's error: what the server says is for any client, and this one has verbs."""


def command_of(verb: str) -> click.Command:
    """The command of a verb, imported now."""
    module = _MODULES.get(verb, verb.replace("-", "_"))
    command: click.Command = importlib.import_module(f"torpor.cli.{module}").command
    return command


class _Verbs(click.Group):
    """Knows its verbs by name and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return command_of(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def _show_version(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:  # click's signature
    if is_wanted and not ctx.resilient_parsing:
        from importlib.metadata import version  # noqa: PLC0415  slow to import: 20 ms, a part of a start

        click.echo(f"torpor {version('torpor')}")
        ctx.exit()


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print it.")
def torpor() -> None:
    """A runtime for long-running agents: one durable actor per conversation.

    TORPOR_DEBUG=1 shows where a fault came from.
    """


def main(arguments: list[str] | None = None) -> int:
    """Run the command line ``arguments`` (those of the process by default) and return the exit code."""
    try:
        result = torpor.main(arguments, prog_name="torpor", standalone_mode=False)
        click.echo(nl=False)  # flushes, so that a reader who has gone is noticed here
    except click.Abort:
        return STOPPED
    except KeyboardInterrupt:
        return STOPPED
    except (click.ClickException, TorporError, OSError, ExceptionGroup) as exc:
        faults = list(_foreseen(exc))
        if faults and all(isinstance(fault, BrokenPipeError) for fault in faults):
            return _unread()
        if faults:
            return _report(exc, faults)
        bug = _alone(exc)
    else:
        return result if isinstance(result, int) else 0
    raise bug  # not above, where it would be told as what came of the groups around it


def _alone(exc: Exception) -> Exception:
    """Out of the groups around it: Python shows ten of them, and not what is in the eleventh."""
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _foreseen(exc: BaseException) -> Iterator[Exception]:
    """The faults in ``exc`` that a person can do something about; none when any part of it is a bug."""
    if isinstance(exc, ExceptionGroup):
        parts = [list(_foreseen(part)) for part in exc.exceptions]
        if all(parts):
            for part in parts:
                yield from part
    elif isinstance(exc, click.ClickException | TorporError | OSError):
        yield exc


def _unread() -> int:
    """Who read our output has gone; what is still buffered for it must not complain at exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _report(exc: BaseException, faults: list[Exception]) -> int:
    if os.environ.get("TORPOR_DEBUG") == "1":
        traceback.print_exception(exc)
    for line in dict.fromkeys(line for fault in faults for line in _in_words(fault).splitlines()):
        click.echo(f"torpor: {line}", err=True)
    return max(fault.exit_code if isinstance(fault, click.ClickException) else FAILED for fault in faults)


def _in_words(fault: Exception) -> str:
    match fault:
        case click.UsageError():
            usage = fault.ctx.command_path if fault.ctx else "torpor"
            return f"{_uncapitalised(fault.format_message()).rstrip('.')}; see `{usage} --help`"
        case click.ClickException():
            return fault.format_message()
        case ClientError():
            remedy = _REMEDIES.get(fault.code)
            return f"{fault} ({fault.code})" + (f"; {remedy}" if remedy else "")
        case ConfigError():
            return str(as_it_was_set(fault, os.environ))
        case OSError(filename=None):
            return fault.strerror or str(fault) or type(fault).__name__
        case OSError():
            return f"{fault.filename}: {(fault.strerror or 'unusable').lower()}"
        case _:
            return str(fault)


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:]


if __name__ == "__main__":
    sys.exit(main())
