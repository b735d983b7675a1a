"""One defined answer to each reply and to each fault."""

import msgspec
import pytest

from tests.support.doubles import use
from tests.support.engine import KEY
from torpor.conversation.retry import RetryOptions
from torpor.conversation.state import TurnState
from torpor.model.contract import ModelReply
from torpor.provider_errors import (
    AttachmentsUnavailable,
    ContextTooLong,
    KeyRefused,
    ModelTimedOut,
    Overloaded,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestInvalid,
    RequestTooLarge,
    StreamLost,
)
from torpor.records.blocks import head_of, text_block
from torpor.records.ids import MessageId
from torpor.records.journal import ModelFailed
from torpor.records.terms import Offer
from torpor.turn import answers

TURN = TurnState(number=2, messages=(MessageId("m"),), principal="ann", round=3, call="2-3-1")
OPTIONS = RetryOptions(retries_max=3, base_s=1.0, fallback_after=2)
NOW_US = 1_000_000_000
PASSING = [ProviderUnavailable("x"), Overloaded("x"), RateLimited("x"), StreamLost("x")]
LASTING = [RequestInvalid("x"), KeyRefused("x"), ContextTooLong("x"), ModelTimedOut("x")]


def failed(
    fault: ProviderError,
    *,
    turn: TurnState = TURN,
    was_shown: bool = False,
    fallback: str = "",
    can_shrink: bool = False,
) -> ModelFailed:
    return answers.failed(
        turn,
        fault,
        key=KEY,
        was_shown=was_shown,
        fallback=fallback,
        can_shrink=can_shrink,
        options=OPTIONS,
        now_us=NOW_US,
    )


def after(failures: int, *, model: str = "") -> TurnState:
    return msgspec.structs.replace(TURN, failures=failures, model=model)


def test_a_reply_is_recorded_as_it_was_made_storable() -> None:
    reply = ModelReply(
        blocks=(text_block("yes"), use("pay", "a")),
        stop_reason="tool_use",
        model="m",
        request_id="r",
        unusable={1: "why"},
        dropped=("scent",),
    )
    record = answers.replied(TURN, reply)
    assert (record.turn, record.call, record.round) == (2, "2-3-1", 3)
    assert (record.blocks, record.stop_reason, record.model, record.request_id) == (
        (text_block("yes"), use("pay", "a")),
        "tool_use",
        "m",
        "r",
    )
    assert (record.unusable, record.dropped, record.note) == ({"a": "why"}, ("scent",), ())


def test_a_reply_whose_calls_were_cut_off_tells_the_model_so() -> None:
    record = answers.replied(TURN, ModelReply(blocks=(), stop_reason="max_tokens", dropped=("tool_use",)))
    (note,) = record.note
    assert "none of its tool calls was run" in head_of(note).text


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.code)
def test_what_may_pass_is_asked_again_while_nothing_was_shown(fault: ProviderError) -> None:
    record = failed(fault)
    assert (record.code, record.detail, record.next_model) == (fault.code, "x", "")
    assert NOW_US + 500_000 <= record.retry_at_us <= NOW_US + 1_000_000
    assert failed(fault, was_shown=True).retry_at_us == 0


@pytest.mark.parametrize("fault", LASTING, ids=lambda fault: fault.code)
def test_what_fails_again_is_not_asked_again(fault: ProviderError) -> None:
    assert failed(fault, turn=after(1), fallback="other") == ModelFailed(
        turn=2, call="2-3-1", round=3, code=fault.code, detail="x"
    )


def test_a_request_that_is_too_long_is_asked_again_once_and_at_once_where_it_can_be_made_shorter() -> None:
    fault = ContextTooLong("x")
    record = failed(fault, turn=after(9), can_shrink=True, fallback="other")
    assert (record.retry_at_us, record.next_model) == (NOW_US, "")
    assert failed(fault).retry_at_us == 0
    assert failed(fault, can_shrink=True, was_shown=True).retry_at_us == 0
    again = msgspec.structs.replace(TURN, was_too_long=True)
    assert failed(fault, turn=again, can_shrink=True).retry_at_us == 0
    assert failed(RequestInvalid("x"), can_shrink=True).retry_at_us == 0


def test_a_hosts_wish_to_wait_is_honoured() -> None:
    record = failed(RateLimited("x", retry_after_s=9.0))
    assert NOW_US + 9_000_000 <= record.retry_at_us <= NOW_US + 9_900_000


def test_the_retries_of_a_turn_come_to_an_end_and_so_does_the_fallback() -> None:
    assert failed(Overloaded("x"), turn=after(2)).retry_at_us
    assert failed(Overloaded("x"), turn=after(3), fallback="other") == ModelFailed(
        turn=2, call="2-3-1", round=3, code="model_overloaded", detail="x"
    )


def test_files_whose_storage_lets_everybody_wait_are_asked_for_twice() -> None:
    hangs, refuses = AttachmentsUnavailable("x", waited_s=30.0), AttachmentsUnavailable("x", waited_s=0.1)
    assert failed(hangs).retry_at_us
    assert not failed(hangs, turn=after(1)).retry_at_us
    assert failed(refuses, turn=after(2)).retry_at_us


def test_the_fallback_is_asked_after_some_failures_and_named_once() -> None:
    assert failed(Overloaded("x"), fallback="other").next_model == ""
    assert failed(Overloaded("x"), turn=after(1), fallback="other").next_model == "other"
    assert failed(Overloaded("x"), turn=after(2, model="other"), fallback="other").next_model == ""
    assert failed(Overloaded("x"), turn=after(1)).next_model == ""


def test_equal_calls_wait_equally_long_and_others_do_not() -> None:
    other = msgspec.structs.replace(TURN, call="2-3-2")
    assert failed(Overloaded("x")) == failed(Overloaded("x"))
    assert failed(Overloaded("x")).retry_at_us != failed(Overloaded("x"), turn=other).retry_at_us


@pytest.mark.parametrize(
    ("fault", "has_partial", "offers"),
    [
        (StreamLost("x"), True, (Offer.CONTINUE, Offer.RETRY)),
        (StreamLost("x"), False, (Offer.RETRY,)),
        (KeyRefused("x"), False, (Offer.RETRY,)),
        (ModelTimedOut("x"), True, (Offer.CONTINUE, Offer.RETRY)),
        (ContextTooLong("x"), False, ()),
        (RequestTooLarge("x"), False, ()),
        (RequestInvalid("x"), False, ()),
    ],
)
def test_a_turn_that_is_given_up_says_what_can_be_done(
    fault: ProviderError, has_partial: bool, offers: tuple[Offer, ...]
) -> None:
    partial = (text_block("so far"),) if has_partial else ()
    record = answers.given_up(TURN, fault, partial=partial)
    assert (record.turn, record.code, record.detail) == (2, fault.code, "x")
    assert (record.partial, record.offers) == (partial, offers)
    assert fault.code in head_of(record.note).text


def test_a_turn_that_the_core_ends_has_offers_by_its_code() -> None:
    assert answers.offers_after("step_limit") == (Offer.CONTINUE,)
    assert answers.offers_after("unknown_agent") == ()
