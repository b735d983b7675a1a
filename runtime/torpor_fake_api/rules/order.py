"""Who speaks when: the first message, alternation, system messages, and how the conversation may end."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from torpor_fake_api.rules.case import Case, blocks, is_one_of, is_text
from torpor_fake_api.rules.violation import Violation

MESSAGES_MAX: Final = 100_000


def order_violations(case: Case) -> Iterator[Violation]:
    """Rules V-07 and V-20 to V-25."""
    given = case.body.get("messages")
    if "messages" not in case.body:
        yield Violation("V-03", "messages", "Field required")
        return
    if not isinstance(given, list) or any(not isinstance(message, dict) for message in given):
        yield Violation("V-07", "messages", "Input should be a list of objects")
    elif not given:
        yield Violation("V-07", "messages", "at least one message is required")
    elif len(given) > MESSAGES_MAX:
        yield Violation("V-07", "messages", f"{len(given)} messages > {MESSAGES_MAX}, which is the maximum")
    yield from _roles(case)
    if case.is_prefilled:
        yield from _prefill(case)


def _roles(case: Case) -> Iterator[Violation]:
    roles = [message.get("role") for message in case.messages]
    for index, role in enumerate(roles):
        if role == "system":
            yield from _system_message(case, index)
        elif not is_one_of(role, {"user", "assistant"}):
            yield Violation("V-22", f"messages.{index}.role", f"Input should be 'user' or 'assistant', got {role!r}")
    if case.profile.alternates:
        for index, (before, after) in enumerate(pairwise(roles), start=1):
            if before == after:
                fact = 'roles must alternate between "user" and "assistant"'
                yield Violation("V-21", f"messages.{index}.role", f"{fact}, but found multiple {after!r} in a row")
    if roles and roles[0] != "user":
        yield Violation("V-20", "messages.0.role", 'first message must use the "user" role')


def _system_message(case: Case, index: int) -> Iterator[Violation]:
    path, messages = f"messages.{index}", case.messages
    if not case.model.system_messages:
        yield Violation("V-22", f"{path}.role", "role 'system' is not supported on this model")
        return
    before = messages[index - 1] if index else {}
    ends_in_server_tool = any(str(block.get("type")).startswith("server_tool") for block in blocks(before)[-1:])
    if before.get("role") != "user" and not ends_in_server_tool:
        yield Violation("V-22", f"{path}.role", "a 'system' message must follow a 'user' message")
    if index + 1 < len(messages) and messages[index + 1].get("role") != "assistant":
        yield Violation("V-22", f"{path}.role", "a 'system' message must be last or be followed by 'assistant'")
    if any(block.get("type") != "text" for block in blocks(messages[index])):
        yield Violation("V-22", f"{path}.content", "a 'system' message holds text only")


def _prefill(case: Case) -> Iterator[Violation]:
    path, last = f"messages.{len(case.messages) - 1}", case.messages[-1]
    if not case.model.prefill:
        fact = "This model does not support assistant message prefill. The conversation must end with a user message."
        yield Violation("V-23", path, fact)
        return
    said = blocks(last)[-1:]
    if said and is_text(text := said[0].get("text")) and text != text.rstrip():
        yield Violation("V-24", path, "final assistant content cannot end with trailing whitespace")
    if case.body.get("tools"):
        yield Violation("V-24", path, "assistant message prefill may not be combined with tools")
