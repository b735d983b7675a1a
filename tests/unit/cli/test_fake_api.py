"""``torpor fake-api`` hands everything over to the fake API."""

import os
import subprocess
import sys

import pytest

from torpor.cli.main import main


@pytest.mark.parametrize("arguments", [[], ["--port", "8999", "--profile", "strict"], ["--help"], ["-h"]])
def test_arguments_are_handed_over_as_they_are(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[object] = []
    monkeypatch.setattr(os, "execv", lambda *call: became.extend(call))

    assert main(["fake-api", *arguments]) == 0
    assert became == [sys.executable, [sys.executable, "-m", "torpor_fake_api", *arguments]]


def test_help_is_that_of_the_fake_api() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "torpor.cli.main", "fake-api", "--help"], capture_output=True, text=True, check=True
    )

    assert shown.stdout.startswith("usage: torpor fake-api ")
    assert "--profile {default,legacy,strict}" in shown.stdout
