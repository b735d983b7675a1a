"""Every tool call answered once, directly after it, before anything else is said."""

from collections import Counter
from collections.abc import Iterator

from torpor_fake_api.rules.case import Case, dicts, of_type
from torpor_fake_api.rules.violation import Violation


def pair_violations(case: Case) -> Iterator[Violation]:
    """Rules V-40 to V-44."""
    yield from _twice_used(case)
    asked: set[str] = set()
    for index, message in enumerate(case.messages):
        path = f"messages.{index}"
        results = [str(block.get("tool_use_id")) for block in of_type(message, "tool_result")]
        for call_id in (call_id for call_id, count in Counter(results).items() if count > 1):
            fact = "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
            yield Violation("V-43", path, f"{fact}: {call_id}")
        if missing := sorted(asked - set(results)):
            yield _unanswered(f"messages.{index - 1}", missing)
        if strays := sorted(set(results) - asked):
            fact = "unexpected `tool_use_id` found in `tool_result` blocks"
            yield Violation("V-41", path, f"{fact}: {', '.join(strays)}")
        is_result = [block.get("type") == "tool_result" for block in dicts(message.get("content"))]
        if is_result != sorted(is_result, reverse=True):
            yield Violation("V-42", path, "`tool_result` blocks must come before any other content")
        asked = {str(block.get("id")) for block in of_type(message, "tool_use")}
    if asked:
        yield _unanswered(f"messages.{len(case.messages) - 1}", sorted(asked))


def _unanswered(path: str, call_ids: list[str]) -> Violation:
    fact = "`tool_use` ids were found without `tool_result` blocks immediately after"
    return Violation("V-40", path, f"{fact}: {', '.join(call_ids)}")


def _twice_used(case: Case) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, message in enumerate(case.messages):
        for block in of_type(message, "tool_use"):
            call_id = str(block.get("id"))
            if call_id in seen:
                yield Violation("V-44", f"messages.{index}", f"`tool_use` ids must be unique, {call_id!r} is not")
            seen.add(call_id)
