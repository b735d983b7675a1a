"""What the model reads of the working context: escaped, capped, and only what its agent may see."""

from collections.abc import Iterable
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.nasty_text import nasty_text
from torpor.conversation.budget import BYTES_PER_TOKEN, tokens_of_bytes
from torpor.conversation.signals import ContextOptions, Signal, is_expired, signal_of
from torpor.records.context import DEFAULT_LABELS, ContextPart, SelectedRecord, WorkingContext

OPTIONS = ContextOptions()
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FULL = WorkingContext(
    record=SelectedRecord(type="patient", id="p/7", version="3", text="Ann, born 1980", label="personal"),
    role=ContextPart(text="receptionist", label="public"),
    screen=ContextPart(text="Calendar"),
    plan=ContextPart(text="find a slot"),
    actions=(ContextPart(text="opened"), ContextPart(text="selected")),
)


def signal(
    context: WorkingContext,
    *,
    labels: Iterable[str] = DEFAULT_LABELS,
    options: ContextOptions = OPTIONS,
    tokens_max: int = 0,
) -> Signal:
    return signal_of(context, version=2, labels=frozenset(labels), options=options, tokens_max=tokens_max)


def parts(rendered: Signal) -> list[str]:
    return [child.tag for child in ElementTree.fromstring(rendered.text)]


def test_a_context_is_rendered_part_by_part_in_a_fixed_order() -> None:
    assert signal(FULL) == Signal(
        text="""<context version="2">
<record type="patient" id="p/7" version="3" label="personal">Ann, born 1980</record>
<role label="public">receptionist</role>
<screen label="internal">Calendar</screen>
<plan label="internal">find a slot</plan>
<action label="internal">opened</action>
<action label="internal">selected</action>
</context>""",
        labels=("internal", "personal", "public"),
    )


def test_tokens_are_estimated_from_the_text() -> None:
    assert signal(FULL).tokens == tokens_of_bytes(len(signal(FULL).text.encode()))
    assert Signal().tokens == 0


@pytest.mark.parametrize(
    "context",
    [
        WorkingContext(),
        WorkingContext(screen=ContextPart(text=" \n"), role=ContextPart(text="")),
        WorkingContext(actions=(ContextPart(text=""), ContextPart(text="\t"))),
    ],
)
@pytest.mark.parametrize("tokens_max", [0, 1])
def test_where_nothing_is_told_nothing_is_shown(context: WorkingContext, tokens_max: int) -> None:
    assert signal(context, tokens_max=tokens_max) == Signal()


def test_a_record_without_text_is_still_selected() -> None:
    context = WorkingContext(record=SelectedRecord(type="patient", id="7"))
    assert signal(context).text == (
        '<context version="2">\n<record type="patient" id="7" version="1" label="internal"/>\n</context>'
    )


def contexts() -> st.SearchStrategy[WorkingContext]:
    labels = st.sampled_from(["public", "internal", "personal", "secret", "clinical"])
    some = st.builds(ContextPart, text=nasty_text(), label=labels)
    maybe = st.none() | some
    names = st.text(st.sampled_from("aZ9.:@/-_"), min_size=1, max_size=8)
    record = st.builds(SelectedRecord, type=names, id=names, version=names, text=nasty_text(), label=labels)
    return st.builds(
        WorkingContext,
        record=st.none() | record,
        screen=maybe,
        role=maybe,
        plan=maybe,
        actions=st.lists(some, max_size=8).map(tuple),
    )


TIGHT = ContextOptions(record_tokens=6, screen_tokens=3, role_tokens=2, plan_tokens=4, action_tokens=3, actions_shown=3)


def texts_of(context: WorkingContext) -> list[str]:
    told = (context.record, context.role, context.screen, context.plan, *context.actions)
    return [" ".join(part.text.split()) for part in told if part is not None]


@given(contexts(), st.sampled_from([OPTIONS, TIGHT]))
def test_no_text_closes_or_forges_a_tag(context: WorkingContext, options: ContextOptions) -> None:
    text = signal(context, options=options).text
    if not text:
        return
    root = ElementTree.fromstring(text)
    assert root.tag == "context"
    assert root.attrib == {"version": "2"}
    whole = texts_of(context)
    for child in root:
        assert len(child) == 0
        assert child.tag in {"record", "role", "screen", "plan", "action"}
        assert child.attrib.keys() <= {"type", "id", "version", "label", "truncated"}
        said, is_cut = child.text or "", child.get("truncated") == "true"
        assert any(told.startswith(said) and (told != said) == is_cut for told in whole)


@given(contexts(), st.integers(0, 120))
def test_the_same_context_is_always_the_same_text(context: WorkingContext, tokens_max: int) -> None:
    again = msgspec.json.decode(msgspec.json.encode(context), type=WorkingContext)
    assert signal(again, tokens_max=tokens_max) == signal(context, tokens_max=tokens_max)


def test_each_part_has_a_cap_of_its_own_and_says_that_it_was_cut() -> None:
    long = ContextPart(text="x" * 10_000)
    context = WorkingContext(
        record=SelectedRecord(type="a", id="1", text="x" * 10_000), screen=long, role=long, plan=long, actions=(long,)
    )
    root = ElementTree.fromstring(signal(context).text)
    assert [(child.tag, len(child.text or ""), child.get("truncated")) for child in root] == [
        ("record", 150 * BYTES_PER_TOKEN, "true"),
        ("role", 20 * BYTES_PER_TOKEN, "true"),
        ("screen", 40 * BYTES_PER_TOKEN, "true"),
        ("plan", 100 * BYTES_PER_TOKEN, "true"),
        ("action", 25 * BYTES_PER_TOKEN, "true"),
    ]


def test_a_part_is_cut_between_characters_as_people_see_them() -> None:
    options = ContextOptions(screen_tokens=10)
    (screen,) = ElementTree.fromstring(
        signal(WorkingContext(screen=ContextPart(text=FAMILY * 3)), options=options).text
    )
    assert (screen.text, screen.get("truncated")) == (FAMILY * 2, "true")


def test_a_part_of_which_nothing_fits_says_that_it_was_cut() -> None:
    options = ContextOptions(screen_tokens=1)
    text = signal(WorkingContext(screen=ContextPart(text=FAMILY)), options=options).text
    assert '<screen label="internal" truncated="true"/>' in text


@pytest.mark.parametrize(("actions_shown", "shown"), [(0, []), (1, ["c"]), (2, ["b", "c"]), (9, ["a", "b", "c"])])
def test_the_latest_actions_are_shown(actions_shown: int, shown: list[str]) -> None:
    actions = tuple(ContextPart(text=text) for text in "abc")
    context = WorkingContext(role=ContextPart(text="clerk"), actions=actions)
    root = ElementTree.fromstring(signal(context, options=ContextOptions(actions_shown=actions_shown)).text)
    assert [child.text for child in root if child.tag == "action"] == shown


def test_what_an_agent_may_not_see_is_withheld_and_named_for_the_record_alone() -> None:
    found = signal(FULL, labels={"public"})
    assert parts(found) == ["role"]
    assert (found.labels, found.withheld) == (("public",), ("internal", "personal"))
    assert "withheld" not in found.text
    assert signal(FULL, labels=()) == Signal(withheld=("internal", "personal", "public"))


@given(contexts(), st.sets(st.sampled_from(["public", "internal", "personal", "secret", "clinical"])))
def test_a_withheld_part_costs_nothing(context: WorkingContext, labels: set[str]) -> None:
    actions = context.actions[-OPTIONS.actions_shown :]

    def seen(part: ContextPart | None) -> ContextPart | None:
        return part if part is not None and part.label in labels else None

    without = WorkingContext(
        record=context.record if context.record is not None and context.record.label in labels else None,
        screen=seen(context.screen),
        role=seen(context.role),
        plan=seen(context.plan),
        actions=tuple(action for action in actions if action.label in labels),
    )
    found = signal(context, labels=labels)
    assert found.text == signal(without, labels=labels).text
    assert set(found.labels) <= labels
    assert labels.isdisjoint(found.withheld)


def test_too_much_altogether_leaves_out_what_changes_fastest_first_and_says_so() -> None:
    stages: list[tuple[list[str], str | None]] = []
    for tokens_max in range(signal(FULL).tokens, 0, -1):
        found = signal(FULL, tokens_max=tokens_max)
        assert found.tokens <= tokens_max
        if not found.text:
            break
        root = ElementTree.fromstring(found.text)
        stage = ([child.text or "" for child in root], root.get("left_out"))
        if stage not in stages:
            stages.append(stage)

    record, role, screen, plan = "Ann, born 1980", "receptionist", "Calendar", "find a slot"
    assert stages == [
        ([record, role, screen, plan, "opened", "selected"], None),
        ([record, role, screen, plan, "selected"], "action"),
        ([record, role, screen, plan], "action"),
        ([record, role, screen], "action, plan"),
        ([record, role], "action, plan, screen"),
        ([record], "action, plan, screen, role"),
        ([], "action, plan, screen, role, record"),
    ]


def test_labels_are_told_of_what_is_shown_and_not_of_what_was_left_out() -> None:
    found = signal(FULL, tokens_max=signal(WorkingContext(record=FULL.record)).tokens + 12)
    assert (parts(found), found.labels, found.withheld) == (["record"], ("personal",), ())


@given(contexts(), st.integers(1, 60))
def test_a_limit_on_all_of_it_holds_and_nothing_goes_in_silence(context: WorkingContext, tokens_max: int) -> None:
    whole, found = signal(context), signal(context, tokens_max=tokens_max)
    assert found.tokens <= tokens_max
    assert found.withheld == whole.withheld
    if found.text and found != whole:
        left_out = ElementTree.fromstring(found.text).get("left_out", "").split(", ")
        assert set(parts(whole)) == set(parts(found)) | set(left_out)


@pytest.mark.parametrize(("age_us", "expired"), [(0, False), (1_800_000_000, False), (1_800_000_001, True)])
def test_a_context_means_nothing_once_it_was_neither_told_nor_used_for_the_expiry(age_us: int, expired: bool) -> None:
    assert is_expired(7, now_us=7 + age_us, options=OPTIONS) is expired
    assert is_expired(0, now_us=2_500_000, options=ContextOptions(expiry_s=2.0))
