"""What a local model's table must say, and how its server is loaded; a double stands in for the library."""

import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from torpor.errors import ConfigError
from torpor.model.local import LocalServer, free_cores, local_options
from torpor.model.options import LocalOptions
from torpor.model.registry import is_rehearsed
from torpor.provider_errors import ModelUnknown


class Llama:
    """The part of ``xllamacpp`` that is used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.loaded: list[Any] = []

    def CommonParams(self) -> Any:  # noqa: N802 -- the library's name
        return SimpleNamespace(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())

    def Server(self, parameters: Any) -> Any:  # noqa: N802 -- likewise
        self.loaded.append(parameters)
        if "broken" in parameters.model.path:
            raise RuntimeError("no such tensor")
        return SimpleNamespace(listening_address=self.url)


class Asked(BaseHTTPRequestHandler):
    """Answers whatever is asked of the double's port."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        is_ours = self.headers["Authorization"] == "Bearer only-ours"
        self.send_response(HTTPStatus.OK if is_ours else HTTPStatus.UNAUTHORIZED)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Iterator[Llama]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        library = Llama(f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setitem(sys.modules, "a_double", library)
        monkeypatch.setattr("torpor.model.local.LIBRARY", "a_double")
        yield library
        server.shutdown()
        thread.join()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a file that looks like a model, where the library is installed."""
    monkeypatch.setattr("torpor.model.local.LIBRARY", "json")
    (tmp_path / "small.gguf").write_bytes(b"GGUF\x03\0\0\0")
    (tmp_path / "notes.txt").write_text("no model")
    return tmp_path


def options_of(home: Path, **table: object) -> LocalOptions:
    return local_options({"kind": "local", **table}, home=home, where="config/agents/a.toml")


def test_a_relative_path_starts_from_the_home(home: Path) -> None:
    assert options_of(home, path="small.gguf").path == str(home / "small.gguf")
    assert options_of(Path("/nowhere"), path=str(home / "small.gguf")).path == str(home / "small.gguf")


def test_a_missing_library_is_told_with_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torpor.model.local.LIBRARY", "no_such_library")
    with pytest.raises(ConfigError) as told:
        options_of(home, path="small.gguf")
    assert str(told.value) == (
        "config/agents/a.toml: model.kind is 'local', expected the extra 'local', in a checkout: make .venv/.local"
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("none.gguf", "a GGUF file that can be read (no such file or directory)"),
        (".", "a GGUF file that can be read (is a directory)"),
        ("notes.txt", "a GGUF file, which begins with these four letters"),
    ],
)
def test_what_is_no_model_file_is_told(home: Path, path: str, expected: str) -> None:
    with pytest.raises(ConfigError) as told:
        options_of(home, path=path)
    assert str(told.value) == f"config/agents/a.toml: model.path is {path!r}, expected {expected}"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "model.path is missing, expected a value"),
        ({"path": "small.gguf", "threads": -1}, "model.threads is -1, expected int >= 0"),
        ({"path": "small.gguf", "window_tokens": 0}, "model.window_tokens is 0, expected int >= 1"),
        ({"path": 1}, "model.path is 1, expected str"),
        ({"odd": 1}, "model.odd is unknown, expected one of kind, path"),
    ],
)
def test_options_that_mean_nothing_are_told(home: Path, table: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as told:
        options_of(home, **table)
    assert str(told.value).startswith(f"config/agents/a.toml: {problem}")


def test_an_agent_with_a_local_model_is_not_rehearsed() -> None:
    assert not is_rehearsed({"kind": "local", "path": "x"}, environ={}, where="here")


@pytest.mark.parametrize(
    ("cores", "load", "free"), [(8, 0.0, 8), (8, 2.4, 6), (2, 0.6, 1), (2, 9.0, 1), (1, 0.0, 1), (4, 3.9, 1)]
)
def test_threads_are_those_that_have_nothing_to_do_and_at_least_one(cores: int, load: float, free: int) -> None:
    assert free_cores(cores=cores, load=load) == free


def test_a_file_is_loaded_once_and_reached_by_this_process_alone(llama: Llama) -> None:
    server = LocalServer(LocalOptions(kind="local", path="/a/small.gguf", threads=3, window_tokens=512), key="secret")
    assert llama.loaded == []
    assert server.url() == server.url() == llama.url
    (parameters,) = llama.loaded
    assert (parameters.model.path, parameters.n_ctx) == ("/a/small.gguf", 512)
    assert parameters.cpuparams.n_threads == parameters.cpuparams_batch.n_threads == 3
    assert (parameters.hostnames, parameters.api_keys) == (["127.0.0.1"], ["secret"])
    assert not any((parameters.ui, parameters.endpoint_slots, parameters.endpoint_props))


def test_a_file_that_cannot_be_loaded_is_not_tried_again(llama: Llama) -> None:
    server = LocalServer(LocalOptions(kind="local", path="/a/broken.gguf"), key="secret")
    for _ in range(2):
        with pytest.raises(ModelUnknown) as told:
            server.url()
        assert str(told.value) == "llama.cpp cannot load /a/broken.gguf: no such tensor"
    assert len(llama.loaded) == 1


def test_a_library_that_does_not_fit_this_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torpor.model.local.LIBRARY", "no_such_library")
    server = LocalServer(LocalOptions(kind="local", path="/a/small.gguf"), key="secret")
    with pytest.raises(ModelUnknown, match="No module named 'no_such_library'"):
        server.url()


async def test_what_is_closed_is_not_loaded_again(llama: Llama) -> None:
    server = LocalServer(LocalOptions(kind="local", path="/a/small.gguf"), key="secret")
    server.url()
    with anyio.fail_after(5):
        await server.aclose()
        await server.aclose()
    with pytest.raises(ModelUnknown, match="was closed"):
        server.url()
    assert len(llama.loaded) == 1
