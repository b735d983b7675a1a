"""What the host keeps of each request: the body as it came, what was wrong with it, and how the response ended."""

from typing import Any

import anyio

from torpor_fake_api.rules.violation import Violation
from torpor_fake_api.wire.exchange import Request
from torpor_fake_api.wire.perform import Outcome


class Received:
    """One request and its fate; filled in while it is answered."""

    def __init__(self, request: Request, *, request_id: str) -> None:
        self.method = request.method
        self.path = request.target.partition("?")[0]
        self.headers = request.headers
        self.raw = request.body
        self.body: Any = None
        """Decoded, where it was JSON."""
        self.request_id = request_id
        self.message_id = ""
        """Of the reply, where there was one."""
        self.status = 0
        self.violations: list[Violation] = []
        self.problem = ""
        """Why the script could not be played."""
        self.outcome = Outcome.OPEN
        self.ended = anyio.Event()
        """Set when the response is complete or the connection gone."""

    def __repr__(self) -> str:
        return f"<Received {self.method} {self.path} {self.status} {self.outcome}>"

    def described(self) -> dict[str, Any]:
        """For the control over HTTP; without the key."""
        secret = {"authorization", "x-api-key"}
        return {
            "method": self.method,
            "path": self.path,
            "headers": {name: value for name, value in self.headers.items() if name not in secret},
            "body": self.body,
            "request_id": self.request_id,
            "message_id": self.message_id,
            "status": self.status,
            "violations": self.violations,
            "problem": self.problem,
            "outcome": self.outcome,
        }
