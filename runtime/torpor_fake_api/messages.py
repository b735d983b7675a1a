"""``POST /v1/messages`` and its count of tokens: validate first, then say what the script says."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from torpor_fake_api.delivery.events import frames, whole_frame
from torpor_fake_api.delivery.message import Message, Writer
from torpor_fake_api.delivery.plan import Headers, Step, planned
from torpor_fake_api.errors import Refusal
from torpor_fake_api.memory import Memory
from torpor_fake_api.models import UNLISTED, ModelFacts
from torpor_fake_api.profiles import Profile
from torpor_fake_api.prompt.cache import PromptCache
from torpor_fake_api.prompt.rendering import Segment, segments, total
from torpor_fake_api.received import Received
from torpor_fake_api.rules.case import blocks
from torpor_fake_api.rules.envelope import BODY_MAX_BYTES
from torpor_fake_api.rules.judge import violations
from torpor_fake_api.rules.violation import Violation
from torpor_fake_api.rules.window import window_violation
from torpor_fake_api.scripting.faults import HttpError
from torpor_fake_api.scripting.replies import Reply
from torpor_fake_api.scripting.script import Asked, Script
from torpor_fake_api.signing import Signer

_PREWARMED = Reply(stop_reason="max_tokens", usage={"output_tokens": 0})


class Answer:
    """A message on its way, and what is to be remembered of it; implements ``wire.perform.Watcher``."""

    def __init__(self, message: Message, *, steps: list[Step], memory: Memory, body: dict[str, Any]) -> None:
        self.steps = steps
        self.message = message
        self._memory = memory
        self._body = body
        self._blocks = 0
        self._is_complete = False

    def delivered(self, block: int) -> None:
        self._blocks = block + 1

    def completing(self) -> None:
        message, last = self.message, self._body["messages"][-1]
        self._is_complete = True
        self._memory.remember(message.id, message.content)
        if message.stop_reason == "pause_turn":
            begun = blocks(last) if last["role"] == "assistant" else []
            self._memory.pause([*begun, *message.content])

    def ended(self) -> None:
        """Remember of a message that broke off what the client has of it."""
        if not self._is_complete:
            self._memory.remember(self.message.id, self.message.content[: self._blocks])


class MessagesEndpoint:
    """One host's models, cache, memory and script, behind the two paths."""

    def __init__(
        self,
        script: Script,
        *,
        profile: Profile,
        models: Mapping[str, ModelFacts],
        signer: Signer,
        new_id: Callable[[str], str],
    ) -> None:
        self.script = script
        self.profile = profile
        self.models = dict(models)
        self.cache = PromptCache()
        self.memory = Memory(signer)
        self.asked = 0
        """Valid requests for messages so far."""
        self._writer = Writer(signer, new_id=new_id)

    def create(self, received: Received, *, headers: Headers, now_s: float) -> Answer | HttpError:
        """Answer a request for a message.

        Raises: Refusal: it breaks a rule. Unplayable: the script does not fit.
        """
        body, model = self._judged(received, counts_only=False)
        found = self._segments(body, model)
        _refuse(received, window_violation(total(found), max_tokens=body["max_tokens"], model=model))
        reply = self._reply(body)
        if isinstance(reply.fault, HttpError):
            return reply.fault
        use = self.cache.look(found, mark=body.get("cache_control"), model=model, now_s=now_s)
        message = self._writer.write(reply, body=body, model=model, use=use)
        is_stream = body.get("stream") is True
        steps = planned(
            list(frames(message)) if is_stream else [whole_frame(message)],
            headers=(*headers, *reply.headers.items()),
            is_stream=is_stream,
            interval_s=reply.delta_interval_s,
            fault=reply.fault,
        )
        self.cache.keep(use, now_s=now_s)
        received.message_id = message.id
        return Answer(message, steps=steps, memory=self.memory, body=body)

    def count(self, received: Received) -> bytes:
        """The body of a count of tokens. Raises: Refusal: the request breaks a rule."""
        body, model = self._judged(received, counts_only=True)
        return msgspec.json.encode({"input_tokens": total(self._segments(body, model))})

    def _segments(self, body: dict[str, Any], model: ModelFacts) -> list[Segment]:
        return segments(body, model=model, is_dropped=lambda block: self.memory.is_foreign(block, model.id))

    def _reply(self, body: dict[str, Any]) -> Reply:
        if body["max_tokens"] == 0:
            return _PREWARMED
        self.asked += 1
        return self.script.reply(Asked(self.asked, body))

    def _judged(self, received: Received, *, counts_only: bool) -> tuple[dict[str, Any], ModelFacts]:
        body = received.body
        name = body.get("model") if isinstance(body, dict) else None
        if isinstance(name, str) and name and name not in self.models:
            raise Refusal(404, f"model: {name}")
        model = self.models[name] if isinstance(name, str) and name else UNLISTED
        received.violations = violations(
            body,
            profile=self.profile,
            model=model,
            witness=self.memory,
            counts_only=counts_only,
            size_bytes=len(received.raw),
        )
        _refuse(received, next(iter(received.violations), None))
        return body, self.profile.facts(model)


def decoded(raw: bytes, *, size_bytes: int) -> Any:
    """The JSON of a body. Raises: Refusal: it is too large, or none."""
    if size_bytes > BODY_MAX_BYTES:
        raise Refusal(413, "Request exceeds the maximum size")
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as exc:
        raise Refusal(400, f"request body is not valid JSON: {_why(raw) or exc}") from exc


def _why(raw: bytes) -> str:
    """A lone surrogate by its own words; other mistakes have none."""
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "no low surrogate in string"
    except ValueError:
        return ""
    return ""


def _refuse(received: Received, violation: Violation | None) -> None:
    if violation is None:
        return
    if violation not in received.violations:
        received.violations.append(violation)
    raise Refusal(413 if violation.rule == "V-11" else 400, str(violation))
