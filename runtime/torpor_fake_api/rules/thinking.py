"""Thinking: which kinds a model knows, what they exclude, and that nobody touched what was thought."""

from collections.abc import Iterator
from typing import Any, Final

from torpor_fake_api.rules.case import THINKS, Case, blocks, is_int, is_one_of, is_text, of_type
from torpor_fake_api.rules.violation import Violation

BUDGET_MIN_TOKENS: Final = 1024


def thinking_violations(case: Case) -> Iterator[Violation]:
    """Rules V-60a to V-60g."""
    if "thinking" in case.body:
        yield from _mode(case)
    if case.thinks:
        yield from _exclusions(case)
    last = max((i for i, message in enumerate(case.messages) if message.get("role") == "assistant"), default=-1)
    for index, message in enumerate(case.messages):
        yield from _written(case, message, path=f"messages.{index}")
    if last >= 0 and (fact := case.witness.alteration(blocks(case.messages[last]))):
        text = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"
        yield Violation("V-60e", f"messages.{last}", f"{text}: {fact}")


def _mode(case: Case) -> Iterator[Violation]:
    thinking = case.body["thinking"]
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if not is_one_of(kind, {"enabled", "adaptive", "disabled", "between_tools"}):
        yield Violation("V-60a", "thinking.type", f"{kind!r} is not one of the expected tags")
        return
    if kind not in case.model.thinking:
        yield Violation("V-60a", "thinking.type", f"{kind!r} is not supported for this model")
    if kind == "enabled":
        yield from _budget(case, thinking.get("budget_tokens"))
        yield from _before_calls(case)


def _budget(case: Case, tokens: Any) -> Iterator[Violation]:
    limit = case.body.get("max_tokens")
    if not is_int(tokens) or tokens < BUDGET_MIN_TOKENS:
        yield Violation("V-60b", "thinking.budget_tokens", f"{tokens!r} is not at least {BUDGET_MIN_TOKENS}")
    elif is_int(limit) and tokens >= limit:
        yield Violation("V-60b", "max_tokens", "`max_tokens` must be greater than `thinking.budget_tokens`")


def _exclusions(case: Case) -> Iterator[Violation]:
    choice = case.body.get("tool_choice")
    if case.body.get("temperature", 1) != 1:
        yield Violation("V-60c", "temperature", "`temperature` may only be set to 1 when thinking is enabled")
    if isinstance(choice, dict) and is_one_of(choice.get("type"), {"any", "tool"}):
        yield Violation("V-60c", "tool_choice", "Thinking may not be enabled when tool_choice forces tool use")
    if case.is_prefilled and case.model.prefill:
        path = f"messages.{len(case.messages) - 1}"
        yield Violation("V-60c", path, "assistant message prefill may not be combined with thinking")


def _before_calls(case: Case) -> Iterator[Violation]:
    """A tool loop goes on only where it began with thinking."""
    if len(case.messages) < 2 or not of_type(case.messages[-1], "tool_result"):
        return
    began = blocks(case.messages[-2])[:1]
    if began and not is_one_of(began[0].get("type"), THINKS):
        path = f"messages.{len(case.messages) - 2}.content.0.type"
        fact = f"Expected `thinking` or `redacted_thinking`, but found `{began[0].get('type')}`"
        yield Violation("V-60f", path, fact)


def _written(case: Case, message: dict[str, Any], *, path: str) -> Iterator[Violation]:
    for index, block in enumerate(blocks(message)):
        kind, place = block.get("type"), f"{path}.content.{index}"
        if not is_one_of(kind, THINKS):
            continue
        if broken := _shape(block, place):
            yield broken
        elif fact := case.witness.forgery(block):
            field = "signature" if kind == "thinking" else "data"
            yield Violation("V-60d", place, f"Invalid `{field}` in `{kind}` block: {fact}")


def _shape(block: dict[str, Any], path: str) -> Violation | None:
    if block["type"] == "redacted_thinking":
        return None if is_text(block.get("data")) else Violation("V-60d", f"{path}.data", "Field required")
    if not isinstance(block.get("thinking"), str):
        return Violation("V-60d", f"{path}.thinking", "Field required")
    if is_text(block.get("signature")):
        return None
    if not block["thinking"]:
        return Violation("V-60g", f"{path}.thinking", "each thinking block must contain thinking")
    return Violation("V-60d", f"{path}.signature", "Field required")
