"""A new home, from an installed package and from a checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torpor.cli.main import main

ROOT = Path(__file__).parents[3]
PARTS = ("config", "skills", "tools")


def files(folder: Path) -> set[Path]:
    found = (path.relative_to(folder) for part in PARTS for path in (folder / part).rglob("*") if path.is_file())
    return {path for path in found if "__pycache__" not in path.parts}


def test_home_holds_what_the_checkout_has_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "new" / "home"

    assert main(["init", str(home)]) == 0

    assert files(home) == files(ROOT)
    assert {path.name for path in home.iterdir()} <= set(PARTS)
    assert capsys.readouterr().out.startswith(f"made an agent home in {home}\nstart it with: ")


def test_installed_package_carries_its_own_starter_home(tmp_path: Path) -> None:
    installed = tmp_path / "site" / "torpor"
    shutil.copytree(ROOT / "runtime" / "torpor", installed, ignore=shutil.ignore_patterns("__pycache__"))
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, installed / "starter_home" / part)

    subprocess.run(
        [sys.executable, "-m", "torpor.cli.main", "init", "home"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed.parent)},
        check=True,
    )

    assert files(tmp_path / "home") == files(ROOT)


def test_empty_directory_will_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path), "--json"]) == 0
    assert capsys.readouterr().out == f'{{"home":"{tmp_path}"}}\n'


def test_directory_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter").write_text("dear")

    assert main(["init", str(tmp_path)]) == 1

    assert capsys.readouterr().err.startswith(f"torpor: {tmp_path} is not empty, name a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_file_in_the_place_of_the_directory_is_used_wrongly(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    assert main(["init", str(tmp_path / "home")]) == 2
