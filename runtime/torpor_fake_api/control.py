"""Control over HTTP under ``/_fake/``, for a host that runs as a process of its own: no key, JSON in and out.

GET    /_fake/state                 what is queued, who waits at which gate
GET    /_fake/requests?after=N      what was received, from the N-th on
GET    /_fake/misbehaviours         the catalogue: names, positions, summaries
POST   /_fake/script                add replies, rules, a fallback, models; as in a script file
DELETE /_fake/script                forget what is queued
POST   /_fake/release {"name"}      let a stalled response go on
POST   /_fake/refuse {"seconds"}    close the port for so long
"""

from collections.abc import Callable
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from torpor_fake_api.delivery.plan import Step, plain
from torpor_fake_api.host import Host
from torpor_fake_api.models import with_changes
from torpor_fake_api.scripting.catalogue import CATALOGUE
from torpor_fake_api.scripting.files import ScriptFile
from torpor_fake_api.wire.exchange import Request
from torpor_fake_api.wire.gates import Gates

PREFIX = "/_fake/"


class _Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""


class _Refuse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: float


class Control:
    """What a client may ask of the host itself."""

    def __init__(self, host: Host, *, gates: Gates, refuse: Callable[[float], None]) -> None:
        """Args: refuse: closes the port for so many seconds."""
        self._host = host
        self._gates = gates
        self._refuse = refuse

    def react(self, request: Request) -> list[Step]:
        """Do it and answer; 400 with the reason when it cannot be done."""
        split = urlsplit(request.target)
        name = split.path.removeprefix(PREFIX)
        try:
            found = self._act(f"{request.method} {name}", parse_qs(split.query), request.body)
        except ValueError as exc:
            return plain(400, msgspec.json.encode({"error": str(exc)}))
        if found is None:
            return plain(404, msgspec.json.encode({"error": f"no {request.method} {PREFIX}{name} here"}))
        return plain(200, msgspec.json.encode(found))

    def _act(self, action: str, query: dict[str, list[str]], body: bytes) -> dict[str, Any] | None:
        """Raises: ValueError: the body does not fit."""
        match action:
            case "GET state":
                return self._state()
            case "GET requests":
                after = int(query.get("after", ["0"])[0])
                kept = islice(self._host.received, after, None)
                return {"requests": [received.described() for received in kept]}
            case "GET misbehaviours":
                return {name: {"summary": row.summary, "at": row.positions} for name, row in CATALOGUE.items()}
            case "POST script":
                self.add(msgspec.json.decode(body, type=ScriptFile))
            case "DELETE script":
                self._host.messages.script.clear()
            case "POST release":
                self._gates.open(msgspec.json.decode(body, type=_Release).name)
            case "POST refuse":
                self._refuse(msgspec.json.decode(body, type=_Refuse).seconds)
            case _:
                return None
        return self._state()

    def add(self, script: ScriptFile) -> None:
        """Lay out a script behind what is there. Raises: ValueError: it names models wrongly."""
        self._host.messages.models |= with_changes(script.models)
        script.add_to(self._host.messages.script)

    def _state(self) -> dict[str, Any]:
        return {
            "profile": self._host.messages.profile.name,
            "requests": len(self._host.received),
            "asked": self._host.messages.asked,
            "queued": self._host.messages.script.queued,
            "waiting": self._gates.waiting(),
        }
