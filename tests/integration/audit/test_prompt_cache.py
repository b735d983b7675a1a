"""How much of each request the one before it had sent, over a long conversation with all that a home may have."""

from functools import partial
from pathlib import Path
from statistics import median

import anyio
import pytest

from tests.support.clinic_day import DEADLINE_S, PATH, opened, refused
from torpor.operations.prefix import RequestPrefix, prefixes, summary_of
from torpor.records.ids import ConversationKey
from torpor.store.sqlite.reader import open_to_read
from torpor_fake_api.scripting.replies import Reply, ToolUse, says
from torpor_fake_api.scripting.script import Asked

TURNS = [50, pytest.param(100, marks=pytest.mark.soak)]
"""Each costs as much as the text before it; the page of the design tells of a hundred."""
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")
SKILLS = {10: "taking-payments", 40: "preparing-the-day"}
QUESTIONS = (
    "When are you open on {day}?",
    "Who comes on {day}, and to whom?",
    "What does it cost to cancel a visit on {day} after noon?",
    "May a patient bring a dog on {day}?",
)
ANSWER = "It is as the book says: from eight to six, with a break at noon, and nobody else has asked for {day} so far. "


def answered(asked: Asked) -> Reply:
    """A tool round, or a skill where one is due, then an answer; a few words for a live context."""
    if not asked.body.get("tools"):
        return says(f"In good spirits after {asked.number} answers; wants to know about the week.")
    turn = int(asked.text.partition(":")[0].split()[-1]) if asked.text.startswith("turn") else 0
    day = DAYS[turn % len(DAYS)]
    if asked.has_results:
        return says(ANSWER.format(day=day) * 3)
    if skill := SKILLS.get(turn):
        return says("I look it up.", ToolUse("load_skill", {"name": skill}))
    return says(ToolUse("opening_hours", {"day": day}), ToolUse("find_appointments", {"day": day}))


async def lived(home: Path, *, turns: int) -> list[RequestPrefix]:
    async with opened(home, agent_fields="[live_context]\n") as day:
        day.api.otherwise(answered)
        with anyio.fail_after(2 * DEADLINE_S):
            for turn in range(1, turns + 1):
                question = QUESTIONS[turn % len(QUESTIONS)].format(day=DAYS[turn % len(DAYS)])
                await day.ask(f"turn {turn}: {question}")
        assert refused(day.api) == []
    with open_to_read(home / ".torpor") as reader:
        records = reader.load(ConversationKey(*PATH.split("/")), use_snapshot=False).tail
    return list(prefixes(records))


@pytest.fixture(scope="module", params=TURNS)
def turns(request: pytest.FixtureRequest) -> int:
    """How long the conversation is."""
    return int(request.param)


@pytest.fixture(scope="module")
def found(turns: int, tmp_path_factory: pytest.TempPathFactory) -> list[RequestPrefix]:
    return anyio.run(partial(lived, tmp_path_factory.mktemp("cache") / "home", turns=turns))


def test_within_a_turn_all_of_it_was_sent_before(found: list[RequestPrefix], turns: int) -> None:
    within = [each.share for each in found if not each.is_first_of_turn]

    assert len(within) >= turns
    assert set(within) == {1.0}


def test_across_turns_the_median_is_above_95_per_cent(found: list[RequestPrefix]) -> None:
    across = summary_of(found).across_turns

    assert across is not None
    assert across > 0.95


def test_a_prefix_is_broken_by_what_was_for_one_turn_alone_and_by_each_new_live_context(
    found: list[RequestPrefix], turns: int
) -> None:
    causes = [each.cause for each in found]

    assert {*causes} == {"", "turn-only blocks", "live context"}
    assert causes.count("live context") <= 2 * turns // 30 + 1


def test_the_host_reads_from_its_cache_what_was_sent_before(found: list[RequestPrefix]) -> None:
    """It caches up to marks only, and counts in tokens of its own."""
    within = [each for each in found if not each.is_first_of_turn and each.input_tokens]

    assert median(each.cache_read_tokens / each.input_tokens for each in within) > 0.9
