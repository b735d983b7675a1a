"""A terminal reduced to what a chat needs of one: text that wraps, and the few sequences that take a prompt away."""

import re

_PIECE = re.compile(r"\x1b\[(\d*)([A-Z])|(.)", re.DOTALL)


class Glass:
    """``write`` text; ``rows`` is what a person sees, without blanks at the ends."""

    def __init__(self, *, columns: int = 80) -> None:
        self._columns = columns
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    @property
    def rows(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._rows]

    def write(self, text: str) -> None:
        for count, letter, char in _PIECE.findall(text):
            match letter, char:
                case "A", _:
                    self._row = max(0, self._row - int(count or 1))
                case "J", _:
                    del self._rows[self._row + 1 :]
                    del self._rows[self._row][self._column :]
                case "", "\r":
                    self._column = 0
                case "", "\n":
                    self._go_down()
                case "", _:
                    self._put(char)
                case _:
                    raise AssertionError(f"a sequence that ends with {letter}")

    def _put(self, char: str) -> None:
        if self._column == self._columns:  # as terminals do: not before there is something to put there
            self._go_down()
        row = self._rows[self._row]
        row[self._column : self._column + 1] = [char]
        self._column += 1

    def _go_down(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._rows):
            self._rows.append([])
