"""The model of a run: says words, asks for tools, fails by luck, and keeps every request it was sent.

It knows the conversation from the marks that the clients put into their messages, as it sees nothing but the request.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import msgspec

from tests.simulation.faults import Fault, Sight
from tests.simulation.life import Life
from tests.simulation.tools import SimulatedCrash
from tests.simulation.world import World
from tests.support.oracle_evidence import Json, ModelCall
from torpor.conversation.view import request_body
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import (
    AttachmentNotTaken,
    ContextTooLong,
    KeyRefused,
    Overloaded,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestInvalid,
    RequestTooLarge,
    StreamLost,
)
from torpor.records.blocks import canonical
from torpor.records.ids import ConversationKey
from torpor.records.terms import Usage
from torpor.store.codec import MAX_BATCH_RECORDS

DEADLINE_S = 6.0
MARK: Final = re.compile(r"\[(c\d+):")
"""How every message of a client begins."""
_HANDLE: Final = re.compile(r"read_result with handle=\W+([0-9a-f]{64})")
TOOL_NAMES: Final = (
    *("look", "look", "pay", "book", "ship", "file"),
    *("load_skill", "load_skill", "search_skills", "read_earlier"),
)
_SKILLS: Final = ("refunds", "refunds", "visits", "manners", "magic")
_SLOW_BLOCKS: Final = 6
"""The others of a reply come at once."""
_PASSING: Final = (ProviderUnavailable, Overloaded, RateLimited, StreamLost)
_LASTING: Final = (RequestInvalid, ContextTooLong, KeyRefused)
_LONG: Final = 40
"""Times the last words of a long message: of about 170 tokens."""
MOODS: Final = ("plain", "plain", "plain", "endless", "stubborn")
"""In which a sub-agent goes about its task: it never comes to an end, or its answer is never as it should be."""
_WORDS: Final = ("well", "then", "maybe", "so", "about that", "done", "hm")


class SimModel:
    """Implements ``model.contract.Model`` for one life."""

    def __init__(
        self,
        life: Life,
        *,
        holders: Callable[[ConversationKey], tuple[str, int]],
        stir: Callable[[], None],
        spawning: tuple[str, ...] = (),
        tools: tuple[str, ...] = TOOL_NAMES,
    ) -> None:
        """Args: stir: changes the world while the model thinks.  spawning: tools that have sub-agents work.  tools: the
        others that it asks for, the more often the more often they are named."""
        self._spawning = spawning
        self._tools = tools + spawning * 3
        self._life = life
        self._stir = stir
        self._holders = holders

    def request_fields(self) -> dict[str, Any]:
        return {}

    async def warm(self) -> None: ...

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        life, world = self._life, self._life.world
        call = self._noted(request)
        world.note(life.name, "model asked", call=call.call, conversation=call.conversation)
        life.reach("model.asked")
        self._stir()
        await self._take_time()
        if world.roll(Fault.MODEL_CRASHED):
            raise SimulatedCrash("the adapter gave up")
        if world.roll(Fault.MODEL_UNAVAILABLE):
            raise self._fault(_PASSING, retry_after_s=world.rng.choice((None, None, 0.0, 1.5)))
        if world.roll(Fault.MODEL_REFUSED_REQUEST):
            raise self._fault(_LASTING)
        self._refuse_files(request)
        if world.roll(Fault.MODEL_TOO_LONG):
            raise ContextTooLong("simulated")
        blocks = self._blocks(json.loads(call.body)["messages"])
        stop_reason = self._stop_reason(blocks)
        await self._stream(blocks, sink)
        if world.roll(Fault.MODEL_TIMED_OUT):
            await anyio.sleep(DEADLINE_S + 1)
        unusable = {
            place: "arguments were cut off; nothing was done"
            for place, block in enumerate(blocks)
            if block["type"] == "tool_use" and world.roll(Fault.MODEL_CUT_INPUT)
        }
        await life.gate()
        call.ended = world.moment()
        call.blocks, call.stop_reason = blocks, stop_reason
        return ModelReply(
            blocks=tuple(canonical(block) for block in blocks),
            stop_reason=stop_reason,
            usage=Usage(input_tokens=len(call.body) // 4, output_tokens=1 + len(json.dumps(blocks)) // 4),
            model="sim",
            unusable=unusable,
        )

    def _noted(self, request: ModelRequest) -> ModelCall:
        body = request_body(request.preamble, request.view, live=request.live)
        conversation = self._conversation(body)
        world = self._life.world
        call = ModelCall(
            moment=world.moment(),
            life=self._life.name,
            conversation=conversation,
            call=request.call,
            link=request.view.link.hex(),
            body=body,
            attached={blob: hashlib.sha256(data).hexdigest() for blob, data in request.attached.items()},
            is_holder=self._holders(key_of(conversation))[0] == self._life.holder and not self._life.is_dead,
        )
        world.evidence.model_calls.append(call)
        return call

    def _refuse_files(self, request: ModelRequest) -> None:
        """Raises: RequestInvalid, RequestTooLarge: there are some, and the host takes them not."""
        world = self._life.world
        if not request.attached or not world.roll(Fault.FILE_REFUSED):
            return
        messages = msgspec.json.decode(request.view.messages())
        places = [
            (at, place)
            for at, message in enumerate(messages)
            for place, block in enumerate(message["content"])
            if block["type"] == "attachment"
        ]
        at = world.rng.choice((None, *places))
        raise world.rng.choice(
            (
                AttachmentNotTaken("simulated", at=at, is_of_picture=world.rng.random() < 0.5),
                RequestTooLarge("simulated"),
            )
        )

    def _conversation(self, body: bytes) -> str:
        """Whose request it is."""
        mark = MARK.search(body.decode())
        return mark[1] if mark else ""

    async def _stream(self, blocks: list[Json], sink: ReplySink) -> None:
        life, world = self._life, self._life.world
        loses = world.roll(Fault.MODEL_LOST)
        for place, block in enumerate(blocks):
            if block["type"] == "text":
                text = block["text"]
                cut = world.rng.randrange(len(text) + 1)
                for piece in filter(None, (text[:cut], text[cut:])):
                    life.reach("model.text")
                    await self._take_time()
                    sink.text(piece)
                    if loses:
                        raise self._fault(_PASSING)
            if place < _SLOW_BLOCKS:
                await self._take_time()
            sink.block(canonical(block))

    async def _take_time(self) -> None:
        world = self._life.world
        seconds = world.rng.choice((0.0, 0.0, 0.01, 0.2))
        await anyio.sleep(1.5 if world.roll(Fault.MODEL_SLOW) else seconds)
        await self._life.gate()

    def _blocks(self, messages: list[Json]) -> list[Json]:
        """What to say next: tools now and then, and after their results mostly words."""
        world, last = self._life.world, messages[-1]["content"]
        rng = world.rng
        if world.roll(Fault.MODEL_EMPTY):
            return []
        if world.roll(Fault.MODEL_MANY_CALLS):
            return [self._use("dance", {}) for _ in range(MAX_BATCH_RECORDS + 1)]
        blocks: list[Json] = []
        if world.roll(Fault.MODEL_BLANK):
            blocks.append({"type": "text", "text": "  \n"})
        chance = 0.25 if any(block["type"] == "tool_result" for block in last) else 0.6
        asks = rng.random() < chance
        if not asks or rng.random() < 0.5:
            if rng.random() < 0.2:
                blocks.append({"type": "thinking", "thinking": "hm", "signature": "s"})
            blocks.append({"type": "text", "text": " ".join(rng.choices(_WORDS, k=rng.randint(1, 12)))})
        blocks.extend(self._call() for _ in range(rng.choice((1, 1, 2, 3)) if asks else 0))
        if (handle := _HANDLE.search(json.dumps(last))) and rng.random() < 0.3:
            world.saw(Sight.RESULT_READ_ON)
            blocks.append(self._use("read_result", {"handle": handle[1]}))
        return blocks

    def _stop_reason(self, blocks: list[Json]) -> str:
        world = self._life.world
        asks = any(block["type"] == "tool_use" for block in blocks)
        if world.roll(Fault.MODEL_REFUSED):
            return "refusal"
        if world.roll(Fault.MODEL_PAUSED):
            return "pause_turn"
        if world.roll(Fault.MODEL_ODD_STOP):
            return "bored"
        if (asks or not blocks) and world.roll(Fault.MODEL_CUT_CALLS):
            return "max_tokens"
        return "tool_use" if asks else "end_turn"

    def _fault(self, kinds: Sequence[type[ProviderError]], *, retry_after_s: float | None = None) -> ProviderError:
        kind = self._life.world.rng.choice(kinds)
        return kind("simulated", retry_after_s=retry_after_s)

    def _call(self) -> Json:
        world = self._life.world
        arguments: Any = {"what": world.rng.choice(_WORDS)}
        if world.roll(Fault.MODEL_BAD_INPUT):
            arguments = world.rng.choice(([1], "text", None, {"which": 1}, {"what": 1}, {}))
        name = "dance" if world.roll(Fault.MODEL_UNKNOWN_TOOL) else world.rng.choice(self._tools)
        if name == "load_skill":
            return self._use(name, {"name": world.rng.choice(_SKILLS)})
        if name == "read_earlier":
            return self._use(
                name, world.rng.choice(({"first_turn": 1}, {"first_turn": 1, "last_turn": 3}, {"query": "please"}))
            )
        if name == "search_skills":
            return self._use(name, {"query": world.rng.choice(_SKILLS)})
        if name in self._spawning and isinstance(arguments, dict) and isinstance(arguments.get("what"), str):
            arguments = {"task": errand(world)}
        return self._use(name, arguments)

    def _use(self, name: str, arguments: Any) -> Json:
        world = self._life.world
        if not world.roll(Fault.MODEL_SAME_IDS):
            world.counts["call ids"] += 1
        return {"type": "tool_use", "id": f"toolu_{world.counts['call ids']}", "name": name, "input": arguments}


def errand(world: World) -> str:
    """A task that no other sub-agent has."""
    world.counts["errands"] += 1
    return f"errand {world.counts['errands']}, {world.rng.choice(MOODS)}"


def key_of(conversation: str) -> ConversationKey:
    """Every conversation of a run has the same owner."""
    return ConversationKey("t", "o", conversation)


def mark(conversation: str, message_id: str) -> str:
    """The text of a client's message; every third one is long, and fits beside little else where windows are small."""
    number = int(message_id.rpartition("-")[2] or 0)
    return f"[{conversation}:{message_id}] please" + " and mind the step" * (_LONG if number % 3 == 2 else 0)


def decoded(body: bytes) -> Json:
    """A request as its JSON."""
    request: Json = msgspec.json.decode(body)
    return request
