"""What a server is doing, as lines of a terminal of any width."""

from typing import Any

import pytest

from torpor.cli.line_editor import width
from torpor.cli.top_view import Look, cut, size, view

NOW_US = 1_780_000_000_000_000
ROOMS: dict[str, dict[str, Any]] = {
    "supervisor": {
        "memory_bytes": 45 * 1024 * 1024,
        "live": {"running": 2, "idle": 10, "thawing": 1, "hibernating": 0},
        "waiting_commands": 4,
        "waiting_thaws": 1,
    },
    "gateway": {"connections": 12, "waiting_bytes": 3_500},
    "model_places": {"taken": 2, "places": 8, "waiting": 1},
    "watchdog": {"last_lag_s": 0.0003, "lag_max_s": 0.012},
    "jobs": {"running": 1},
    "job_store": {"waiting": 3, "dead": 0},
    "drain": {"draining": 0, "turns_left": 0},
    "events": {"committed": 100},
}


def turn(name: str, *, age_s: float = 12.0, **fields: Any) -> dict[str, Any]:
    return {
        "path": f"default/ada/{name}",
        "agent": "clerk",
        "turn": 3,
        "began_us": NOW_US - round(age_s * 1_000_000),
        "step": "call_model",
        "of": ["claude-haiku-4-5"],
        "step_began_us": NOW_US - 4_000_000,
        "waiting": 1,
        **fields,
    }


def look(*turns: dict[str, Any], at_us: int = NOW_US, **rooms: Any) -> Look:
    return Look(at_us=at_us, rooms={**ROOMS, **rooms}, turns=turns)


def test_numbers_and_turns_stand_where_they_fit() -> None:
    assert view(look(turn("c1"), turn("c2", step="run_tools", of=["find_slot", "pay"])), name="here", columns=100) == [
        "here   memory 45 MB   loop 300 us late, at most 12 ms",
        "actors 2 running, 10 idle, 1 thawing, 0 hibernating   waiting 4 commands, 1 thaws",
        "model calls 2 of 8, 1 waiting   jobs 1 running, 3 waiting, 0 dead",
        "clients 12, 3.42 KB to be sent   events 100   turns 2",
        "",
        "ID      AGENT  TURN  AGE   STEP        OF                FOR  WAITING",
        "ada/c1  clerk  3     12 s  call_model  claude-haiku-4-5  4 s  1",
        "ada/c2  clerk  3     12 s  run_tools   find_slot, pay    4 s  1",
    ]


def test_events_in_a_second_come_of_two_looks_at_one_server() -> None:
    before = look(at_us=NOW_US - 2_000_000, events={"committed": 50})
    assert "events 100, 25/s" in "\n".join(view(look(), name="here", before=before))
    restarted = look(at_us=NOW_US - 2_000_000, events={"committed": 5_000})
    assert "events 100   " in "\n".join(view(look(), name="here", before=restarted))


def test_a_drain_is_shown() -> None:
    drain = {"draining": 1, "turns_left": 2}
    assert view(look(drain=drain), name="here", columns=100)[0].endswith("DRAINING, 2 left")


@pytest.mark.parametrize("columns", [*range(1, 60), 100, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    turns = [
        turn(f"a-conversation-with-a-long-name-{number}", of=["a_tool_with_a_long_name"] * 3) for number in range(3)
    ]
    lines = view(look(*turns), name="ws://127.0.0.1:8765", columns=columns)
    assert max(map(width, lines)) <= columns
    assert any(line.startswith("a"[: columns - 1]) for line in lines)


def test_what_matters_less_goes_first_where_it_is_narrow() -> None:
    heads = {columns: view(look(turn("c1")), name="here", columns=columns)[-2].split() for columns in (26, 34, 40, 60)}
    assert heads[26] == ["ID", "AGE", "STEP"]
    assert heads[34] == ["ID", "AGE", "STEP", "FOR"]
    assert heads[40] == ["ID", "AGE", "STEP", "OF", "FOR"]
    assert heads[60] == ["ID", "AGENT", "TURN", "AGE", "STEP", "OF", "FOR"]


def test_turns_that_find_no_room_are_counted() -> None:
    lines = view(look(*(turn(f"c{number}") for number in range(20))), name="here", columns=100, rows=10)
    assert len(lines) == 10
    assert lines[-1] == "and 17 more"
    assert lines[-2].startswith("ada/c2")
    assert view(look(*(turn(f"c{number}") for number in range(4))), name="here", columns=100, rows=10)[-1].startswith(
        "ada/c3"
    )


def test_a_server_that_tells_less_is_shown_as_far_as_it_tells() -> None:
    lines = view(Look(at_us=NOW_US, rooms={}, turns=()), name="here")
    assert lines[-1] == "no turn runs"


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日…"), ("a\x1b[2Jb", 80, "a␛[2Jb"), ("abc", 0, "")],
)
def test_a_line_is_cut_by_what_it_takes_on_the_terminal(text: str, columns: int, shown: str) -> None:
    assert cut(text, columns) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(0, "0 B"), (999, "999 B"), (1_023, "0.999 KB"), (1_536, "1.5 KB"), (2**40, "1 TB")]
)
def test_sizes_have_three_digits(size_bytes: int, shown: str) -> None:
    assert size(size_bytes) == shown
