"""Fails a run that skipped tests for a reason nobody allowed: ``python -m tests.support.skips REPORT ALLOWED``.

REPORT is what ``pytest --junitxml`` wrote. ALLOWED lists reasons, one pattern a line, ``#`` opening a comment. An
expected failure counts as a skip: either way the behaviour was not shown.
"""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree


def skipped(report: str) -> Iterator[tuple[str, str]]:
    """The name of each skipped test or module of a JUnit report, with the reason given."""
    for case in ElementTree.fromstring(report).iter("testcase"):
        for mark in case.iter("skipped"):
            name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
            yield name, _reason(mark)


def forbidden(report: str, allowed: str) -> list[str]:
    """A line for each skipped test whose reason matches no line of ``allowed``."""
    lines = (line.strip() for line in allowed.splitlines())
    patterns = [line for line in lines if line and not line.startswith("#")]
    return [
        f"{name} was skipped, and its reason is not on the list: {reason}"
        for name, reason in skipped(report)
        if not any(fnmatchcase(reason, pattern) for pattern in patterns)
    ]


def _reason(mark: ElementTree.Element) -> str:
    message = mark.get("message", "")
    if message != "collection skipped":
        return message
    # A module that skips itself is reported as the repr of (file, line, "Skipped: reason").
    _, _, text = ast.literal_eval(mark.text or "")
    return str(text).removeprefix("Skipped: ")


if __name__ == "__main__":
    findings = forbidden(*(Path(name).read_text() for name in sys.argv[1:3]))
    print("\n".join(findings), end="\n" if findings else "")
    sys.exit(1 if findings else 0)
