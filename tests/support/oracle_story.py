"""A journal retold from its JSON rows, simply and slowly: numbers, order, turns, calls and the model's view.

It shares nothing with the engine's fold: plain dictionaries in, and whatever does not add up comes out as a violation.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.support.oracle_children import Children
from tests.support.oracle_evidence import Journal, Json, Row, Violation
from tests.support.oracle_kinds import CODES_OF_FILES, FINAL, PUBLIC_KINDS
from tests.support.oracle_view import (
    View,
    canonical,
    chain_link,
    extended,
    files_in,
    messages_of,
    replaced,
    size_of,
    turns_in,
)
from tests.support.oracle_views_told import Call, Fold, Request, TooLong, Withdrawal


@dataclass(slots=True)
class Turn:
    """One turn."""

    number: int
    messages: list[str]
    begin_seq: int
    end_seq: int = 0
    end: str = ""
    replies: dict[int, int] = field(default_factory=dict)
    """Seq of the complete reply by round."""
    attempts: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Seq of each attempt that was announced, by step, round and number; those of a model call before it failed and
    was asked again do not count."""
    excuses: dict[int, list[int]] = field(default_factory=dict)
    """Seqs of what allowed one more model call in a round: an attempt, or a failure that is asked again."""
    folds_begun: int = 0
    """Attempts at the fold that is open."""
    fold_failures: int = 0
    """Of the summariser in this turn."""
    is_too_long: bool = False
    """Whether the host said so of its last request, and nothing was folded since."""
    too_long_round: int = 0
    """In which it said so last."""
    live: Json | None = None
    """The live context that its requests hold."""
    signal_bytes: int = 0
    """Of the context signal that it begins with."""
    failures: int = 0
    """Model calls that failed and are asked again."""
    refusals: int = 0
    """Likewise, without files that the host refused."""
    is_failing: bool = False
    """A model call failed for good, so nothing but the end of the turn may follow."""
    note: list[Json] = field(default_factory=list)
    """Said behind the reply of the open round."""
    stop_reason: str = ""
    base: View = ()
    """The view before the turn."""
    base_notes: list[Json] = field(default_factory=list)
    end_note: Json = field(default_factory=dict)
    """Of its end."""
    round: int = 0
    call: str = ""
    reply: list[Json] | None = None
    open_calls: list[str] = field(default_factory=list)
    """Of the open round, in the model's order, with or without a result."""
    cut_call: str = ""
    """The model call that the end of the turn left without a reply."""
    partial: str = ""
    """What was kept of it."""
    offered: frozenset[str] = frozenset()
    """Names of the tools that its requests offer."""
    is_interrupted: bool = False
    """A message asked to be next, so nothing new may begin."""


@dataclass(slots=True)
class _Waiting:
    id: str
    blocks: list[Json]
    when_busy: str


def records_of(rows: Iterable[Row]) -> list[Json]:
    """The records of all rows, in order."""
    return [record for row in rows for record in json.loads(row.records)]


class Story:
    """One conversation; reading it fills everything below."""

    def __init__(self, journal: Journal) -> None:
        self.conversation = journal.conversation
        self.records = records_of(journal.rows)
        self.violations: list[Violation] = []
        self.turns: dict[int, Turn] = {}
        self.calls: dict[str, Call] = {}
        self.requests: list[Request] = []
        self.received: dict[str, Json] = {}
        self.retracted: set[str] = set()
        """Messages that were taken back."""
        self.taken: dict[str, list[int]] = {}
        """Turns that took a message, by its id."""
        self.at_rest: list[bool] = [True]
        """After each record, by seq."""
        self.queue_max = 0
        """The most messages that ever waited."""
        self.positions: dict[str, int] = {}
        """How many turns and messages were ahead of each message."""
        self.events: dict[int, Json] = {}
        """Public records by event number."""
        self.is_archived = False
        self.copied_seq = 0
        """The last record that stood in another conversation."""
        self._queue: list[_Waiting] = []
        self._turn: Turn | None = None
        self._results: dict[str, Json] = {}
        self._notes: list[Json] = []
        self.children = Children()
        self.folds: list[Fold] = []
        self.withdrawals: list[Withdrawal] = []
        self.too_long: list[TooLong] = []
        self._view: View = ()
        self._preamble: Json = {}
        self._preambles: dict[str, Json] = {}
        self._lives: dict[int, Json] = {}
        """Blocks of live contexts by the seq of their record."""
        self._is_measured = True
        self._before: Json = {}
        """The record before this one."""
        self._check_rows(journal.rows)
        for record in self.records:
            self._read(record)

    @property
    def link(self) -> str:
        """The last one of the view as it is in the end."""
        return chain_link(messages_of(self._view))

    def _broken(self, kind: str, seq: int, fact: str) -> None:
        self.violations.append(Violation(kind, f"{self.conversation} record {seq}", fact))

    def _check_rows(self, rows: list[Row]) -> None:
        seq = event = 0
        for row in rows:
            records = json.loads(row.records)
            if row.first_seq != seq + 1 or len(records) != row.last_seq - row.first_seq + 1:
                self._broken("numbers", row.first_seq, f"row {row.first_seq}-{row.last_seq} follows {seq}")
            for record in records:
                seq += 1
                if record.get("seq", 0) != seq:
                    self._broken("numbers", seq, f"the record carries seq {record.get('seq', 0)}")
                is_public = record["kind"] in PUBLIC_KINDS
                event += is_public
                if record.get("event", 0) != (event if is_public else 0):
                    self._broken(
                        "numbers", seq, f"event {record.get('event', 0)}, expected {event if is_public else 0}"
                    )
            if row.last_event != event:
                self._broken("numbers", seq, f"the row says its last event is {row.last_event}, found {event}")

    def _read(self, record: Json) -> None:
        kind, seq = record["kind"], record.get("seq", 0)
        if record.get("event", 0):
            self.events[record["event"]] = record
        if (seq == 1) != (kind == "conversation_created"):
            self._broken("journal_order", seq, f"{kind} cannot stand here")
        handler = getattr(self, f"_{kind}", None)
        if handler is None:
            self._broken("journal_order", seq, f"kind {kind!r} is not known to the oracle")
        else:
            handler(record, seq)
        self._before = record
        self.at_rest.append(self._turn is None and not self._queue)

    def _conversation_archived(self, record: Json, seq: int) -> None:
        self._lists(record, seq, is_archived=True)

    def _conversation_unarchived(self, record: Json, seq: int) -> None:
        self._lists(record, seq, is_archived=False)

    def _conversation_forked(self, record: Json, seq: int) -> None:
        """What waited in the other conversation is no part of this one."""
        messages = record.get("messages", [])
        if self._turn is not None or messages != [other.id for other in self._queue]:
            self._broken("journal_order", seq, f"a fork without {messages}, while a turn runs or others wait")
        self.retracted.update(messages)
        self._queue, self.is_archived, self.copied_seq = [], False, seq - 1
        self.children = Children()

    def _lists(self, record: Json, seq: int, *, is_archived: bool) -> None:
        if is_archived is self.is_archived:
            self._broken("journal_order", seq, f"{record['kind']} of a conversation that is so already")
        self.is_archived = is_archived

    def _context_changed(self, record: Json, seq: int) -> None:
        pass  # what it means to later turns is judged elsewhere, and so it is with the others

    _conversation_created = _conversation_renamed = _flags_pinned = _flags_returned = _context_changed
    _live_context_ordered = _live_context_failed = _context_changed

    def _skill_loaded(self, record: Json, seq: int) -> None:
        self._running(record, seq)

    def _subagent_started(self, record: Json, seq: int) -> None:
        call = self.calls.get(record["call_id"])
        is_running = self._running(record, seq) is not None and call is not None and call.turn == record["turn"]
        is_running = is_running and bool(call and call.started_seq and not call.finished_seq)
        for kind, fact in self.children.started(record, is_running=is_running):
            self._broken(kind, seq, fact)

    def _subagent_finished(self, record: Json, seq: int) -> None:
        for kind, fact in self.children.finished(record):
            self._broken(kind, seq, fact)

    def _live_context_replaced(self, record: Json, seq: int) -> None:
        self._lives[seq] = record["block"]

    def _live_of(self, record: Json, seq: int) -> Json | None:
        """What the requests of a turn hold, by what its first record says."""
        named = record.get("live", 0)
        if named and named not in self._lives:
            self._broken("live_stale", seq, f"record {named} brought no live context")
        return self._lives.get(named)

    def _fixed(self, turn: Turn) -> Json:
        """What stands before the messages of its requests."""
        system = self._preamble.get("system", [])
        return {**self._preamble, "system": [*system, turn.live]} if turn.live is not None else self._preamble

    def _fold_begun(self, turn: Turn, record: Json, seq: int) -> None:
        if record["attempt"] != turn.folds_begun + 1:
            fact = f"attempt {record['attempt']} at a fold follows {turn.folds_begun}"
            self._broken("journal_order", seq, fact)
        turn.folds_begun = record["attempt"]
        turn.attempts["compact", len(self.folds) + turn.fold_failures, record["attempt"]] = seq

    def _context_replaced(self, record: Json, seq: int) -> None:
        if (turn := self._running(record, seq)) is None:
            return
        if record["reason"] == "withdrawn":
            self._files_withdrawn(turn, record, seq)
            return
        if not turn.folds_begun:
            self._broken("attempt_unrecorded", seq, "a fold that was never begun")
        kept_from = record["kept_from"]
        turns = turns_in(self._view)
        if kept_from not in turns:
            self._broken("fold_tail", seq, f"turn {kept_from} is to stay, in the view are {turns}")
            return
        self.folds.append(
            Fold(
                seq,
                turn.number,
                record,
                turns=turns,
                gone_bytes=size_of(said for said in self._view if said.turn < kept_from),
                last_seq=self.turns[kept_from].begin_seq - 1,
                is_measured=self._is_measured,
                before=self.folds[-1].record if self.folds else {},
            )
        )
        self._replaced(turn, record, seq)
        shorter = record.get("shortened", {})
        self._results |= {id_: block for id_, block in shorter.items() if id_ in turn.open_calls}
        turn.folds_begun, turn.is_too_long = 0, False

    def _files_withdrawn(self, turn: Turn, record: Json, seq: int) -> None:
        """Notes for files that cannot be sent: what failed for them is asked again, and nothing else changes."""
        files, why, failed = files_in(messages_of(self._view)), record["why"], self._before
        places = [int(place) for place in record["withdrawn"]]
        if not places or max(places) >= len(files):
            self._broken("journal_order", seq, f"files {places} are withdrawn, in the view are {len(files)}")
            return
        notes = list(record["withdrawn"].values())
        self.withdrawals.append(Withdrawal(seq, why, [files[place] for place in places], notes))
        if why in CODES_OF_FILES and (failed["kind"] != "model_failed" or failed["code"] not in CODES_OF_FILES[why]):
            self._broken("journal_order", seq, f"files are withdrawn as {why} behind {failed['kind']}")
        if failed["kind"] == "model_failed" and failed.get("retry_at_us"):
            turn.failures -= 1
            turn.refusals += why == "refused"
            if turn.refusals > 1:
                self._broken("unbounded", seq, f"turn {turn.number} is asked again though files were refused before")
        self._replaced(turn, record, seq)

    def _replaced(self, turn: Turn, record: Json, seq: int) -> None:
        self._view, turn.base = replaced(self._view, record), replaced(turn.base, record)
        if (link := chain_link(messages_of(self._view))) != record["link"]:
            self._broken("view", seq, f"the fold leaves link {link}, recorded {record['link']}")
        self._is_measured = False

    def _compaction_failed(self, record: Json, seq: int) -> None:
        if (turn := self._running(record, seq)) is not None:
            turn.folds_begun, turn.fold_failures = 0, turn.fold_failures + 1

    def _preamble_changed(self, record: Json, seq: int) -> None:
        digest = hashlib.sha256(canonical(record["body"])).hexdigest()
        if digest != record["digest"]:
            self._broken("digest", seq, f"the preamble's digest is {digest}, recorded {record['digest']}")
        self._preambles[record["digest"]] = record["body"]
        self._preamble_in_use(record, seq)

    def _preamble_returned(self, record: Json, seq: int) -> None:
        if record["digest"] not in self._preambles:
            self._broken("digest", seq, f"preamble {record['digest']} was never stored")
            return
        self._preamble_in_use(record, seq)

    def _preamble_in_use(self, record: Json, seq: int) -> None:
        follows_fold = self._before["kind"] == "context_replaced"
        if self._turn is not None and not follows_fold:
            self._broken("journal_order", seq, f"the preamble changes in turn {self._turn.number}")
        self._preamble = self._preambles[record["digest"]]
        if self._turn is not None:
            self._turn.offered |= {tool["name"] for tool in self._preamble.get("tools", ())}

    def _message_received(self, record: Json, seq: int) -> None:
        id_, when_busy = record["message_id"], record.get("when_busy", "queue")
        if id_ in self.received:
            self._broken("message_twice", seq, f"message {id_} was received before")
        if self.is_archived:
            self._broken("still_archived", seq, f"message {id_} was received, and the conversation stays put away")
        self.received[id_] = record
        waiting = _Waiting(id_, record["blocks"], when_busy)
        if when_busy == "interrupt":
            ahead = sum(other.when_busy == "interrupt" for other in self._queue)
            self._queue.insert(ahead, waiting)
        else:
            self._queue.append(waiting)
        if self._turn is not None:
            self._turn.is_interrupted |= when_busy == "interrupt"
        self.positions[id_] = self._queue.index(waiting) + (self._turn is not None)
        self.queue_max = max(self.queue_max, len(self._queue))

    def _message_retracted(self, record: Json, seq: int) -> None:
        """Messages that wait; or the last turn, while none runs, and then the view is what it was before."""
        messages, number = record["messages"], record.get("turn", 0)
        if again := self.retracted & set(messages):
            self._broken("message_twice", seq, f"messages {sorted(again)} were retracted before")
        self.retracted.update(messages)
        if not number:
            waiting = {other.id for other in self._queue}
            if not set(messages) <= waiting:
                self._broken("journal_order", seq, f"{messages} are retracted, waiting are {sorted(waiting)}")
            self._queue = [other for other in self._queue if other.id not in messages]
            return
        turn = self.turns.get(number)
        if self._turn is not None or turn is None or number != len(self.turns) or messages != turn.messages:
            fact = f"turn {number} of {messages} is retracted, the last is {len(self.turns)}"
            self._broken("journal_order", seq, fact)
            return
        self._view = tuple(said for said in self._view if said.turn != number)
        notes = [*self._notes]
        if turn.end_note in notes:
            notes.remove(turn.end_note)
        executed = any(call.turn == number and call.effect == "write" for call in self.calls.values())
        if executed != bool(record.get("note")):
            self._broken("retraction_untold", seq, f"turn {number} is retracted with the note {record.get('note')}")
        self._notes = [*turn.base_notes, *notes, *record.get("note", [])]
        if (link := chain_link(messages_of(self._view))) != record.get("link", ""):
            self._broken("view", seq, f"the retraction leaves link {link}, recorded {record.get('link')}")

    def _turn_prepared(self, record: Json, seq: int) -> None:
        number, messages = record.get("turn", 0), record["messages"]
        if self._turn is not None or number != len(self.turns) + 1:
            self._broken("journal_order", seq, f"turn {number} begins after turn {len(self.turns)}")
        if not self._queue or messages != [self._queue[0].id]:
            waiting = [other.id for other in self._queue]
            self._broken("message_order", seq, f"the turn takes {messages}, waiting are {waiting}")
        turn = self.turns[number] = Turn(number, list(messages), seq, base=self._view, base_notes=self._notes)
        turn.live = self._live_of(record, seq)
        turn.signal_bytes = sum(len(canonical(block)) for block in record.get("signal", []))
        turn.offered = frozenset(tool["name"] for tool in self._preamble.get("tools", ()))
        blocks = [*self._notes, *record.get("signal", []), *self._take(messages, number)]
        self._notes = []
        self._turn = turn
        self._say("user", blocks)
        self._view = extended(self._view, "user", record.get("turn_only", []), turn=number, is_turn_only=True)

    def _take(self, ids: list[str], turn: int) -> Iterator[Json]:
        for id_ in ids:
            self.taken.setdefault(id_, []).append(turn)
            for waiting in [other for other in self._queue if other.id == id_]:
                yield from waiting.blocks
                self._queue.remove(waiting)

    def _running(self, record: Json, seq: int) -> Turn | None:
        number = record.get("turn", 0)
        if self._turn is None or self._turn.number != number:
            running = self._turn.number if self._turn else None
            self._broken("journal_order", seq, f"{record['kind']} of turn {number}, running is {running}")
            return None
        return self._turn

    def _beginning(self, record: Json, seq: int) -> Turn | None:
        """The running turn, in which something begins."""
        turn = self._running(record, seq)
        if turn is not None and turn.is_interrupted:
            self._broken("interrupt_ignored", seq, f"{record['kind']} in a turn that was asked to make way")
        if turn is not None and turn.is_failing:
            self._broken("journal_order", seq, f"{record['kind']} in a turn whose model call failed for good")
        return turn

    def _attempt_started(self, record: Json, seq: int) -> None:
        if (turn := self._beginning(record, seq)) is None:
            return
        step, round_, attempt = record["step"], record["round"], record["attempt"]
        if step == "compact":
            self._fold_begun(turn, record, seq)
            return
        before = [number for name, at, number in turn.attempts if (name, at) == (step, round_)]
        if round_ != turn.round or attempt != max(before, default=1) + 1:
            self._broken("journal_order", seq, f"attempt {attempt} at {step} of round {round_} follows {before}")
        turn.attempts[step, round_, attempt] = seq
        if step == "call_model":
            turn.excuses.setdefault(round_, []).append(seq)

    def _model_requested(self, record: Json, seq: int) -> None:
        if (turn := self._beginning(record, seq)) is None:
            return
        joined, is_new = record.get("joined", []), record["round"] != turn.round
        if is_new and record["round"] != turn.round + 1:
            self._broken("journal_order", seq, f"round {record['round']} follows round {turn.round}")
        steering = [waiting for waiting in self._queue if waiting.when_busy == "steer"] if is_new else []
        if joined != [waiting.id for waiting in steering[: len(joined)]]:
            fact = f"messages {joined} join, steering are {[waiting.id for waiting in steering]}"
            self._broken("message_order", seq, fact)
        left = steering[len(joined) :] if not turn.folds_begun else []
        if turn.is_too_long:
            self._broken("not_folded", seq, "what was too long is asked again as it was")
        self._close_round(turn, seq)
        self._say("user", new := list(self._take(joined, turn.number)))
        turn.messages.extend(joined)
        turn.round, turn.call = record["round"], record["call"]
        messages = messages_of(self._view)
        link = chain_link(messages)
        if link != record["link"]:
            self._broken("view", seq, f"the view's last link is {link}, recorded {record['link']}")
        fixed = self._fixed(turn)
        self.requests.append(
            Request(
                seq,
                turn.number,
                turn.round,
                turn.call,
                record["link"],
                canonical({**fixed, "messages": messages}),
                fixed_bytes=len(canonical(fixed)),
                turns=(turns := turns_in(self._view)),
                live_bytes=len(canonical(turn.live)) if turn.live is not None else 0,
                older_bytes=size_of(said for said in self._view if said.turn < turns[-3:][0]),
                is_new=is_new,
                is_measured=self._is_measured,
                new_files=len(files_in([{"content": [*new, *(left[0].blocks if left else ())]}])),
                left_bytes=sum(len(canonical(block)) for block in left[0].blocks) if left else 0,
            )
        )

    def _model_replied(self, record: Json, seq: int) -> None:
        if (turn := self._running(record, seq)) is None:
            return
        if record["call"] != turn.call or record["round"] in turn.replies:
            self._broken("journal_order", seq, f"a reply to call {record['call']}, open is {turn.call!r}")
        self._is_measured = True
        turn.call, turn.note, turn.stop_reason = "", record.get("note", []), record["stop_reason"]
        turn.replies[record["round"]] = seq
        turn.reply = record["blocks"]
        for block in record["blocks"]:
            if block["type"] == "tool_use":
                turn.open_calls.append(block["id"])
                self.calls[block["id"]] = Call(block["id"], block["name"], turn.number)

    def _model_failed(self, record: Json, seq: int) -> None:
        if (turn := self._running(record, seq)) is None:
            return
        if record["call"] != turn.call:
            self._broken("journal_order", seq, f"call {record['call']} failed, open is {turn.call!r}")
        if not record.get("retry_at_us"):
            turn.is_failing = True
            return
        if record["code"] == "model_context_too_long":
            if turn.too_long_round == turn.round:
                self._broken("unbounded", seq, f"round {turn.round} was too long twice and is asked again")
            turn.is_too_long, turn.too_long_round = True, turn.round
        else:
            turn.failures += 1
        turn.excuses.setdefault(turn.round, []).append(seq)
        turn.attempts = {name: at for name, at in turn.attempts.items() if name[:2] != ("call_model", turn.round)}

    def _tool_started(self, record: Json, seq: int) -> None:
        self._beginning(record, seq)
        call = self._open_call(record, seq)
        if call is not None:
            if call.started_seq:
                self._broken("call_twice", seq, f"call {call.id} was started at record {call.started_seq}")
            call.started_seq, call.effect, call.key = seq, record["effect"], record["idempotency_key"]

    def _tool_finished(self, record: Json, seq: int) -> None:
        call = self._open_call(record, seq)
        if call is not None:
            call.finished_seq, call.outcome = seq, record["outcome"]
            call.text, call.size_bytes = record["block"].get("content", ""), len(canonical(record["block"]))
            self._results[call.id] = record["block"]

    def _open_call(self, record: Json, seq: int) -> Call | None:
        turn, id_ = self._running(record, seq), record["call_id"]
        if turn is None or id_ not in turn.open_calls or self.calls[id_].finished_seq:
            self._broken("call_twice", seq, f"{record['kind']} of call {id_}, which is not open")
            return None
        return self.calls[id_]

    def _late_result(self, record: Json, seq: int) -> None:
        call = self.calls.get(record["call_id"])
        if call is None or call.outcome != "unknown" or call.late_seq:
            self._broken("call_twice", seq, f"a late end of call {record['call_id']}, which was not lost")
        else:
            call.late_seq, call.late_outcome = seq, record["outcome"]
        self._notes.append(record["note"])

    def _turn_finished(self, record: Json, seq: int) -> None:
        if (turn := self._running(record, seq)) is None:
            return
        if turn.reply is None or turn.open_calls or turn.note or turn.stop_reason not in FINAL:
            self._broken("journal_order", seq, f"turn {turn.number} finishes without a final reply")
        self._close_round(turn, seq)
        self._leave_behind()
        self._end(turn, record, seq)

    def _turn_cancelled(self, record: Json, seq: int) -> None:
        if (turn := self._running(record, seq)) is None:
            return
        self._close_round(turn, seq)
        self._leave_behind()
        turn.cut_call = turn.call
        turn.partial = "".join(block.get("text", "") for block in record.get("partial", []))
        self._say("assistant", record.get("partial", []))
        self._notes.append(record["note"])
        turn.end_note = record["note"]
        self._end(turn, record, seq)

    def _turn_failed(self, record: Json, seq: int) -> None:
        if self._turn is not None and record["code"] == "context_too_long" and not self._turn.too_long_round:
            self._close_round(self._turn, seq)
            said = tuple(said for said in self._view if self._turn.round or not said.is_turn_only)
            body = {**self._fixed(self._turn), "messages": messages_of(said)}
            signal_bytes = 0 if self._turn.round else self._turn.signal_bytes
            self.too_long.append(TooLong(seq, len(canonical(body)) - signal_bytes))
        self._turn_cancelled(record, seq)

    def _turn_refused(self, record: Json, seq: int) -> None:
        """The view is what it was before the turn, and so are the notes, but for those that came since."""
        if (turn := self._running(record, seq)) is None:
            return
        if turn.stop_reason != "refusal" or turn.reply:
            self._broken("journal_order", seq, f"turn {turn.number} is refused after {turn.stop_reason!r}")
        self._view = turn.base
        self._notes = [*turn.base_notes, *self._notes, record["note"]]
        self._end(turn, record, seq)

    def _leave_behind(self) -> None:
        """What was for this turn alone is said no more."""
        self._view = tuple(said for said in self._view if not said.is_turn_only)

    def _end(self, turn: Turn, record: Json, seq: int) -> None:
        turn.end_seq, turn.end = seq, record["kind"]
        self._turn = None
        for waiting in self._queue:
            waiting.when_busy = "queue"

    def _close_round(self, turn: Turn, seq: int) -> None:
        """The open round enters the view: the reply, and behind it one result for each call, in the reply's order."""
        missing = [id_ for id_ in turn.open_calls if id_ not in self._results]
        if missing:
            self._broken("call_open", seq, f"calls {missing} have no result")
        self._say("assistant", turn.reply or [])
        self._say("user", [*(self._results[id_] for id_ in turn.open_calls if id_ in self._results), *turn.note])
        turn.reply, turn.open_calls, turn.note = None, [], []

    def _say(self, role: str, blocks: list[Json]) -> None:
        assert self._turn is not None, "nothing is said outside a turn"
        self._view = extended(self._view, role, blocks, turn=self._turn.number)
