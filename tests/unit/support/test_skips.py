"""A skipped test must not pass for a test that ran."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import forbidden

SUITE = """
import pytest
@pytest.mark.skip(reason="no data beside the project: here")
def test_a(): pass
def test_b(): pytest.skip("felt like it")
@pytest.mark.xfail(reason="known", strict=True)
def test_c(): assert False
def test_d(): pass
"""
SKIPS_ITSELF = "import pytest\npytest.skip('no such platform', allow_module_level=True)\n"


@pytest.fixture
def report(tmp_path: Path) -> str:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "test_module.py").write_text(SKIPS_ITSELF)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--junitxml=report.xml", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    return (tmp_path / "report.xml").read_text()


def test_each_skip_without_an_allowed_reason_is_named(report: str) -> None:
    assert forbidden(report, "# nothing is allowed\n") == [
        "test_module was skipped, and its reason is not on the list: no such platform",
        "test_suite::test_a was skipped, and its reason is not on the list: no data beside the project: here",
        "test_suite::test_b was skipped, and its reason is not on the list: felt like it",
        "test_suite::test_c was skipped, and its reason is not on the list: known",
    ]


def test_a_reason_on_the_list_is_allowed_whatever_its_variable_part(report: str) -> None:
    allowed = "no data beside the project: *\nfelt like it\nknown\nno such platform\n"

    assert forbidden(report, allowed) == []
