"""Recorded conversations, and a model that plays its side of them again.

Two formats, as the data is published. Trajectories: one text whose lines begin with ``user:``, ``assistant:`` or
``tool:``, a line without one going on with what was said before; a call stands as ``assistant: None``, without name or
arguments. Sessions: the user's turns only. Both are JSON Lines.

The model finds its place from the request alone: which recording, by what the user has said so far; which turn, by the
number of the model call. It asks a replay tool for as many results as were recorded at that place.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from torpor.model.scripted import Call, Move, Say, ScriptedModel, ScriptedTurn

ENDED: Final = "(the recording ends here)"
"""Said where a recording has no last word of the assistant."""
HEARD: Final = "I see."
"""Said to turns of which only the user's side was recorded."""
_SPEAKER: Final = re.compile(r"(user|assistant|tool): ?")
_RECORDINGS_FILE: Final = "recordings.json"


class RecordedReply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of the assistant with the results of the tools it called."""

    text: str = ""
    results: tuple[str, ...] = ()


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What the user said and what came of it; the last reply calls nothing."""

    user: str
    replies: tuple[RecordedReply, ...]


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation."""

    name: str
    turns: tuple[RecordedTurn, ...]

    @property
    def users(self) -> tuple[str, ...]:
        """Everything the user says, in order."""
        return tuple(turn.user for turn in self.turns)


def data_folder() -> Path | None:
    """Where the public data lies: TORPOR_TEST_DATA, else beside the project; None when it is not there."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("TORPOR_TEST_DATA") or beside)
    return folder if folder.is_dir() else None


def healthcare_sessions(data: Path) -> Iterator[Recording]:
    """Sessions in which one person tells of their health."""
    return recorded_sessions(data / "bfcl_memory" / "memory_healthcare.json")


def tau_bench_trajectories(data: Path) -> Iterator[Recording]:
    """An airline's and a shop's customers, with the tools of their clerks."""
    for domain in ("Airline", "Retail"):
        yield from recorded_trajectories(data / "tau_bench" / f"few_shot_data_Mock{domain}DomainEnv-few_shot.jsonl")


def recorded_sessions(file: Path) -> Iterator[Recording]:
    """The conversations of a file of sessions."""
    for line in _lines(file):
        said = [message["content"] for turn in line["question"] for message in turn if message["role"] == "user"]
        turns = (RecordedTurn(user=text, replies=(RecordedReply(text=HEARD),)) for text in said)
        yield Recording(name=line["id"], turns=tuple(turns))


def recorded_trajectories(file: Path) -> Iterator[Recording]:
    """The conversations of a file of trajectories."""
    for number, line in enumerate(_lines(file), start=1):
        yield Recording(name=f"{file.stem}-{number}", turns=tuple(_turns(_speeches(line["messages_display"]))))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _speeches(text: str) -> list[tuple[str, str]]:
    """Speaker and words, in order."""
    speeches: list[tuple[str, str]] = []
    for line in text.split("\n"):
        if found := _SPEAKER.match(line):
            speeches.append((found[1], line[found.end() :]))
        else:
            speaker, before = speeches.pop()
            speeches.append((speaker, f"{before}\n{line}"))
    return speeches


def _turns(speeches: Iterable[tuple[str, str]]) -> Iterator[RecordedTurn]:
    user, replies = "", list[RecordedReply]()
    for speaker, words in speeches:
        if speaker == "user":
            if user:
                yield RecordedTurn(user=user, replies=_closed(replies))
            user, replies = words, []
        elif speaker == "assistant":
            replies.append(RecordedReply(text="" if words == "None" else words))
        else:
            asked = replies.pop() if replies else RecordedReply()
            replies.append(msgspec.structs.replace(asked, results=(*asked.results, words)))
    if user:
        yield RecordedTurn(user=user, replies=_closed(replies))


def _closed(replies: Sequence[RecordedReply]) -> tuple[RecordedReply, ...]:
    """``replies`` so that all but the last call something, and the last one says something."""
    closed = [reply for reply in replies[:-1] if reply.results]
    last = replies[-1] if replies else RecordedReply()
    if last.results:
        return (*closed, last, RecordedReply(text=ENDED))
    return (*closed, last if last.text.strip() else RecordedReply(text=ENDED))


def keep_recordings(home: Path, recordings: Sequence[Recording]) -> None:
    """Put them where a home's replay tool and the model find them."""
    (home / _RECORDINGS_FILE).write_bytes(msgspec.json.encode(recordings))


def replaying_model(home: Path) -> ScriptedModel:
    """The assistant of every recording kept in ``home``."""
    recordings = msgspec.json.decode((home / _RECORDINGS_FILE).read_bytes(), type=tuple[Recording, ...])
    by_beginning: dict[str, list[Recording]] = {}
    for recording in recordings:
        by_beginning.setdefault(recording.users[0], []).append(recording)
    return ScriptedModel(partial(_played, by_beginning), name="replay")


def _played(by_beginning: dict[str, list[Recording]], turn: ScriptedTurn) -> Iterable[Move]:
    number, round_ = (int(part) for part in turn.call.split("-")[:2])
    said = tuple(
        block.text
        for message in turn.messages
        if message.role == "user"
        for block in message.content
        if block.type == "text"
    )
    recording = next(each for each in by_beginning[said[0]] if each.users[: len(said)] == said)
    reply = recording.turns[number - 1].replies[round_ - 1]
    yield Say(reply.text)
    for index in range(len(reply.results)):
        yield Call("replay", {"recording": recording.name, "turn": number, "reply": round_, "index": index})
