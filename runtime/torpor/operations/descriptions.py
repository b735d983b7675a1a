"""One record -> what it says: a line for people, the same as facts for machines, and apart from both the content; pure.

One function for each kind of record. The line and the facts never hold what a person, the model or a tool said.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Final

import msgspec

from torpor.operations.counted import counted
from torpor.provider_errors import NOT_ASKED
from torpor.records.attachments import Attachment, attachment_of, is_marker, told_of
from torpor.records.blocks import Block, head_of
from torpor.records.journal import (
    AttemptStarted,
    CompactionFailed,
    ContextChanged,
    ContextReplaced,
    ConversationArchived,
    ConversationCreated,
    ConversationForked,
    ConversationRenamed,
    ConversationUnarchived,
    FlagsPinned,
    FlagsReturned,
    JournalRecord,
    LateResult,
    LiveContextFailed,
    LiveContextOrdered,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    PreambleReturned,
    Record,
    SkillLoaded,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import FoldReason, Outcome, Usage, WhenBusy

Facts = dict[str, Any]
Description = tuple[str, Facts, str]
"""Summary, facts, content."""
_BLOB_CHARS: Final = 12
"""Of the name of a file in a line: a conversation hardly has two that begin alike."""


def _created(record: ConversationCreated) -> Description:
    facts: Facts = {"agent": record.agent}
    if record.budget is not None:
        facts["budget"] = msgspec.to_builtins(record.budget)
    return f"conversation created for agent {record.agent!r}", facts, record.title


def _renamed(record: ConversationRenamed) -> Description:
    what = "renamed" if record.title else "title taken away"
    return f"conversation {what} by {record.principal!r}", {"principal": record.principal}, record.title


def _archived(record: ConversationArchived) -> Description:
    return f"conversation archived by {record.principal!r}", {"principal": record.principal}, ""


def _unarchived(record: ConversationUnarchived) -> Description:
    return f"conversation listed again by {record.principal!r}", {"principal": record.principal}, ""


def _forked(record: ConversationForked) -> Description:
    messages = list(record.messages)
    facts: Facts = {
        "source": record.source,
        "before": record.before,
        "messages": messages,
        "principal": record.principal,
    }
    without = f", without {', '.join(map(repr, messages))}" if messages else ""
    what = f"forked by {record.principal!r} from {record.source!r} before message {record.before!r}{without}"
    return what, facts, ""


def _received(record: MessageReceived) -> Description:
    content = _said(record.blocks)
    size = _size_bytes(content)
    facts: Facts = {
        "message_id": record.message_id,
        "principal": record.principal,
        "when_busy": record.when_busy.value,
        "size_bytes": size,
        "cleaned": record.cleaned,
        "lookback": record.lookback,
        "attachments": [_attachment(each) for each in _attachments(record)],
    }
    cleaned = f", {record.cleaned} characters replaced" if record.cleaned else ""
    back = f", looks back {record.lookback}" if record.lookback else ""
    busy = f", {record.when_busy.value} when busy" if record.when_busy is not WhenBusy.QUEUE else ""
    return (
        f"message {record.message_id!r} from {record.principal!r} ({size} bytes{busy}{back}{cleaned}){_with(record)}",
        facts,
        content,
    )


def _attachments(record: MessageReceived) -> list[Attachment]:
    return [attachment_of(block) for block in map(bytes, record.blocks) if is_marker(block)]


def _attachment(attachment: Attachment) -> Facts:
    """Without its name, which a person gave it: that is content."""
    facts: Facts = {name: getattr(attachment, name) for name in ("blob", "media_type", "size_bytes", "tokens", "pages")}
    return facts


def _with(record: MessageReceived) -> str:
    if not (found := _attachments(record)):
        return ""
    told = ", ".join(f"{each.media_type} {each.blob[:_BLOB_CHARS]}" for each in found)
    return f", with {_count(found, 'attachment')}: {told}"


def _retracted(record: MessageRetracted) -> Description:
    messages = list(record.messages)
    which = f"turn {record.turn} taken out of the view with it" if record.turn else "before a turn took it"
    told = ", the model is told what was executed" if record.note else ""
    summary = f"{', '.join(map(repr, messages))} retracted by {record.principal!r}, {which}{told}"
    return summary, {"messages": messages, "principal": record.principal}, _said(record.note)


def _preamble(record: PreambleChanged) -> Description:
    body = msgspec.json.decode(record.body, type=_PreambleBody)
    tools = [tool.name for tool in body.tools]
    facts: Facts = {"digest": record.digest, "model": body.model, "tools": tools}
    return f"preamble {record.digest[:12]}: model {body.model!r}, {_count(tools, 'tool')}", facts, ""


def _preamble_returned(record: PreambleReturned) -> Description:
    return f"preamble {record.digest[:12]} again", {"digest": record.digest}, ""


def _context_changed(record: ContextChanged) -> Description:
    content = msgspec.json.encode(record.context).decode()
    told = msgspec.to_builtins(record.context)
    size = _size_bytes(content)
    facts: Facts = {
        "version": record.version,
        "principal": record.principal,
        "parts": sorted(told),
        "size_bytes": size,
    }
    parts = ", ".join(sorted(told)) or "nothing"
    return f"context version {record.version} from {record.principal!r}: {parts} ({size} bytes)", facts, content


def _flags_pinned(record: FlagsPinned) -> Description:
    off = [decision.key for decision in record.decisions if not decision.value]
    facts: Facts = {"digest": record.digest, "decisions": msgspec.to_builtins(record.decisions)}
    which = f": {', '.join(off)}" if off else ""
    return f"flags pinned, {len(off)} of {len(record.decisions)} off{which}", facts, ""


def _flags_returned(record: FlagsReturned) -> Description:
    return f"flags {record.digest} pinned again", {"digest": record.digest}, ""


def _prepared(record: TurnPrepared) -> Description:
    messages = list(record.messages)
    facts: Facts = {
        "messages": messages,
        "sections": record.sections,
        "labels": list(record.labels),
        "withheld": list(record.withheld),
        "policies": list(record.policies),
        "lookback": list(record.lookback),
        "cut": list(record.cut),
    }
    tokens = ", ".join(f"{section} {tokens} tokens" for section, tokens in record.sections.items())
    beside = f", beside them {tokens}" if tokens else ""
    policies = f", policies {', '.join(_with_times(record.policies))}" if record.policies else ""
    withheld = f", {', '.join(record.withheld)} withheld" if record.withheld else ""
    cut = f", less of {', '.join(record.cut)} for want of room" if record.cut else ""
    summary = f"turn begun with {', '.join(map(repr, messages))}{beside}{_quoted(record)}{policies}{withheld}{cut}"
    return summary, facts, _said((*record.signal, *record.turn_only))


def _quoted(record: TurnPrepared) -> str:
    if "lookback" not in record.sections:
        return ""
    return f", turns {', '.join(map(str, record.lookback))} quoted" if record.lookback else ", no room to quote a turn"


def _with_times(names: Iterable[str]) -> Iterator[str]:
    """Each name once, with how often it is there."""
    for name, times in Counter(names).items():
        yield f"{name} x{times}" if times > 1 else name


def _attempt(record: AttemptStarted) -> Description:
    facts: Facts = {"step": record.step.value, "round": record.round, "attempt": record.attempt}
    return f"attempt {record.attempt} at {record.step.value} of round {record.round}", facts, ""


def _requested(record: ModelRequested) -> Description:
    tokens = record.estimated_tokens or sum(record.sections.values())
    facts: Facts = {
        "call": record.call,
        "round": record.round,
        "purpose": record.purpose,
        "preamble": record.preamble,
        "link": record.link,
        "sections": record.sections,
        "joined": list(record.joined),
        "model": record.model,
        "estimated_tokens": tokens,
        "budget_tokens": record.budget_tokens,
        "over": list(record.over),
    }
    joined = f", joined by {', '.join(map(repr, record.joined))}" if record.joined else ""
    whom = f"model {record.model!r}" if record.model else "model"
    over = f", over its allotment of {', '.join(record.over)}" if record.over else ""
    return f"{whom} asked, round {record.round} (about {counted(tokens, 'token')}{joined}{over})", facts, ""


def _replied(record: ModelReplied) -> Description:
    heads = [head_of(block) for block in record.blocks]
    calls = [head.name for head in heads if head.type == "tool_use"]
    facts: Facts = {
        "call": record.call,
        "round": record.round,
        "stop_reason": record.stop_reason,
        "model": record.model,
        "tool_calls": calls,
        "usage": _usage(record.usage),
        "request_id": record.request_id,
        "unusable": sorted(record.unusable),
        "dropped": list(record.dropped),
    }
    asked = f", asks for {', '.join(calls)}" if calls else ""
    dropped = f", {', '.join(record.dropped)} left out" if record.dropped else ""
    return (
        f"model replied, {record.stop_reason}{asked}{dropped} ({_tokens(record.usage)})",
        facts,
        _said(record.blocks),
    )


def _model_failed(record: ModelFailed) -> Description:
    facts: Facts = {
        "call": record.call,
        "round": record.round,
        "code": record.code,
        "detail": record.detail,
        "retry_at_us": record.retry_at_us,
        "next_model": record.next_model,
    }
    pause_s = max(0, record.retry_at_us - record.at_us) / 1_000_000
    again = f", asked again in {pause_s:.3g} s" if record.retry_at_us else ""
    other = f" as model {record.next_model!r}" if record.next_model else ""
    what = "files not read" if record.code in NOT_ASKED else "model failed"
    return f"{what}, {record.code}: {record.detail}{again}{other}", facts, ""


def _tool_started(record: ToolStarted) -> Description:
    facts: Facts = {
        "call_id": record.call_id,
        "name": record.name,
        "effect": record.effect.value,
        "idempotency_key": record.idempotency_key,
    }
    return f"tool {record.name} started ({record.effect.value})", facts, ""


def _tool_finished(record: ToolFinished) -> Description:
    content = _said((record.block,))
    size = _size_bytes(content)
    facts: Facts = {
        "call_id": record.call_id,
        "name": record.name,
        "outcome": record.outcome.value,
        "size_bytes": size,
        "handle": record.handle,
        "cleaned": record.cleaned,
    }
    cut = ", cut to fit" if record.handle else ""
    return f"tool {record.name} {_OUTCOMES[record.outcome]} ({size} bytes{cut})", facts, content


def _context_replaced(record: ContextReplaced) -> Description:
    told = (record.head, record.shortened.values(), record.withdrawn.values())
    content = "\n".join(filter(None, map(_said, told)))
    facts: Facts = {
        "reason": record.reason.value,
        "generation": record.generation,
        "kept_from": record.kept_from,
        "link": record.link,
        "turns": list(record.turns),
        "seqs": list(record.seqs),
        "open_items": [item.id for item in record.items],
        "closed_items": [closing.id for closing in record.closed],
        "left_out": record.left_out,
        "left_out_turns": list(record.left_out_turns),
        "skills": list(record.skills),
        "forgotten": list(record.forgotten),
        "shortened": list(record.shortened),
        "withdrawn": list(record.withdrawn),
        "why": record.why,
        "before_tokens": record.before_tokens,
        "after_tokens": record.after_tokens,
        "is_without_tool": record.is_without_tool,
        "usage": _usage(record.usage),
        "model": record.model,
        "calls": record.calls,
    }
    if record.reason is FoldReason.SHORTENED:
        what = f"{_count(record.shortened, 'long result')} shortened"
    elif record.reason is FoldReason.WITHDRAWN:
        what = f"{_count(record.withdrawn, 'attachment')} withdrawn, {record.why}"
    else:
        what = f"turns {record.turns[0]} to {record.turns[1]} folded, {_FOLDS[record.reason]}"
        what += f", generation {record.generation}, {_count(record.items, 'open item')}"
    if record.is_without_tool:
        what += ", no room for read_earlier yet"
    return f"{what} (about {record.before_tokens} tokens before, {record.after_tokens} after)", facts, content


def _compaction_failed(record: CompactionFailed) -> Description:
    facts: Facts = {
        "code": record.code,
        "detail": record.detail,
        "usage": _usage(record.usage),
        "calls": record.calls,
        "left_alone_until_us": record.left_alone_until_us,
    }
    pause_s = max(0, record.left_alone_until_us - record.at_us) / 1_000_000
    again = f"; the summariser is left alone for {pause_s:.3g} s" if record.left_alone_until_us else ""
    return f"no summary, {record.code}: {record.detail}{again}", facts, ""


def _live_ordered(record: LiveContextOrdered) -> Description:
    facts: Facts = {"job": record.job, "reason": record.reason.value, "messages": record.messages}
    said = _count(range(record.messages), "message")
    return f"live context ordered by {record.reason.value} as {record.job} (after {said})", facts, ""


def _live_replaced(record: LiveContextReplaced) -> Description:
    words = record.words.split()
    facts: Facts = {
        "job": record.job,
        "words": len(words),
        "messages": record.messages,
        "usage": _usage(record.usage),
        "model": record.model,
    }
    return f"live context replaced by {record.job} ({_count(words, 'word')})", facts, record.words


def _live_failed(record: LiveContextFailed) -> Description:
    facts: Facts = {"job": record.job, "code": record.code, "detail": record.detail, "usage": _usage(record.usage)}
    return f"no live context by {record.job}, {record.code}: {record.detail}", facts, ""


def _skill_loaded(record: SkillLoaded) -> Description:
    facts: Facts = {
        "call_id": record.call_id,
        "skill": record.skill,
        "digest": record.digest,
        "allowed_tools": list(record.allowed_tools),
        "tokens": record.tokens,
    }
    return f"skill {record.skill} loaded (about {counted(record.tokens, 'token')})", facts, ""


def _subagent_started(record: SubagentStarted) -> Description:
    facts: Facts = {
        "call_id": record.call_id,
        "name": record.name,
        "child": record.child,
        "told_as": record.told_as.value,
    }
    return f"sub-agent {record.name} started as {record.child}", facts, ""


def _subagent_finished(record: SubagentFinished) -> Description:
    facts: Facts = {
        "call_id": record.call_id,
        "name": record.name,
        "child": record.child,
        "outcome": record.outcome.value,
        "code": record.code,
        "rounds": record.rounds,
        "usage": _usage(record.usage),
        "bundle": record.bundle,
        "findings": record.findings,
        "dropped": len(record.dropped),
        "child_seq": record.child_seq,
        "link": record.link,
        "told_as": record.told_as.value,
    }
    if record.code and record.outcome is Outcome.SUCCEEDED:
        how = f" with what it had when its {_BUDGETS.get(record.code, record.code)}"
    else:
        how = f", {record.code}" if record.code else ""
    work = f"{_count(range(record.rounds), 'model call')} of its own, {_tokens(record.usage)} in all"
    work += f", {_count(range(record.findings), 'finding')}"
    if record.dropped:
        work += f", {_count(record.dropped, 'unknown id')} dropped"
    what = f"sub-agent {record.name} as {record.child} {_OUTCOMES[record.outcome]}{how} ({work})"
    return what, facts, "\n".join(record.dropped)


def _late_result(record: LateResult) -> Description:
    facts: Facts = {
        "call_id": record.call_id,
        "name": record.name,
        "of_turn": record.of_turn,
        "outcome": record.outcome.value,
    }
    return (
        f"tool {record.name} of turn {record.of_turn} {_OUTCOMES[record.outcome]} after all",
        facts,
        _said((record.note,)),
    )


def _turn_finished(record: TurnFinished) -> Description:
    return "turn finished", {}, ""


def _turn_cancelled(record: TurnCancelled) -> Description:
    return f"turn cancelled by {record.reason}", {"reason": record.reason}, _said(record.partial)


def _turn_failed(record: TurnFailed) -> Description:
    facts: Facts = {
        "code": record.code,
        "detail": record.detail,
        "offers": [offer.value for offer in record.offers],
    }
    return f"turn failed, {record.code}: {record.detail}", facts, _said(record.partial)


def _turn_refused(record: TurnRefused) -> Description:
    return f"turn refused and taken out of the view: {record.detail}", {"detail": record.detail}, ""


class _Named(msgspec.Struct, frozen=True):
    name: str


class _PreambleBody(msgspec.Struct, frozen=True):
    model: str = ""
    tools: tuple[_Named, ...] = ()


class _ResultBlock(msgspec.Struct, frozen=True):
    content: Any = ""


def _tokens(usage: Usage) -> str:
    read = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    cached = f", {usage.cache_read_input_tokens} of them cached" if usage.cache_read_input_tokens else ""
    return f"{read} tokens in{cached}, {usage.output_tokens} out"


def _usage(usage: Usage) -> Facts:
    return {field: getattr(usage, field) for field in Usage.__struct_fields__}


def _count(things: Sized, noun: str) -> str:
    return counted(len(things), noun)


def _size_bytes(content: str) -> int:
    return len(content.encode())


def _said(blocks: Iterable[Block]) -> str:
    """Texts, calls with their arguments, and results, one below the other."""
    return "\n".join(filter(None, map(_said_by, blocks)))


def _said_by(block: Block) -> str:
    head = head_of(block)
    match head.type:
        case "text":
            return head.text
        case "tool_use":
            return f"{head.name} {bytes(head.input).decode()}"
        case "tool_result":
            content = msgspec.json.decode(block, type=_ResultBlock).content
            return content if isinstance(content, str) else msgspec.json.encode(content).decode()
        case "attachment":
            return f"(attached {told_of(attachment_of(block))})"
        case _:
            return f"({head.type})"


def describe(record: JournalRecord) -> Description:
    """See the module docstring; empty content for a record in which nothing was said."""
    return _DESCRIPTIONS[type(record)](record)


_BUDGETS: Final = {
    **{budget: f"{budget} were used up" for budget in ("steps", "tokens", "seconds")},
    "context_too_long": "window was full",
    "output_limit": "reply was cut off",
}
"""By the code of a sub-agent that gave what it had."""
_OUTCOMES: Final = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.DENIED: "was denied",
    Outcome.NEVER_STARTED: "was never started",
    Outcome.INTERRUPTED: "was interrupted",
    Outcome.UNKNOWN: "ended with its outcome unknown",
}

_FOLDS: Final = {
    FoldReason.SUMMARY: "by the summariser",
    FoldReason.MECHANICAL: "without a model",
    FoldReason.EVERYTHING: "without a model, all but the running turn",
}

_DESCRIPTIONS: Final[dict[type[Record], Callable[[Any], Description]]] = {
    ConversationCreated: _created,
    ConversationRenamed: _renamed,
    ConversationArchived: _archived,
    ConversationUnarchived: _unarchived,
    ConversationForked: _forked,
    MessageReceived: _received,
    MessageRetracted: _retracted,
    ContextChanged: _context_changed,
    FlagsPinned: _flags_pinned,
    FlagsReturned: _flags_returned,
    PreambleChanged: _preamble,
    PreambleReturned: _preamble_returned,
    TurnPrepared: _prepared,
    AttemptStarted: _attempt,
    ModelRequested: _requested,
    ModelReplied: _replied,
    ModelFailed: _model_failed,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    ContextReplaced: _context_replaced,
    CompactionFailed: _compaction_failed,
    LiveContextOrdered: _live_ordered,
    LiveContextReplaced: _live_replaced,
    LiveContextFailed: _live_failed,
    SkillLoaded: _skill_loaded,
    SubagentStarted: _subagent_started,
    SubagentFinished: _subagent_finished,
    LateResult: _late_result,
    TurnFinished: _turn_finished,
    TurnCancelled: _turn_cancelled,
    TurnFailed: _turn_failed,
    TurnRefused: _turn_refused,
}
