"""What stands for turns that were folded."""

from enum import StrEnum

import msgspec


class ItemKind(StrEnum):
    """What may not be lost by silence."""

    CORRECTION = "correction"
    DENIAL = "denial"
    QUESTION = "question"
    PROPOSAL = "proposal"


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something open."""

    id: str
    """``i<generation>-<number>``, given by the engine."""
    kind: ItemKind
    text: str
    turn: int = 0
    """In which it came up; 0 when nobody said."""


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an item."""

    id: str
    turn: int
    """In which it was answered, carried out or taken back."""


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a summariser made of the turns that it was given and of the summary before."""

    facts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    """People, things and their ids."""
