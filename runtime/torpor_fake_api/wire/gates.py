"""Places where a response stops until somebody lets it through."""

from collections import defaultdict

import anyio


class Gate:
    """One place."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()


class Gates:
    """The places of one host, by name; a gate opened once stays open until it is renewed."""

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = defaultdict(Gate)

    def __repr__(self) -> str:
        return f"<Gates waiting={self.waiting()}>"

    def __getitem__(self, name: str) -> Gate:
        return self._gates[name]

    def waiting(self) -> list[str]:
        """Names of the gates where a response stands."""
        return sorted(name for name, gate in self._gates.items() if gate.reached.is_set() and not gate.opened.is_set())

    def open(self, name: str) -> None:
        """Let through who waits there or comes later."""
        self._gates[name].opened.set()

    def renew(self, name: str) -> None:
        """Close it again for the next response."""
        self._gates.pop(name, None)
