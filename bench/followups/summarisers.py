"""Summarisers that are no language models, and a counter for any.

``Extract`` is a real one, if a simple one: it copies the sentences that have the most figures, names and refusals for
their length, up to the cap, and knows nothing of which facts are needed. It says how much a summary of that size can
hold, not how well a language model writes one. The others say what happens at the ends: nothing useful, and worse.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from bench.followups.conversations import Opening
from torpor.conversation.budget import BYTES_PER_TOKEN, input_tokens
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink
from torpor.model.scripted import Move, Say, Script, ScriptedModel, ScriptedTurn

_QUESTION: Final = re.compile(
    r"\ASummary so far:\n(?P<summary>.*?)\n\nOpen items:\n(?P<items>.*?)\n\nTurns to fold:\n\n(?P<turns>.*)\Z",
    re.DOTALL,
)
_TURN: Final = re.compile(r"^Turn (\d+)$", re.MULTILINE)
_ITEM: Final = re.compile(r"^(i\d+-\d+) \(", re.MULTILINE)
_SENTENCES: Final = re.compile(r"(?<=[.!?;])\s+|(?<=\}), (?=\{)")
_FIGURE: Final = re.compile(r"\b\w*\d[\w.,:%/-]*")
_NAME: Final = re.compile(r"(?<=[a-z,\"] )[A-Z][\w-]+|(?<=\")[A-Z][\w-]+")
_REFUSAL: Final = re.compile(r"\b(refuse|decline|never|does not want|do not|not|no|allerg\w+)\b", re.IGNORECASE)
_CORRECTS: Final = re.compile(
    r"\b(correction|sorry|misread|instead|swapped|wrong|from now on|than the file says|as it says|as the old)\b"
    r"|\A(no|stop|change)\b",
    re.IGNORECASE,
)
_DENIES: Final = re.compile(r"\b(refuses|declines|does not want|does not wish|must not)\b", re.IGNORECASE)
_SPARE: Final = 0.9
"""Of the cap, so that what frames each fact fits as well."""


class Reading(NamedTuple):
    """What a summariser is asked, taken apart."""

    facts: tuple[str, ...]
    """Of the summary so far."""
    items: tuple[str, ...]
    """Ids of what is open."""
    turns: Mapping[int, str]
    """By number; what a piece begins with of a turn that was cut is left out."""

    @classmethod
    def of(cls, turn: ScriptedTurn) -> "Reading":
        found = _QUESTION.match(turn.messages[0].content[0].text)
        assert found is not None, "a summariser is asked otherwise than it was"
        _, *parts = _TURN.split(found["turns"])
        turns = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
        facts = json.loads(found["summary"]).get("facts", ())
        return cls(tuple(facts), tuple(_ITEM.findall(found["items"])), turns)


def lazy(turn: ScriptedTurn) -> Iterable[Move]:
    """Says nothing of anything."""
    del turn
    yield Say("ok.")


def extract(*, cap_tokens: int) -> Script:
    """Copies what looks like facts, up to the cap; takes refusals and corrections for open items."""

    def script(turn: ScriptedTurn) -> Iterable[Move]:
        reading = Reading.of(turn)
        heard = [sentence for text in reading.turns.values() for sentence in _sentences(text)]
        facts = _best([*reading.facts, *heard], room=int(cap_tokens * BYTES_PER_TOKEN * _SPARE))
        yield Say(json.dumps({"facts": facts or ["nothing of note"], "open": list(_opened(reading.turns))}))

    return script


def _sentences(text: str) -> Iterator[str]:
    for line in text.splitlines():
        speaker, _, words = line.partition(": ")
        if speaker in ("user", "assistant", "result"):
            yield from (part.strip() for part in _SENTENCES.split(words) if part.strip())


def _best(sentences: Iterable[str], *, room: int) -> list[str]:
    """Those worth the most for their length, in the order they were said; what was said later wins a tie."""
    said = list(dict.fromkeys(sentences))
    ranked = sorted(range(len(said)), key=lambda place: (_worth(said[place]), place), reverse=True)
    kept = set[int]()
    for place in ranked:
        size = len(said[place].encode()) + 3
        if _worth(said[place]) > 0 and size <= room:
            room -= size
            kept.add(place)
    return [said[place] for place in sorted(kept)]


def _worth(sentence: str) -> float:
    signs = 2 * len(_FIGURE.findall(sentence)) + len(_NAME.findall(sentence)) + len(_REFUSAL.findall(sentence))
    return signs / (20 + len(sentence))


def _opened(turns: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    for number, text in turns.items():
        for line in text.splitlines():
            speaker, _, words = line.partition(": ")
            if speaker != "user":
                continue
            if _DENIES.search(words):
                yield {"kind": "denial", "text": words, "turn": number}
            elif _CORRECTS.search(words):
                yield {"kind": "correction", "text": words, "turn": number}


def naming(openings: Iterable[Opening], rest: Script) -> Script:
    """Names each opening in the fold that reads its turn; in everything else it is ``rest``."""
    marked = tuple(openings)

    def script(turn: ScriptedTurn) -> Iterable[Move]:
        (said,) = rest(turn)
        assert isinstance(said, Say)
        answer = _object(said.text)
        read = Reading.of(turn).turns
        named = [{"kind": each.kind, "text": each.text, "turn": each.turn} for each in marked if each.turn in read]
        yield Say(json.dumps({**answer, "open": [*answer.get("open", ()), *named]}))

    return script


def hostile(turn: ScriptedTurn) -> Iterable[Move]:
    """Drops everything, closes what does not exist, and what does at turns that cannot have closed it."""
    reading = Reading.of(turn)
    wrong = [{"id": "i999-1", "turn": 1}, {"id": "everything", "turn": 1}]
    for id_ in reading.items:
        wrong += [{"id": id_, "turn": 0}, {"id": id_, "turn": 1_000_000}, {"id": id_, "turn": "1"}, {"id": id_}]
    yield Say(json.dumps({"facts": ["nothing happened"], "closed": wrong}))


def liar(turn: ScriptedTurn) -> Iterable[Move]:
    """Closes whatever is open, at a turn that it has read: nothing tells it from the truth."""
    reading = Reading.of(turn)
    last = max(reading.turns, default=1)
    closed = [{"id": id_, "turn": last} for id_ in reading.items]
    yield Say(json.dumps({"facts": ["all is settled"], "closed": closed}))


def flooding(*, count: int) -> Script:
    """Opens so many things that nobody said before it says anything."""

    def script(turn: ScriptedTurn) -> Iterable[Move]:
        first = min(Reading.of(turn).turns, default=1)
        junk = [{"kind": "question", "text": f"what about number {first}.{each}?"} for each in range(count)]
        yield Say(json.dumps({"facts": ["much is open"], "open": junk}))

    return script


def _object(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        fields: dict[str, Any] = json.loads(text)
        return fields
    return {"facts": [text]}


def scripted(script: Script, *, name: str) -> "Counted":
    """A summariser that follows ``script``."""
    return Counted(ScriptedModel(script, name=name))


class Counted:
    """Implements ``model.contract.Model``: another one, and what it was asked for."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.calls = 0
        self.tokens = 0
        """Read and written, as its host counts; a guess by bytes where it does not."""

    def again(self) -> "Counted":
        """The same model, counted anew."""
        return Counted(self._model)

    def request_fields(self) -> Mapping[str, Any]:
        return self._model.request_fields()

    async def warm(self) -> None:
        await self._model.warm()

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        """See ``contract.Model``."""
        self.calls += 1
        reply = await self._model.reply(request, sink)
        counted = input_tokens(reply.usage) + reply.usage.output_tokens
        self.tokens += counted or (request.view.size_bytes + sum(map(len, map(msgspec.Raw, reply.blocks)))) // 4
        return reply
