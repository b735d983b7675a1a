"""The fields around the conversation: what is required, what is known, limits, sampling, the system prompt."""

import json
from collections.abc import Iterator
from typing import Any, Final

from torpor_fake_api.rules.case import TEXT_FIELDS, Case, is_int, is_number, is_one_of, is_text, unknown_fields
from torpor_fake_api.rules.violation import Violation

BODY_MAX_BYTES: Final = 32 * 1024 * 1024

_COUNTED: Final = frozenset({"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"})
_COUNTED_TOO: Final = _COUNTED | {"cache_control"}
_SAMPLED: Final = frozenset({"temperature", "top_p", "top_k", "stop_sequences"})
_REPLIED: Final = _COUNTED_TOO | _SAMPLED | {"max_tokens", "stream", "metadata", "service_tier"}
_WIDE: Final = frozenset({"speed", "user_profile_id", "context_management", "mcp_servers"})
_WIDE_REPLIED: Final = _WIDE | {"container", "diagnostics", "inference_geo"}


def envelope_violations(case: Case) -> Iterator[Violation]:
    """Rules V-01 to V-11 as far as the decoded body shows them."""
    body = case.body
    yield from unknown_fields(body, _known(case))
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Violation("V-03", "model", "Field required")
    if not case.counts_only:
        yield from _max_tokens(case)
    yield from _sampling(case)
    yield from _stop_sequences(body.get("stop_sequences", []))
    yield from _surrogates(body)
    if (_size_bytes(body) if case.size_bytes is None else case.size_bytes) > BODY_MAX_BYTES:
        yield Violation("V-11", "", "Request exceeds the maximum size")
    yield from _system(case)


def _size_bytes(body: dict[str, Any]) -> int:
    return len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _known(case: Case) -> frozenset[str]:
    if case.counts_only:
        return _COUNTED_TOO if case.profile.is_narrow else _COUNTED_TOO | _WIDE
    return _REPLIED if case.profile.is_narrow else _REPLIED | _WIDE_REPLIED


def _max_tokens(case: Case) -> Iterator[Violation]:
    limit, most = case.body.get("max_tokens"), case.model.max_output_tokens
    if "max_tokens" not in case.body:
        yield Violation("V-03", "max_tokens", "Field required")
    elif not is_int(limit) or limit < 0:
        yield Violation("V-05", "max_tokens", f"{limit!r} is not a positive integer")
    elif limit > most:
        fact = f"{limit} > {most}, which is the maximum allowed number of output tokens for {case.model.id}"
        yield Violation("V-05", "max_tokens", fact)
    elif limit == 0:
        yield from _prewarming(case)


def _prewarming(case: Case) -> Iterator[Violation]:
    """With max_tokens 0 a request only fills the cache, so it must ask for nothing that needs a reply."""
    thinking, choice = case.body.get("thinking"), case.body.get("tool_choice")
    clashes = {
        "stream": case.body.get("stream") is True,
        "thinking": isinstance(thinking, dict) and thinking.get("type") == "enabled",
        "output_config.format": case.wants_format,
        "tool_choice": isinstance(choice, dict) and is_one_of(choice.get("type"), {"any", "tool"}),
    }
    for path in (path for path, is_given in clashes.items() if is_given):
        yield Violation("V-06", path, "may not be combined with max_tokens: 0")


def _sampling(case: Case) -> Iterator[Violation]:
    body, allowed = case.body, case.model.sampling
    given = [name for name in ("temperature", "top_p", "top_k") if name in body]
    for name in ("temperature", "top_p"):
        value = body.get(name, 1.0)
        if not is_number(value) or not 0 <= value <= 1:
            yield Violation("V-08", name, f"{value!r} is not within 0 and 1")
    if allowed == "none":
        for name in given:
            yield Violation("V-08", name, "is not supported on this model")
    elif allowed == "one" and {"temperature", "top_p"} <= set(given):
        yield Violation("V-08", "top_p", "`temperature` and `top_p` cannot both be specified for this model")


def _stop_sequences(sequences: Any) -> Iterator[Violation]:
    if not isinstance(sequences, list):
        yield Violation("V-09", "stop_sequences", "Input should be a valid list")
        return
    for index, sequence in enumerate(sequences):
        if not is_text(sequence):
            yield Violation("V-09", f"stop_sequences.{index}", "each stop sequence must contain non-whitespace")


def _surrogates(value: Any, path: str = "") -> Iterator[Violation]:
    """Strings that no UTF-8 holds, keys included."""
    match value:
        case str():
            if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
                yield Violation("V-01", "", f"request body is not valid JSON: no low surrogate in string{path}")
        case dict():
            for key, inner in value.items():
                yield from _surrogates(key, f"{path} in {key!a}")
                yield from _surrogates(inner, f"{path} in {key!a}")
        case list():
            for index, inner in enumerate(value):
                yield from _surrogates(inner, f"{path} in {index}")


def _system(case: Case) -> Iterator[Violation]:
    if "system" not in case.body:
        return
    match case.body["system"]:
        case str() as text:
            if not text.strip():
                yield Violation("V-10", "system", "text content blocks must contain non-whitespace text")
        case list() as blocks:
            for index, block in enumerate(blocks):
                yield from _system_block(block, f"system.{index}")
        case _:
            yield Violation("V-10", "system", "Input should be a string or a list of text blocks")


def _system_block(block: Any, path: str) -> Iterator[Violation]:
    if not isinstance(block, dict) or block.get("type") != "text":
        yield Violation("V-10", path, "Input should be a text block")
    elif not is_text(block.get("text")):
        yield Violation("V-10", path, "text content blocks must contain non-whitespace text")
    else:
        yield from unknown_fields(block, TEXT_FIELDS, path=path)
