"""The process's own clock and names."""

import re

from torpor.clock import RandomIds, SystemClock


def test_the_wall_clock_counts_microseconds_since_1970() -> None:
    assert 1_700_000_000_000_000 < SystemClock().now_us() < 10_000_000_000_000_000


def test_the_monotonic_clock_never_steps_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_s() for _ in range(100)]
    assert readings == sorted(readings)


def test_ids_are_sixteen_hexadecimal_digits_and_never_the_same() -> None:
    ids = [RandomIds().new_id() for _ in range(50)]
    one_source = RandomIds()
    ids += [one_source.new_id() for _ in range(1000)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[0-9a-f]{16}", name) for name in ids)
