"""Why a request held what it held."""

import random

import msgspec
import pytest

from tests.support.histories import Teller, told
from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.operations.origins import Origin, Origins, origins
from torpor.operations.requests import rebuilt
from torpor.records.journal import (
    ContextReplaced,
    FlagsPinned,
    FlagsReturned,
    JournalRecord,
    MessageReceived,
    ModelRequested,
    TurnPrepared,
)
from torpor.records.terms import FoldReason


@pytest.fixture(scope="module")
def teller() -> Teller:
    """One long history, with folds and a skill in it."""
    return told(random.Random(4).randbytes(600))


def of(teller: Teller, seq: int) -> Origins:
    found = origins(teller.journal, seq=seq)
    assert found is not None
    return found


def named(found: Origins, part: str) -> list[Origin]:
    return [origin for origin in found.parts if origin.part == part]


def test_every_part_names_a_record_of_its_kind_before_the_request(teller: Teller) -> None:
    kinds = {
        "agent": "conversation_created",
        "preamble": "preamble_changed",
        "flag": "flags_pinned",
        "skill": "skill_loaded",
        "summary": "context_replaced",
        "shortened": "context_replaced",
        "history": "turn_prepared",
        "live context": "live_context_replaced",
        "context": "turn_prepared",
        "policy": "turn_prepared",
        "lookback": "turn_prepared",
        "message": "message_received",
        "result": "tool_finished",
    }
    seen = set()
    for request in rebuilt(teller.journal):
        for origin in of(teller, request.seq).parts:
            record = teller.journal[origin.seq - 1]
            assert record.__struct_config__.tag == kinds[origin.part]
            assert (origin.seq < request.seq, origin.turn) == (True, record.turn)
            seen.add(origin.part)
    assert seen >= {*kinds} - {"policy", "lookback", "live context", "shortened"}


def test_messages_of_a_request_are_those_its_turn_took_until_then(teller: Teller) -> None:
    for request in rebuilt(teller.journal):
        taken: list[str] = []
        for record in teller.journal[: request.seq]:
            if isinstance(record, TurnPrepared) and record.turn == request.turn:
                taken += record.messages
            if isinstance(record, ModelRequested) and record.turn == request.turn:
                taken += record.joined
        assert [origin.name for origin in named(of(teller, request.seq), "message")] == taken


def test_earlier_turns_are_told_together_and_are_those_that_are_no_part_of_a_summary(teller: Teller) -> None:
    state, folded = ConversationState(), 0
    for record in teller.journal:
        state = fold(state, (record,))
        if not isinstance(record, ModelRequested):
            continue
        earlier = [start.turn for start in state.starts[:-1]]
        name = f"turns {earlier[0]} to {earlier[-1]}" if len(earlier) > 1 else f"turn {earlier[0]}" if earlier else ""
        assert [origin.name for origin in named(of(teller, record.seq), "history")] == [name] * bool(earlier)
        folded += bool(state.covered[0]) and bool(earlier)
    assert folded


def test_results_that_were_shortened_are_no_summary() -> None:
    for seed in range(40):
        journal, cut, folded = told(random.Random(seed).randbytes(600)).journal, 0, 0
        for record in journal:
            if isinstance(record, ContextReplaced):
                cut, folded = (record.seq, folded) if record.reason is FoldReason.SHORTENED else (cut, record.seq)
            if isinstance(record, ModelRequested) and cut > folded:
                found = origins(journal, seq=record.seq)
                assert found is not None
                assert [origin.seq for origin in named(found, "summary")] == [folded] * bool(folded)
                if told_of := named(found, "shortened"):
                    assert [(each.seq, each.name) for each in told_of] == [(cut, f"in turn {journal[cut - 1].turn}")]
                    return
    raise AssertionError("no history has a result that was shortened")


def test_a_context_that_left_the_view_is_not_told(teller: Teller) -> None:
    for request in rebuilt(teller.journal):
        body = request.body().decode()
        for origin in named(of(teller, request.seq), "context"):
            record = teller.journal[origin.seq - 1]
            assert isinstance(record, TurnPrepared)
            assert all(bytes(block).decode() in body for block in record.signal)


def story() -> list[JournalRecord]:
    """A long one with everything told about its turns."""
    teller = told(random.Random(0).randbytes(600))
    return [
        msgspec.structs.replace(record, policies=("fees@2", "fees@2"), labels=("public",), withheld=("personal",))
        if isinstance(record, TurnPrepared)
        else record
        for record in teller.journal
    ]


def test_policies_flags_and_labels_are_told_with_what_is_known_of_them() -> None:
    journal = story()
    request = next(rebuilt(journal))
    found = origins(journal, seq=request.seq)
    assert found is not None

    *_, flags = [record for record in journal[: request.seq] if isinstance(record, FlagsPinned)]
    (policy,), (flag,) = named(found, "policy"), named(found, "flag")
    assert (policy.name, policy.turn) == ("fees@2", request.turn)
    assert policy.detail == "2 excerpts, for this turn alone"
    assert (flag.name, flag.seq) == ("tool.pay", flags.seq)
    assert flag.detail == ("on" if flags.decisions[0].value else "off")
    assert found.request is request.record


def test_flags_that_a_turn_went_back_to_are_told_from_where_they_stand(teller: Teller) -> None:
    decisions: dict[str, bool] = {}
    told_of, went_back = dict[int, bool](), set[int]()
    digest = ""
    for record in teller.journal:
        match record:
            case FlagsPinned():
                digest, decisions[record.digest] = record.digest, record.decisions[0].value
            case FlagsReturned():
                digest = record.digest
                went_back.add(record.seq)
            case ModelRequested():
                told_of[record.seq] = decisions[digest]
            case _:
                pass
    assert went_back
    for seq, is_on in told_of.items():
        assert [flag.detail for flag in named(of(teller, seq), "flag")] == ["on" if is_on else "off"]


def test_a_record_that_is_no_request_has_no_origins() -> None:
    journal = story()
    message = next(record for record in journal if isinstance(record, MessageReceived))

    assert origins(journal, seq=message.seq) is None
    assert origins(journal, seq=9999) is None
