import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import torpor
from tests.support.tools import called
from torpor.toolhost.load import LoadedTools, load_tools


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tools"
    path.mkdir()
    return path


def module(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(textwrap.dedent(text))


def a_tool(name: str, says: str = "") -> str:
    return f'''
from torpor import tool

@tool(effect="read")
async def {name}() -> str:
    """Say."""
    return {says!r}
'''


def names(loaded: LoadedTools) -> list[str]:
    return [tool.name for tool in loaded.tools]


def problems(loaded: LoadedTools) -> list[str]:
    return [str(problem) for problem in loaded.problems]


def test_every_module_of_the_folder_is_loaded_in_the_order_of_its_name(folder: Path) -> None:
    module(folder, "b.py", a_tool("first"))
    module(folder, "a-z.py", a_tool("second") + a_tool("third"))
    loaded = load_tools(folder)
    assert names(loaded) == ["second", "third", "first"]
    assert loaded.problems == ()


def test_a_folder_that_is_not_there_holds_no_tools(tmp_path: Path) -> None:
    assert load_tools(tmp_path / "tools") == LoadedTools(tools=(), problems=())


def test_other_files_are_left_alone(folder: Path) -> None:
    module(folder, "_notes.py", "raise RuntimeError")
    module(folder, "data.json", "{}")
    (folder / "package").mkdir()
    (folder / ".#pay.py").symlink_to("what an editor leaves")
    assert load_tools(folder) == LoadedTools(tools=(), problems=())


def test_all_faulty_declarations_of_a_module_are_told_at_once(folder: Path) -> None:
    module(
        folder,
        "pay.py",
        '''
        from torpor import tool

        @tool(effect="maybe")
        def pay() -> str:
            """Pay."""

        @tool
        def look(*places: str) -> str:
            """Look."""

        @look.probe
        def looked() -> None: ...
        ''',
    )

    first, second = load_tools(folder).problems

    assert "tool 'pay': effect is 'maybe', expected read or write" in str(first)
    assert "tool 'look': " in str(second)
    assert 0 < first.line < second.line


@pytest.mark.parametrize("name", ["folder.py", "gone.py"])
def test_what_is_named_like_a_module_and_cannot_be_read_is_told(folder: Path, name: str) -> None:
    path = folder / name
    path.mkdir() if name == "folder.py" else path.symlink_to("nowhere")
    (problem,) = load_tools(folder).problems
    assert str(problem).startswith(f"tools/{name}: is not loaded, its tools are not offered: ")


def test_a_folder_that_cannot_be_listed_is_told(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("a file")
    (problem,) = load_tools(folder).problems
    assert str(problem) == "tools: cannot be listed, not a directory: no tool of this home is offered"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\n\ndef broken(:\n    pass\n", 3, "SyntaxError: invalid syntax"),
        ("import no_such_package\n", 1, "ModuleNotFoundError: No module named 'no_such_package'"),
        ("x = 1\n\ndef f():\n    return y\n\nf()\n", 4, "NameError: name 'y' is not defined"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("from . import sibling\n", 1, "ModuleNotFoundError"),
        (
            "from torpor import tool\n\n@tool\ndef silent() -> str:\n    return ''\n",
            3,
            "tool 'silent': docstring is None",
        ),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
        ("x = 1\n\0\n", 0, "source code string cannot contain null bytes"),
    ],
)
def test_a_broken_module_is_told_with_file_and_line_and_stops_no_other(
    folder: Path, text: str, line: int, said: str
) -> None:
    (folder / "broken.py").write_text(text)
    module(folder, "good.py", a_tool("good"))
    loaded = load_tools(folder)
    assert names(loaded) == ["good"]
    (problem,) = loaded.problems
    assert (problem.file, problem.line) == ("tools/broken.py", line)
    assert said in problem.message
    assert str(problem).startswith(
        f"tools/broken.py:{line}: is not loaded" if line else "tools/broken.py: is not loaded"
    )


def test_a_file_that_is_not_text_is_told_and_stops_no_other(folder: Path) -> None:
    (folder / "binary.py").write_bytes(b"\xff\xfe\x00")
    module(folder, "good.py", a_tool("good"))
    loaded = load_tools(folder)
    assert names(loaded) == ["good"]
    assert problems(loaded)[0].startswith("tools/binary.py")


async def test_of_two_tools_with_one_name_the_first_stays_and_the_second_is_told(folder: Path) -> None:
    module(folder, "a.py", a_tool("same", "from a"))
    module(folder, "b.py", a_tool("other") + a_tool("same", "from b"))
    loaded = load_tools(folder)
    assert names(loaded) == ["same", "other"]
    assert problems(loaded) == ["tools/b.py:11: declares 'same', which a.py has declared: give it another name"]
    assert (await called(loaded.tools[0])).text == "from a"


def test_the_names_of_the_engines_tools_are_taken(folder: Path) -> None:
    module(folder, "a.py", a_tool("read_result"))
    loaded = load_tools(folder)
    assert loaded.tools == ()
    expected = "tools/a.py:4: declares 'read_result', which is a tool of the engine: give it another name"
    assert problems(loaded) == [expected]


def test_a_module_without_tools_is_told(folder: Path) -> None:
    module(folder, "a.py", "def forgotten() -> str:\n    return ''\n")
    assert problems(load_tools(folder)) == [
        "tools/a.py: declares no tool, expected a function under @tool; other files begin with _"
    ]


def test_a_tool_under_two_names_in_its_module_is_one_tool(folder: Path) -> None:
    module(folder, "a.py", a_tool("one") + "another = one\n")
    loaded = load_tools(folder)
    assert names(loaded) == ["one"]
    assert loaded.problems == ()


async def test_a_module_shadows_nothing_whatever_its_name(folder: Path) -> None:
    for name in ("json", "torpor", "msgspec"):
        module(folder, f"{name}.py", "import json, msgspec, torpor\n" + a_tool(f"named_{name}", "here"))
    before, path = set(sys.modules), list(sys.path)
    loaded = load_tools(folder)
    assert loaded.problems == ()
    assert [(await called(tool)).text for tool in loaded.tools] == ["here"] * 3
    assert sys.path == path
    assert all(name.startswith("_torpor_home_tools.") for name in set(sys.modules) - before)
    assert sys.modules["json"] is json
    assert sys.modules["torpor"] is torpor


async def test_types_that_a_module_defines_work_in_its_tools(folder: Path) -> None:
    module(
        folder,
        "visits.py",
        '''
        from __future__ import annotations

        from dataclasses import dataclass

        import msgspec

        from torpor import ToolContext, tool


        @dataclass
        class Visit:
            patient: str
            room: Room


        class Room(msgspec.Struct):
            name: str


        @tool(effect="read")
        def describe(visit: Visit, context: ToolContext) -> Visit:
            """Describe."""
            return visit
        ''',
    )
    loaded = load_tools(folder)
    assert problems(loaded) == []
    visit = {"patient": "Ada", "room": {"name": "blue"}}
    assert json.loads((await called(loaded.tools[0], {"visit": visit})).text) == visit


async def test_loading_again_takes_what_the_file_says_now(folder: Path) -> None:
    module(folder, "a.py", a_tool("say", "one"))
    load_tools(folder)
    module(folder, "a.py", a_tool("say", "two"))  # same size, perhaps the same second
    assert (await called(load_tools(folder).tools[0])).text == "two"


def test_loading_leaves_nothing_behind(folder: Path) -> None:
    module(folder, "a.py", a_tool("say"))
    load_tools(folder)
    assert [path.name for path in folder.iterdir()] == ["a.py"]


def test_two_homes_with_a_module_of_one_name_stay_apart(tmp_path: Path) -> None:
    for home in ("one", "two"):
        (tmp_path / home / "tools").mkdir(parents=True)
        module(tmp_path / home / "tools", "a.py", a_tool("say", home))
    first, second = (load_tools(tmp_path / home / "tools").tools[0].function for home in ("one", "two"))
    assert first.__module__ != second.__module__


def test_importing_torpor_loads_neither_an_event_loop_nor_the_rooms() -> None:
    code = "import sys, torpor; print(sorted(m for m in sys.modules if m.startswith(('torpor.', 'anyio', 'msgspec'))))"
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout
    assert listed.strip() == "[]"
