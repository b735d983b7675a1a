"""Every line that the rehearsal's ``help`` suggests does what it says, in a home as `torpor init` makes it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Command

SUGGESTED = {
    "When are you open on Thursday?": (["opening_hours"], "Thursday: 8:00 to 20:00"),
    "Find the appointments of Ada Lovelace": (["find_appointments"], "Ada Lovelace"),
    "Opening hours and appointments, please": (["opening_hours", "find_appointments"], "These are our hours"),
    "Record a payment of 45.50 from Ada Lovelace": (["record_payment"], "45.50 euros by cash from Ada Lovelace"),
    "Something slow": (["record_payment"], "1.00 euros by card from Ada Lovelace"),
    "What is the evidence on falls?": (["spawn_research_agent"], '"locator":"falls.jsonl:'),
    "Make a plan for: cannot fall asleep": (["build_plan"], '"dose":"Each morning for two weeks"'),
    "A long answer": ([], "it will not have forgotten a word of this"),
    "Please fail": ([], "model_unavailable"),
    "Please fail at once": ([], "model_timed_out"),
    "Please fail again and again": ([], "model_unavailable"),
}
"""Which tools are called, in any order, and what is in the answer or is the code of the failure."""
HURRY = {"TORPOR__RETRY__BASE_S": "0.01", "TORPOR__RETRY__PAUSE_MAX_S": "0.02"}


def told(answer: dict[str, Any]) -> tuple[list[str], str]:
    """Tools in the order of their names, and text or code."""
    return sorted(tool["name"] for tool in answer["tools"]), answer["code"] or answer["text"]


@pytest.mark.parametrize(
    "is_one_conversation",
    [pytest.param(True, id="one after another"), pytest.param(False, id="each of its own", marks=pytest.mark.soak)],
)
def test_every_line_that_help_suggests_does_what_it_says(tmp_path: Path, *, is_one_conversation: bool) -> None:
    office = Command(tmp_path, **HURRY)
    office.run("init", ".")
    (agent,) = (tmp_path / "config" / "agents").glob("*.toml")
    agent.write_text(agent.read_text().replace("# pace_cps = 0 ", "pace_cps = 0 "))
    with office.serving():
        (help_,) = office.facts("send", "help", "--conversation", "c0")
        lines = re.findall(r"^  (\S.*?)(?: {3,}\(.*)?$", help_["text"], re.MULTILINE)

        answers = {
            line: told(
                office.facts("send", line, "--conversation", f"c{0 if is_one_conversation else at}", code=code)[0]
            )
            for at, line in enumerate(lines, start=1)
            for code in [3 if "fail" in line else 0]
        }

    assert lines == list(SUGGESTED)
    for line, (tools, said) in SUGGESTED.items():
        assert answers[line][0] == sorted(tools), line
        assert said in answers[line][1], line


def test_a_rehearsal_that_broke_off_answers_what_it_was_asked_when_it_is_resumed(tmp_path: Path) -> None:
    office = Command(tmp_path, **HURRY)
    office.run("init", ".")
    (agent,) = (tmp_path / "config" / "agents").glob("*.toml")
    agent.write_text(agent.read_text().replace("# pace_cps = 0 ", "pace_cps = 0 "))
    said = {}
    with office.serving():
        for offer in ("retry", "continue"):
            office.facts("send", "Please fail", "--conversation", offer, code=3)
            (answer,) = office.facts("send", "--resume", offer, "--conversation", offer)
            said[offer] = answer["text"]

    assert said["retry"].startswith("I was about to answer at length, and you can see how far I came")
    assert said["retry"].endswith(said["continue"])
    assert said["continue"].startswith("far I came")
