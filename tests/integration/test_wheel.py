"""A wheel holds what stands in the checkout: the engine, and the home that ``torpor init`` copies."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOME = ("config", "skills", "tools")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl"))


def files(folder: str) -> Iterator[Path]:
    for path in (ROOT / folder).rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT)


def test_wheel_holds_the_engine_and_the_starter_home_and_nothing_else(wheel: Path) -> None:
    engine = {str(path.relative_to("runtime")) for path in files("runtime")}
    home = {str("torpor/starter_home" / path) for folder in HOME for path in files(folder)}

    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert packed == engine | home
