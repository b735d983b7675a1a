"""What this host has said: the witness that the rules ask about paused turns and thinking.

A replayed message is recognised by the signatures and tool calls in it, or by its text. Replies are remembered as far
as they were delivered, since a client can replay nothing else.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from torpor_fake_api.rules.case import THINKS, Content, is_one_of
from torpor_fake_api.signing import Claim, Signer

REPLIES_MAX: Final = 10_000
SOURCES_MAX: Final = 64
"""With more replies of the same words, words tell nothing."""


class Said(NamedTuple):
    """One reply."""

    message_id: str
    content: Content

    @property
    def thinking(self) -> Content:
        return [block for block in self.content if block["type"] in THINKS]


class Memory:
    """Implements ``rules.case.Witness``."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._said: OrderedDict[str, Said] = OrderedDict()
        self._by_mark: dict[str, list[str]] = {}
        """Message ids by what a replay is recognised by."""
        self._paused: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<Memory replies={len(self._said)} paused={len(self._paused)}>"

    def remember(self, message_id: str, content: Content) -> None:
        """Keep the blocks of a reply that were delivered whole."""
        self._said[message_id] = Said(message_id, content)
        for mark in _marks(content):
            self._by_mark.setdefault(mark, []).append(message_id)
        if len(self._said) > REPLIES_MAX:
            oldest, said = self._said.popitem(last=False)
            for mark in _marks(said.content):
                self._by_mark[mark].remove(oldest)

    def pause(self, content: Content) -> None:
        """Expect the assistant message of this content to be sent back as the last one."""
        self._paused.add(_digest(content))

    def was_paused(self, content: Content) -> bool:
        waits_for_host = bool(content) and content[-1].get("type") == "server_tool_use"
        return waits_for_host or _digest(content) in self._paused

    def forgery(self, block: dict[str, Any]) -> str | None:
        return None if self._signer.claim(block) else "it was not signed by this host for this text"

    def is_foreign(self, block: dict[str, Any], model: str) -> bool:
        """Whether it is the thinking of another model, which ``model`` never sees."""
        claim = self._signer.claim(block) if is_one_of(block.get("type"), THINKS) else None
        return claim is not None and claim.model != model

    def alteration(self, content: Content) -> str | None:
        claims = [
            claim for block in content if is_one_of(block.get("type"), THINKS) and (claim := self._signer.claim(block))
        ]
        facts = [self._change(claim.message_id, content) for claim in claims if claim.message_id in self._said]
        forgotten = sorted({claim.message_id for claim in claims} - self._said.keys())
        facts += [_gap([claim for claim in claims if claim.message_id == message_id]) for message_id in forgotten]
        facts += [self._change_by_mark(mark, content) for mark in _marks(content)]
        return next((fact for fact in facts if fact), None)

    def _change(self, message_id: str, content: Content) -> str | None:
        return _change(self._said[message_id], content)

    def _change_by_mark(self, mark: str, content: Content) -> str | None:
        """The same where only words or a call tell the source: no change if one of the possible sources shows none."""
        sources = self._by_mark.get(mark, [])
        changes = [self._change(message_id, content) for message_id in sources[:SOURCES_MAX]]
        return changes[0] if changes and len(sources) <= SOURCES_MAX and all(changes) else None


def _change(said: Said, content: Content) -> str | None:
    """What became of the thinking of one reply: all of it must be there, in order, among the same neighbours."""
    if missing := [block for block in said.thinking if block not in content]:
        return f"{len(missing)} of {len(said.thinking)} are missing or altered"
    if any(content.count(block) > 1 for block in said.thinking):
        return "one is there twice"
    unique = [block for block in content if content.count(block) == said.content.count(block) == 1]
    places = [said.content.index(block) for block in unique]
    if said.thinking and places != sorted(places):
        return "they stand in another order or at other places"
    return None


def _gap(claims: list[Claim]) -> str | None:
    """The same for a reply from before a restart, as far as its signatures tell."""
    ordinals = [claim.ordinal for claim in claims]
    return None if ordinals == list(range(len(ordinals))) else f"of one message, those at {ordinals} were kept"


def _marks(content: Content) -> Iterator[str]:
    """What a message is recognised by: its tool calls, and what it says apart from its thinking."""
    said = []
    for block in content:
        if block.get("type") == "tool_use":
            yield f"call:{block.get('id')}"
        if not is_one_of(block.get("type"), THINKS):
            said.append(block)
    if said:
        yield f"said:{_digest(said).hex()}"


def _digest(content: Content) -> bytes:
    plain = [{key: value for key, value in block.items() if key != "cache_control"} for block in content]
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).digest()
