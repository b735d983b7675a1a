"""A model that plays a script: for tests, simulation, benchmarks and rehearsals.

Above: the turn loop, to which this is a model like any other. Below: a script, which looks at the turn and answers with
moves. The model keeps no state, so a script answers the same after a restart; what it wants to know of the
conversation it reads from the request, and only if it asks.
"""

import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias, assert_never

import anyio
import msgspec

from torpor.conversation.markup import is_told
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import ProviderError
from torpor.records.blocks import Block, canonical, text_block
from torpor.records.terms import Usage


class Say(msgspec.Struct, frozen=True):
    """Write text; consecutive ones are one block."""

    text: str
    pace_cps: float = 0.0
    """Characters per second, word by word; 0 for all at once."""


class Call(msgspec.Struct, frozen=True):
    """Ask for a tool."""

    name: str
    arguments: Mapping[str, Any] = {}


class Show(msgspec.Struct, frozen=True):
    """Any other block, such as a thinking one, as it is."""

    block: Block


class Wait(msgspec.Struct, frozen=True):
    """Hold the reply until ``until()`` returns: an event's ``wait``, a sleep."""

    until: Callable[[], Awaitable[object]]


class Stop(msgspec.Struct, frozen=True):
    """End with this stop reason instead of the usual one."""

    reason: str


class Fail(msgspec.Struct, frozen=True):
    """End without a complete reply; what was said stays said."""

    error: ProviderError


Move: TypeAlias = Say | Call | Show | Wait | Stop | Fail


class SeenFile(msgspec.Struct, frozen=True):
    """What a script reads of a file that somebody sent."""

    media_type: str


class SeenBlock(msgspec.Struct, frozen=True):
    """What a script reads of a block."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    tool_use_id: str = ""
    content: Any = ""
    is_error: bool = False
    attachment: SeenFile | None = None


class SeenMessage(msgspec.Struct, frozen=True):
    """One message of the request."""

    role: str
    content: tuple[SeenBlock, ...]


class SeenResult(msgspec.Struct, frozen=True):
    """What a tool answered."""

    name: str
    text: str
    is_error: bool


RESUMES: Final = {
    "continue": "[Please go on where your reply was cut off",
    "retry": "[Please try again to answer the message before this one",
}
"""How what the engine says begins where a client takes up an offer."""
_NOTE: Final = re.compile(
    r"\[(?:Please (?:go on where your reply|try again to answer the message)|Your previous reply was cut short by|"
    r"The previous (?:turn was ended early by|message could not be answered: )|Your reply stopped early \(|"
    r"A message before this one was refused|[^\s,]+, reported as outcome unknown in turn \d+, has )"
)
"""What the engine notes beside the words of a user."""

_MESSAGES: Final = msgspec.json.Decoder(tuple[SeenMessage, ...])
_ENDS_WITH_RESULT: Final = b'"type":"tool_result"}'


class ScriptedTurn:
    """One request as a script sees it; everything but ``call`` and ``follows_results`` decodes the messages first."""

    def __init__(self, request: ModelRequest) -> None:
        self.request = request

    @property
    def call(self) -> str:
        return self.request.call

    @property
    def follows_results(self) -> bool:
        """Whether the request ends with tool results; costs the same at any length of history.

        The keys of a block are sorted, and no other block ends like this.
        """
        view = self.request.view
        return view.length > 0 and view.chunks[view.length - 1].endswith(_ENDS_WITH_RESULT)

    @cached_property
    def messages(self) -> tuple[SeenMessage, ...]:
        return _MESSAGES.decode(self.request.view.messages())

    @cached_property
    def text(self) -> str:
        """The last text of the user; notes of the engine stand before it, what is for the turn alone behind it. Of
        files that came without words, ``[attached image/png]`` and so on."""
        texts = _said_in(self.messages[self._asked_at])
        return texts[-1] if texts else ""

    @cached_property
    def resumes(self) -> str:
        """The offer that is taken up without words of its own: ``continue``, ``retry``, or empty for none.

        ``text`` is then what the turn that failed was asked.
        """
        for message in reversed(self.messages):
            for block in reversed(message.content):
                if message.role == "user" and block.type == "text" and not is_told(block.text):
                    offers = (offer for offer, asked in RESUMES.items() if block.text.startswith(asked))
                    return next(offers, "")
        return ""

    @property
    def step(self) -> int:
        """Replies since that text: 0 for the first."""
        return sum(message.role == "assistant" for message in self._since)

    @cached_property
    def results(self) -> tuple[SeenResult, ...]:
        """What was answered to the calls since that text, in the order of the calls."""
        blocks = [block for message in self._since for block in message.content]
        answers = {block.tool_use_id: block for block in blocks if block.type == "tool_result"}
        return tuple(
            SeenResult(call.name, _text_of(answers[call.id]), answers[call.id].is_error)
            for call in blocks
            if call.type == "tool_use" and call.id in answers
        )

    @property
    def _since(self) -> tuple[SeenMessage, ...]:
        return self.messages[self._asked_at + 1 :]

    @cached_property
    def _asked_at(self) -> int:
        """Where the user spoke last; a message of results that a text joined counts as one."""
        for at in reversed(range(len(self.messages))):
            if _said_in(self.messages[at]):
                return at
        return 0


def _said_in(message: SeenMessage) -> list[str]:
    """What a user said; notes count where nothing but one is there, as behind calls that were cut."""
    if message.role != "user":
        return []
    texts = [block.text for block in message.content if block.type == "text" and not is_told(block.text)]
    has_resumed = any(text.startswith(asked) for text in texts for asked in RESUMES.values())
    said = [text for text in texts if not _NOTE.match(text)]
    if kinds := _without_words(message):
        said.append(f"[attached {', '.join(kinds)}]")
    return said or ([] if has_resumed else texts)


def _without_words(message: SeenMessage) -> list[str]:
    """Kinds of the files behind the last words: they came by themselves, since a message's own words follow them."""
    kinds: list[str] = []
    for block in message.content:
        if block.attachment is not None:
            kinds.append(block.attachment.media_type)
        elif block.type == "text" and not is_told(block.text) and not _NOTE.match(block.text):
            kinds.clear()
    return kinds


def _text_of(result: SeenBlock) -> str:
    if isinstance(result.content, str):
        return result.content
    return "".join(part.get("text", "") for part in result.content)


Script: TypeAlias = Callable[[ScriptedTurn], Iterable[Move]]
"""May be a generator function: what stands between two moves happens between them."""


class ScriptedModel:
    """Implements ``model.contract.Model``. A reply without waits has no await in it."""

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        self._script = script
        self._name = name

    def request_fields(self) -> Mapping[str, Any]:
        return {}

    async def warm(self) -> None:
        """See the contract."""

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        """See ``contract.Model``. Raises: ProviderError: the script says so."""
        performance = _Performance(request.call, sink)
        for move in self._script(ScriptedTurn(request)):
            await performance.make(move)
        blocks = performance.ended()
        usage = Usage(
            input_tokens=_tokens(request.preamble.size_bytes + request.view.weight_bytes),
            output_tokens=_tokens(sum(map(len, blocks))),
        )
        return ModelReply(blocks=blocks, stop_reason=performance.stop_reason, usage=usage, model=self._name)

    def __repr__(self) -> str:
        return f"<ScriptedModel {self._name}>"


class _Performance:
    """One reply in the making."""

    __slots__ = ("_blocks", "_call", "_pieces", "_sink", "_stop")

    def __init__(self, call: str, sink: ReplySink) -> None:
        self._call = call
        self._sink = sink
        self._blocks: list[Block] = []
        self._pieces: list[str] = []
        self._stop = ""

    @property
    def stop_reason(self) -> str:
        return self._stop or "end_turn"

    async def make(self, move: Move) -> None:
        match move:
            case Say():
                await self._say(move)
            case Call():
                self._finish_text()
                self._finish(self._tool_use(move))
                self._stop = self._stop or "tool_use"
            case Show():
                self._finish_text()
                self._finish(move.block)
            case Wait():
                await move.until()
            case Stop():
                self._stop = move.reason
            case Fail():
                raise move.error
            case _:
                assert_never(move)

    def ended(self) -> tuple[Block, ...]:
        self._finish_text()
        return tuple(self._blocks)

    async def _say(self, move: Say) -> None:
        if not move.pace_cps:
            self._piece(move.text)
            return
        for word in _WORD.findall(move.text):
            self._piece(word)
            await anyio.sleep(len(word) / move.pace_cps)

    def _piece(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._sink.text(text)

    def _finish_text(self) -> None:
        if self._pieces:
            self._finish(text_block("".join(self._pieces)))
            self._pieces.clear()

    def _finish(self, block: Block) -> None:
        self._blocks.append(block)
        self._sink.block(block)

    def _tool_use(self, move: Call) -> Block:
        """Its id is of this model call and its place in the reply, so it is unique within the conversation."""
        id_ = f"toolu_{_UNFIT.sub('_', self._call)}_{len(self._blocks)}"
        return canonical({"type": "tool_use", "id": id_, "name": move.name, "input": dict(move.arguments)})


_WORD: Final = re.compile(r"\S+\s*|\s+")
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_-]")
_BYTES_PER_TOKEN: Final = 4


def _tokens(size_bytes: int) -> int:
    return math.ceil(size_bytes / _BYTES_PER_TOKEN)
