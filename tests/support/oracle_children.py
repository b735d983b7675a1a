"""The sub-agents of one conversation, as the two kinds of records tell of them."""

from collections.abc import Iterator

from tests.support.oracle_evidence import Json

Broken = tuple[str, str]
"""The kind of what is broken, and the fact."""


class Children:
    """Those at work, by their name below the conversation; each method gives what cannot be."""

    def __init__(self) -> None:
        self.running: dict[str, Json] = {}
        """Its first record."""
        self.ended: list[Json] = []
        """Their last records, in order."""

    def started(self, record: Json, *, is_running: bool) -> Iterator[Broken]:
        """Args: is_running: whether its call runs."""
        name = record["child"]
        if not is_running:
            yield "child_unasked", f"sub-agent {name} is started, and call {record['call_id']} does not run"
        if name in self.running:
            yield "child_twice", f"sub-agent {name} is started, and has not ended since record {self._began(name)}"
        self.running[name] = record

    def finished(self, record: Json) -> Iterator[Broken]:
        name = record["child"]
        if (begun := self.running.pop(name, None)) is None:
            yield "child_twice", f"sub-agent {name} ends, and does not run"
            return
        for field in ("call_id", "name", "turn", "cause", "told_as"):
            if record.get(field) != begun.get(field):
                fact = f"sub-agent {name} ends with {field} {record.get(field)!r}, began with {begun.get(field)!r}"
                yield "child_differs", fact
        self.ended.append(record)

    def left(self) -> Iterator[Broken]:
        """Once everything is over."""
        for name, begun in self.running.items():
            yield "child_outlives", f"sub-agent {name} of turn {begun['turn']} has no end since {self._began(name)}"

    def _began(self, name: str) -> int:
        seq: int = self.running[name]["seq"]
        return seq
