"""The prompt cache: which prefix of a request is known already, and what the request adds.

An entry is the hash of a prefix that ended at a mark. A mark finds the entry at its own place or at one of the places
before it, twenty in all; a prefix shorter than the model's minimum is neither written nor refused. Entries belong to
one model and live five minutes or an hour from their last use. Pure: the time comes from the caller.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from torpor_fake_api.models import ModelFacts
from torpor_fake_api.prompt.rendering import Segment

LOOK_BACK: Final = 20
TTL_S: Final = {"5m": 300.0, "1h": 3600.0}
ENTRIES_MAX: Final = 50_000


class Life(NamedTuple):
    """How long an entry lives, and until when."""

    ttl_s: float
    ends_s: float


class CacheUse(NamedTuple):
    """How the tokens of one request divide, and what answering it leaves in the cache."""

    uncached: int
    read: int = 0
    written_5m: int = 0
    written_1h: int = 0
    entries: tuple[tuple[bytes, float], ...] = ()
    """Hashes with the seconds they live."""

    @property
    def total(self) -> int:
        return self.uncached + self.read + self.written_5m + self.written_1h


class PromptCache:
    """What was written, by the hash of its prefix."""

    def __init__(self) -> None:
        self._lives: dict[bytes, Life] = {}

    def __repr__(self) -> str:
        return f"<PromptCache entries={len(self._lives)}>"

    def look(self, found: Sequence[Segment], *, mark: Any, model: ModelFacts, now_s: float) -> CacheUse:
        """Divide the tokens of a request; writes nothing yet, since the request may still fail.

        Args: mark: that of the request itself, which stands for one on its last block that may have one; or None.
        """
        keys = list(_chain(found, model.id))
        lengths = list(accumulate((segment.tokens for segment in found), initial=0))
        marks = _marks(found, mark)
        hit = max((self._hit(keys, place, now_s) for place in marks), default=-1)
        entries = [(keys[hit], self._lives[keys[hit]].ttl_s)] if hit >= 0 else []
        written, reached = {"5m": 0, "1h": 0}, lengths[hit + 1]
        for place, ttl in sorted(marks.items()):
            if (length := lengths[place + 1]) >= model.cache_min_tokens:
                entries.append((keys[place], TTL_S[ttl]))
                written[ttl] += max(length - reached, 0)
                reached = max(reached, length)
        return CacheUse(lengths[-1] - reached, lengths[hit + 1], written["5m"], written["1h"], tuple(entries))

    def keep(self, use: CacheUse, *, now_s: float) -> None:
        """Write the entries of a request that is being answered; those it read begin a new life."""
        for key, ttl_s in use.entries:
            known = self._lives.get(key)
            if known and known.ends_s > now_s:
                ttl_s = max(ttl_s, known.ttl_s)  # noqa: PLW2901 - an hour's entry is not cut short by a shorter mark
            self._lives[key] = Life(ttl_s, now_s + ttl_s)
        if len(self._lives) > ENTRIES_MAX:
            self._lives = {key: life for key, life in self._lives.items() if life.ends_s > now_s}

    def _hit(self, keys: list[bytes], place: int, now_s: float) -> int:
        """The last place that a mark at ``place`` finds; -1 for none."""
        for at in range(place, max(place - LOOK_BACK, -1), -1):
            if (life := self._lives.get(keys[at])) and life.ends_s > now_s:
                return at
        return -1


def _chain(found: Sequence[Segment], model: str) -> Iterator[bytes]:
    """The hash of each prefix."""
    link = hashlib.sha256(model.encode()).digest()
    for segment in found:
        link = hashlib.sha256(link + segment.text).digest()
        yield link


def _marks(found: Sequence[Segment], mark: Any) -> dict[int, str]:
    """Where the marks stand, with their lives."""
    marks = {place: segment.ttl for place, segment in enumerate(found) if segment.ttl}
    if isinstance(mark, dict):
        last = max((place for place, segment in enumerate(found) if segment.may_be_marked), default=-1)
        if last >= 0:
            marks.setdefault(last, str(mark.get("ttl", "5m")))
    return marks
