"""A host without sockets, and what it would answer."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from torpor_fake_api.delivery.plan import Head, Send
from torpor_fake_api.host import Host, Reaction
from torpor_fake_api.profiles import PROFILES
from torpor_fake_api.scripting.replies import Reply
from torpor_fake_api.scripting.script import Script
from torpor_fake_api.wire.exchange import Request
from torpor_fake_api.wire.perform import Outcome

HEADERS = {"x-api-key": "any", "anthropic-version": "2026-10-21"}
TODAY = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Response(NamedTuple):
    """A response that was sent to its end."""

    status: int
    headers: dict[str, str]
    text: str
    reaction: Reaction

    @property
    def body(self) -> Any:
        return json.loads(self.text)


def host(*replies: Reply | str, profile: str = "strict", **fields: Any) -> Host:
    return Host(Script(*replies), profile=PROFILES[profile], **fields)


def raw_request(
    method: str, target: str, body: bytes = b"", *, headers: dict[str, str] | None = None, size_bytes: int | None = None
) -> Request:
    size = len(body) if size_bytes is None else size_bytes
    return Request(method, target, HEADERS if headers is None else headers, body, size)


def send(to: Host, request: Request, *, now_s: float = 0.0) -> Response:
    """Let ``to`` react, and take all of it."""
    reaction = to.react(request, now_s=now_s, today=TODAY)
    heads = [step for step in reaction.steps if isinstance(step, Head)]
    sends = [step for step in reaction.steps if isinstance(step, Send)]
    if reaction.answer:
        for step in sends:
            if step.is_last:
                reaction.answer.completing()
            if step.ends_block is not None:
                reaction.answer.delivered(step.ends_block)
        reaction.answer.ended()
    reaction.received.outcome = Outcome.FINISHED
    text = b"".join(step.data for step in sends).decode()
    return Response(heads[0].status, dict(heads[0].headers), text, reaction)


def post(to: Host, body: Any, *, path: str = "/v1/messages", now_s: float = 0.0) -> Response:
    return send(to, raw_request("POST", path, msgspec.json.encode(body)), now_s=now_s)


def get(to: Host, target: str) -> Response:
    return send(to, raw_request("GET", target))
