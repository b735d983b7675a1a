"""What each record makes of a conversation, and which records cannot follow."""

from typing import Any

import msgspec
import pytest

from torpor.conversation.fold import fold, version_of
from torpor.conversation.number import numbered
from torpor.conversation.state import LOST_CALLS_MAX, BadHistory, CallStatus, ConversationState, LoadedSkill
from torpor.conversation.turn_folds import requested_view
from torpor.conversation.view import preamble_of
from torpor.records.blocks import Block, canonical, text_block, tool_result_block
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    AttemptStarted,
    CompactionFailed,
    ContextChanged,
    ContextReplaced,
    ConversationCreated,
    JournalRecord,
    LateResult,
    MessageReceived,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    SkillLoaded,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Effect, FoldReason, Offer, Outcome, StepKind, Usage, WhenBusy

PREAMBLE = preamble_of({"model": "m"})
NOTE = text_block("[note]")
CREATED = ConversationCreated(agent="clerk", title="errands")
CHANGED = PreambleChanged(digest=PREAMBLE.digest, body=PREAMBLE.body)


def after(state: ConversationState, *drafts: JournalRecord) -> ConversationState:
    """The state once ``drafts`` have followed, properly numbered."""
    return fold(state, numbered(state, drafts, at_us=1))


def message(number: int, when_busy: WhenBusy = WhenBusy.QUEUE, *, principal: str = "ann") -> MessageReceived:
    return MessageReceived(
        message_id=MessageId(f"m_{number}"),
        principal=principal,
        blocks=(text_block(f"message {number}"),),
        when_busy=when_busy,
    )


def prepared(turn: int, *numbers: int) -> TurnPrepared:
    return TurnPrepared(turn=turn, messages=ids(*numbers))


def ids(*numbers: int) -> tuple[MessageId, ...]:
    return tuple(MessageId(f"m_{number}") for number in numbers)


def requested(state: ConversationState, *joined: int, **fields: Any) -> ModelRequested:
    """The request that follows ``state``, but for ``fields``."""
    turn = state.turn
    assert turn is not None
    request = ModelRequested(
        turn=turn.number,
        call="call",
        round=turn.round + (not turn.call),
        preamble=PREAMBLE.digest,
        link=requested_view(state, ids(*joined)).link.hex(),
        sections={},
        joined=ids(*joined),
    )
    return msgspec.structs.replace(request, **fields)


def use(call_id: str, name: str = "pay") -> Block:
    return canonical({"type": "tool_use", "id": call_id, "name": name, "input": {"to": "bob"}})


def replied(*blocks: Block, **fields: Any) -> ModelReplied:
    reply = ModelReplied(
        turn=1, call="call", round=1, blocks=blocks, stop_reason="end_turn", usage=Usage(input_tokens=7)
    )
    return msgspec.structs.replace(reply, **fields)


def started(call_id: str, effect: Effect = Effect.WRITE) -> ToolStarted:
    return ToolStarted(turn=1, call_id=CallId(call_id), name="pay", effect=effect, idempotency_key="key")


def ended(call_id: str, outcome: Outcome = Outcome.SUCCEEDED) -> ToolFinished:
    block = tool_result_block(call_id, "paid", is_error=outcome is not Outcome.SUCCEEDED)
    return ToolFinished(turn=1, call_id=CallId(call_id), name="pay", outcome=outcome, block=block)


def late(call_id: str) -> LateResult:
    return LateResult(call_id=CallId(call_id), name="pay", of_turn=1, outcome=Outcome.SUCCEEDED, note=NOTE)


def said(state: ConversationState) -> list[tuple[str, list[str]]]:
    """The view as roles with what each block says."""

    def word(block: dict[str, Any]) -> str:
        return str(block.get("text") or block.get("content") or block["id"])

    messages = msgspec.json.decode(state.view.messages())
    return [(message["role"], [word(block) for block in message["content"]]) for message in messages]


def in_turn() -> ConversationState:
    """Turn 1 runs; nothing was asked yet."""
    return after(ConversationState(), CREATED, message(1), CHANGED, prepared(1, 1))


def asked() -> ConversationState:
    """A model call is open."""
    return after(in_turn(), requested(in_turn()))


def with_calls(*call_ids: str) -> ConversationState:
    """The model asked for these calls."""
    return after(asked(), replied(*(use(call_id) for call_id in call_ids)))


def test_a_conversation_starts_with_its_agent_and_its_title() -> None:
    state = after(ConversationState(), CREATED)
    assert (state.agent, state.title, state.seq, state.event) == ("clerk", "errands", 1, 0)


def test_messages_wait_in_order_of_arrival() -> None:
    state = after(ConversationState(), CREATED, message(1), message(2, WhenBusy.STEER))
    assert [queued.id for queued in state.queued] == ["m_1", "m_2"]
    assert (state.seq, state.event) == (3, 2)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_message_that_interrupts_is_next_after_earlier_ones_that_interrupt(is_running: bool) -> None:
    state = in_turn() if is_running else after(ConversationState(), CREATED)
    state = after(state, message(2), message(3, WhenBusy.INTERRUPT), message(4, WhenBusy.INTERRUPT))
    assert [queued.id for queued in state.queued] == ["m_3", "m_4", "m_2"]


def test_a_turn_takes_its_messages_out_of_the_queue_into_the_view() -> None:
    state = after(ConversationState(), CREATED, message(1), message(2, principal="bob"), message(3))
    state = after(state, CHANGED, prepared(1, 1, 2))
    assert said(state) == [("user", ["message 1", "message 2"])]
    assert [queued.id for queued in state.queued] == ["m_3"]
    assert state.turn is not None
    assert (state.turn.number, state.turn.messages, state.turn.principal) == (1, ids(1, 2), "bob")
    assert (state.turns, state.preamble) == (1, PREAMBLE)


def test_an_attempt_is_counted_on_the_open_step() -> None:
    state = after(asked(), AttemptStarted(turn=1, step=StepKind.CALL_MODEL, round=1, attempt=2))
    assert state.turn is not None
    assert state.turn.attempts == 2
    again = after(state, requested(state))
    assert again.turn is not None
    assert (again.turn.attempts, again.turn.round) == (2, 1)


def test_a_request_opens_a_model_call() -> None:
    turn = asked().turn
    assert turn is not None
    assert (turn.call, turn.round, turn.attempts, turn.reply) == ("call", 1, 1, None)


def test_a_message_that_joins_enters_the_view_with_the_request_and_speaks_for_the_turn() -> None:
    state = after(in_turn(), message(2, WhenBusy.STEER, principal="bob"), message(3))
    state = after(state, requested(state, 2))
    assert said(state) == [("user", ["message 1", "message 2"])]
    assert state.turn is not None
    assert (state.turn.messages, state.turn.principal) == (ids(1, 2), "bob")
    assert [queued.id for queued in state.queued] == ["m_3"]


def test_a_reply_waits_in_its_round_until_the_round_closes() -> None:
    state = after(asked(), replied(text_block("hello"), usage=Usage(input_tokens=3)))
    assert said(state) == [("user", ["message 1"])]
    assert state.turn is not None
    assert (state.turn.call, state.turn.attempts, state.turn.stop_reason) == ("", 0, "end_turn")
    counted = (bytes(state.preamble.body), state.view.text(), bytes(text_block("hello")))
    assert (state.last_usage, state.measured_bytes) == (Usage(input_tokens=3), sum(map(len, counted)))
    assert said(after(state, TurnFinished(turn=1)))[-1] == ("assistant", ["hello"])


def test_the_calls_of_a_reply_are_intended_in_the_models_order() -> None:
    state = after(asked(), replied(text_block("wait"), use("b"), use("a"), unusable={"a": "cut short"}))
    assert state.turn is not None
    assert [(call.id, call.name, call.unusable) for call in state.turn.calls] == [
        ("b", "pay", ""),
        ("a", "pay", "cut short"),
    ]
    assert bytes(state.turn.calls[0].arguments) == b'{"to":"bob"}'
    assert state.turn.open_calls == state.turn.calls


def test_a_failed_model_call_leaves_the_turn_to_its_end() -> None:
    state = after(asked(), ModelFailed(turn=1, call="call", round=1, code="model_unavailable"))
    assert state.turn == asked().turn


@pytest.mark.parametrize(("next_model", "model"), [("", "first"), ("other", "other")])
def test_a_model_call_that_is_asked_again_is_no_attempt_that_a_crash_interrupted(next_model: str, model: str) -> None:
    state = after(in_turn(), requested(in_turn(), model="first"))
    failed = ModelFailed(turn=1, call="call", round=1, code="overloaded", retry_at_us=9, next_model=next_model)
    turn = after(state, failed).turn
    assert turn is not None
    assert (turn.call, turn.attempts, turn.failures, turn.retry_at_us, turn.model) == ("call", 0, 1, 9, model)


def test_a_started_call_remembers_its_effect_and_its_key() -> None:
    state = after(with_calls("a", "b"), started("b", Effect.READ))
    assert state.turn is not None
    assert state.turn.attempts == 1
    first, second = state.turn.calls
    assert (first.status, second.status) == (CallStatus.INTENDED, CallStatus.STARTED)
    assert (second.effect, second.idempotency_key) == (Effect.READ, "key")


def test_a_settled_call_drops_its_arguments_and_keeps_its_result() -> None:
    state = after(with_calls("a", "b"), started("a"), ended("a"))
    assert state.turn is not None
    call = state.turn.calls[0]
    assert (call.status, call.outcome, bytes(call.arguments)) == (CallStatus.SETTLED, Outcome.SUCCEEDED, b"{}")
    assert [call.id for call in state.turn.open_calls] == ["b"]


def test_reply_and_results_enter_the_view_together_and_in_the_models_order() -> None:
    state = after(with_calls("a", "b"), ended("b", Outcome.FAILED), ended("a"))
    assert len(said(state)) == 1
    state = after(state, requested(state))
    assert said(state)[1:] == [("assistant", ["a", "b"]), ("user", ["paid", "paid"])]
    results = msgspec.json.decode(state.view.messages())[-1]["content"]
    assert [result["tool_use_id"] for result in results] == ["a", "b"]


def test_a_message_that_joins_after_a_round_stands_behind_its_results() -> None:
    state = after(with_calls("a"), message(2, WhenBusy.STEER), ended("a"))
    state = after(state, requested(state, 2))
    assert said(state)[-1] == ("user", ["paid", "message 2"])


def test_a_write_settled_as_unknown_may_still_end() -> None:
    state = after(with_calls("a", "b"), started("a"), ended("a", Outcome.UNKNOWN), ended("b"))
    assert state.lost_calls == ("a",)
    state = after(state, TurnCancelled(turn=1, reason="client", note=NOTE), late("a"))
    assert (state.lost_calls, state.notes) == ((), (NOTE, NOTE))


def test_only_the_latest_lost_calls_are_kept() -> None:
    call_ids = [f"c{number}" for number in range(LOST_CALLS_MAX + 2)]
    state = after(with_calls(*call_ids), *(ended(call_id, Outcome.UNKNOWN) for call_id in call_ids))
    assert state.lost_calls == tuple(call_ids[2:])


def test_an_empty_reply_leaves_nothing_in_the_view() -> None:
    state = after(asked(), replied())
    assert state.turn is not None
    assert state.turn.reply == ()
    assert said(after(state, TurnFinished(turn=1))) == [("user", ["message 1"])]


@pytest.mark.parametrize(
    "end",
    [
        TurnCancelled(turn=1, note=NOTE, partial=(text_block("hel"),), reason="client"),
        TurnFailed(turn=1, note=NOTE, partial=(text_block("hel"),), code="crashed", detail=""),
    ],
)
def test_a_turn_that_is_cut_keeps_what_was_said_and_notes_it_for_the_next_message(end: JournalRecord) -> None:
    state = after(asked(), end, message(2), prepared(2, 2))
    assert said(state) == [("user", ["message 1"]), ("assistant", ["hel"]), ("user", ["[note]", "message 2"])]
    assert state.notes == ()


def test_a_turn_that_is_cut_without_a_word_merges_with_the_next_message() -> None:
    state = after(asked(), TurnCancelled(turn=1, reason="client", note=NOTE), message(2), prepared(2, 2))
    assert said(state) == [("user", ["message 1", "[note]", "message 2"])]


def test_what_a_failed_turn_offers_stands_until_the_next_message_and_not_where_one_waits() -> None:
    failed = TurnFailed(turn=1, code="crashed", detail="", note=NOTE, offers=(Offer.CONTINUE, Offer.RETRY))
    state = after(asked(), failed)
    assert state.offers == (Offer.CONTINUE, Offer.RETRY)
    assert [after(state, message(2, when_busy)).offers for when_busy in WhenBusy] == [()] * len(WhenBusy)
    assert after(asked(), message(2), failed).offers == ()
    assert after(asked(), TurnCancelled(turn=1, reason="client", note=NOTE)).offers == ()


def test_a_steer_that_found_no_model_call_waits_like_any_other_message() -> None:
    state = after(asked(), message(2, WhenBusy.STEER), message(3), replied(text_block("hi")), TurnFinished(turn=1))
    assert [(queued.id, queued.when_busy) for queued in state.queued] == [
        ("m_2", WhenBusy.QUEUE),
        ("m_3", WhenBusy.QUEUE),
    ]
    assert state.turn is None


def test_the_model_is_not_asked_outside_a_turn() -> None:
    with pytest.raises(BadHistory, match="outside a turn"):
        requested_view(ConversationState(), ())


PATIENT = SelectedRecord(type="patient", id="7")


def told(version: int, context: WorkingContext | None = None) -> ContextChanged:
    return ContextChanged(context=context or WorkingContext(record=PATIENT), version=version, principal="ann")


def test_a_context_is_kept_with_its_version_and_its_time_whether_or_not_a_turn_runs() -> None:
    for state in (after(ConversationState(), CREATED), in_turn()):
        changed = after(state, told(1))
        assert (changed.context, changed.context_version, changed.context_us) == (
            WorkingContext(record=PATIENT),
            1,
            1,
        )
        assert (changed.event, changed.view, changed.turn) == (state.event + 1, state.view, state.turn)


@pytest.mark.parametrize(
    ("context", "version"),
    [
        (WorkingContext(record=PATIENT), 1),
        (WorkingContext(record=SelectedRecord(type="patient", id="7", version="2", text="Ann")), 1),
        (WorkingContext(record=PATIENT, screen=ContextPart(text="calendar")), 1),
        (WorkingContext(record=SelectedRecord(type="patient", id="8")), 2),
        (WorkingContext(record=SelectedRecord(type="visit", id="7")), 2),
        (WorkingContext(), 2),
        (WorkingContext(screen=ContextPart(text="calendar")), 2),
    ],
)
def test_another_record_raises_the_version_and_nothing_else_does(context: WorkingContext, version: int) -> None:
    state = after(ConversationState(), CREATED, told(1))
    assert version_of(state, context) == version
    changed = after(state, told(version, context))
    assert (changed.context, changed.context_version) == (context, version)
    with pytest.raises(BadHistory, match=f"gives the context version {3 - version}, it is {version}"):
        after(state, told(3 - version, context))


@pytest.mark.parametrize("context", [WorkingContext(), WorkingContext(record=PATIENT)])
def test_the_first_context_has_the_first_version_whatever_is_selected(context: WorkingContext) -> None:
    assert version_of(ConversationState(), context) == 1


def test_how_often_the_context_was_told_is_counted_from_one_turn_to_the_next() -> None:
    state = after(ConversationState(), CREATED, message(1), told(1), told(1))
    assert state.context_told == 2
    assert after(state, prepared(1, 1)).context_told == 0


SIGNAL, ONLY = text_block("signal"), text_block("only now")


def beside(**fields: Any) -> TurnPrepared:
    """The start of turn 1 of message 1, with these fields."""
    return msgspec.structs.replace(prepared(1, 1), **fields)


def begun(**fields: Any) -> ConversationState:
    """Turn 1 runs and was asked, prepared with ``fields``; a note had waited."""
    state = after(ConversationState(), CREATED, message(1), CHANGED)
    state = after(msgspec.structs.replace(state, notes=(NOTE,)), beside(**fields))
    return after(state, requested(state))


def test_notes_signal_messages_and_what_is_for_the_turn_alone_are_said_in_this_order() -> None:
    state = begun(signal=(SIGNAL,), turn_only=(ONLY,))
    assert said(state) == [("user", ["[note]", "signal", "message 1", "only now"])]


def test_a_turn_knows_the_size_of_what_it_was_told_beside_its_messages() -> None:
    turn = begun(signal=(SIGNAL,), turn_only=(ONLY, ONLY), sections={"envelope": 4}).turn
    assert turn is not None
    assert (turn.signal_bytes, turn.turn_only_bytes) == (len(bytes(SIGNAL)), 2 * len(bytes(ONLY)))
    assert turn.sections == {"envelope": 4}


def test_a_turn_with_nothing_of_its_own_keeps_one_view_only() -> None:
    turn = begun(signal=(SIGNAL,)).turn
    assert turn is not None
    assert turn.kept is None


@pytest.mark.parametrize(("signal", "used_us"), [((SIGNAL,), 9), ((), 5)])
def test_a_context_that_a_turn_uses_lives_on(signal: tuple[Block, ...], used_us: int) -> None:
    state = after(ConversationState(), CREATED, message(1))
    state = fold(state, numbered(state, [told(1)], at_us=5))
    state = fold(state, numbered(state, [CHANGED, beside(signal=signal)], at_us=9))
    assert state.context_us == used_us


def rounds(**fields: Any) -> ConversationState:
    """Turn 1 with a round of calls, a message that joined behind it, and a reply that is open."""
    state = after(begun(**fields), message(2, WhenBusy.STEER), replied(use("a")), ended("a"))
    state = after(state, requested(state, 2))
    return after(state, replied(text_block("done"), round=2))


def test_what_is_for_a_turn_alone_stays_in_front_of_all_its_rounds_and_leaves_with_its_end() -> None:
    state = rounds(signal=(SIGNAL,), turn_only=(ONLY,))
    during = [
        ("user", ["[note]", "signal", "message 1", "only now"]),
        ("assistant", ["a"]),
        ("user", ["paid", "message 2"]),
    ]
    assert said(state) == during
    over = after(state, TurnFinished(turn=1))
    assert said(over) == [("user", ["[note]", "signal", "message 1"]), *during[1:], ("assistant", ["done"])]
    assert over.view == after(rounds(signal=(SIGNAL,)), TurnFinished(turn=1)).view


def test_the_next_turn_goes_on_from_the_link_before_what_was_for_the_last_one_alone() -> None:
    def next_link(**fields: Any) -> bytes:
        state = after(rounds(**fields), TurnFinished(turn=1), message(3), prepared(2, 3))
        return state.view.link

    assert next_link(turn_only=(ONLY,)) == next_link()
    assert next_link(turn_only=(ONLY,), signal=(SIGNAL,)) != next_link()


@pytest.mark.parametrize(
    "end",
    [
        TurnCancelled(turn=1, note=NOTE, partial=(text_block("hel"),), reason="client"),
        TurnFailed(turn=1, note=NOTE, partial=(text_block("hel"),), code="crashed", detail=""),
    ],
)
def test_what_was_for_a_turn_alone_leaves_with_a_turn_that_is_cut_too(end: JournalRecord) -> None:
    state = after(begun(turn_only=(ONLY,)), end)
    assert said(state) == [("user", ["[note]", "message 1"]), ("assistant", ["hel"])]


REFUSED = TurnRefused(turn=1, detail="no", note=text_block("[refused]"))


def test_a_refused_turn_leaves_nothing_but_its_notes() -> None:
    state = after(begun(signal=(SIGNAL,), turn_only=(ONLY,)), replied(), REFUSED)
    assert said(state) == []
    assert state.notes == (NOTE, text_block("[refused]"))


def loaded(key: str, digest: str = "d", *, turn: int = 1) -> SkillLoaded:
    return SkillLoaded(turn=turn, call_id=CallId("a"), skill=key, digest=digest, allowed_tools=("pay",))


def test_skills_are_remembered_in_the_order_in_which_they_were_loaded_last() -> None:
    state = after(with_calls("a"), loaded("refunds"), loaded("visits"), loaded("refunds", "e"))
    assert state.skills == (
        LoadedSkill(key="visits", digest="d", allowed_tools=("pay",), call_id=CallId("a")),
        LoadedSkill(key="refunds", digest="e", allowed_tools=("pay",), call_id=CallId("a")),
    )


@pytest.mark.parametrize(("end", "keys"), [(TurnFinished(turn=2), ["refunds", "visits"]), (REFUSED, ["refunds"])])
def test_a_refused_turn_forgets_the_skills_that_it_loaded(end: JournalRecord, keys: list[str]) -> None:
    state = after(with_calls("a"), loaded("refunds"), ended("a"), TurnFinished(turn=1), message(2), prepared(2, 2))
    state = after(state, loaded("visits", turn=2), msgspec.structs.replace(end, turn=2))
    assert [skill.key for skill in state.skills] == keys


CANNOT_FOLLOW: dict[str, tuple[ConversationState, JournalRecord, str]] = {
    "a conversation created twice": (in_turn(), CREATED, "creates a conversation that exists"),
    "a turn inside a turn": (after(in_turn(), message(2)), prepared(2, 2), "while turn 1 runs"),
    "a turn number skipped": (after(ConversationState(), CREATED, message(1)), prepared(2, 1), "the last one was 0"),
    "a turn without a message": (after(ConversationState(), CREATED, message(1)), prepared(1), "takes messages"),
    "a turn of a message that does not wait": (after(ConversationState(), CREATED), prepared(1, 1), "takes messages"),
    "an attempt outside a turn": (
        after(ConversationState(), CREATED),
        AttemptStarted(turn=1, step=StepKind.CALL_MODEL, round=1, attempt=2),
        "running is none",
    ),
    "an attempt of another turn": (
        asked(),
        AttemptStarted(turn=2, step=StepKind.CALL_MODEL, round=1, attempt=2),
        "belongs to turn 2, running is 1",
    ),
    "a request of another turn": (in_turn(), requested(in_turn(), turn=2), "belongs to turn 2"),
    "a request with another link": (in_turn(), requested(in_turn(), link="ab"), "requested link ab"),
    "a request with another preamble": (in_turn(), requested(in_turn(), preamble="ab"), "names preamble ab"),
    "a request for a round that was skipped": (in_turn(), requested(in_turn(), round=2), "asks for round 2"),
    "a request for the same round after its reply": (
        after(asked(), replied(text_block("hi"))),
        requested(after(asked(), replied(text_block("hi"))), round=1),
        "asks for round 1",
    ),
    "a request for the next round without a reply": (asked(), requested(asked(), round=2), "asks for round 2"),
    "a request that leaves a call open": (
        with_calls("a"),
        ModelRequested(turn=1, call="x", round=2, preamble=PREAMBLE.digest, link="", sections={}),
        "leaves calls",
    ),
    "a request joined by a message that does not wait": (
        in_turn(),
        requested(in_turn(), joined=ids(9)),
        "takes messages",
    ),
    "a reply to another call": (asked(), replied(call="other"), "replies to call 'other', open is 'call'"),
    "a second reply": (after(asked(), replied()), replied(), "open is ''"),
    "a reply of another turn": (asked(), replied(turn=2), "belongs to turn 2"),
    "a failure of another turn": (asked(), ModelFailed(turn=2, call="call", round=1, code="x"), "belongs to turn 2"),
    "a failure of another call": (asked(), ModelFailed(turn=1, call="other", round=1, code="x"), "call 'other', open"),
    "a start of a call that nobody intended": (with_calls("a"), started("b"), "call 'b', which is not open"),
    "a start of a call that is settled": (after(with_calls("a"), ended("a")), started("a"), "which is not open"),
    "a result of a call that nobody intended": (with_calls("a"), ended("b"), "which is not open"),
    "a second result": (after(with_calls("a", "b"), ended("a")), ended("a"), "which is not open"),
    "a result outside a turn": (after(ConversationState(), CREATED), ended("a"), "running is none"),
    "a late result of a call that was not lost": (with_calls("a"), late("a"), "which was not lost"),
    "a second late result": (after(with_calls("a"), ended("a", Outcome.UNKNOWN), late("a")), late("a"), "not lost"),
    "an end that leaves a call open": (with_calls("a"), TurnFinished(turn=1), "leaves calls"),
    "an end of another turn": (asked(), TurnFinished(turn=2), "belongs to turn 2"),
    "a context of another version": (asked(), told(2), "gives the context version 2, it is 1"),
    "a skill loaded outside a turn": (after(ConversationState(), CREATED), loaded("refunds"), "running is none"),
    "a skill loaded in another turn": (with_calls("a"), loaded("refunds", turn=2), "belongs to turn 2"),
    "an end outside a turn": (ConversationState(seq=1), TurnFinished(turn=1), "running is none"),
    "a cancel that leaves a call open": (
        with_calls("a"),
        TurnCancelled(turn=1, reason="client", note=NOTE),
        "leaves calls",
    ),
    "a failure that leaves a call open": (
        with_calls("a"),
        TurnFailed(turn=1, code="x", detail="", note=NOTE),
        "leaves calls",
    ),
}


@pytest.mark.parametrize("name", CANNOT_FOLLOW)
def test_a_record_that_contradicts_what_came_before_is_refused(name: str) -> None:
    state, record, reason = CANNOT_FOLLOW[name]
    with pytest.raises(BadHistory, match=reason):
        after(state, record)


@pytest.mark.parametrize("seq", [0, 4, 6])
def test_a_record_out_of_sequence_is_refused(seq: int) -> None:
    state = in_turn()
    (record,) = numbered(state, [message(2)], at_us=1)
    with pytest.raises(BadHistory, match=f"record {seq} follows record 4"):
        fold(state, [msgspec.structs.replace(record, seq=seq)])


@pytest.mark.parametrize(("draft", "event"), [(message(2), 0), (message(2), 2), (message(2), 4), (CHANGED, 3)])
def test_an_event_number_that_is_missing_skipped_used_again_or_not_due_is_refused(
    draft: JournalRecord, event: int
) -> None:
    state = in_turn()
    (record,) = numbered(state, [draft], at_us=1)
    with pytest.raises(BadHistory, match=f"carries event {event}, the last event was 2"):
        fold(state, [msgspec.structs.replace(record, event=event)])


def replaced(**fields: Any) -> ContextReplaced:
    """The view of ``in_turn`` behind nothing new."""
    link = requested_view(in_turn(), ()).link.hex()
    record = ContextReplaced(turn=1, reason=FoldReason.SHORTENED, generation=0, kept_from=1, head=(), link=link)
    return msgspec.structs.replace(record, **fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"kept_from": 2}, "keeps the view from turn 2, which does not begin in it"),
        ({"link": "ab"}, "leaves link ab, the view has "),
        ({"turn": 2}, "belongs to turn 2, running is 1"),
    ],
)
def test_a_view_is_replaced_by_what_the_record_says(fields: dict[str, Any], why: str) -> None:
    assert after(in_turn(), replaced()).view == in_turn().view
    with pytest.raises(BadHistory, match=why):
        after(in_turn(), replaced(**fields))


def test_a_summary_that_failed_is_counted() -> None:
    failing = AttemptStarted(turn=1, step=StepKind.COMPACT, round=1, attempt=2)
    state = after(in_turn(), failing, CompactionFailed(turn=1, code="deadline", detail=""))
    assert state.turn is not None
    assert (state.turn.folds_begun, state.turn.has_fold_failed) == (0, True)
    assert (state.fold_failures, state.fold_failed_us) == (1, 1)
    assert state.view == in_turn().view
