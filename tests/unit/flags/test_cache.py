"""What is kept of decisions, and for how many."""

from torpor.flags.cache import RecentlyUsed, Shared
from torpor.flags.contract import Decision, FlagContext


def of(owner: str) -> FlagContext:
    return FlagContext(tenant="north", owner=owner, agent="clinic")


def test_value_that_was_used_longest_ago_leaves() -> None:
    kept: RecentlyUsed[int] = RecentlyUsed(2)
    kept.put(of("ada"), 1)
    kept.put(of("grace"), 2)
    kept.get(of("ada"))

    kept.put(of("edsger"), 3)

    assert [kept.get(of(owner)) for owner in ("ada", "grace", "edsger")] == [1, None, 3]
    assert len(kept) == 2
    assert list(kept.latest_first()) == [3, 1]


def test_value_is_replaced_in_its_place() -> None:
    kept: RecentlyUsed[int] = RecentlyUsed(2)
    kept.put(of("ada"), 1)
    kept.put(of("grace"), 2)

    kept.put(of("ada"), 3)

    assert list(kept.latest_first()) == [3, 2]


def test_equal_decisions_are_one_object() -> None:
    shared = Shared()
    decision = Decision(key="memory", value=True, variant="default", reason="STATIC")
    first = shared.decided([decision])

    assert shared.decided([decision]) is first
    assert shared.decided([]) is not first
