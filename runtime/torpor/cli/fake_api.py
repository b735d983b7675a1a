"""``torpor fake-api``: becomes the fake Messages API, a package that shares nothing with the engine."""

import os
import sys

import click

MODULE = "torpor_fake_api"


@click.command(
    short_help="Start a Messages API that misbehaves on request.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Start a Messages API that enforces the rules and misbehaves by script; its own --help tells how."""
    sys.stdout.flush()
    # The arguments are the caller's own, for this interpreter; no shell reads them.
    os.execv(sys.executable, [sys.executable, "-m", MODULE, *arguments])  # noqa: S606
