"""What the model was asked: valid, exactly what the journal says, once, and never again without saying so first."""

from collections.abc import Iterator
from functools import lru_cache
from json import loads

from tests.support.oracle_case import NEVER, Case
from tests.support.oracle_evidence import Json, ModelCall, Violation
from tests.support.oracle_view import as_sent, chain_link
from tests.support.request_rules import violations


def judge_models(case: Case) -> Iterator[Violation]:
    for call in case.model_calls:
        yield from _body(case, call)
        yield from _repeats(case, call)
    yield from _requests(case)
    yield from _recoveries(case)


def _body(case: Case, call: ModelCall) -> Iterator[Violation]:
    refusals, link = _judged(call.body, after_pause=_follows_pause(case, call.body))
    for refusal in refusals:
        yield case.broken("request_invalid", f"call {call.call} of {call.life}: {refusal}")
    if link != call.link:
        yield case.broken("view", f"call {call.call} of {call.life} names link {call.link}, its messages have {link}")


@lru_cache(maxsize=64)
def _judged(body: bytes, *, after_pause: bool) -> tuple[tuple[str, ...], str]:
    """What a strict host would refuse in a request, and the last link of its messages; repeats are frequent."""
    request = loads(body)
    sent = as_sent(request) if b'"type":"attachment"' in body else request
    return tuple(map(str, violations(sent, after_pause=after_pause))), chain_link(request["messages"])


def _follows_pause(case: Case, body: bytes) -> bool:
    """Whether what the assistant said last is where a reply was paused."""
    if b'"role":"assistant"}],"' not in body:  # written without blanks, and with its keys in order
        return False
    said = loads(body)["messages"][-1]["content"]
    paused = (stored(call) for call in case.model_calls if call.stop_reason == "pause_turn")
    return any(not blocks or said[-len(blocks) :] == blocks for blocks in paused)


def _name(call: ModelCall) -> tuple[int, int, int]:
    turn, round_, place = map(int, call.call.split("-"))
    return turn, round_, place


def _repeats(case: Case, call: ModelCall) -> Iterator[Violation]:
    """A life that lost its lease without knowing may ask in vain; the holder never asks what was answered."""
    number, round_, place = _name(call)
    turn = case.story.turns.get(number)
    if turn is None:
        return
    if call.is_holder and case.durable(turn.replies.get(round_, 0)) < call.moment:
        yield case.broken("model_call_repeated", f"call {call.call} of {call.life} had been answered")
    excuses = [seq for seq in turn.excuses.get(round_, []) if case.durable(seq) < call.moment]
    if len(excuses) < place - 1:
        yield case.broken("attempt_unrecorded", f"call {call.call} of {call.life} began before its record")


def _requests(case: Case) -> Iterator[Violation]:
    """The model received what the journal names, and the journal holds what the model replied."""
    for request in case.story.requests:
        commit = case.commit_of(request.seq)
        life = commit.life if commit else ""
        calls = [call for call in case.model_calls if (call.call, call.life) == (request.call, life)]
        # An incarnation whose commit failed may have asked something else under the same name.
        calls = [call for call in calls if call.link == request.link and _is_preamble_of(call.body, request.body)]
        for call in calls:
            if call.body != request.body:
                yield case.broken("view", f"call {call.call} sent {call.body!r}, the journal says {request.body!r}")
        reply_seq = case.story.turns[request.turn].replies.get(request.round, 0)
        if not reply_seq or case.story.records[reply_seq - 1]["call"] != request.call:
            continue
        replies = [stored(call) for call in calls if call.blocks is not None]
        if case.story.records[reply_seq - 1]["blocks"] not in replies:
            yield case.broken("reply_differs", f"record {reply_seq} is not what the model replied to {request.call}")


def _is_preamble_of(body: bytes, other: bytes) -> bool:
    """Whether two requests differ in their messages at most."""
    if body == other:
        return True
    one, two = loads(body), loads(other)
    del one["messages"], two["messages"]
    return bool(one == two)


def stored(call: ModelCall) -> list[Json]:
    """A reply as it may be kept: nothing of a refusal, no blank text, no thought that nothing came of, and calls only
    where the reply stopped for them, each with an object as its input and an id of its own."""
    if call.stop_reason == "refusal":
        return []
    kept = []
    for place, block in enumerate(call.blocks or []):
        if block["type"] == "tool_use" and call.stop_reason == "tool_use":
            arguments = block["input"] if isinstance(block["input"], dict) else {}
            kept.append({**block, "id": f"call_{call.call}_{place}", "input": arguments})
        elif block["type"] == "thinking" or (block["type"] == "text" and block["text"].strip()):
            kept.append(block)
    if call.stop_reason != "pause_turn" and all(block["type"] == "thinking" for block in kept):
        return []
    return kept


def _recoveries(case: Case) -> Iterator[Violation]:
    """Whoever takes over unfinished work commits before it asks the model: a restart storm is no bill."""
    for grant in case.grants:
        if case.story.at_rest[case.head_at(grant.moment)]:
            continue
        until = next((other.moment for other in case.grants if other.moment > grant.moment), NEVER)
        asked = (call for call in case.model_calls if call.life == grant.life and grant.moment < call.moment < until)
        first = next(asked, None)
        if first is None:
            continue
        if not any(grant.moment < commit.moment < first.moment for commit in case.commits):
            yield case.broken("recovery_unrecorded", f"call {first.call} of {first.life} was asked before any record")
