"""docs/fake-api.md tells what the fake Messages API takes and does."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fake_api.parts import request
from torpor.conversation.proposal import read_proposal
from torpor.conversation.summary import CompactionOptions
from torpor_fake_api import control
from torpor_fake_api.profiles import PROFILES
from torpor_fake_api.scripting.catalogue import CATALOGUE
from torpor_fake_api.scripting.files import Entry, parsed
from torpor_fake_api.scripting.positions import position
from torpor_fake_api.scripting.replies import Reply, Text
from torpor_fake_api.scripting.script import Asked, Script

PAGE = (Path(__file__).parents[3] / "docs" / "fake-api.md").read_text()


def first_cells(heading: str) -> list[str]:
    below = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line.split("|")[1].strip() for line in below.splitlines() if line.startswith("| `")]


def test_script_of_the_page_does_what_it_says() -> None:
    script = Script()
    _, text, _ = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    parsed(tomllib.loads(text)).add_to(script)

    def asked(words: str) -> Reply:
        return script.reply(Asked(1, request({"role": "user", "content": words})))

    call, cut, rain, busy, rest = map(asked, ("one", "two", "the weather?", "weather", "three"))
    kinds: list[Any] = [type(block).__name__ for block in call.content]
    assert kinds == ["Thinking", "ToolUse"]
    assert type(cut.fault).__name__ == "Cut"
    assert "It rains." in repr(rain)
    assert type(busy.fault).__name__ == "HttpError"
    assert "I do not know." in repr(rest)


def test_script_for_compaction_answers_what_a_summariser_is_asked() -> None:
    script = Script()
    *_, text = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    parsed(tomllib.loads(text)).add_to(script)
    question = "Summary so far:\n{}\n\nTurns to fold:\n\nturn 1"

    for kind in ("opened", "closed"):
        (block,) = script.reply(Asked(1, request({"role": "user", "content": question}))).content
        assert isinstance(block, Text)
        proposal = read_proposal(block.text, options=CompactionOptions())
        assert proposal.summary.facts
        assert getattr(proposal, kind)


def test_keys_of_a_reply_are_told_whole() -> None:
    told = {name for cell in first_cells("Scripts") for name in re.findall(r"`(\w+)`", cell)}

    assert told == set(Entry.__struct_fields__)


def test_every_misbehaviour_is_named() -> None:
    (names,) = re.findall(r"^The names: (.*?)\.\n\n", PAGE, re.DOTALL | re.MULTILINE)

    assert re.findall(r"`(\w+)`", names) == list(CATALOGUE)


@pytest.mark.parametrize("place", re.findall(r"`(before_\w+|first_event|after_\w+:N)`", PAGE))
def test_every_place_is_one(place: str) -> None:
    assert position(place.replace("N", "2")).where == place.partition(":")[0]


def test_requests_of_the_control_are_told_whole() -> None:
    known = re.findall(r"^(GET|POST|DELETE) +(/_fake/\w+(?:\?\S+)?)", control.__doc__ or "", re.MULTILINE)

    assert [cell.strip("`") for cell in first_cells("Control")] == [f"{method} {path}" for method, path in known]


def test_profiles_are_told_whole() -> None:
    assert {cell.strip("`") for cell in first_cells("Profiles")} == set(PROFILES)
