"""Rows of figures beside their floor and their target: a table for people, JSON for programs, an exit status."""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

_MISS_FACTOR: Final = 2.0
"""A row that misses its target by more than this ends the run with an error."""


_HOPELESS: Final = 1000.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the engine, and what it was to be."""

    id: str
    what: str
    unit: str
    torpor: float
    floor: float | None = None
    """The same work by plain lines, in the same run."""
    base: float | None = None
    """What the ratio is to, when not the floor."""
    base_name: str = "floor"
    at_most: float | None = None
    at_least: float | None = None
    ratio_at_most: float | None = None

    @property
    def ratio(self) -> float | None:
        base = self.base if self.base is not None else self.floor
        return self.torpor / base if base else None

    @property
    def miss(self) -> float:
        """How many times over the worst of its targets it is; 1 or less is met."""
        return max(
            _share(self.torpor, self.at_most) if self.at_most is not None else 0.0,
            _share(self.at_least, self.torpor) if self.at_least is not None else 0.0,
            _share(self.ratio or 0.0, self.ratio_at_most) if self.ratio_at_most is not None else 0.0,
        )

    @property
    def target(self) -> str:
        parts = (
            f"<= {_number(self.at_most)} {self.unit}" if self.at_most is not None else "",
            f">= {_number(self.at_least)} {self.unit}" if self.at_least is not None else "",
            f"<= {self.ratio_at_most:.3g}x {self.base_name}" if self.ratio_at_most is not None else "",
        )
        return ", ".join(filter(None, parts))

    @property
    def verdict(self) -> str:
        """Empty for a figure that has no target."""
        if not self.target:
            return ""
        if self.miss <= 1.0:
            return "met"
        return f"MISSED {self.miss:.2f}x" if self.miss > _MISS_FACTOR else f"missed {self.miss:.2f}x"


_HEADINGS: Final = ("row", "what", "floor", "torpor", "ratio", "target", "verdict")
_RIGHT: Final = {"floor", "torpor", "ratio"}


def table(rows: Sequence[Row]) -> str:
    """Aligned columns."""
    lines = [_HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if heading in _RIGHT else cell.ljust(width)
            for heading, cell, width in zip(_HEADINGS, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.id,
        row.what,
        f"{_number(row.floor)} {row.unit}" if row.floor is not None else "",
        f"{_number(row.torpor)} {row.unit}",
        f"{row.ratio:.2f}x" if row.ratio is not None else "",
        row.target,
        row.verdict,
    )


def _share(value: float, limit: float) -> float:
    """How much of ``limit`` is used; of a limit of nothing, none or far too much."""
    return value / limit if limit else (_HOPELESS if value > 0 else 0.0)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def as_json(rows: Sequence[Row]) -> str:
    """The rows with their ratios and verdicts."""
    derived = ("ratio", "miss", "target", "verdict")
    return json.dumps(
        [{**msgspec.to_builtins(row), **{name: getattr(row, name) for name in derived}} for row in rows], indent=2
    )


def exit_status(rows: Sequence[Row]) -> int:
    """1 when a row misses its target by more than the factor."""
    return int(any(row.miss > _MISS_FACTOR for row in rows))
