"""The policies side by side on one conversation: what each sent, and what every follow-up found in it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from bench.followups.conversations import Conversation, plain
from bench.followups.judge import Finding, finding
from bench.followups.policies import (
    Limits,
    NoCompaction,
    Policy,
    SlidingWindow,
    SummariseEverything,
    sent,
)
from bench.followups.spoken import Request, Spoken, spoken
from bench.followups.summarisers import Counted
from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.view import request_body
from torpor.records.journal import CompactionFailed, ContextReplaced, TurnFailed
from torpor.records.terms import FoldReason

Maker = Callable[[int], Counted]
"""Makes a summariser for one conversation. Args: tokens that a summary may have."""
OURS: Final = "torpor"
EVERYTHING: Final = "summarise everything"
SLIDING: Final = "sliding window"
NONE: Final = "no compaction"
RECENT_TURNS: Final = 2
"""What was said at most so many turns ago is *recent*: the engine promises to keep it."""
MARGIN_TOKENS: Final = 12
"""Below a request, so that the few bytes around the messages do not decide whether it is too much."""


class Cost(NamedTuple):
    """What a policy took in one conversation."""

    requests: int = 0
    tokens: int = 0
    """Of all requests."""
    fresh: int = 0
    """Of them, behind the longest common beginning with the request before: what no prompt cache can have."""
    unsent: int = 0
    """Requests for which nothing that fits could be sent."""
    calls: int = 0
    """Of the summariser."""
    summary_tokens: int = 0
    """Read and written by it."""
    folds: int = 0
    mechanical: int = 0
    """Folds among them that no summariser made."""
    failed: int = 0
    """Summaries that could not be used."""


class Outcome(NamedTuple):
    """One policy in one conversation."""

    policy: str
    cost: Cost
    findings: tuple[Finding, ...]
    bodies: tuple[bytes | None, ...]
    """The request of each finding."""


class Case(NamedTuple):
    """One conversation, one window, and the follow-ups that are judged."""

    conversation: Conversation
    whole: Spoken
    """With nothing folded."""
    limits: Limits
    places: tuple[int, ...]
    """Of the follow-ups before which more was said than the threshold: until then all policies do the same."""


Lines = Sequence[Sequence[Request | None]]
"""Of each line of a conversation, what was sent from its first turn on; None for what could not be."""


async def under_pressure(conversation: Conversation, *, pressure: float) -> Case:
    """Args: pressure: how many times the budget the whole conversation is."""
    whole = await spoken(conversation)
    limits = Limits.of(max(_tokens(request) for request in whole.requests), pressure=pressure)
    places = tuple(
        place
        for place, follow_up in enumerate(conversation.follow_ups)
        if _tokens(_asked(conversation, whole, follow_up.turn)) > limits.threshold
    )
    return Case(conversation, whole, limits, places)


async def at_the_worst_moment(conversation: Conversation) -> list[Case]:
    """For each follow-up on something recent, a window that its own request is the first to be too much for."""
    whole = await spoken(conversation)
    cases = []
    for place, follow_up in enumerate(conversation.follow_ups):
        if all(conversation.distance(follow_up, fact) <= RECENT_TURNS for fact in follow_up.needs):
            limits = Limits.folding_at(_tokens(_asked(conversation, whole, follow_up.turn)) - MARGIN_TOKENS)
            cases.append(Case(conversation, whole, limits, (place,)))
    return cases


async def compared(case: Case, *, makers: Mapping[str, Maker]) -> tuple[Outcome, ...]:
    """Every policy. Args: makers: of summarisers, by name."""
    outcomes = [await _ours(case, name=name, make=make) for name, make in makers.items()]
    for name, make in makers.items():
        summariser = make(case.limits.options.summary_tokens)
        policy = SummariseEverything(case.limits, summariser=summariser)
        lines = await _lines(policy, case.whole)
        cost = _cost(lines, case.whole)
        cost = cost._replace(
            folds=policy.folds.made,
            mechanical=policy.folds.mechanical,
            calls=summariser.calls,
            summary_tokens=summariser.tokens,
        )
        outcomes.append(_outcome(case, f"{EVERYTHING}, {name}", lines, cost))
    for name, plain_policy in ((SLIDING, SlidingWindow(case.limits)), (NONE, NoCompaction(case.limits))):
        lines = await _lines(plain_policy, case.whole)
        outcomes.append(_outcome(case, name, lines, _cost(lines, case.whole)))
    return tuple(outcomes)


async def _ours(case: Case, *, name: str, make: Maker) -> Outcome:
    """The engine itself, with a budget."""
    options = case.limits.options
    summariser = make(options.summary_tokens)
    said = await spoken(case.conversation, profile=case.limits.profile, summariser=summariser, compaction=options)
    folds = [record for record in said.records if isinstance(record, ContextReplaced)]
    lines = [line.requests for line in said.lines]
    cost = _cost(lines, said)._replace(
        unsent=sum(isinstance(record, TurnFailed) for record in said.records),
        calls=summariser.calls,
        summary_tokens=summariser.tokens,
        folds=len(folds),
        mechanical=sum(record.reason is not FoldReason.SUMMARY for record in folds),
        failed=sum(isinstance(record, CompactionFailed) for record in said.records),
    )
    return _outcome(case, f"{OURS}, {name}", lines, cost, said=said)


def _outcome(case: Case, policy: str, lines: Lines, cost: Cost, *, said: Spoken | None = None) -> Outcome:
    """What the follow-ups found. Args: said: where the model could read again what left the window."""
    findings, bodies = [], []
    for place in case.places:
        follow_up = case.conversation.follow_ups[place]
        line, turn = _where(case.conversation, follow_up.turn)
        request = _first_of(turn, lines[line])
        body = request.body if request is not None else None
        earlier = said.lines[line].earlier[: turn - 1] if said is not None else ()
        findings.append(finding(case.conversation, follow_up, body=body, journal=plain("\n".join(earlier))))
        bodies.append(body)
    return Outcome(policy, cost, tuple(findings), tuple(bodies))


def _tokens(request: Request) -> int:
    return tokens_of_bytes(len(request.body))


def _asked(conversation: Conversation, whole: Spoken, turn: int) -> Request:
    """The first request of a turn, with nothing folded."""
    line, turn = _where(conversation, turn)
    request = _first_of(turn, whole.lines[line].requests)
    assert request is not None, f"turn {turn} of {conversation.name} asked nothing"
    return request


def _where(conversation: Conversation, turn: int) -> tuple[int, int]:
    """In which line a turn is said, and as which turn of it."""
    if not conversation.common:
        return 0, turn
    return turn - conversation.common - 1, conversation.common + 1


def _first_of(turn: int, requests: Iterable[Request | None]) -> Request | None:
    return next((request for request in requests if request is not None and request.turn == turn), None)


async def _lines(policy: Policy, whole: Spoken) -> list[list[Request | None]]:
    lines = []
    for states in await sent(policy, whole):
        line = list[Request | None]()
        for state, view in states:
            assert state.turn is not None
            body = request_body(state.preamble, view) if view is not None else b""
            line.append(Request(state.turn.number, body) if body else None)
        lines.append(line)
    return lines


def _cost(lines: Lines, spoken_: Spoken) -> Cost:
    """Of the requests, each counted once."""
    common = len(spoken_.common.requests)
    tokens, fresh, unsent, count = 0, 0, 0, 0
    for number, line in enumerate(lines):
        before = b""
        for place, request in enumerate(line):
            is_counted = number == 0 or place >= common
            if request is None:
                unsent += is_counted
                continue
            if is_counted:
                count += 1
                tokens += tokens_of_bytes(len(request.body))
                fresh += tokens_of_bytes(len(request.body) - _same(before, request.body))
            before = request.body
    return Cost(requests=count, tokens=tokens, fresh=fresh, unsent=unsent)


def _same(one: bytes, other: bytes) -> int:
    """Length of their common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
