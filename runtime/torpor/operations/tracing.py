"""Whether there are traces, and who makes them: the face of OpenTelemetry, without its libraries.

Above: the composition root, which puts what traces around an engine's ports. Below: ``tracing_spans``, which makes
spans, and ``tracing_export``, which sends them; both are loaded only where traces are wanted, since they take their
time and the SDK is an extra.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from torpor.errors import ConfigError
from torpor.model.contract import Model
from torpor.operations.options import TracingOptions
from torpor.store.contract import Store
from torpor.toolhost.contract import Toolbox
from torpor.turn.contract import Observer


class Tracing(Protocol):
    """Puts spans around ports."""

    def turns(self, observer: Observer) -> Observer: ...

    def model(self, model: Model) -> Model: ...

    def toolbox(self, toolbox: Toolbox) -> Toolbox: ...

    def store(self, store: Store) -> Store: ...


class Untraced:
    """Implements ``Tracing``: every port stays as it is, so being off costs nothing."""

    def turns(self, observer: Observer) -> Observer:
        return observer

    def model(self, model: Model) -> Model:
        return model

    def toolbox(self, toolbox: Toolbox) -> Toolbox:
        return toolbox

    def store(self, store: Store) -> Store:
        return store


@asynccontextmanager
async def open_tracing(
    options: TracingOptions, *, secret: bytes, environ: Mapping[str, str], exporter: object = None
) -> AsyncIterator[Tracing]:
    """What traces until the block ends; then what is left is sent, within ``stop_deadline_s``.

    Args: secret: names of conversations are hashed with it.  exporter: an OpenTelemetry span exporter instead of the
    configured one; spans reach it as they end.
    Raises: ConfigError: the libraries for it are not installed.
    """
    if options.exporter == "off" and exporter is None:
        yield Untraced()
        return
    try:
        from torpor.operations.tracing_export import exported  # noqa: PLC0415  slow to import, and an extra

        opened = exported(options, secret=secret, environ=environ, exporter=exporter)
    except ModuleNotFoundError as exc:
        raise _lacking(exc, options) from exc
    async with opened as tracing:
        yield tracing


def tracing_problems(options: TracingOptions) -> Iterator[ConfigError]:
    """What ``open_tracing`` would raise; connects to nobody."""
    if options.exporter == "off":
        return
    try:
        from torpor.operations.tracing_export import require  # noqa: PLC0415  slow to import, and an extra

        require(options)
    except ModuleNotFoundError as exc:
        yield _lacking(exc, options)


def _lacking(exc: ModuleNotFoundError, options: TracingOptions) -> ConfigError:
    brought_by = "the extra 'otel' brings"
    if (exc.name or "").startswith("opentelemetry.exporter"):
        brought_by = "the package opentelemetry-exporter-otlp-proto-http brings"
    expected = f"{exc.name}, which {brought_by}; in a checkout: make .venv/.otel"
    return ConfigError("config/torpor.toml", key="tracing.exporter", found=options.exporter, expected=expected)
