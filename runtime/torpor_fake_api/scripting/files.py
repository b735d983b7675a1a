"""Scripts in TOML or JSON: replies in line, replies for certain requests, a fallback, models.

otherwise = "I do not know."

[[replies]]
content = [{ type = "thinking", thinking = "Hm." }, { type = "tool_use", name = "look_up", input = { what = "it" } }]

[[replies]]
misbehave = "cut"                          # a name of the catalogue, laid over the content
at = "after_deltas:2"
content = [{ type = "text", text = "One two three." }]

[[rules]]
match = "weather"                          # or: number = 3
replies = ["It rains.", { fault = { kind = "http_error", status = 529 } }]

[models.toy-4k]
window_tokens = 500
"""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from torpor_fake_api.scripting.catalogue import CATALOGUE, misbehave
from torpor_fake_api.scripting.positions import position
from torpor_fake_api.scripting.replies import Reply, says
from torpor_fake_api.scripting.script import Script


class Entry(Reply, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reply, perhaps with something wrong with it."""

    misbehave: str = ""
    at: str = ""

    def __post_init__(self) -> None:
        if self.misbehave and self.misbehave not in CATALOGUE:
            raise ValueError(f"misbehave is {self.misbehave!r}, expected one of {', '.join(sorted(CATALOGUE))}")
        for words in (self.at, getattr(self.fault, "at", "")):
            if words:
                position(words)

    def reply(self) -> Reply:
        plain = Reply(**{name: getattr(self, name) for name in Reply.__struct_fields__})
        if not self.misbehave:
            return plain
        return misbehave(self.misbehave, at=self.at, **({"over": plain} if self.content else {}))


class RuleEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replies for certain requests: by the user's words, or by number."""

    match: str | None = None
    number: int | None = None
    replies: tuple[Entry | str, ...]

    def __post_init__(self) -> None:
        if (self.match is None) == (self.number is None):
            raise ValueError("a rule has either match or number")


class ScriptFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A script as written down."""

    replies: tuple[Entry | str, ...] = ()
    rules: tuple[RuleEntry, ...] = ()
    otherwise: Entry | str | None = None
    models: dict[str, dict[str, Any]] = {}

    def add_to(self, script: Script) -> None:
        """Lay out the replies behind those that are there."""
        script.say(*map(_reply, self.replies))
        for rule in self.rules:
            replies = [_reply(entry) for entry in rule.replies]
            if rule.match is not None:
                script.on(rule.match, *replies)
            for number, reply in enumerate(replies, start=rule.number or 0):
                if rule.number is not None:
                    script.at(number, reply)
        if self.otherwise is not None:
            script.otherwise(_reply(self.otherwise))


def read(path: Path) -> ScriptFile:
    """The script in a TOML or JSON file. Raises: ValueError: it is none, and where it is wrong."""
    text = path.read_bytes()
    data = msgspec.json.decode(text) if path.suffix == ".json" else tomllib.loads(text.decode())
    return parsed(data)


def parsed(data: Any) -> ScriptFile:
    """A script from decoded TOML or JSON. Raises: ValueError: it is none, and where it is wrong."""
    return msgspec.convert(data, ScriptFile)


def _reply(entry: Entry | str) -> Reply:
    return says(entry) if isinstance(entry, str) else entry.reply()
