"""What tools did to the world, by their own ledger, against what the journal says of it."""

from collections import defaultdict
from collections.abc import Iterator

from tests.support.oracle_case import Case
from tests.support.oracle_evidence import ToolStep, Violation
from tests.support.oracle_views_told import Call


def judge_effects(case: Case) -> Iterator[Violation]:
    steps = defaultdict[str, list[ToolStep]](list)
    for step in case.tool_steps:
        steps[step.call_id].append(step)
    for call_id, own in steps.items():
        call = case.story.calls.get(call_id)
        yield from _effects(case, call_id, call, own)
        if call is not None:
            yield from _repeats(case, call, own)
            yield from _results(case, call, own)
    for call in case.story.calls.values():
        if call.effect == "write" and call.outcome == "succeeded" and not _effect_of(steps[call.id]):
            yield case.broken("effect_invented", f"call {call.id} of {call.name} succeeded without an effect")
    yield from _keys(case)


def judge_reads(case: Case) -> Iterator[Violation]:
    """Of a sub-agent, whose tools only read, and which may end before what they returned is on record."""
    for call_id in sorted({step.call_id for step in case.tool_steps}):
        own = [step for step in case.tool_steps if step.call_id == call_id]
        call = case.story.calls.get(call_id)
        yield from _effects(case, call_id, call, own)
        if call is not None:
            yield from _repeats(case, call, own)
    yield from _keys(case)


def _effect_of(steps: list[ToolStep]) -> list[ToolStep]:
    return [step for step in steps if step.what == "effect"]


def _effects(case: Case, call_id: str, call: Call | None, steps: list[ToolStep]) -> Iterator[Violation]:
    """A write acts once, after its start is durable, and is never said not to have acted."""
    effects = _effect_of(steps)
    if len(effects) > 1:
        yield case.broken("effect_twice", f"call {call_id} of {effects[0].tool} took effect {len(effects)} times")
    for step in effects:
        if step.moment < case.durable(call.started_seq if call else 0):
            yield case.broken("write_before_started", f"call {call_id} of {step.tool} acted before its record")
    if effects and call is not None and call.finished_seq and call.outcome not in {"succeeded", "unknown"}:
        yield case.broken("effect_denied", f"call {call_id} of {call.name} took effect and ended as {call.outcome}")


def _repeats(case: Case, call: Call, steps: list[ToolStep]) -> Iterator[Violation]:
    """No call whose result is durable runs again; one that runs again after a crash says so first."""
    finished, started = case.durable(call.finished_seq), case.commit_of(call.started_seq)
    for step in steps:
        if step.what != "started" or not step.is_holder:
            continue
        if finished < step.moment:
            yield case.broken("tool_call_repeated", f"call {call.id} of {call.name} had its result")
        incarnation = case.incarnation_at(step.moment)
        if started is None or started.moment > step.moment or case.incarnation_at(started.moment) == incarnation:
            continue
        announced = (
            case.durable(seq) for name, seq in case.story.turns[call.turn].attempts.items() if name[0] == "run_tools"
        )
        if not any(moment < step.moment and case.incarnation_at(moment) == incarnation for moment in announced):
            yield case.broken("attempt_unrecorded", f"call {call.id} of {call.name} ran again before its record")


def _results(case: Case, call: Call, steps: list[ToolStep]) -> Iterator[Violation]:
    """What a tool returned to a life that then left in good order is in the journal, with the call or behind it."""
    for step in steps:
        if step.what != "returned" or not step.is_holder:
            continue
        if not case.left_in_order(case.incarnation_at(step.moment)):
            continue
        is_told = (call.outcome, call.text) == (step.outcome, step.text) or (call.outcome == step.outcome == "unknown")
        is_told_late = call.late_outcome == step.outcome
        # A retry that did not succeed says nothing of what came before it.
        started = case.commit_of(call.started_seq)
        if started and case.incarnation_at(started.moment) < case.incarnation_at(step.moment):
            is_told |= call.outcome == "unknown"
        is_read_cut = call.effect == "read" and call.outcome == "interrupted"
        if not (is_told or is_told_late or is_read_cut):
            fact = f"call {call.id} of {call.name} returned {step.outcome} to {step.life}, recorded: {call.outcome}"
            yield case.broken("result_lost", fact)


def _keys(case: Case) -> Iterator[Violation]:
    """One key names one call, in every attempt."""
    keys = defaultdict[str, set[str]](set)
    calls = defaultdict[str, set[str]](set)
    for step in case.tool_steps:
        keys[step.call_id].add(step.key)
        calls[step.key].add(step.call_id)
    for call in case.story.calls.values():
        if call.key:
            keys[call.id].add(call.key)
    for name, others in (*keys.items(), *calls.items()):
        if len(others) > 1:
            yield case.broken("key_changed", f"{name} goes with {sorted(others)}")
