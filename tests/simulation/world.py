"""The world of one run: its seed, its luck, what was noted, and what time it is."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

import anyio
import msgspec

from tests.simulation.faults import Fault, Plan, Sight, plan_of
from tests.support.oracle_evidence import Evidence
from torpor.records.ids import ConversationKey
from torpor.store.contract import Snapshot

START_US = 1_800_000_000_000_000


class World:
    """Shared by everything in a run; knows nobody."""

    def __init__(self, seed: int, *, is_traced: bool = False, dwells: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Args: dwells: fields of the plan that are not left to the seed."""
        self.seed = seed
        self.rng = Random(seed)
        self.plan: Plan = msgspec.structs.replace(plan_of(seed, self.rng), **dwells)
        self.evidence = Evidence()
        self.counts = Counter[str]()
        self.trace: list[str] | None = [] if is_traced else None
        self.is_stormy = True
        self.offsets_s = defaultdict[int, float](float)
        """How far the wall clock of each process is off, by its index."""
        self.blobs: dict[tuple[str, str], bytes] = {}
        """Whole bodies, by owner and handle."""
        self.uploaded: set[str] = set()
        """Of these, files that a message may name."""
        self.snapshots: list[tuple[int, ConversationKey, Snapshot]] = []
        """All that the store took, and when."""
        self.unexpected: list[str] = []
        """Errors that nobody here caused."""
        self._moment = 0

    def moment(self) -> int:
        """The next moment; see ``oracle_evidence``."""
        self._moment += 1
        return self._moment

    def now_s(self) -> float:
        return anyio.current_time()

    def roll(self, fault: Fault) -> bool:
        """Whether ``fault`` strikes here and now."""
        if not self.is_stormy or self.rng.random() >= self.plan.chance[fault]:
            return False
        self.struck(fault)
        return True

    def struck(self, fault: Fault) -> None:
        self.counts[f"fault:{fault}"] += 1
        self.note("fault", fault)

    def saw(self, sight: Sight) -> None:
        self.counts[f"sight:{sight}"] += 1

    def note(self, who: str, what: object, **facts: Any) -> None:
        """A line of the trace, when one is kept."""
        if self.trace is not None:
            told = " ".join(f"{name}={value!r}" for name, value in facts.items())
            self.trace.append(f"{self.now_s():9.3f} #{self._moment:<6} {who:<10} {what} {told}".rstrip())

    async def until(self, met: Callable[[], bool], *, every_s: float = 1.0) -> None:
        """Look again and again, in virtual time, until it is so."""
        while not met():  # noqa: ASYNC110  virtual time costs nothing, and what is looked at sets no event
            await anyio.sleep(every_s)

    async def dawdle(self) -> None:
        """Take a little time, often none."""
        await anyio.sleep(self.rng.choice((0.0, 0.0, 0.0, 0.001, 0.02, 0.2)))
