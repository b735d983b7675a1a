"""What a planted bug is."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple


class Planted(NamedTuple):
    """A bug and how it shows."""

    plant: Callable[[], AbstractContextManager[object]]
    kind: str
    """Of the violation that must be reported."""
    seeds: int
    """In how many seeds, from the first one, it must be found; about ten times what it takes."""
    dwells: Mapping[str, Any] = MappingProxyType({})
    """What of a seed's plan is decided for it, so that a rare bug is met sooner."""
