"""Plans: visit notes go into a sub-agent, and a plan of which every id is in the catalogue comes out, or questions.

Above: whoever runs the sub-agent. Pure: an answer is a plan, questions, or unacceptable with everything that is to be
mended. When the budget is over there is no plan, and that is said.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from torpor.conversation.text import clean, is_blank
from torpor.records.blocks import canonical
from torpor.records.nesting import is_deep
from torpor.subagents.catalogue import InterventionCatalogue
from torpor.subagents.envelope import (
    EVIDENCE_MAX,
    GOALS_MAX,
    INTERVENTIONS_MAX,
    NEEDS_CLARIFICATION,
    QUESTIONS_MAX,
    Envelope,
    NeedsClarification,
    Planned,
    Questions,
)
from torpor.subagents.findings import Findings
from torpor.subagents.plan_check import id_faults
from torpor.subagents.results import Accepted, Unacceptable, read_answer
from torpor.subagents.shape import Fault, faults_of, shown

T = TypeVar("T", bound=msgspec.Struct)

PLAN: Final = "plan"
ANSWER_BYTES_MAX: Final = 65_536
"""Of a final text."""
TOLD_BYTES_MAX: Final = 12_000
"""Of a plan as the parent is told it."""

_FAULTS_MAX: Final = 12
"""Told at once; the rest is told when these are mended."""
_CODES_MAX: Final = 60
_AGAIN: Final = "Answer again with the whole JSON object, mended, and nothing else."
_OVERRUN: Final = (
    "The plan was not finished within its budget, so there is none. Which one or two problems matter most, so that a"
    " smaller plan can be made?"
)
_FORM: Final = (
    '{"patient_ref": "...", "summary": "...",'
    ' "goals": [{"id": "g1", "text": "...", "problem": "...", "due_in_weeks": 6}],'
    ' "interventions": [{"id": "...", "dose_option": "...", "goal_ids": ["g1"], "rationale": "...",'
    ' "contraindications_checked": [{"id": "...", "status": "absent", "basis": "..."}], "evidence_ids": []}],'
    ' "follow_up": {"in_weeks": 4, "text": "..."}}'
)


class Plans:
    """Implements ``results.ResultType``."""

    name = PLAN

    def __init__(self, catalogue: InterventionCatalogue) -> None:
        self._catalogue = catalogue

    def instructions(self) -> str:
        codes = list(self._catalogue.problems)
        more = "" if len(codes) <= _CODES_MAX else ", or another that a search shows"
        return (
            f"End with a JSON object and nothing else: a plan,\n{_FORM}\n"
            "or, where the notes leave open what a safe plan needs, questions to whoever wrote them,\n"
            f'{{"{NEEDS_CLARIFICATION}": {{"questions": ["..."]}}}}\n'
            "patient_ref: as the notes refer to the patient, never a name. problem: one of"
            f" {', '.join(codes[:_CODES_MAX])}{more}. Interventions, dose options and contraindications: ids of the"
            " catalogue alone. An intervention serves at least one goal with a problem that it is for. Check each of"
            " its contraindications: status absent, present or unknown, with what the notes say as basis. What is"
            " present forbids the intervention; what is unknown has to be asked, or the intervention left out."
            f" evidence_ids may stay empty. At most {GOALS_MAX} goals, {INTERVENTIONS_MAX} interventions,"
            f" {EVIDENCE_MAX} evidence ids for each, {QUESTIONS_MAX} questions; every text is short."
        )

    def accept(self, text: str, findings: Findings) -> Accepted:
        """A plan with the titles, doses and cautions of the catalogue, or the questions.

        Evidence that nothing found is left out of the plan, and its ids are dropped. Searches that failed are told.
        Raises: Unacceptable: names every fault, or the first dozen.
        """
        if len(text) > ANSWER_BYTES_MAX or len(text.encode("utf-8", "surrogatepass")) > ANSWER_BYTES_MAX:
            raise Unacceptable(f"Your answer is longer than {ANSWER_BYTES_MAX:,} bytes, expected a short one. {_AGAIN}")
        read = read_answer(clean(text).text, dict[str, Any])
        if is_deep(read):
            raise Unacceptable(f"Your answer is nested too deeply, expected the form that was asked for. {_AGAIN}")
        value: dict[str, Any] = _tidied(read)
        if value.get(NEEDS_CLARIFICATION) is None:
            return self._plan({key: inner for key, inner in value.items() if key != NEEDS_CLARIFICATION}, findings)
        if len(value) > 1:
            others = ", ".join(shown(key) for key in list(value)[:_FAULTS_MAX] if key != NEEDS_CLARIFICATION)
            raise _refusal([Fault(NEEDS_CLARIFICATION, f"beside {others}", "either questions or a plan")])
        return _asked(_converted(value, NeedsClarification).needs_clarification)

    def overrun(self, findings: Findings) -> Accepted:
        """No plan, whatever is there: a part of one was never validated."""
        return _asked(Questions(questions=(_OVERRUN,)))

    def _plan(self, value: dict[str, Any], findings: Findings) -> Accepted:
        faults = [*faults_of(value, Envelope), *id_faults(value, self._catalogue)]
        if faults:
            raise _refusal(faults)
        plan = msgspec.convert(value, Envelope)
        named = dict.fromkeys(id_ for planned in plan.interventions for id_ in planned.evidence_ids)
        dropped = tuple(id_ for id_ in named if findings.get(id_) is None)
        filled = tuple(self._filled(planned, without=dropped) for planned in plan.interventions)
        envelope = msgspec.to_builtins(msgspec.structs.replace(plan, interventions=filled)) | findings.lacking
        told = bytes(canonical(envelope))
        if len(told) > TOLD_BYTES_MAX:
            found = f"{len(told):,} bytes long, texts of the catalogue included"
            raise _refusal(
                [Fault("the plan", found, f"at most {TOLD_BYTES_MAX:,} bytes: fewer interventions, shorter texts")]
            )
        return Accepted(told=told, kept=bytes(canonical({"type": PLAN, **envelope})), dropped=dropped)

    def _filled(self, planned: Planned, *, without: Sequence[str]) -> Planned:
        entry = self._catalogue.get(planned.id)
        assert entry is not None, "an unknown intervention was refused before"
        option = entry.dose(planned.dose_option)
        assert option is not None, "an unknown dose option was refused before"
        evidence = tuple(id_ for id_ in dict.fromkeys(planned.evidence_ids) if id_ not in without)
        return msgspec.structs.replace(
            planned, evidence_ids=evidence, title=entry.title, dose=option.text, cautions=entry.cautions
        )


def _converted(value: Any, type_: type[T]) -> T:
    if faults := list(faults_of(value, type_)):
        raise _refusal(faults)
    return msgspec.convert(value, type_)


def _refusal(faults: Sequence[Fault]) -> Unacceptable:
    lines = [f"- {fault}" for fault in faults[:_FAULTS_MAX]]
    if len(faults) > _FAULTS_MAX:
        lines.append(f"- and {len(faults) - _FAULTS_MAX} more")
    return Unacceptable("\n".join(["Your answer cannot be taken as it is:", *lines, _AGAIN]))


def _asked(questions: Questions) -> Accepted:
    different = tuple(dict.fromkeys(questions.questions))
    return Accepted(told=bytes(canonical({NEEDS_CLARIFICATION: {"questions": different}})))


def _tidied(value: Any) -> Any:
    """The same with texts without what cannot be stored, and without blank ends; a blank text is empty."""
    match value:
        case str():
            text = clean(value).text.strip()
            return "" if is_blank(text) else text
        case list():
            return [_tidied(inner) for inner in value]
        case dict():
            return {clean(key).text: _tidied(inner) for key, inner in value.items()}
        case _:
            return value
