"""Where spans go: the OpenTelemetry SDK, set up for one server and closed with it.

Nothing is registered for the process: several servers in one process have a provider each. Endpoint, headers, sampler,
queue sizes and resource come from the ``OTEL_*`` variables, which the SDK and its exporters read themselves.
"""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Final, cast

import anyio
import structlog
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor, SpanExporter

from torpor.operations.options import TracingOptions
from torpor.operations.tracing import Tracing
from torpor.operations.tracing_spans import Spans, namer
from torpor.threads import Threads

_log = structlog.get_logger()
_OTLP: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_SERVICE: Final = "torpor"


def exported(
    options: TracingOptions, *, secret: bytes, environ: Mapping[str, str], exporter: object
) -> AbstractAsyncContextManager[Tracing]:
    """See ``tracing.open_tracing``. Raises: ModuleNotFoundError: the exporter is not installed."""
    processor: SpanProcessor
    if exporter is not None:
        processor = SimpleSpanProcessor(cast("SpanExporter", exporter))
    else:
        processor = BatchSpanProcessor(_otlp() if options.exporter == "otlp" else _console())
    provider = TracerProvider(resource=_resource(environ), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    spans = Spans(provider.get_tracer(_SERVICE), name_of=namer(options.conversations, secret=secret))
    return _running(spans, provider, deadline_s=options.stop_deadline_s)


@asynccontextmanager
async def _running(spans: Spans, provider: TracerProvider, *, deadline_s: float) -> AsyncIterator[Tracing]:
    try:
        yield spans
    finally:
        # A collector that is gone is tried for long; a daemon's thread keeps nobody from leaving.
        threads, ended = Threads(1, name="tracing"), anyio.Event()
        threads.submit(provider.shutdown, ended=lambda _: ended.set())
        threads.close()
        with anyio.move_on_after(deadline_s, shield=True) as scope:
            await ended.wait()
        if scope.cancelled_caught:
            _log.warning("tracing.spans_lost", deadline_s=deadline_s)


def _otlp() -> SpanExporter:
    """Of a package that operators add where they have a collector. Raises: ModuleNotFoundError."""
    return cast("SpanExporter", import_module(_OTLP).OTLPSpanExporter())


def require(options: TracingOptions) -> None:
    """Raises: ModuleNotFoundError: the exporter of ``options`` is not installed."""
    if options.exporter == "otlp":
        import_module(_OTLP)


def _console() -> SpanExporter:
    return ConsoleSpanExporter(out=sys.stderr, formatter=_line)


def _line(span: ReadableSpan) -> str:
    return f"{span.to_json(indent=None)}\n"


def _resource(environ: Mapping[str, str]) -> Resource:
    """What the variables say of this server; its name is ours where they give none."""
    resource = Resource.create()
    if "OTEL_SERVICE_NAME" in environ or f"{SERVICE_NAME}=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return resource
    return resource.merge(Resource({SERVICE_NAME: _SERVICE}))
