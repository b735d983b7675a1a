"""The requests of a journal, rebuilt from its JSON by nothing but the definitions in docs/design.md.

Shares no code with the engine, so that what the engine rebuilds can be compared with what somebody else does.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

Json = dict[str, Any]

TURN_ENDS = {"turn_finished", "turn_cancelled", "turn_failed", "turn_refused"}


class Rebuilt(NamedTuple):
    """One request."""

    seq: int
    turn: int
    call: str
    link: str
    """Over its messages."""
    preamble: str
    """Digest of what stands before them."""
    body: bytes
    """Canonical JSON."""


class _Said(NamedTuple):
    """One block in the view."""

    turn: int
    """In which it was said; 0 for what a fold put there."""
    role: str
    block: Json
    is_turn_only: bool = False


def rebuilt(records: Iterable[Json]) -> Iterator[Rebuilt]:
    """The requests of turns, in order."""
    rebuilding = _Rebuilding()
    for record in records:
        if (request := rebuilding.take(record)) is not None:
            yield request


def canonical(value: Any) -> bytes:
    """Sorted keys, no blanks, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def chain_link(said: Iterable[tuple[str, Json]]) -> str:
    """The last link over roles and blocks, hex; empty for none."""
    link = b""
    for role, block in said:
        link = hashlib.sha256(link + canonical([role, block])).digest()
    return link.hex()


class _Rebuilding:
    def __init__(self) -> None:
        self.waiting: dict[str, list[Json]] = {}
        self.preamble: Json = {}
        self.preambles: dict[str, Json] = {}
        """All that were stored so far, by digest."""
        self.view: list[_Said] = []
        self.notes: list[Json] = []
        self.base: list[_Said] = []
        self.base_notes: list[Json] = []
        self.end_note = -1
        """Place among the notes of the one that told how the last turn ended."""
        self.turn = 0
        self.reply: list[Json] = []
        self.results: dict[str, Json] = {}
        self.reply_note: list[Json] = []
        self.lives: dict[int, Json] = {}
        self.live: Json | None = None

    def take(self, record: Json) -> Rebuilt | None:
        match record["kind"]:
            case "message_received":
                self.waiting[record["message_id"]] = record["blocks"]
            case "preamble_changed":
                self.preamble = self.preambles[record["digest"]] = record["body"]
            case "preamble_returned":
                self.preamble = self.preambles[record["digest"]]
            case "turn_prepared":
                self._begin(record)
            case "model_requested":
                return self._request(record) if record.get("purpose", "turn") == "turn" else None
            case "model_replied":
                self.reply, self.results = record["blocks"], {}
                self.reply_note = record.get("note", [])
            case "tool_finished":
                self.results[record["call_id"]] = record["block"]
            case "late_result":
                self.notes.append(record["note"])
            case "message_retracted":
                self._retract(record)
            case "conversation_forked":
                for id_ in record.get("messages", []):
                    del self.waiting[id_]
            case "live_context_replaced":
                self.lives[record["seq"]] = record["block"]
            case "context_replaced":
                self._replace(record)
            case kind if kind in TURN_ENDS:
                self._end(record)
        return None

    def _begin(self, record: Json) -> None:
        self.turn, self.base, self.base_notes = record["turn"], [*self.view], self.notes
        self.live = self.lives[record["live"]] if record.get("live") else None
        messages = [block for id_ in record["messages"] for block in self.waiting.pop(id_)]
        self._say("user", [*self.notes, *record.get("signal", []), *messages])
        self._say("user", record.get("turn_only", []), is_turn_only=True)
        self.notes = []

    def _request(self, record: Json) -> Rebuilt:
        self._close_round()
        self._say("user", [block for id_ in record.get("joined", []) for block in self.waiting.pop(id_)])
        messages = [
            {"role": role, "content": [said.block for said in group]}
            for role, group in groupby(self.view, key=lambda said: said.role)
        ]
        fields = _fields(self.preamble, record.get("model", ""))
        if self.live is not None:
            fields["system"] = [*fields.get("system", []), self.live]
        return Rebuilt(
            seq=record["seq"],
            turn=record["turn"],
            call=record["call"],
            link=chain_link((said.role, said.block) for said in self.view),
            preamble=hashlib.sha256(canonical(self.preamble)).hexdigest(),
            body=canonical({**fields, "messages": messages}),
        )

    def _replace(self, record: Json) -> None:
        shorter, withdrawn = record.get("shortened", {}), record.get("withdrawn", {})
        head = [_Said(0, "user", block) for block in record["head"]]

        def kept(said: list[_Said]) -> list[_Said]:
            stays = [each for each in said if each.turn >= record["kept_from"]]
            files = itertools.count()
            return head + [each._replace(block=changed(each.block, files)) for each in stays]

        def changed(block: Json, files: Iterator[int]) -> Json:
            if block["type"] == "attachment":
                return dict(withdrawn.get(str(next(files)), block))
            return dict(shorter.get(block.get("tool_use_id", ""), block))

        self.view, self.base = kept(self.view), kept(self.base)
        self.results = {call: shorter.get(call, block) for call, block in self.results.items()}

    def _end(self, record: Json) -> None:
        self._close_round()
        if record["kind"] == "turn_refused":
            self.view, self.notes = self.base, [*self.base_notes, *self.notes]
        self.view = [said for said in self.view if not said.is_turn_only]
        self._say("assistant", record.get("partial", []))
        self.end_note = len(self.notes) if "note" in record else -1
        if "note" in record:
            self.notes.append(record["note"])

    def _retract(self, record: Json) -> None:
        """Waiting messages are no more; the last turn leaves the view, and the notes that it had taken wait again."""
        if not record.get("turn"):
            for id_ in record["messages"]:
                del self.waiting[id_]
            return
        self.view = [said for said in self.view if said.turn != record["turn"]]
        later = [note for place, note in enumerate(self.notes) if place != self.end_note]
        self.notes = [*self.base_notes, *later, *record.get("note", [])]

    def _close_round(self) -> None:
        self._say("assistant", self.reply)
        calls = [block["id"] for block in self.reply if block["type"] == "tool_use"]
        self._say("user", [self.results[call] for call in calls])
        self._say("user", self.reply_note)
        self.reply, self.results, self.reply_note = [], {}, []

    def _say(self, role: str, blocks: Iterable[Json], *, is_turn_only: bool = False) -> None:
        self.view += [_Said(self.turn, role, block, is_turn_only) for block in blocks]


def _fields(preamble: Json, model: str) -> Json:
    """What stands beside the messages; the fallback's own fields where that is asked."""
    fields = {name: value for name, value in preamble.items() if name != "fallback"}
    if model:
        fields["model"] = model
        own = preamble.get("fallback") or {}
        if own.get("model") == model:
            fields |= own
    return {name: value for name, value in fields.items() if value is not None}
