"""What a sub-agent answers is a plan of known ids, or questions, or unacceptable in words that help to mend it."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.nasty_text import nasty_text
from tests.unit.subagents.plan_parts import CATALOGUE, PLAN, SHIPPED, TABLES, a_plan, with_intervention
from torpor.subagents.catalogue import catalogue_from
from torpor.subagents.envelope import Envelope, NeedsClarification
from torpor.subagents.findings import Findings
from torpor.subagents.plan import ANSWER_BYTES_MAX, TOLD_BYTES_MAX, Plans
from torpor.subagents.results import Accepted, Unacceptable
from torpor.toolhost.contract import Finding

PLANS = Plans(CATALOGUE)


def findings(*ids: str) -> Findings:
    made = Findings(findings_max=20, selected_max=8)
    for id_ in ids:
        made.add(Finding(id=id_, title="t", locator="l", excerpt="e"))
    return made


def text_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def accepted(value: Any, *ids: str) -> Accepted:
    return PLANS.accept(text_of(value), findings(*ids))


def refusal(value: Any) -> str:
    with pytest.raises(Unacceptable) as caught:
        PLANS.accept(value if isinstance(value, str) else text_of(value), findings())
    return caught.value.message


def test_a_plan_is_told_with_the_title_dose_and_cautions_of_the_catalogue() -> None:
    result = accepted(PLAN)
    envelope = msgspec.json.decode(result.told, type=Envelope)
    (planned,) = envelope.interventions
    assert (planned.title, planned.dose, planned.cautions) == ("Short nights", "Six hours", ("No long drives.",))
    assert (envelope.patient_ref, envelope.goals[0].due_in_weeks, envelope.follow_up.in_weeks) == ("pt-17", 6, 2)
    assert msgspec.json.decode(result.kept) == {"type": "plan", **msgspec.json.decode(result.told)}
    assert result.dropped == ()


def test_what_is_told_is_canonical_and_would_be_accepted_again() -> None:
    result = accepted(PLAN)
    assert PLANS.accept(result.told.decode(), findings()) == result
    assert accepted(dict(reversed(PLAN.items()))) == result


def test_a_title_that_a_sub_agent_makes_up_counts_for_nothing() -> None:
    assert accepted(with_intervention(title="Miracle", dose="Once", cautions=["None"])) == accepted(PLAN)


def test_evidence_that_nothing_found_is_dropped_and_reported() -> None:
    result = accepted(with_intervention(evidence_ids=["ev-2", "ev-9", "ev-2", "ev-1"]), "ev-1", "ev-2")
    envelope = msgspec.json.decode(result.told, type=Envelope)
    assert envelope.interventions[0].evidence_ids == ("ev-2", "ev-1")
    assert result.dropped == ("ev-9",)


def test_searches_that_failed_are_told_beside_the_plan() -> None:
    found = findings()
    found.searched()
    found.searched(failure="out of reach")

    result = PLANS.accept(text_of(PLAN), found)

    lacking = {"searches": {"made": 2, "failed": 1, "why": "out of reach"}}
    assert msgspec.json.decode(result.told) == {**msgspec.json.decode(accepted(PLAN).told), **lacking}
    assert msgspec.json.decode(result.kept) == {"type": "plan", **msgspec.json.decode(result.told)}


def test_questions_are_told_once_each_and_nothing_is_kept() -> None:
    result = accepted({"needs_clarification": {"questions": [" Any seizures? ", "Any seizures?", "Since when?"]}})
    assert result == Accepted(told=b'{"needs_clarification":{"questions":["Any seizures?","Since when?"]}}')


def test_a_plan_may_say_that_there_are_no_questions() -> None:
    assert accepted(a_plan(needs_clarification=None)) == accepted(PLAN)


def test_an_overrun_is_an_honest_question_and_never_a_plan() -> None:
    result = PLANS.overrun(findings("ev-1"))
    (question,) = msgspec.json.decode(result.told, type=NeedsClarification).needs_clarification.questions
    assert "was not finished within its budget, so there is none" in question
    assert question.endswith("?")
    assert result.kept == b""
    assert PLANS.accept(result.told.decode(), findings()) == result


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            {"needs_clarification": {"questions": []}},
            "needs_clarification.questions is a list of 0, expected a list of 1",
        ),
        ({"needs_clarification": {"questions": ["?"] * 6}}, "needs_clarification.questions is a list of 6, expected"),
        (
            {"needs_clarification": {"questions": [" "]}},
            "needs_clarification.questions[0] is '', expected text of 1 to",
        ),
        ({"needs_clarification": "why"}, "needs_clarification is 'why', expected an object with questions"),
        (a_plan(needs_clarification={"questions": ["?"]}), "needs_clarification is beside 'patient_ref', 'summary',"),
        (a_plan(patient_ref="Ada Lovelace"), "patient_ref is 'Ada Lovelace', expected the reference of the notes"),
        (a_plan(summary=" \u200b "), "summary is '', expected text of 1 to 600 characters"),
        (a_plan(goals=[]), "goals is a list of 0, expected a list of 1 to 6"),
        (a_plan(interventions=[]), "interventions is a list of 0, expected a list of 1 to 8"),
        (a_plan(follow_up={"in_weeks": 0, "text": "x"}), "follow_up.in_weeks is the number 0, expected a whole number"),
        (a_plan(price=3), "price is unknown, expected one of patient_ref, summary, goals, interventions, follow_up"),
        (with_intervention(id="short-nigths"), "the nearest: 'short-nights'"),
        (with_intervention(rationale="x" * 601), "(601 characters), expected text of 1 to 600 characters"),
        ("I would plan short nights.", "Your answer is not a JSON object"),
        ("[1]", "the answer is array, expected object"),
        ('{"a": ' * 70 + "1" + "}" * 70, "nested too deeply"),
        ("[" * 60_000, "Your answer is not a JSON object: it is nested too deeply"),
        ("x" * (ANSWER_BYTES_MAX + 1), "Your answer is longer than 65,536 bytes"),
        ("é" * (ANSWER_BYTES_MAX // 2 + 1), "Your answer is longer than 65,536 bytes"),
        ('{"patient_ref": 1' + "0" * 400 + "}", "patient_ref is a huge number, expected the reference"),
    ],
)
def test_what_is_unacceptable_is_told_with_its_place_and_what_is_expected(value: Any, said: str) -> None:
    message = refusal(value)
    assert said in message
    assert "Answer again" in message


def test_faults_of_shape_and_of_names_are_told_together() -> None:
    lines = refusal(with_intervention(dose_option="huge") | {"summary": 4}).splitlines()
    assert lines == [
        "Your answer cannot be taken as it is:",
        "- summary is the number 4, expected text of 1 to 600 characters",
        "- interventions[0].dose_option is 'huge', expected one of 'gentle', 'strict'",
        "Answer again with the whole JSON object, mended, and nothing else.",
    ]


def test_of_very_many_faults_the_first_dozen_is_told() -> None:
    lines = refusal({f"k{number}": 1 for number in range(30)}).splitlines()
    assert len(lines) == 15
    assert lines[-2] == "- and 23 more"


def test_a_plan_that_the_catalogue_makes_too_long_to_be_told_is_refused() -> None:
    tables = copy.deepcopy(TABLES)
    tables["intervention"] = [
        {**TABLES["intervention"][0], "id": f"i{number}", "cautions": ["\u20ac" * 199 + str(at) for at in range(10)]}
        for number in range(8)
    ]
    planned = {"dose_option": "two-weeks", "goal_ids": ["g1"], "rationale": "r"}
    plan = a_plan(interventions=[{**planned, "id": f"i{number}"} for number in range(8)])
    with pytest.raises(Unacceptable, match=f"the plan is .* bytes long.* at most {TOLD_BYTES_MAX:,} bytes"):
        Plans(catalogue_from(tables, where="f")).accept(text_of(plan), findings())


def test_text_that_cannot_be_stored_is_cleaned() -> None:
    told = PLANS.accept(text_of(a_plan(summary="a\x00b")).replace("six", "s\ud800x"), findings()).told
    envelope = msgspec.json.decode(told, type=Envelope)
    assert envelope.summary == "a\u2400b"
    assert envelope.goals[0].text == "Sleeps s\ufffdx hours"


def test_the_instructions_name_both_forms_and_the_problems() -> None:
    said = PLANS.instructions()
    assert "problem: one of insomnia, knee-pain, low-mood. " in said
    form = next(line for line in said.splitlines() if line.startswith('{"patient_ref"'))
    assert msgspec.json.decode(form).keys() == PLAN.keys()
    assert '{"needs_clarification": {"questions": ["..."]}}' in said


def test_of_very_many_problems_the_instructions_name_some() -> None:
    problems = {f"p{number:03}": "x" for number in range(100)}
    said = Plans(catalogue_from(TABLES | {"problems": TABLES["problems"] | problems}, where="f")).instructions()
    assert "or another that a search shows" in said
    assert "p090" not in said


WORDS = nasty_text() | st.text(max_size=8) | st.sampled_from(["g1", "g2", "absent", "unknown", *CATALOGUE.ids])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*PLAN, "id", "text"]) | WORDS, inner),
    max_leaves=10,
)


@st.composite
def nearly_plans(draw: st.DrawFn) -> dict[str, Any]:
    """Plans of the shipped catalogue, some of which are whole, and some have a part replaced by anything."""
    chosen = draw(st.lists(st.sampled_from(list(SHIPPED)), min_size=1, max_size=8, unique_by=lambda entry: entry.id))
    goals = [
        {"id": f"g{at}", "text": f"Goal {draw(WORDS)}", "problem": entry.applies_to[0], "due_in_weeks": 6}
        for at, entry in enumerate(chosen[:6])
    ]
    interventions = [
        {
            "id": entry.id,
            "dose_option": draw(st.sampled_from(entry.dose_options)).id,
            "goal_ids": [f"g{at}"],
            "rationale": f"Since {draw(WORDS)}",
            "evidence_ids": draw(st.lists(st.sampled_from(["ev-1", "ev-2"]), max_size=3)),
            "contraindications_checked": [
                {"id": id_, "status": "absent", "basis": "asked"} for id_ in entry.contraindications
            ],
        }
        for at, entry in enumerate(chosen[:6])
    ]
    plan = a_plan(goals=goals, interventions=interventions, summary=f"So {draw(WORDS)}")
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        part: Any = draw(st.sampled_from([plan, *goals, *interventions]))
        part[draw(st.sampled_from(list(part)))] = draw(ANYTHING)
    return plan


@given(value=ANYTHING | nearly_plans() | st.builds(lambda inner: {"needs_clarification": inner}, ANYTHING))
def test_nothing_but_unacceptable_is_raised_and_what_is_accepted_is_accepted_again(value: Any) -> None:
    plans, found = Plans(SHIPPED), findings("ev-1")
    try:
        text = text_of(value)
    except UnicodeEncodeError:
        text = str(value)
    try:
        result = plans.accept(text, found)
    except Unacceptable:
        return
    assert plans.accept(result.told.decode(), found) == msgspec.structs.replace(result, dropped=())
    told = msgspec.json.decode(result.told)
    if "needs_clarification" in told:
        assert 1 <= len(told["needs_clarification"]["questions"]) <= 5
        return
    for planned in msgspec.json.decode(result.told, type=Envelope).interventions:
        entry = SHIPPED.get(planned.id)
        assert entry is not None
        assert planned.dose_option in {option.id for option in entry.dose_options}
        assert {check.id for check in planned.contraindications_checked} == set(entry.contraindications)
        assert {check.status for check in planned.contraindications_checked} <= {"absent"}


@given(text=st.text() | nasty_text() | st.text(alphabet='{}[]":,0e\\u d', max_size=40))
def test_no_text_makes_it_raise_anything_but_unacceptable(text: str) -> None:
    with pytest.raises(Unacceptable):
        PLANS.accept(text, findings())
