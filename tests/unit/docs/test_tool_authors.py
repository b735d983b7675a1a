"""The example of docs/tool-authors.md is a tool module that loads, runs, and survives what the page says."""

import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import msgspec
import pytest

from torpor import NeverHappened, ToolContext
from torpor.records.ids import CallId, ConversationKey
from torpor.records.terms import Effect, Outcome
from torpor.toolhost.contract import ToolResult
from torpor.toolhost.load import LoadedTools, load_tools
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry
from torpor.toolhost.reserved import RESERVED_NAMES
from torpor.toolhost.toolbox import LocalToolbox

DOCUMENT = Path(__file__).parents[3] / "docs" / "tool-authors.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
DAY = date(2026, 5, 4)
ARGUMENTS = msgspec.Raw(b'{"room":"blue","day":"2026-05-04"}')


class NoBlobs:
    """Nothing here is too long."""

    async def put(self, key: ConversationKey, data: bytes) -> str:
        raise AssertionError("a result was stored")

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        raise AssertionError("a result was read")


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedTools:
    """The example as a home has it."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "rooms.py").write_text(BLOCKS[0])
    return load_tools(tmp_path / "tools")


@pytest.fixture
def toolbox(loaded: LoadedTools) -> Iterator[LocalToolbox]:
    registry = ToolRegistry(loaded.tools, blobs=NoBlobs(), options=ToolOptions())
    yield registry.toolbox()
    registry.close()


def context(key: str = "k1", *, reports: list[str] | None = None) -> ToolContext:
    return ToolContext(
        key=ConversationKey("default", "ada", "c1"),
        principal="ada",
        turn=1,
        call_id=CallId("call_1"),
        idempotency_key=key,
        report=(reports if reports is not None else []).append,
    )


def test_example_loads_without_a_complaint(loaded: LoadedTools) -> None:
    assert loaded.problems == ()
    assert sorted(tool.name for tool in loaded.tools) == ["book_room", "list_bookings"]


async def test_model_is_offered_what_the_page_says(toolbox: LocalToolbox) -> None:
    specs = {spec.name: spec for spec in toolbox.specs()}

    assert specs["list_bookings"].effect is Effect.READ
    assert specs["list_bookings"].deadline_s == 5
    assert specs["book_room"].effect is Effect.WRITE
    assert (specs["book_room"].accepts_key, specs["book_room"].has_probe) == (True, True)
    assert specs["book_room"].description == "Book a meeting room for a whole day."
    assert specs["book_room"].input_schema["properties"]["room"]["description"] == "Which one."
    assert "context" not in specs["book_room"].input_schema["properties"]
    assert "read_result" in specs


async def test_room_is_booked_once_however_often_the_call_is_repeated(toolbox: LocalToolbox) -> None:
    reports: list[str] = []

    first = await toolbox.call("book_room", ARGUMENTS, context("k1", reports=reports))
    again = await toolbox.call("book_room", ARGUMENTS, context("k1"))
    other = await toolbox.call("book_room", ARGUMENTS, context("k2"))

    assert first == again == ToolResult(outcome=Outcome.SUCCEEDED, text="booked the blue room on 2026-05-04")
    assert other.outcome is Outcome.DENIED
    assert "offer another room" in other.text
    assert reports == ["asking for the blue room"]


async def test_bookings_are_listed_as_json(toolbox: LocalToolbox) -> None:
    await toolbox.call("book_room", ARGUMENTS, context())

    listed = await toolbox.call("list_bookings", msgspec.Raw(b'{"day":"2026-05-04"}'), context())

    assert msgspec.json.decode(listed.text) == [{"room": "blue", "by": "ada"}]


async def test_arguments_that_do_not_fit_never_reach_the_tool(toolbox: LocalToolbox) -> None:
    result = await toolbox.call("book_room", msgspec.Raw(b'{"room":"red","day":"2026-05-04"}'), context())

    assert result.outcome is Outcome.FAILED
    assert "nothing was run" in result.text


async def test_probe_tells_what_became_of_an_interrupted_booking(toolbox: LocalToolbox) -> None:
    before = await toolbox.probe("book_room", ARGUMENTS, context())
    await toolbox.call("book_room", ARGUMENTS, context())
    after = await toolbox.probe("book_room", ARGUMENTS, context())

    assert before is not None
    assert before.outcome is Outcome.NEVER_STARTED
    assert after is not None
    assert (after.outcome, after.text) == (Outcome.SUCCEEDED, "booked the blue room on 2026-05-04")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what runs away costs a processor until it is killed
async def test_tool_that_computes_is_killed_when_it_would_try_for_years(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "seats.py").write_text(BLOCKS[1].replace("deadline_s=20", "deadline_s=4"))
    loaded = load_tools(tmp_path / "tools")
    assert loaded.problems == ()
    groups, rooms = {"choir": 12, "chess": 4}, {"blue": 30, "green": 12, "attic": 6}
    many = {f"group {number}": 1 for number in range(15)}
    reports: list[str] = []

    registry = ToolRegistry(loaded.tools, blobs=NoBlobs(), options=ToolOptions())
    async with registry.running():
        toolbox = registry.toolbox()

        async def seated(groups: dict[str, int], rooms: dict[str, int]) -> ToolResult:
            arguments = msgspec.Raw(msgspec.json.encode({"groups": groups, "rooms": rooms}))
            return await toolbox.call("seat_groups", arguments, context(reports=reports))

        quick = await seated(groups, rooms)
        none = await seated({"choir": 40}, rooms)
        endless = await seated(many, many)

    assert msgspec.json.decode(quick.text) == {"choir": "green", "chess": "attic"}
    assert (none.outcome, none.text) == (
        Outcome.FAILED,
        "no way to seat them all, ask for larger rooms or smaller groups",
    )
    assert (endless.outcome, reports[0]) == (Outcome.FAILED, "trying to seat 2 groups in 3 rooms")
    assert "did not finish within 4 s" in endless.text


def test_page_names_every_tool_of_the_engine() -> None:
    (told,) = re.findall(r"A tool of the home cannot be called (.*?):\n", DOCUMENT.read_text(), re.DOTALL)

    assert set(re.findall(r"`(\w+)`", told)) == RESERVED_NAMES


def test_test_of_the_example_passes_as_it_stands_in_the_page(loaded: LoadedTools, tmp_path: Path) -> None:
    (tmp_path / "test_rooms.py").write_text(BLOCKS[-1])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_rooms.py"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_what_the_page_calls_a_probe_is_a_function(tmp_path: Path, loaded: LoadedTools) -> None:
    rooms = runpy.run_path(str(tmp_path / "tools" / "rooms.py"))

    assert isinstance(rooms["what_became_of_it"]("blue", DAY, context()), NeverHappened)
