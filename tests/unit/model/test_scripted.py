import re
from collections.abc import Iterator

import anyio
import msgspec
import pytest

from tests.support.marked import attachment
from tests.support.models import Heard, a_request, round_of, user
from torpor.conversation.view import View
from torpor.model.contract import ModelReply
from torpor.model.scripted import Call, Fail, Move, Say, ScriptedModel, ScriptedTurn, Show, Stop, Wait
from torpor.provider_errors import ProviderUnavailable
from torpor.records.attachments import marker_block
from torpor.records.blocks import Block, canonical, text_block, tool_result_block
from torpor.records.terms import Offer, Outcome
from torpor.toolhost.contract import ToolResult
from torpor.turn import notes

HELLO = user(View(), "hello")


async def played(*moves: Move, sink: Heard | None = None, call: str = "1-1-1") -> ModelReply:
    return await ScriptedModel(lambda _: moves).reply(a_request(HELLO, call=call), sink or Heard())


def decoded(reply: ModelReply) -> list[dict[str, object]]:
    return [msgspec.json.decode(block) for block in reply.blocks]


async def test_text_is_streamed_and_becomes_one_block() -> None:
    sink = Heard()
    reply = await played(Say("Good "), Say("day"), sink=sink)
    assert decoded(reply) == [{"type": "text", "text": "Good day"}]
    assert sink.pieces == ["Good ", "day"]
    assert sink.blocks == list(reply.blocks)
    assert reply.stop_reason == "end_turn"


async def test_calls_follow_text_and_stop_for_tools() -> None:
    sink = Heard()
    reply = await played(Say("Let me look."), Call("find", {"patient": "Ada"}), Call("hours"), sink=sink)
    assert decoded(reply) == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1-1-1_1", "name": "find", "input": {"patient": "Ada"}},
        {"type": "tool_use", "id": "toolu_1-1-1_2", "name": "hours", "input": {}},
    ]
    assert sink.blocks == list(reply.blocks)
    assert reply.stop_reason == "tool_use"


async def test_blocks_are_canonical() -> None:
    reply = await played(Say("x"), Call("find", {"b": 1, "a": 2}))
    assert all(bytes(block) == bytes(canonical(msgspec.json.decode(block))) for block in reply.blocks)


async def test_ids_of_calls_differ_between_model_calls_and_fit_the_api() -> None:
    ids = []
    for call in ("1-1-1", "1-2-1", "1-2-2", "c/9.x"):
        reply = await played(Call("find"), Call("find"), call=call)
        ids += [str(block["id"]) for block in decoded(reply)]
    assert len(set(ids)) == 8
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", id_) for id_ in ids)


async def test_a_reply_may_be_empty() -> None:
    reply = await played()
    assert (reply.blocks, reply.stop_reason) == ((), "end_turn")


async def test_any_block_can_be_shown_and_any_stop_reason_given() -> None:
    thinking = canonical({"type": "thinking", "thinking": "hm", "signature": "s"})
    reply = await played(Show(thinking), Say("So"), Show(thinking), Stop("max_tokens"))
    assert [block["type"] for block in decoded(reply)] == ["thinking", "text", "thinking"]
    assert reply.stop_reason == "max_tokens"


async def test_a_failure_leaves_what_was_said_in_the_sink() -> None:
    sink = Heard()
    with pytest.raises(ProviderUnavailable, match="gone"):
        await played(Say("Half a "), Fail(ProviderUnavailable("gone")), Say("sentence"), sink=sink)
    assert sink.pieces == ["Half a "]
    assert sink.blocks == []


async def test_a_reply_waits_where_the_script_does() -> None:
    said, go = anyio.Event(), anyio.Event()
    sink = Heard()

    def script(turn: ScriptedTurn) -> Iterator[Move]:
        yield Say("before")
        said.set()
        yield Wait(go.wait)
        yield Say(" after")

    async def reply() -> None:
        await ScriptedModel(script).reply(a_request(HELLO), sink)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reply)
            await said.wait()
            assert sink.pieces == ["before"]
            go.set()
    assert sink.pieces == ["before", " after"]


async def test_usage_grows_with_the_request_and_the_reply() -> None:
    short = await played(Say("x"))
    long = await ScriptedModel(lambda _: [Say("x" * 400)]).reply(a_request(user(View(), "y" * 400)), Heard())
    assert long.usage.input_tokens >= short.usage.input_tokens + 98
    assert long.usage.output_tokens >= short.usage.output_tokens + 99


async def test_usage_counts_a_file_as_what_a_model_reads_of_it() -> None:
    plain, picture = View().extended("user", []), View().extended("user", [marker_block(attachment(tokens=1_500))])
    without, with_it = [
        (await ScriptedModel(lambda _: [Say("x")]).reply(a_request(view), Heard())).usage.input_tokens
        for view in (plain, picture)
    ]
    assert 1_500 <= with_it - without < 1_520


def test_files_without_words_are_not_answered_by_the_words_before_them() -> None:
    view = user(View(), "hello").extended("user", [marker_block(attachment(tokens=1))])
    assert ScriptedTurn(a_request(view)).text == "[attached image/png]"
    with_words = view.extended("user", [marker_block(attachment(tokens=1)), text_block("look")])
    assert ScriptedTurn(a_request(with_words)).text == "look"


def test_a_turn_knows_the_last_text_of_the_user_and_the_replies_since() -> None:
    view = user(View(), "hello")
    assert (turn := ScriptedTurn(a_request(view))).text == "hello"
    assert (turn.step, turn.results) == (0, ())
    view = round_of(view, ("hours", "8 to 18"), ("find", "none"), said="Let me look.")
    view = round_of(view, ("hours", "closed"))
    turn = ScriptedTurn(a_request(view))
    assert (turn.text, turn.step) == ("hello", 2)
    assert [(result.name, result.text) for result in turn.results] == [
        ("hours", "8 to 18"),
        ("find", "none"),
        ("hours", "closed"),
    ]


def test_earlier_turns_do_not_count() -> None:
    view = round_of(user(View(), "hello"), ("hours", "8 to 18")).extended("assistant", [canonical({"type": "text"})])
    turn = ScriptedTurn(a_request(user(view, "and now?")))
    assert (turn.text, turn.step, turn.results) == ("and now?", 0, ())


def test_notes_before_the_users_text_are_not_the_users() -> None:
    turn = ScriptedTurn(a_request(user(View(), "[Your reply was cut short.]", "hello")))
    assert turn.text == "hello"


def test_a_text_that_joined_the_results_is_the_last_one() -> None:
    view = user(round_of(user(View(), "hello"), ("hours", "8 to 18")), "no, wait")
    turn = ScriptedTurn(a_request(view))
    assert (turn.text, turn.step, turn.follows_results) == ("no, wait", 0, False)


def test_results_may_be_lists_of_blocks_and_errors() -> None:
    view = round_of(user(View(), "hello"), ("hours", "8 to 18"))
    assert not ScriptedTurn(a_request(view)).results[0].is_error
    call = canonical({"type": "tool_use", "id": "a", "name": "pay", "input": {}})
    result = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": [{"type": "text", "text": "no"}]}
    view = user(View(), "pay").extended("assistant", [call]).extended("user", [canonical(result)])
    (seen,) = ScriptedTurn(a_request(view)).results
    assert (seen.name, seen.text, seen.is_error) == ("pay", "no", True)


@pytest.mark.parametrize("is_packed", [False, True])
def test_whether_results_come_last_is_told_without_decoding(is_packed: bool) -> None:
    def follows(view: View) -> bool:
        turn = ScriptedTurn(a_request(view.packed() if is_packed else view))
        answer = turn.follows_results
        assert "messages" not in vars(turn)
        return answer

    results = round_of(user(View(), 'say "type":"tool_result"}'), ("hours", "8 to 18"))
    assert follows(results)
    assert follows(results.extended("user", [tool_result_block("b", "x", is_error=True)]))
    assert not follows(View())
    assert not follows(user(View(), 'say "type":"tool_result"}'))
    assert not follows(user(results, "and?"))


NOTES = (
    notes.reply_cut("client", had_text=True),
    notes.reply_cut("operator", had_text=False),
    notes.turn_failed("model_unavailable"),
    notes.refused(("pay",)),
    notes.late_result("pay", ToolResult(outcome=Outcome.SUCCEEDED, text="paid"), of_turn=1),
)


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("offer", list(Offer))
@pytest.mark.parametrize("cut", ["", "I was"])
def test_a_turn_that_is_resumed_answers_what_was_asked_before(note: Block, offer: Offer, cut: str) -> None:
    view = user(View(), "Please fail")
    view = view.extended("assistant", [text_block(cut)]) if cut else view
    turn = ScriptedTurn(a_request(view.extended("user", [note, text_block(notes.RESUME[offer])])))
    assert (turn.text, turn.resumes) == ("Please fail", offer)


@pytest.mark.parametrize("note", NOTES)
def test_what_the_engine_notes_is_not_what_the_user_said(note: Block) -> None:
    turn = ScriptedTurn(a_request(View().extended("user", [note, text_block("[hello]")])))
    assert (turn.text, turn.resumes) == ("[hello]", "")


def test_words_beside_an_offer_are_what_is_answered() -> None:
    blocks = [text_block(notes.RESUME[Offer.RETRY]), text_block("in French")]
    turn = ScriptedTurn(a_request(user(View(), "Please fail").extended("user", blocks)))
    assert (turn.text, turn.resumes) == ("in French", "")
