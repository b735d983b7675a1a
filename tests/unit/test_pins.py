"""The pinned versions stand in two places, since pip and uv each read only one of them."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_constraints_file_and_uv_constraints_are_the_same_list() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert (ROOT / "constraints.txt").read_text().splitlines() == project["tool"]["uv"]["constraint-dependencies"]


def test_every_pin_is_an_exact_version_without_an_address() -> None:
    for pin in (ROOT / "constraints.txt").read_text().splitlines():
        requirement = pin.partition(";")[0].strip()
        name, _, version = requirement.partition("==")

        assert name, f"{pin!r} names no package"
        assert version[:1].isdigit(), f"{pin!r} is not pinned to one version"
        assert "/" not in pin, f"{pin!r} names an address"
