"""Decides which reply a request gets: one laid out for its number, for its words, the next in line, or a fallback."""

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from torpor_fake_api.rules.case import blocks, dicts
from torpor_fake_api.scripting.replies import Reply, says

_BESIDE: Final = re.compile(r"<([a-z_]+)(?: [^<>]*)?(?:/>|>.*</\1>)|\[[A-Z][^\]]{10,}\].*", re.DOTALL)
"""A block that some program wrote for the model, and no user."""


class Asked(NamedTuple):
    """A request for a message, as the author of a script sees it."""

    number: int
    """Among the valid requests for messages, from 1."""
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """What the user said last; a message that holds nothing but tool results says nothing.

        What the caller put beside it, as one element or in brackets, is left out; if there is nothing else, it counts.
        """
        beside = ""
        for message in reversed(dicts(self.body.get("messages"))):
            texts = [str(block.get("text")) for block in blocks(message) if block.get("type") == "text"]
            if message.get("role") == "user" and texts:
                said = [text for text in texts if not _BESIDE.fullmatch(text.strip())]
                if said:
                    return "\n".join(said)
                beside = beside or "\n".join(texts)
        return beside

    @property
    def has_results(self) -> bool:
        """Whether the last message answers tool calls."""
        last = dicts(self.body.get("messages"))[-1:]
        return any(block.get("type") == "tool_result" for message in last for block in blocks(message))


Fallback = Callable[[Asked], Reply]


class _Rule:
    def __init__(self, applies: Callable[[Asked], bool], replies: Iterable[Reply]) -> None:
        self.applies = applies
        self.replies = deque(replies)


def echo(asked: Asked) -> Reply:
    """Repeat what the user said."""
    return says(f"You said: {asked.text}" if asked.text else "You said nothing.")


class Script:
    """What is laid out; each reply is given once, the fallback whenever nothing else is left."""

    def __init__(self, *replies: Reply | str, otherwise: Reply | Fallback = echo) -> None:
        self._queue: deque[Reply] = deque()
        self._rules: list[_Rule] = []
        self._otherwise = otherwise
        self.say(*replies)

    def __repr__(self) -> str:
        return f"<Script queued={len(self._queue)} rules={len(self._rules)}>"

    @property
    def queued(self) -> int:
        """Replies in line."""
        return len(self._queue)

    def say(self, *replies: Reply | str) -> None:
        """Put these in line."""
        self._queue.extend(says(reply) if isinstance(reply, str) else reply for reply in replies)

    def on(self, pattern: str, *replies: Reply | str) -> None:
        """Give these, one a request, to requests in whose last user text ``pattern`` is found."""
        found = re.compile(pattern)
        self._add(lambda asked: bool(found.search(asked.text)), replies)

    def at(self, number: int, reply: Reply | str) -> None:
        """Give this to the n-th request, counted from 1."""
        self._add(lambda asked: asked.number == number, (reply,), is_first=True)

    def otherwise(self, fallback: Reply | Fallback) -> None:
        """Give this whenever nothing else is left."""
        self._otherwise = fallback

    def clear(self) -> None:
        """Forget everything but the fallback."""
        self._queue.clear()
        self._rules.clear()

    def reply(self, asked: Asked) -> Reply:
        """That for its number, else the oldest that fits its words, else the next in line, else the fallback."""
        for rule in self._rules:
            if rule.replies and rule.applies(asked):
                return rule.replies.popleft()
        if self._queue:
            return self._queue.popleft()
        return self._otherwise if isinstance(self._otherwise, Reply) else self._otherwise(asked)

    def _add(self, applies: Callable[[Asked], bool], replies: Iterable[Reply | str], *, is_first: bool = False) -> None:
        rule = _Rule(applies, [says(reply) if isinstance(reply, str) else reply for reply in replies])
        self._rules.insert(0 if is_first else len(self._rules), rule)
