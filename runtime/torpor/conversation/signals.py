"""The working context as the model reads it: compact, capped, escaped, and the same for the same context. Pure.

Each part has a cap of its own. When all of them together exceed what the agent's profile leaves for them, whole parts
go in a fixed order, those that change fastest first; the selected record goes last. What was cut or left out says so.
"""

from typing import Final

import msgspec

from torpor.conversation.budget import BYTES_PER_TOKEN, tokens_of_bytes
from torpor.conversation.markup import capped, element, group
from torpor.records.bounds import Amount, Count, Seconds
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext

_MICROSECONDS: Final = 1_000_000


class ContextOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the working context is shown, and for how long."""

    record_tokens: Count = 150
    """Text of the selected record."""
    screen_tokens: Count = 40
    """Text of the screen."""
    role_tokens: Count = 20
    """Text of the user's role."""
    plan_tokens: Count = 100
    """Text of the plan; tools fetch the rest when it is needed."""
    action_tokens: Count = 25
    """Text of each recent action."""
    actions_shown: Amount = 5
    """The latest ones."""
    expiry_s: Seconds = 1800.0
    """Without an update or a message for this long nothing is selected any more."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered context."""

    text: str = ""
    """Empty when there is nothing to show."""
    labels: tuple[str, ...] = ()
    """Of what is shown, sorted."""
    withheld: tuple[str, ...] = ()
    """Labels of what the agent may not see, sorted."""

    @property
    def tokens(self) -> int:
        """Estimated."""
        return tokens_of_bytes(len(self.text.encode()))


def is_expired(context_us: int, *, now_us: int, options: ContextOptions) -> bool:
    """Whether a context that was last told, or last used, at ``context_us`` is too old to mean anything."""
    return now_us - context_us > options.expiry_s * _MICROSECONDS


def signal_of(
    context: WorkingContext, *, version: int, labels: frozenset[str], options: ContextOptions, tokens_max: int
) -> Signal:
    """Render what an agent with these ``labels`` may see. Args: tokens_max: of all of it; 0 for no limit."""
    parts = _parts(context, options)
    seen = [part for part in parts if part.label in labels]
    withheld = tuple(sorted({part.label for part in parts} - labels))
    left_out: list[str] = []
    text = _rendered(seen, version=version, left_out=left_out)
    while tokens_max and tokens_of_bytes(len(text.encode())) > tokens_max:
        if not seen:
            text = ""  # not even the names of what was left out fit
            break
        gone = max(seen, key=lambda part: part.rank)
        seen.remove(gone)
        if gone.name not in left_out:
            left_out.append(gone.name)
        text = _rendered(seen, version=version, left_out=left_out)
    return Signal(text=text, labels=tuple(sorted({part.label for part in seen})), withheld=withheld)


class _Part(msgspec.Struct, frozen=True):
    name: str
    label: str
    markup: str
    rank: int
    """The highest goes first."""


def _parts(context: WorkingContext, options: ContextOptions) -> list[_Part]:
    parts = [_record(context.record, options)] if context.record is not None else []
    fixed = (
        ("role", context.role, options.role_tokens, 1),
        ("screen", context.screen, options.screen_tokens, 2),
        ("plan", context.plan, options.plan_tokens, 3),
    )
    parts.extend(
        _part(name, part, tokens=tokens, rank=rank)
        for name, part, tokens, rank in fixed
        if part is not None and part.text.strip()
    )
    shown = context.actions[-options.actions_shown :] if options.actions_shown else ()
    latest_last = [action for action in shown if action.text.strip()]
    parts.extend(
        _part("action", action, tokens=options.action_tokens, rank=4 + len(latest_last) - place)
        for place, action in enumerate(latest_last)
    )
    return parts


def _record(record: SelectedRecord, options: ContextOptions) -> _Part:
    text, was_cut = capped(record.text, bytes_max=options.record_tokens * BYTES_PER_TOKEN)
    attributes = {"type": record.type, "id": record.id, "version": record.version, "label": record.label}
    markup = element("record", text, attributes={**attributes, "truncated": "true" if was_cut else ""})
    return _Part("record", record.label, markup, 0)


def _part(name: str, part: ContextPart, *, tokens: int, rank: int) -> _Part:
    text, was_cut = capped(part.text, bytes_max=tokens * BYTES_PER_TOKEN)
    attributes = {"label": part.label, "truncated": "true" if was_cut else ""}
    return _Part(name, part.label, element(name, text, attributes=attributes), rank)


def _rendered(parts: list[_Part], *, version: int, left_out: list[str]) -> str:
    attributes = {"version": str(version), "left_out": ", ".join(left_out)}
    if not parts and left_out:
        return element("context", "", attributes=attributes)
    return group("context", (part.markup for part in parts), attributes=attributes)
