"""``torpor protocol``: what clients and the server say to each other, for programs."""

import json

import click

from torpor.gateway.schema import protocol_schema


@click.group(short_help="Print the protocol of clients as JSON Schema.")
def command() -> None:
    """What clients and the server say to each other, for programs; docs/protocol.md tells people the same."""


@command.command(short_help="Print the protocol as JSON Schema.")
def schema() -> None:
    """Print every frame of the protocol as JSON Schema, with the codes of errors and of closing beside them.

    Generators of code and validators read it. A frame is an object of $defs/ClientFrame or $defs/ServerFrame.
    """
    click.echo(json.dumps(protocol_schema(), indent=2))
