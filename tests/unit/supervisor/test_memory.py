"""What the process uses and may use, as a system tells it."""

import resource
import sys
from pathlib import Path

import pytest

from torpor.supervisor.memory import ProcessMemory, Unmeasured

PAGE_BYTES = resource.getpagesize()


def system(
    root: Path, *, groups: dict[str, str], membership: str = "0::/app/one\n", statm: str = "900 70 5"
) -> ProcessMemory:
    """A system as a folder; ``groups`` are its limits by path."""
    proc, mount = root / "proc", root / "groups"
    proc.mkdir()
    (proc / "cgroup").write_text(membership)
    (proc / "statm").write_text(statm)
    for path, limit in groups.items():
        file = mount / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit)
    return ProcessMemory(proc=proc, groups=mount)


def test_resident_pages_are_told_in_bytes(tmp_path: Path) -> None:
    assert system(tmp_path, groups={}).used_bytes() == 70 * PAGE_BYTES


@pytest.mark.parametrize(
    ("groups", "limit_bytes"),
    [
        ({"app/one/memory.max": "5000\n"}, 5_000),
        ({"app/one/memory.max": "5000\n", "app/memory.max": "4000\n", "memory.max": "max\n"}, 4_000),
        ({"app/one/memory.max": "max\n", "memory.max": "6000\n"}, 6_000),
        ({"memory.max": "6000\n"}, 6_000),
        ({"memory.max": f"{2**62}\n"}, 0),
        ({"app/memory.max": "max\n"}, 0),
        ({}, 0),
    ],
)
def test_the_tightest_limit_of_the_group_and_those_around_it_counts(
    tmp_path: Path, groups: dict[str, str], limit_bytes: int
) -> None:
    assert system(tmp_path, groups=groups).limit_bytes() == limit_bytes


def test_older_systems_keep_a_tree_for_memory_alone(tmp_path: Path) -> None:
    membership = "5:cpu:/other\n4:memory:/app\n0::/elsewhere\n"
    groups = {"memory/app/memory.limit_in_bytes": "7000\n", "memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}
    assert system(tmp_path, groups=groups, membership=membership).limit_bytes() == 7_000


def test_where_nothing_can_be_read_nothing_is_known(tmp_path: Path) -> None:
    memory = ProcessMemory(proc=tmp_path / "none", groups=tmp_path)
    assert (memory.used_bytes(), memory.limit_bytes()) == (0, 0)
    broken = system(tmp_path, groups={}, statm="nonsense")
    assert broken.used_bytes() == 0


def test_what_nobody_measures_is_always_enough() -> None:
    memory = Unmeasured()
    memory.trim()
    assert (memory.used_bytes(), memory.limit_bytes()) == (0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc here")
def test_this_process_uses_some_and_can_give_back() -> None:
    memory = ProcessMemory()
    memory.trim()
    assert memory.used_bytes() > 1_000_000
