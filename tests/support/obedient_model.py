"""A model that does what the last message tells it to.

A message says what it wants in brackets at its end: its own id, and what to do before it is answered.

    [m7]                            answer
    [m7: look_up, pay_keyed]        call these tools side by side, then answer
    [m7: hold]                      begin to speak, wait until somebody releases m7, then answer
    [m7: fail]                      begin to speak, then break down
    [m7: refuse]                    begin to speak, then refuse
    [m7: echo]                      answer with the message itself
    [m7: scout]                     have a sub-agent work, which looks something up; then answer
    [m7: scout_deep]                likewise, and it has one of its own work, which tracks something down
    [m7: scout_long]                likewise, and that one waits until somebody releases mcc7

An answer names every message it answers, so that others can count. The task of a sub-agent is a message with a wish of
its own, [mc7: look_up], and [mcc7: track] that of one below it; nobody who counts messages takes them for one. Whoever
tracks owes research, and answers with what it found.
"""

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import ProviderUnavailable
from torpor.records.blocks import Block, canonical, text_block
from torpor.records.terms import Usage

WISH: Final = re.compile(r"\[(m[\w-]*)(?:: ([\w, ]+))?\]")
ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "look_up": {"what": "the price"},
    "dig_out": {},
    "track": {},
    "pay_keyed": {"amount": 3},
    "pay_probed": {"amount": 4},
    "pay_blindly": {"amount": 5},
    "load_skill": {"name": "counting-money"},
    "read_earlier": {"first_turn": 1},
}
TASKS: Final = {
    "scout": ("scout", "look_up, dig_out"),
    "scout_deep": ("scout", "look_up, track_down"),
    "scout_long": ("scout", "look_up, track_long"),
    "track_down": ("tracker", "track"),
    "track_long": ("tracker", "track, hold"),
}
"""Which sub-agent is to do what, by the wish that has it work."""
FOUND: Final = "trail"
"""Id of what there is to be tracked down."""


AWAITED: Final = "-awaited"
"""Behind the id of a message, among what is released: that somebody waits for its release."""


class Wish(msgspec.Struct, frozen=True):
    """What one message asks for."""

    id: str
    doings: tuple[str, ...]


class ObedientModel:
    """Implements ``model.contract.Model``; ``home`` holds the folder of what is released."""

    def __init__(self, home: Path, *, pause: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint) -> None:
        """Args: pause: between two pieces of what it says."""
        self._released = home / "released"
        self._pause = pause

    def request_fields(self) -> dict[str, Any]:
        return {}

    async def warm(self) -> None: ...

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        messages = json.loads(request.view.messages())
        blocks, stop_reason = await self._said(messages, sink)
        return ModelReply(blocks=blocks, stop_reason=stop_reason, usage=Usage(input_tokens=1, output_tokens=1))

    async def _said(self, messages: list[dict[str, Any]], sink: ReplySink) -> tuple[tuple[Block, ...], str]:
        open_part = _unanswered(messages)
        wishes = _wishes(open_part)
        last = wishes[-1]
        tools = tuple(doing for doing in last.doings if doing in {*ARGUMENTS, *TASKS, "pay_slowly"})
        if tools and not _was_called(open_part, last):
            text = _working_on(last)
            sink.text(text)
            return (text_block(text), *(_call(last, name) for name in tools)), "tool_use"
        sink.text("Answered ")
        await self._pause()
        if "hold" in last.doings:
            (self._released / f"{last.id}{AWAITED}").touch()
            while not (self._released / last.id).exists() and not (self._released / "everything").exists():  # noqa: ASYNC110 - another process
                await anyio.sleep(0.005)
        if "fail" in last.doings:
            raise ProviderUnavailable("it was told to break down")
        if "refuse" in last.doings:
            return (text_block("Answered "),), "refusal"
        names = ", ".join(wish.id for wish in wishes)
        sink.text(names)
        await self._pause()
        sink.text(".")
        rest = f" {_last_text(open_part)}" if "echo" in last.doings else ""
        said = f"Answered {names}.{rest}"
        if "track" in last.doings:
            said = json.dumps({"source_ids": [FOUND], "planner_reflection": said})
        return (text_block(said),), "end_turn"


def _unanswered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was said since the last reply that asked for no tools."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message["role"] == "assistant" and all(block["type"] != "tool_use" for block in message["content"]):
            return messages[index + 1 :]
    return messages


def _wishes(messages: list[dict[str, Any]]) -> list[Wish]:
    said = (
        block["text"]
        for message in messages
        if message["role"] == "user"
        for block in message["content"]
        if block["type"] == "text"
    )
    return [
        Wish(id=found[1], doings=tuple(found[2].split(", ")) if found[2] else ())
        for text in said
        for found in WISH.finditer(text)
    ]


def _last_text(messages: list[dict[str, Any]]) -> str:
    text: str = messages[-1]["content"][-1]["text"]
    return text


def _was_called(messages: list[dict[str, Any]], wish: Wish) -> bool:
    blocks = (block for message in messages for block in message["content"])
    return any(block["type"] == "text" and block["text"] == _working_on(wish) for block in blocks)


def task_of(message: str) -> str:
    """The id of the wish that a message has a sub-agent fulfil."""
    return f"mc{message[1:]}"


def _working_on(wish: Wish) -> str:
    return f"Working on {wish.id}."


def _call(wish: Wish, name: str) -> Block:
    arguments = ARGUMENTS.get(name, {"amount": 6, "mark": wish.id})
    if name in TASKS:
        name, doings = TASKS[name]
        arguments = {"task": f"Do as it says [{task_of(wish.id)}: {doings}]"}
    return canonical({"type": "tool_use", "id": "given_by_the_engine", "name": name, "input": arguments})
