"""Where a fact is found, and where it is not."""

import json
from typing import Any

import pytest

from bench.followups.conversations import Conversation, Fact, FollowUp, clinic
from bench.followups.judge import Place, Shown, finding, place_of
from bench.followups.public import PASSAGE
from tests.support.recordings import RecordedReply, RecordedTurn

SUMMARY = "[Summary of earlier conversation: turns 1 to 3, records 1 to 20, generation 1.\nFacts:\n- the dose is 5 mg]"


def request(*texts: str) -> bytes:
    """The last text is the follow-up."""
    content = [{"type": "text", "text": text} for text in texts]
    return json.dumps({"messages": [{"role": "user", "content": content}]}).encode()


@pytest.mark.parametrize(
    ("wording", "place"),
    [
        ("room 12", Place.VERBATIM),
        ("5 mg", Place.SUMMARY),
        ("Elm Gate", Place.JOURNAL),
        ("Quarry Road", Place.NOWHERE),
        ("room 1", Place.NOWHERE),
        ("mg", Place.SUMMARY),
        ("why there", Place.NOWHERE),
    ],
)
def test_a_fact_is_found_whole_in_the_best_place_that_holds_it_and_never_in_the_follow_up(
    wording: str, place: Place
) -> None:
    shown = Shown.by(request(SUMMARY, "it is ROOM\n12", "why there?"))
    assert place_of(Fact((wording,)), shown, journal="elm gate") is place


def test_what_a_tool_answered_is_seen_and_what_it_was_asked_is_not() -> None:
    content: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": "a", "content": "rate 52"}]
    call = {"type": "tool_use", "id": "a", "name": "look", "input": {"name": "Halloran"}}
    messages = [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [*content, {"type": "text", "text": "and?"}]},
    ]
    shown = Shown.by(json.dumps({"messages": messages}).encode())
    assert shown.has(Fact(("rate 52",)))
    assert not shown.has(Fact(("Halloran",)))


def corrected(*, visible: str) -> tuple[bool, bool]:
    """Whether a follow-up is resolved, and whether it is misled, by a request that shows this."""
    follow_up = FollowUp(turn=3, kind="correction", needs=(Fact(("the right eye",)),), stale=(Fact(("the left eye",)),))
    said = ("treat the left eye", "I mean the right eye", "which one?")
    turns = tuple(RecordedTurn(user=text, replies=(RecordedReply(text="yes"),)) for text in said)
    conversation = Conversation(name="eye", set="own", turns=turns, follow_ups=(follow_up,))
    found = finding(conversation, follow_up, body=request(visible, "which one?"), journal="")
    return found.is_resolved, found.misleads


def test_what_was_corrected_misleads_only_where_the_correction_is_not_visible() -> None:
    assert corrected(visible="the left eye") == (False, True)
    assert corrected(visible="the left eye, no, the right eye") == (True, False)
    assert corrected(visible="hello") == (False, False)


def test_every_follow_up_of_the_clinic_needs_something_that_was_said_before_and_is_not_said_by_it() -> None:
    conversations = clinic()  # which checks each of them
    assert len(conversations) >= 20
    facts = [
        (each, follow_up, fact) for each in conversations for follow_up in each.follow_ups for fact in follow_up.needs
    ]
    recent = sum(each.distance(follow_up, fact) <= 2 for each, follow_up, fact in facts)
    far = sum(each.distance(follow_up, fact) >= 30 for each, follow_up, fact in facts)
    assert recent >= 30
    assert far >= 30


def test_the_passage_that_answers_public_questions_holds_no_fact_of_the_clinic() -> None:
    facts = [fact for each in clinic() for follow_up in each.follow_ups for fact in follow_up.needs]
    assert not any(fact.stands_in(PASSAGE.casefold()) for fact in facts)
