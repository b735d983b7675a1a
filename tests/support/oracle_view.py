"""The model's view retold: block by block, each with the turn in which it was said."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any

from tests.support.oracle_evidence import Json


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def chain_link(messages: Iterable[Json]) -> str:
    """The last link of the hash chain over the blocks of ``messages``."""
    link = b""
    for message in messages:
        for block in message["content"]:
            link = hashlib.sha256(link + canonical([message["role"], block])).digest()
    return link.hex()


@dataclass(slots=True, frozen=True)
class Said:
    """One block."""

    turn: int
    """0 for what stands at the head since a fold."""
    role: str
    block: Json
    is_turn_only: bool = False


View = tuple[Said, ...]


def messages_of(view: View) -> list[Json]:
    """As they stand in a request."""
    return [
        {"role": role, "content": [said.block for said in group]}
        for role, group in groupby(view, key=lambda said: said.role)
    ]


def extended(view: View, role: str, blocks: Iterable[Json], *, turn: int, is_turn_only: bool = False) -> View:
    return (*view, *(Said(turn, role, block, is_turn_only) for block in blocks))


def replaced(view: View, record: Json) -> View:
    """What a fold leaves: its head, and the turns that stay, with the results that it shortens and notes for files."""
    shorter, withdrawn, files = record.get("shortened", {}), record.get("withdrawn", {}), count()
    head = (Said(0, "user", block) for block in record["head"])
    stays = (said for said in view if said.turn >= record["kept_from"])

    def changed(block: Json) -> Json:
        if block["type"] == "attachment":
            found: Json = withdrawn.get(str(next(files)), block)
        else:
            found = shorter.get(block.get("tool_use_id", ""), block)
        return found

    return (
        *head,
        *(Said(said.turn, said.role, changed(said.block), said.is_turn_only) for said in stays),
    )


def turns_in(view: View) -> list[int]:
    """In order."""
    return list(dict.fromkeys(said.turn for said in view if said.turn))


def size_of(view: Iterable[Said]) -> int:
    """Bytes, as it stands in a request."""
    return len(canonical(messages_of(tuple(view))))


def files_in(messages: list[Json]) -> list[Json]:
    """What the markers in ``messages`` name, in order."""
    blocks = (block for message in messages for block in message["content"])
    return [block["attachment"] for block in blocks if block["type"] == "attachment"]


def as_sent(request: Json) -> Json:
    """A request as a host gets it, with some document in the place of each marker."""
    text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a file"}}
    return {
        **request,
        "messages": [
            {**message, "content": [text if block["type"] == "attachment" else block for block in message["content"]]}
            for message in request["messages"]
        ],
    }
