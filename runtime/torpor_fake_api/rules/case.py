"""A request before its judge, and the small questions that every rule asks of it."""

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

from torpor_fake_api.models import ModelFacts
from torpor_fake_api.profiles import Profile
from torpor_fake_api.rules.violation import Violation

Content = list[dict[str, Any]]

THINKS: Final = frozenset({"thinking", "redacted_thinking"})
TEXT_FIELDS: Final = frozenset({"type", "text", "cache_control", "citations"})


class Witness(Protocol):
    """Remembers what the host itself wrote, which no request shows."""

    def was_paused(self, content: Content) -> bool:
        """Whether a reply that ended in ``pause_turn`` made an assistant message of this content."""
        ...

    def forgery(self, block: dict[str, Any]) -> str | None:
        """Why a thinking block was not written by this host; None when it was."""
        ...

    def alteration(self, content: Content) -> str | None:
        """What was changed in the thinking of the latest assistant message; None when nothing was."""
        ...


class NoWitness:
    """Believes every thinking block and has paused nothing."""

    def was_paused(self, content: Content) -> bool:
        return False

    def forgery(self, block: dict[str, Any]) -> str | None:
        return None

    def alteration(self, content: Content) -> str | None:
        return None


class Case(NamedTuple):
    """One request, as the rules see it."""

    body: dict[str, Any]
    messages: list[dict[str, Any]]
    """Those that are objects; neighbours of one role joined unless the profile wants them to alternate."""
    profile: Profile
    model: ModelFacts
    witness: Witness
    counts_only: bool
    """Whether it asks for a count of tokens and for no reply."""
    size_bytes: int | None = None
    """Of the body as it was sent, where that is known."""

    @property
    def thinks(self) -> bool:
        thinking = self.body.get("thinking")
        return isinstance(thinking, dict) and is_one_of(thinking.get("type"), {"enabled", "adaptive"})

    @property
    def is_prefilled(self) -> bool:
        """Whether the last message is the assistant's and continues no paused turn."""
        if not self.messages or self.messages[-1].get("role") != "assistant":
            return False
        return not self.witness.was_paused(blocks(self.messages[-1]))

    @property
    def wants_format(self) -> bool:
        config = self.body.get("output_config")
        return isinstance(config, dict) and config.get("format") is not None


def is_one_of(value: Any, options: Set[str] | Mapping[str, Any]) -> TypeGuard[str]:
    """Whether it is one of these words; a request may hold anything, also what no set can."""
    return isinstance(value, str) and value in options


def is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: Any) -> TypeGuard[str]:
    """Whether it is text that says something."""
    return isinstance(value, str) and bool(value.strip())


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def blocks(message: Mapping[str, Any]) -> Content:
    """The content blocks of a message; a string is one text block."""
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else dicts(content)


def of_type(message: Mapping[str, Any], *kinds: str) -> Content:
    return [block for block in dicts(message.get("content")) if block.get("type") in kinds]


def unknown_fields(found: Mapping[str, Any], known: frozenset[str], *, path: str = "") -> Iterator[Violation]:
    for field in sorted(str(name) for name in found.keys() - known):
        yield Violation("V-04", f"{path}.{field}".lstrip("."), "Extra inputs are not permitted")


def merged(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with neighbours of one role joined in order, as the model reads them."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before is None or before.get("role") != message.get("role") or not _can_join(before, message):
            joined.append(message)
        else:
            fields = {name: value for name, value in message.items() if name != "content"}
            joined[-1] = before | fields | {"content": _items(before) + _items(message)}
    return joined


def _can_join(*messages: Mapping[str, Any]) -> bool:
    """Whether each holds content, since an empty message must not vanish in its neighbour."""
    return all(isinstance(message.get("content"), str | list) and message["content"] for message in messages)


def _items(message: Mapping[str, Any]) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
