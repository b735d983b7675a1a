"""What clients were promised: receipts, answers, one order of events, nothing seen before it was durable."""

from collections import defaultdict
from collections.abc import Iterator

from tests.support.oracle_case import NEVER, Case
from tests.support.oracle_evidence import Command, Delta, Json, ModelCall, Violation
from tests.support.oracle_story import Turn

_NOTHING_RECORDED = frozenset({"busy", "rejected", "unknown_agent", "empty_message"})
"""Answers after which the message is in no journal."""


def judge_clients(case: Case) -> Iterator[Violation]:
    yield from _messages(case)
    yield from _answers(case)
    yield from _published(case)
    yield from _watches(case)
    yield from _numbers(case)
    yield from _deltas(case)


def _messages(case: Case) -> Iterator[Violation]:
    """Every acknowledged message is in the journal once, as sent, and answered by one ended turn."""
    attempts = defaultdict[str, list[Command]](list)
    for command in case.commands:
        if command.kind == "send":
            attempts[command.message_id].append(command)
    for id_, commands in attempts.items():
        yield from _message(case, id_, commands)
    for id_, record in case.story.received.items():
        if record["seq"] <= case.story.copied_seq:
            continue  # sent to the other conversation
        if id_ not in attempts:
            yield case.broken("message_invented", f"message {id_} was never sent")
        turns = case.story.taken.get(id_, [])
        if not turns and (case.gone or id_ in case.story.retracted):
            continue
        if len(turns) != 1:
            kind = "answered_twice" if turns else "unanswered_message"
            yield case.broken(kind, f"message {id_} of record {record['seq']} was taken by turns {turns}")
        elif not case.story.turns[turns[0]].end and not case.gone:
            yield case.broken("unanswered_message", f"turn {turns[0]} of message {id_} never ended")


def _message(case: Case, id_: str, commands: list[Command]) -> Iterator[Violation]:
    record = case.story.received.get(id_)
    receipts = [command for command in commands if command.answered and not command.error]
    if record is None:
        if receipts:
            yield case.broken("ack_lost", f"message {id_} was acknowledged and is in no journal")
        return
    if not receipts and all(command.answered and command.error in _NOTHING_RECORDED for command in commands):
        yield case.broken("refused_recorded", f"message {id_} was refused each time and is record {record['seq']}")
    if _said_in(record["blocks"]) != (commands[0].files, [commands[0].text]):
        yield case.broken("message_differs", f"message {id_} is not in record {record['seq']} as it was sent")
    for command in receipts:
        if command.value["event"] != record["event"]:
            yield case.broken("receipt", f"message {id_} is event {record['event']}, receipt: {command.value}")
        if command.value["position"] != (position := case.story.positions[id_]):
            yield case.broken("receipt", f"message {id_} had {position} ahead of it, receipt: {command.value}")
        if command.answered < case.durable(record["seq"]):
            yield case.broken("ack_before_commit", f"message {id_} was acknowledged before record {record['seq']}")
    if any(command.value != receipts[0].value for command in receipts):
        yield case.broken("receipt", f"resends of message {id_} got different receipts")


def _said_in(blocks: list[Json]) -> tuple[list[str], list[str]]:
    """The files of a message, and its texts."""
    files = [block["attachment"]["blob"] for block in blocks if block["type"] == "attachment"]
    return files, [block["text"] for block in blocks[len(files) :]]


def _answers(case: Case) -> Iterator[Violation]:
    """Every command of a process that lives on is answered in time; a cancel once the turn's end is durable."""
    for command in case.commands:
        yield from answered(case, command)
        what = f"{command.kind} {command.message_id} to {command.life} at {command.posted_s:.3f} s"
        if not command.answered and not command.is_lost:
            yield case.broken("no_answer", f"{what} was never answered")
        if (waited_s := command.waited_s - command.paused_s) > command.allowed_s:
            fact = f"{what} waited {waited_s:.3f} s, allowed are {command.allowed_s:.3f} s"
            yield case.broken("late_answer" if command.answered else "no_answer", fact)


def answered(case: Case, command: Command) -> Iterator[Violation]:
    """What an answer speaks of was durable when it was given."""
    if not command.answered or command.error:
        return
    what = f"{command.kind} to {command.life} at {command.posted_s:.3f} s"
    if command.kind == "cancel":
        turn = case.story.turns.get(command.value)
        if turn is None or case.durable(turn.end_seq) > command.answered:
            yield case.broken("cancel_without_end", f"{what} was answered before turn {command.value} had ended")
    if command.kind == "context":
        told = (
            record["seq"]
            for record in case.story.records
            if record["kind"] == "context_changed" and record["version"] == command.value
        )
        if not any(case.durable(seq) <= command.answered for seq in told):
            yield case.broken("ack_before_commit", f"{what} was answered before version {command.value} was durable")


def has_received(case: Case, command: Command) -> bool:
    """Whether this conversation gave the receipt."""
    receipt = case.journal.receipts.get(command.message_id, {})
    return all(receipt.get(field) == command.value[field] for field in ("event", "at_us"))


def _published(case: Case) -> Iterator[Violation]:
    """What is on the bus is in the journal, the same, and was there first."""
    for entry in case.published:
        record = entry.record
        if case.story.events.get(record["event"]) != record:
            yield case.broken("event_not_in_journal", f"{entry.life} published {record['kind']} as {record['event']}")
        elif entry.moment < case.durable(record["seq"]):
            yield case.broken("event_before_commit", f"{entry.life} published event {record['event']} too early")


def _watches(case: Case) -> Iterator[Violation]:
    """Each client sees each event once, in order, without a gap, as the journal has it."""
    for watch in case.watches:
        last = watch.start
        for moment, event in watch.seen:
            number = event["event"]
            if number != last + 1:
                yield case.broken("event_gap", f"client {watch.client} saw event {number} after {last}")
            last = number
            record = case.story.events.get(number)
            if record is None or event != event_of(record):
                yield case.broken("event_not_in_journal", f"client {watch.client} saw {event}, recorded: {record}")
            elif moment < case.durable(record["seq"]):
                yield case.broken("event_before_commit", f"client {watch.client} saw event {number} too early")
        if watch.is_last and not case.gone and last < max(case.story.events, default=0):
            yield case.broken("event_gap", f"client {watch.client} never saw what follows event {last}")


def _numbers(case: Case) -> Iterator[Violation]:
    """No event number ever stands for two contents, whoever saw them."""
    contents: dict[int, Json] = {number: event_of(record) for number, record in case.story.events.items()}
    seen = [event_of(entry.record) for entry in case.published]
    seen += [event for watch in case.watches for _, event in watch.seen]
    for event in seen:
        first = contents.setdefault(event["event"], event)
        if first != event:
            yield case.broken("event_number_reused", f"event {event['event']} is {first} and {event}")


def _deltas(case: Case) -> Iterator[Violation]:
    """No piece of a reply is shown before its request is durable; pieces follow one another."""
    durable = dict[tuple[str, str], int]()
    for request in case.story.requests:
        if (commit := case.commit_of(request.seq)) is not None:
            durable[commit.life, request.call] = commit.moment
    for delta in case.deltas:
        if delta.moment < durable.get((delta.life, delta.call), NEVER):
            yield case.broken("delta_before_commit", f"{delta.life} showed text of call {delta.call} too early")
        turn = case.story.turns.get(int(delta.call.partition("-")[0]))
        if turn is not None and _ended_by(case, turn.end_seq, delta):
            yield case.broken("delta_after_end", f"{delta.life} showed text of call {delta.call} after its turn")
    for record in case.story.records:
        if record["kind"] == "model_failed" and record.get("retry_at_us"):
            commit = case.commit_of(record["seq"])
            life = commit.life if commit else ""
            if any((delta.life, delta.call) == (life, record["call"]) for delta in case.deltas):
                yield case.broken(
                    "retried_after_text", f"call {record['call']} is asked again after some of it was shown"
                )
    for call in case.model_calls:
        yield from _said(case, call)
    for turn in case.story.turns.values():
        yield from _kept(case, turn)


def _ended_by(case: Case, end_seq: int, delta: Delta) -> bool:
    """Whether the life that shows a piece had ended the turn itself."""
    commit = case.commit_of(end_seq)
    return commit is not None and commit.life == delta.life and commit.moment < delta.moment


def _kept(case: Case, turn: Turn) -> Iterator[Violation]:
    """What a turn had said when it was cut is kept by whoever cut it."""
    if (commit := case.commit_of(turn.end_seq)) is None or not turn.cut_call:
        return
    incarnation = case.incarnation_at(commit.moment)
    shown = "".join(
        delta.text
        for delta in case.deltas
        if (delta.life, delta.call) == (commit.life, turn.cut_call) and case.incarnation_at(delta.moment) == incarnation
    )
    # Blank blocks are shown and not kept.
    if not "".join(turn.partial.split()).startswith("".join(shown.split())):
        yield case.broken("partial_lost", f"turn {turn.number} had said {shown!r}, kept is {turn.partial!r}")


def _said(case: Case, call: ModelCall) -> Iterator[Violation]:
    """The pieces shown of one call follow one another and are what the model said."""
    same = (other for other in case.model_calls if (other.life, other.call) == (call.life, call.call))
    until = next((other.moment for other in same if other.moment > call.moment), NEVER)
    shown = ""
    for delta in case.deltas:
        if (delta.life, delta.call) != (call.life, call.call) or not call.moment < delta.moment < until:
            continue
        if delta.offset != len(shown):
            yield case.broken("delta_gap", f"call {delta.call}: text at {delta.offset}, {len(shown)} were shown")
        shown += delta.text
    if call.blocks is not None and not _text_of(call.blocks).startswith(shown):
        yield case.broken("delta_differs", f"call {call.call}: {shown!r} was shown of {_text_of(call.blocks)!r}")


def event_of(record: Json) -> Json:
    """The public side of a record."""
    head = {key: record[key] for key in ("event", "at_us", "turn", "cause") if record.get(key)}
    kind = record["kind"]
    match kind:
        case "message_received":
            body = _only(record, "message_id", "principal", "cleaned") | {"text": _text_of(record["blocks"])}
            files = [block["attachment"] for block in record["blocks"] if block["type"] == "attachment"]
            body |= {"attachments": files} if files else {}
            head["cause"] = record["message_id"]
        case "turn_prepared":
            body = _only(record, "messages")
            head["cause"] = next(iter(record["messages"]), "")
        case "model_replied":
            calls = sum(block["type"] == "tool_use" for block in record["blocks"])
            body = _only(record, "call", "stop_reason") | {"text": _text_of(record["blocks"])}
            body |= {"tool_calls": calls} if calls else {}
        case "context_replaced":
            body = {"turns": [0, 0]} | _only(record, "reason", "generation", "turns")
        case "turn_cancelled":
            text = _text_of(record.get("partial", []))
            body = _only(record, "reason") | ({"text": text} if text else {})
        case "turn_failed":
            text = _text_of(record.get("partial", []))
            body = _only(record, "code", "detail", "offers") | ({"text": text} if text else {})
        case _:
            body = _only(record, *_FIELDS.get(kind, ()))
    type_ = str(_EVENT_TYPES.get(kind, kind))
    if "told_as" in record:
        type_ = type_.replace("subagent", record["told_as"])
    return {"type": type_, **head, **body}


_FIELDS = {
    "model_failed": ("call", "code", "detail", "retry_at_us", "next_model"),
    "tool_started": ("call_id", "name", "effect"),
    "tool_finished": ("call_id", "name", "outcome"),
    "context_changed": ("version", "context", "principal"),
    "compaction_failed": ("code", "detail"),
    "live_context_failed": ("code", "detail"),
    "live_context_replaced": ("words",),
    "skill_loaded": ("skill",),
    "subagent_started": ("call_id", "name"),
    "subagent_finished": ("call_id", "name", "outcome", "code", "rounds", "bundle", "findings"),
    "late_result": ("call_id", "name", "of_turn", "outcome"),
    "turn_refused": ("detail",),
    "message_retracted": ("messages", "principal"),
    "conversation_renamed": ("title", "principal"),
    "conversation_forked": ("source", "before", "messages", "principal"),
    "conversation_archived": ("principal",),
    "conversation_unarchived": ("principal",),
}
"""Of records whose events say the same of them."""
_EVENT_TYPES = {
    "message_received": "message.received",
    "message_retracted": "message.retracted",
    "conversation_renamed": "conversation.renamed",
    "conversation_archived": "conversation.archived",
    "conversation_unarchived": "conversation.unarchived",
    "conversation_forked": "conversation.forked",
    "turn_prepared": "turn.started",
    "model_replied": "reply.finished",
    "model_failed": "model.failed",
    "tool_started": "tool.started",
    "tool_finished": "tool.finished",
    "context_changed": "context.changed",
    "context_replaced": "context.replaced",
    "compaction_failed": "compaction.failed",
    "live_context_replaced": "live_context.replaced",
    "live_context_failed": "live_context.failed",
    "skill_loaded": "skill.loaded",
    "subagent_started": "subagent.started",
    "subagent_finished": "subagent.finished",
    "late_result": "tool.late",
    "turn_finished": "turn.finished",
    "turn_cancelled": "turn.cancelled",
    "turn_failed": "turn.failed",
    "turn_refused": "turn.refused",
}


def _only(record: Json, *fields: str) -> Json:
    return {field: record[field] for field in fields if field in record}


def _text_of(blocks: list[Json]) -> str:
    return "".join(block["text"] for block in blocks if block["type"] == "text")
