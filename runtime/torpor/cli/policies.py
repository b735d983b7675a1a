"""``torpor policies``: which policies a home has, and what a message would find in them."""

import os
from pathlib import Path

import click
import msgspec

from torpor.cli.folders import home_option
from torpor.cli.output import json_option, not_asked, print_json, print_table
from torpor.operations.logs import configure_logs
from torpor.policies.book import PolicyBook, tokens_of
from torpor.policies.source import POLICIES_FOLDER
from torpor.settings import read_settings


@click.group(short_help="Show what a message finds in the policies.")
def command() -> None:
    """Show what a message finds in the policies of a home."""


@command.command(name="list", short_help="List the policies of a home.")
@home_option
@json_option
def list_(home: Path, *, as_json: bool) -> None:
    """List the policies with their versions, their excerpts and what all of them cost in tokens."""
    rows = [
        (policy.id, policy.version, policy.title, len(policy.excerpts), sum(map(tokens_of, policy.excerpts)))
        for policy in _book(home).policies
    ]
    if as_json:
        for row in rows:
            print_json(dict(zip(("id", "version", "title", "excerpts", "tokens"), row, strict=True)))
    elif rows:
        print_table(("POLICY", "VERSION", "TITLE", "EXCERPTS", "TOKENS"), rows)
    else:
        click.echo(f"no policy in {POLICIES_FOLDER}")
    if not as_json:
        click.echo(not_asked(POLICIES_FOLDER, logs="policy.broken"), err=True)


@command.command(short_help="Show the excerpts that share a word with a text.")
@click.argument("text")
@click.option("--budget", "budget_tokens", type=click.IntRange(min=0), default=2_500, show_default=True, help="Tokens.")
@home_option
@json_option
def search(text: str, *, home: Path, budget_tokens: int, as_json: bool) -> None:
    """Show the excerpts that share a word with TEXT, best first; GIVEN tells which ones a turn would be given."""
    book = _book(home)
    limit = read_settings(home.resolve(), os.environ).policies.excerpts_max
    given = {(each.id, each.heading) for each in book.search(text, limit=limit, budget_tokens=budget_tokens)}
    found = book.found(text)
    if as_json:
        for each in found:
            excerpt = each.excerpt
            facts = {"score": each.score, "tokens": tokens_of(excerpt), "given": (excerpt.id, excerpt.heading) in given}
            print_json({**msgspec.to_builtins(excerpt), **facts})
    elif found:
        rows = [
            (
                f"{each.score:.2f}",
                tokens_of(each.excerpt),
                "yes" if (each.excerpt.id, each.excerpt.heading) in given else "-",
                f"{each.excerpt.id} {each.excerpt.version}",
                each.excerpt.heading,
            )
            for each in found
        ]
        print_table(("SCORE", "TOKENS", "GIVEN", "POLICY", "HEADING"), rows)
    else:
        click.echo("nothing is found")


def _book(home: Path) -> PolicyBook:
    settings = read_settings(home.resolve(), os.environ)
    configure_logs(msgspec.structs.replace(settings.logs, level="error"))
    book = PolicyBook(settings.home, options=settings.policies)
    book.load()
    return book
