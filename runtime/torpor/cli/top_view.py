"""What a server is doing, as lines of text: rows of its numbers and turns in, lines out. Pure.

Facts about the server stand in groups, as many on a line as fit. Below them the turns that run, the oldest first; where
there is no room for all columns the less important ones are left out, and what is too long for its place is cut.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from torpor.cli.line_editor import width
from torpor.cli.paths import shortened
from torpor.cli.terminal import harmless
from torpor.operations.timeline import duration

Row = Mapping[str, Any]

_GAP: Final = "   "
_CUT: Final = "…"
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_HEAD: Final = ("ID", "AGE", "STEP", "FOR", "OF", "TURN", "AGENT", "WAITING")
"""In order of importance."""
_ORDER: Final = ("ID", "AGENT", "TURN", "AGE", "STEP", "OF", "FOR", "WAITING")
"""As they stand."""
_WIDEST: Final = {"ID": 40, "AGENT": 16, "OF": 28}
_NARROWEST: Final = {"ID": 12, "OF": 8}
_STATES: Final = ("running", "idle", "thawing", "hibernating")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said at one moment."""

    at_us: int
    """UTC, microseconds."""
    rooms: dict[str, dict[str, Any]]
    turns: tuple[dict[str, Any], ...]


def view(look: Look, *, name: str, before: Look | None = None, columns: int = 80, rows: int | None = None) -> list[str]:
    """Lines of at most ``columns``; at most ``rows`` of them, the turns that find no room being counted.

    Args: name: of the server.  before: the look before this one, for what there is in a second.
    """
    lines = [line for groups in _facts(look, name, before) for line in _packed(groups, columns)]
    lines.append("")
    room = None if rows is None else max(0, rows - len(lines) - 1)
    lines += _table(look, columns, room=room)
    return [cut(line, columns) for line in lines][: rows if rows is not None else None]


def cut(text: str, columns: int) -> str:
    """``text`` on a line of its own, with a mark where it was too long."""
    text = harmless(text)
    if width(text) <= columns:
        return text
    while text and width(text) + 1 > columns:
        text = text[:-1]
    return text + _CUT if columns > 0 else ""


def _facts(look: Look, name: str, before: Look | None) -> list[list[str]]:
    rooms = look.rooms
    supervisor, gateway, places = rooms.get("supervisor", {}), rooms.get("gateway", {}), rooms.get("model_places", {})
    watchdog, jobs, stored = rooms.get("watchdog", {}), rooms.get("jobs", {}), rooms.get("job_store", {})
    drain, live = rooms.get("drain", {}), supervisor.get("live", {})
    return [
        [
            name,
            f"memory {size(supervisor.get('memory_bytes', 0))}",
            f"loop {_late(watchdog)}",
            *([f"DRAINING, {drain['turns_left']} left"] if drain.get("draining") else []),
        ],
        [
            "actors " + ", ".join(f"{live.get(state, 0)} {state}" for state in _STATES),
            f"waiting {supervisor.get('waiting_commands', 0)} commands, {supervisor.get('waiting_thaws', 0)} thaws",
        ],
        [
            f"model calls {places.get('taken', 0)} of {places.get('places', 0)}, {places.get('waiting', 0)} waiting",
            f"jobs {jobs.get('running', 0)} running, {stored.get('waiting', 0)} waiting, {stored.get('dead', 0)} dead",
        ],
        [
            f"clients {gateway.get('connections', 0)}, {size(gateway.get('waiting_bytes', 0))} to be sent",
            f"events {_events(look, before)}",
            f"turns {len(look.turns)}",
        ],
    ]


def _late(watchdog: Row) -> str:
    last_us, most_us = (round(watchdog.get(field, 0.0) * 1_000_000) for field in ("last_lag_s", "lag_max_s"))
    return f"{duration(last_us)} late, at most {duration(most_us)}"


def _events(look: Look, before: Look | None) -> str:
    total = _committed(look)
    if before is None or look.at_us <= before.at_us or total < _committed(before):
        return str(total)
    per_s = (total - _committed(before)) / (look.at_us - before.at_us) * 1_000_000
    return f"{total}, {per_s:.3g}/s"


def _committed(look: Look) -> int:
    return int(look.rooms.get("events", {}).get("committed", 0))


def _packed(groups: Sequence[str], columns: int) -> list[str]:
    lines = [""]
    for group in groups:
        joined = lines[-1] + _GAP + group if lines[-1] else group
        if lines[-1] and width(joined) > columns:
            lines.append(group)
        else:
            lines[-1] = joined
    return lines


def _table(look: Look, columns: int, *, room: int | None) -> list[str]:
    if not look.turns:
        return ["no turn runs"]
    shown = look.turns if room is None or len(look.turns) <= room else look.turns[: max(0, room - 1)]
    cells = [_cells(turn, look.at_us) for turn in shown]
    widths = _widths(cells, columns)
    lines = [
        "  ".join(cut(each[name], widths[name]).ljust(widths[name]) for name in widths).rstrip()
        for each in [{name: name for name in _HEAD}, *cells]
    ]
    left_out = len(look.turns) - len(shown)
    return [*lines, f"and {left_out} more"] if left_out else lines


def _cells(turn: Row, now_us: int) -> dict[str, str]:
    return {
        "ID": shortened(turn["path"]),
        "AGENT": turn["agent"],
        "TURN": str(turn["turn"]),
        "AGE": duration(max(0, now_us - turn["began_us"])),
        "STEP": turn["step"],
        "OF": ", ".join(turn["of"]) or "-",
        "FOR": duration(max(0, now_us - turn["step_began_us"])),
        "WAITING": str(turn["waiting"]),
    }


def _widths(cells: Sequence[Mapping[str, str]], columns: int) -> dict[str, int]:
    """Of the columns that are shown, in their order."""
    wanted = (
        {
            name: min(max(width(name), *(width(each[name]) for each in cells), 0), _WIDEST.get(name, columns))
            for name in _HEAD
        }
        if cells
        else {name: width(name) for name in _HEAD}
    )
    least = {name: min(wanted[name], _NARROWEST.get(name, wanted[name])) for name in _HEAD}
    chosen: list[str] = []
    for name in _HEAD:
        if not chosen or sum(least[each] + 2 for each in (*chosen, name)) - 2 <= columns:
            chosen.append(name)
    spare = columns - sum(least[name] + 2 for name in chosen) + 2
    widths = dict(least)
    for name in _NARROWEST:
        if name in chosen:
            more = min(max(0, spare), wanted[name] - least[name])
            widths[name] += more
            spare -= more
    return {name: min(widths[name], columns) for name in _ORDER if name in chosen}


def size(size_bytes: int) -> str:
    """Three digits and a unit."""
    amount, unit = float(size_bytes), 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:  # which would need a fourth digit
        amount /= 1024
        unit += 1
    return f"{amount:.3g} {_UNITS[unit]}"
