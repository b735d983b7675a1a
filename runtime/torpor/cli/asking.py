"""Whether somebody means it, asked on standard error before what cannot be undone."""

import click


def must_mean(question: str, *, otherwise: str) -> None:
    """Return once it was answered with yes.

    Raises: click.ClickException: it was not, or there is nobody to answer; in words that begin with ``otherwise``.
    click.Abort: Ctrl-C.
    """
    try:
        is_meant = click.confirm(question, err=True)
    except click.Abort as exc:
        if not isinstance(exc.__context__, EOFError):
            raise
        click.echo(err=True)
        raise click.ClickException(f"{otherwise}, since nobody answered; --yes does not ask") from exc
    if not is_meant:
        raise click.ClickException(otherwise)
