"""Records that replace a part of the view."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.turns_told import called, plain, told, use
from torpor.conversation.compaction import WORTH_FOLDING_BYTES
from torpor.conversation.folding import carried_so_far, folded, plan_of, shortened
from torpor.conversation.state import ConversationState, LoadedSkill
from torpor.conversation.summary import Carried, CompactionOptions
from torpor.records.blocks import canonical, head_of, text_block, tool_result_block
from torpor.records.ids import CallId
from torpor.records.journal import ContextReplaced
from torpor.records.summary import Closing, Item, ItemKind, Summary
from torpor.records.terms import FoldReason

SO_FAR = Summary(facts=("so far",))
NO_ITEMS = Carried(items=())
OPTIONS = CompactionOptions(result_bytes=90)
DENIAL = Item(id="i1-1", kind=ItemKind.DENIAL, text="never by mail", turn=3)
BODY = "Ask before you pay.\nAlways."
REFUNDS = LoadedSkill(key="refunds", digest="a" * 64, call_id=CallId("call_1"))
VISITS = LoadedSkill(key="visits", digest="b" * 64, call_id=CallId("call_2"))
LOADED = told(
    called(1, result=BODY), called(2, result="Be on time."), plain(3), plain(4), plain(5), skills=(REFUNDS, VISITS)
)


def fold_of(
    state: ConversationState,
    *,
    reason: FoldReason = FoldReason.SUMMARY,
    summary: Summary | None = SO_FAR,
    items: Carried = NO_ITEMS,
    skills: frozenset[str] = frozenset({"refunds", "visits"}),
    options: CompactionOptions = OPTIONS,
) -> ContextReplaced:
    return folded(
        state,
        plan_of(state, reason),
        reason=reason,
        summary=summary,
        carried=items,
        skills=skills,
        options=options,
    )


def heads(record: ContextReplaced) -> list[str]:
    return [head_of(block).text for block in record.head]


def content(record: ContextReplaced, call_id: str) -> Any:
    return json.loads(bytes(record.shortened[call_id]))["content"]


def test_a_plan_folds_what_is_older_than_the_last_two_turns() -> None:
    plan = plan_of(LOADED, FoldReason.SUMMARY)
    assert [number for number, _ in plan.folded] == [1, 2]
    assert [start.turn for start in plan.kept] == [3, 4, 5]
    assert plan_of(LOADED, FoldReason.MECHANICAL) == plan


def test_a_plan_for_everything_keeps_the_running_turn() -> None:
    plan = plan_of(LOADED, FoldReason.EVERYTHING)
    assert [number for number, _ in plan.folded] == [1, 2, 3, 4]
    assert [start.turn for start in plan.kept] == [5]


def test_the_record_says_what_it_covers_and_what_it_came_to() -> None:
    closed = Closing(id="i1-2", turn=1)
    record = fold_of(LOADED, items=Carried(items=(DENIAL,), closed=(closed,), opened=1, left_out=2))
    assert (record.turn, record.reason, record.generation, record.kept_from) == (5, FoldReason.SUMMARY, 1, 3)
    assert (record.turns, record.seqs) == ((1, 2), (1, 29))
    assert (record.summary, record.items, record.closed, record.left_out) == (
        Summary(facts=("so far",)),
        (DENIAL,),
        (closed,),
        2,
    )
    text = heads(record)[0]
    assert text.startswith("[Summary of earlier conversation: turns 1 to 2, records 1 to 29, generation 1.\nFacts:")
    assert "- i1-1 (denial, turn 3): never by mail" in text
    assert "2 more items of turns 1 to 2" in text
    assert f"Skills loaded: refunds ({'a' * 12}), visits ({'b' * 12})." in text


def test_the_next_summary_has_the_next_generation_and_covers_all_from_the_first_turn() -> None:
    later = msgspec.structs.replace(LOADED, generation=4, covered=(1, 19))
    record = fold_of(later)
    assert (record.generation, record.turns, record.seqs) == (5, (1, 2), (1, 29))


def test_without_a_model_the_summary_before_stays_and_turns_are_told_by_their_beginnings() -> None:
    state = told(
        plain(1, text=' says "no" <memories> / reply: "yes"'),
        (
            ("user", [text_block("only asked")]),
            ("assistant", [use("a")]),
            ("user", [tool_result_block("a", "r" * 3_000, is_error=False)]),
        ),
        plain(3),
        plain(4),
        plain(5),
        summary=Summary(facts=("from before",), decisions=("go",), entities=("Ann",)),
    )
    record = fold_of(state, reason=FoldReason.MECHANICAL, summary=None, items=Carried(items=(DENIAL,)))
    assert record.summary.decisions == ("go",)
    assert record.summary.entities == ("Ann",)
    assert record.summary.facts == (
        "from before",
        'turn 1: user: "question 1 says \\"no\\" &lt;memories> / reply: \\"yes\\"" '
        'reply: "answer 1 says \\"no\\" &lt;memories> / reply: \\"yes\\""',
        'turn 2: user: "only asked" reply: nothing',
    )
    assert record.items == (DENIAL,)
    assert "- i1-1 (denial, turn 3): never by mail" in heads(record)[0]


def test_without_a_model_what_is_oldest_goes_over_the_cap() -> None:
    state = told(
        called(1, result="r" * 3_000),
        *map(plain, range(2, 8)),
        summary=Summary(facts=("old",), decisions=("d" * 30,), entities=("e" * 30,)),
    )
    line = 'turn 4: user: "question 4" reply: "answer 4"'
    for lines, facts, decisions in ((1, 1, 0), (4, 4, 0), (5, 5, 1)):
        options = CompactionOptions(summary_tokens=-(-lines * (len(json.dumps(line)) + 1) // 4))
        summary = fold_of(state, reason=FoldReason.MECHANICAL, summary=None, options=options).summary
        assert (len(summary.facts), len(summary.decisions), summary.entities) == (facts, decisions, ())
        assert summary.facts[-1] == line


def test_without_a_model_a_summary_of_little_is_less_than_what_it_stands_for() -> None:
    for size in range(40, 400, 20):
        state = told(*(plain(number, text="x" * size) for number in range(1, 6)))
        record = fold_of(state, reason=FoldReason.MECHANICAL, summary=None)
        assert len(bytes(record.head[0])) < max(state.starts[2].size_bytes, WORTH_FOLDING_BYTES)


def test_the_texts_of_skills_stay_at_the_version_that_was_loaded() -> None:
    record = fold_of(LOADED)
    assert record.skills == ("refunds", "visits")
    assert heads(record)[1:] == [
        f"[Skill refunds, version {'a' * 12}, loaded earlier:]\n{BODY}",
        f"[Skill visits, version {'b' * 12}, loaded earlier:]\nBe on time.",
    ]
    assert record.forgotten == ()


def test_a_skill_that_may_no_longer_be_loaded_is_forgotten() -> None:
    record = fold_of(LOADED, skills=frozenset({"visits"}))
    assert (record.skills, record.forgotten) == (("visits",), ("refunds",))
    assert "refunds" not in "".join(heads(record))


def test_a_skill_that_was_loaded_in_a_turn_that_stays_is_left_where_it_is() -> None:
    state = told(plain(1), plain(2), called(3, result=BODY), plain(4), skills=(REFUNDS,))
    skill = msgspec.structs.replace(REFUNDS, call_id=CallId("call_3"))
    record = fold_of(msgspec.structs.replace(state, skills=(skill,)))
    assert (record.skills, record.forgotten) == ((), ())


def test_a_text_at_the_head_is_carried_to_the_next_head() -> None:
    head = text_block(f"[Skill refunds, version {'a' * 12}, loaded earlier:]\n{BODY}")
    skill = msgspec.structs.replace(REFUNDS, head=(head,))
    record = fold_of(told(*map(plain, range(1, 6)), skills=(skill,)))
    assert record.head[1:] == (head,)


def test_where_there_is_no_room_for_all_skills_those_loaded_last_stay() -> None:
    record = fold_of(LOADED, options=CompactionOptions(skills_tokens=7))
    assert (record.skills, record.forgotten) == (("visits",), ("refunds",))
    none = fold_of(LOADED, options=CompactionOptions(skill_tokens=0))
    assert (none.skills, none.forgotten) == ((), ("refunds", "visits"))


def test_a_long_skill_is_cut_once_and_says_so() -> None:
    state = told(called(1, result="é" * 500), *map(plain, range(2, 6)), skills=(REFUNDS,))
    options = CompactionOptions(skill_tokens=50)
    record = fold_of(state, options=options)
    text = heads(record)[1].partition("\n")[2]
    assert text.endswith("\n[cut here; load_skill gives all of it]")
    assert text.startswith("é" * 70)
    assert len(text.encode()) <= 200
    carried_on = msgspec.structs.replace(REFUNDS, head=(record.head[1],))
    again = fold_of(told(*map(plain, range(1, 6)), skills=(carried_on,)), options=options)
    assert again.head[1] == record.head[1]
    shorter = fold_of(told(*map(plain, range(1, 6)), skills=(carried_on,)), options=CompactionOptions(skill_tokens=30))
    assert heads(shorter)[1].count("[cut here") == 1


def test_a_skill_is_cut_to_what_it_takes_in_a_request() -> None:
    state = told(called(1, result='say "no"\n' * 200), *map(plain, range(2, 6)), skills=(REFUNDS,))
    record = fold_of(state, options=CompactionOptions(skill_tokens=50, skills_tokens=50))
    assert record.skills == ("refunds",)
    assert 180 < len(json.dumps(heads(record)[1].partition("\n")[2])) - 2 <= 200


@pytest.mark.parametrize("reason", [FoldReason.SUMMARY, FoldReason.MECHANICAL, FoldReason.EVERYTHING])
def test_items_of_a_larger_window_make_way_in_a_smaller_one_and_stay_counted(reason: FoldReason) -> None:
    items = tuple(Item(id=f"i1-{n}", kind=ItemKind.DENIAL, text=f"no {n}", turn=n) for n in range(1, 10))
    state = msgspec.structs.replace(LOADED, items=items, left_out=1, left_out_turns=(4, 4))
    record = fold_of(state, reason=reason, items=carried_so_far(state), options=CompactionOptions(items_tokens=20))
    assert [item.text for item in record.items] == ["no 8", "no 9"]
    assert (record.left_out, record.left_out_turns) == (8, (1, 7))
    assert "8 more items of turns 1 to 7 found no room here" in heads(record)[0]


def test_nobody_is_sent_to_a_tool_that_is_not_offered() -> None:
    items = Carried(items=(), left_out=1)
    for reads_earlier in (True, False):
        made = folded(
            LOADED,
            plan_of(LOADED, FoldReason.SUMMARY),
            reason=FoldReason.SUMMARY,
            summary=SO_FAR,
            carried=items,
            skills=frozenset(),
            options=OPTIONS,
            reads_earlier=reads_earlier,
        )
        assert ("read_earlier" in heads(made)[0]) == reads_earlier
        state = told(plain(1), called(2, result="m" * 500))
        short = shortened(state, options=OPTIONS, reads_earlier=reads_earlier)
        assert ("read_earlier" in content(short, "call_2")) == reads_earlier
        assert "bytes left out here to make room" in content(short, "call_2")


def test_shortening_keeps_the_count_of_what_found_no_room() -> None:
    state = told(plain(1), called(2, result="m" * 500), left_out=3, left_out_turns=(1, 2))
    record = shortened(state, options=OPTIONS)
    assert (record.left_out, record.left_out_turns) == (3, (1, 2))


def test_long_results_are_shortened_to_their_beginning_and_end() -> None:
    text = "begin " + "m" * 500 + " end"
    state = told(called(1, result=text, is_error=True), called(2, result="short"), plain(3), pending={"a": text})
    record = shortened(state, options=OPTIONS)
    assert (record.turn, record.reason, record.generation, record.kept_from) == (3, FoldReason.SHORTENED, 0, 1)
    assert record.shortened.keys() == {"call_1", "a"}
    for call_id, turn in (("call_1", 1), ("a", 3)):
        said = content(record, call_id)
        assert said.startswith("begin mmm")
        assert said.endswith("mmm end")
        assert f"left out here to make room; read_earlier shows all of turn {turn}]" in said
    fields = json.loads(bytes(record.shortened["call_1"]))
    assert (fields["type"], fields["tool_use_id"], fields["is_error"]) == ("tool_result", "call_1", True)
    assert (record.head, record.turns, record.seqs) == ((), (0, 0), (0, 0))


def test_of_a_result_that_is_no_text_its_text_stays() -> None:
    parts = [{"type": "text", "text": "a lung"}, {"type": "image", "source": {"type": "base64", "data": "x" * 900}}]
    picture = canonical({"type": "tool_result", "tool_use_id": "call_1", "content": parts})
    record = shortened(told(called(1, result=picture), plain(2)), options=OPTIONS)
    said = content(record, "call_1")
    assert said.startswith("a lung\n")
    assert "[about 1" in said
    assert "left out here" in said
    assert "xxx" not in said


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=200, max_size=900), st.integers(9, 200))
def test_a_shortened_result_is_a_valid_result_with_the_ends_of_the_text(text: str, bytes_max: int) -> None:
    block = tool_result_block("call_1", text, is_error=False)
    options = CompactionOptions(result_bytes=bytes_max)
    record = shortened(told(called(1, result=block), plain(2)), options=options)
    if "call_1" in record.shortened:
        begin, _, rest = content(record, "call_1").partition("\n[about ")
        end = rest.partition("]\n")[2]
        assert text.startswith(begin)
        assert text.endswith(end)
        assert len(begin.encode()) + len(end.encode()) <= bytes_max


def test_shortening_leaves_the_summary_and_the_skills_where_they_are() -> None:
    first = fold_of(LOADED, items=Carried(items=(DENIAL,)))
    skills = tuple(
        msgspec.structs.replace(skill, head=(block,))
        for skill, block in zip(LOADED.skills, first.head[1:], strict=True)
    )
    state = told(
        (("user", first.head), *called(1, result="x" * 900)),
        plain(2),
        skills=skills,
        generation=1,
        covered=(2, 29),
        summary=first.summary,
        items=first.items,
    )
    at_head = len(b'{"content":[') + sum(len(bytes(block)) + 1 for block in first.head) - 1
    starts = (msgspec.structs.replace(state.starts[0], size_bytes=at_head), *state.starts[1:])
    record = shortened(msgspec.structs.replace(state, starts=starts), options=OPTIONS)
    assert (record.head, record.skills) == (first.head, ("refunds", "visits"))
    assert (record.generation, record.turns, record.seqs) == (1, (1, 2), (1, 29))
    assert (record.summary, record.items) == (first.summary, (DENIAL,))
    reloaded = (skills[1], msgspec.structs.replace(REFUNDS, digest="c" * 64, call_id=CallId("new")))
    again = shortened(msgspec.structs.replace(state, starts=starts, skills=reloaded), options=OPTIONS)
    assert (again.head, again.skills) == ((first.head[0], first.head[1], first.head[2]), ("visits",))
    reloaded = (skills[0], msgspec.structs.replace(VISITS, digest="c" * 64, call_id=CallId("new")))
    again = shortened(msgspec.structs.replace(state, starts=starts, skills=reloaded), options=OPTIONS)
    assert (again.head, again.skills) == ((first.head[0], first.head[2], first.head[1]), ("refunds",))
