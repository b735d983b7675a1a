"""Where traces are off, where they cannot be on, and how they name conversations."""

import builtins
import sys
import threading
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from torpor.errors import ConfigError
from torpor.operations.options import TracingOptions
from torpor.operations.tracing import Untraced, open_tracing
from torpor.operations.tracing_spans import namer
from torpor.records.ids import ConversationKey
from torpor.turn.contract import UNOBSERVED

SECRET = b"s" * 32
KEY = ConversationKey("acme", "ann", "c_1")


async def test_nothing_is_wrapped_and_loaded_where_traces_are_off() -> None:
    async with open_tracing(TracingOptions(), secret=SECRET, environ={}) as tracing:
        assert isinstance(tracing, Untraced)
        assert tracing.turns(UNOBSERVED) is UNOBSERVED


@pytest.mark.parametrize(
    ("missing", "package"),
    [
        ("opentelemetry.sdk", "the extra 'otel'"),
        ("opentelemetry.exporter", "opentelemetry-exporter-otlp-proto-http"),
    ],
)
async def test_library_that_is_missing_is_named_with_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, missing: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith((missing, "torpor.operations.tracing_export"))]:
        monkeypatch.delitem(sys.modules, name)
    load = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(missing):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError) as raised:
        async with open_tracing(TracingOptions(exporter="otlp"), secret=SECRET, environ={}):
            pass

    assert raised.value.key == "tracing.exporter"
    assert package in str(raised.value)
    assert "make .venv/.otel" in str(raised.value)


def test_hashed_name_is_stable_and_tells_nothing_without_the_secret() -> None:
    name = namer("hashed", secret=SECRET)(KEY)

    assert name == namer("hashed", secret=SECRET)(KEY)
    assert name != namer("hashed", secret=b"t" * 32)(KEY)
    assert name != namer("hashed", secret=SECRET)(ConversationKey("acme", "ann", "c_2"))
    assert "ann" not in name


async def test_exporter_that_hangs_keeps_nobody_from_leaving() -> None:
    never = threading.Event()

    class Hanging(InMemorySpanExporter):
        def shutdown(self) -> None:
            never.wait(30)

    with capture_logs() as log, anyio.fail_after(10):
        async with open_tracing(
            TracingOptions(stop_deadline_s=0.0), secret=SECRET, environ={}, exporter=Hanging()
        ) as tracing:
            assert not isinstance(tracing, Untraced)
    never.set()

    assert [entry["event"] for entry in log] == ["tracing.spans_lost"]
