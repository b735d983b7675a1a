"""The host without its sockets: takes a request that was read whole and says what is to be done at the connection.

It knows the paths, who may ask, and the headers of every response; messages, models and control have their own rooms.
"""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from torpor_fake_api.delivery.plan import Headers, Step, Unplayable, plain
from torpor_fake_api.errors import Refusal, envelope, type_of
from torpor_fake_api.messages import Answer, MessagesEndpoint, decoded
from torpor_fake_api.models import MODELS, ModelFacts, described
from torpor_fake_api.profiles import Profile
from torpor_fake_api.received import Received
from torpor_fake_api.scripting.faults import HttpError
from torpor_fake_api.scripting.script import Script
from torpor_fake_api.signing import Signer
from torpor_fake_api.wire.exchange import Request

KEPT_REQUESTS: Final = 10_000
PAGE_SIZE: Final = 20


class Reaction(NamedTuple):
    """What one request leads to."""

    steps: list[Step]
    received: Received
    answer: Answer | None = None


class Host:
    """One fake Messages API."""

    def __init__(
        self,
        script: Script,
        *,
        profile: Profile,
        models: Mapping[str, ModelFacts] = MODELS,
        api_key: str | None = None,
        seed: str = "",
        signer: Signer | None = None,
    ) -> None:
        """Args: api_key: the only one accepted; None takes any.  seed: in every id, to tell two hosts apart."""
        self._numbers = count(1)
        self._seed = seed
        self._api_key = api_key
        self.messages = MessagesEndpoint(
            script, profile=profile, models=models, signer=signer or Signer(), new_id=self.new_id
        )
        self.received: deque[Received] = deque(maxlen=KEPT_REQUESTS)
        self.arrived: list[Callable[[], None]] = []
        """Called whenever a request came in."""

    def __repr__(self) -> str:
        return f"<Host profile={self.messages.profile.name} requests={len(self.received)}>"

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{self._seed}{next(self._numbers):024d}"

    def react(self, request: Request, *, now_s: float, today: datetime) -> Reaction:
        """Decide the whole response to ``request``.

        Args: now_s: of a clock that only goes forward, for the cache.  today: for dates in headers.
        """
        received = Received(request, request_id=self.new_id("req"))
        headers: Headers = (("request-id", received.request_id),)
        answer = None
        try:
            self._admit(request)
            result = self._route(request, received, headers=headers, now_s=now_s)
            if isinstance(result, Answer):
                answer, steps = result, result.steps
            elif isinstance(result, HttpError):
                received.status = result.status
                steps = _failure(result, received.request_id, today)
            else:
                steps = plain(200, result, headers=headers)
        except Refusal as refusal:
            received.status = refusal.status
            body = envelope(refusal.error_type, refusal.message, request_id=received.request_id)
            steps = plain(refusal.status, body, headers=headers)
        except Unplayable as exc:
            received.status, received.problem = 500, str(exc)
            steps = plain(500, envelope("api_error", f"script: {exc}", request_id=received.request_id), headers=headers)
        received.status = received.status or 200
        self.received.append(received)
        for tell in tuple(self.arrived):
            tell()
        return Reaction(steps, received, answer)

    def _admit(self, request: Request) -> None:
        """Raises: Refusal: without one valid key, or without a version."""
        key, bearer = request.headers.get("x-api-key"), request.headers.get("authorization")
        if key is not None and bearer is not None:
            raise Refusal(401, "x-api-key and Authorization may not both be given")
        scheme, _, token = (bearer or "").partition(" ")
        given = key if key is not None else token if scheme.lower() == "bearer" else ""
        if not given:
            raise Refusal(401, "x-api-key header is required")
        if self._api_key is not None and given != self._api_key:
            raise Refusal(401, "invalid x-api-key" if key is not None else "invalid bearer token")
        if not request.headers.get("anthropic-version"):
            raise Refusal(400, "anthropic-version: header is required")

    def _route(
        self, request: Request, received: Received, *, headers: Headers, now_s: float
    ) -> Answer | HttpError | bytes:
        split = urlsplit(request.target)
        match request.method, split.path.strip("/").split("/"):
            case "POST", ["v1", "messages"]:
                received.body = decoded(request.body, size_bytes=request.size_bytes)
                return self.messages.create(received, headers=headers, now_s=now_s)
            case "POST", ["v1", "messages", "count_tokens"]:
                received.body = decoded(request.body, size_bytes=request.size_bytes)
                return self.messages.count(received)
            case "GET", ["v1", "models"]:
                return self._models(parse_qs(split.query))
            case "GET", ["v1", "models", model] if model in self.messages.models:
                return msgspec.json.encode(described(self.messages.models[model]))
            case "GET", ["v1", "models", model]:
                raise Refusal(404, f"model: {model}")
            case _, ["v1", "messages", *_] | ["v1", "models", *_]:
                raise Refusal(405, "Method Not Allowed")
            case _:
                raise Refusal(404, "Not Found")

    def _models(self, query: dict[str, list[str]]) -> bytes:
        ids = list(self.messages.models)
        after = query.get("after_id", [""])[0]
        start = ids.index(after) + 1 if after in ids else 0
        limit = query.get("limit", [str(PAGE_SIZE)])[0]
        if not limit.isdecimal() or not 1 <= int(limit) <= 1000:
            raise Refusal(400, "limit: Input should be from 1 to 1000")
        page = ids[start : start + int(limit)]
        body: dict[str, Any] = {
            "data": [described(self.messages.models[model]) for model in page],
            "has_more": start + int(limit) < len(ids),
            "first_id": page[0] if page else None,
            "last_id": page[-1] if page else None,
        }
        return msgspec.json.encode(body)


def _failure(fault: HttpError, request_id: str, today: datetime) -> list[Step]:
    headers: list[tuple[str, str]] = list(fault.headers.items())
    if fault.retry_after_s is not None:
        headers.append(_retry_after(fault, today))
    if fault.page is not None:
        return plain(fault.status, fault.page.encode(), headers=tuple(headers), content_type="text/html")
    error_type = fault.error_type or type_of(fault.status)
    body = envelope(error_type, fault.message or error_type, request_id=request_id)
    return plain(fault.status, body, headers=(("request-id", request_id), *headers))


def _retry_after(fault: HttpError, today: datetime) -> tuple[str, str]:
    seconds = fault.retry_after_s or 0.0
    match fault.retry_after_as:
        case "ms":
            return "retry-after-ms", f"{seconds * 1000:g}"
        case "date":
            return "retry-after", format_datetime((today + timedelta(seconds=seconds)).astimezone(UTC), usegmt=True)
        case _:
            return "retry-after", f"{seconds:g}"
