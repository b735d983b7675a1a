"""What docs/protocol.md says of the working context is what frames, options and labels say."""

import re
from pathlib import Path
from typing import get_args

import msgspec

from tests.unit.docs.test_tables import table, words
from torpor.conversation.markup import TAGS
from torpor.conversation.signals import ContextOptions
from torpor.records.context import (
    ACTIONS_MAX,
    DEFAULT_LABEL,
    DEFAULT_LABELS,
    ContextPart,
    Label,
    Reference,
    SelectedRecord,
    WorkingContext,
)
from torpor.records.frames import AnyClientFrame, UpdateContext

SECTION = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text().partition("\n## Context\n")[2]
SECTION = SECTION.partition("\n## ")[0]
EXAMPLE = re.findall(r"```json\n(.*?)```", SECTION, re.DOTALL)[0]


def test_the_example_is_a_frame_that_leaves_no_field_out_of_its_context() -> None:
    frame = msgspec.json.decode(EXAMPLE, type=AnyClientFrame)
    assert isinstance(frame, UpdateContext)
    written = msgspec.json.decode(EXAMPLE)
    assert msgspec.json.decode(msgspec.json.encode(frame.context)) == written["context"]
    assert set(written["context"]) == set(WorkingContext.__struct_fields__)


def test_every_part_is_told_with_its_fields_and_its_cap() -> None:
    options, told = ContextOptions(), table("protocol.md", "Context")
    part, record = set(ContextPart.__struct_fields__), set(SelectedRecord.__struct_fields__)

    assert {name: words(cells[0]) for name, cells in told.items()} == {
        "record": record,
        "role": part,
        "screen": part,
        "plan": part,
        "actions": part,
    }
    assert {name: [int(number) for number in re.findall(r"\d+", cells[1])] for name, cells in told.items()} == {
        "record": [options.record_tokens],
        "role": [options.role_tokens],
        "screen": [options.screen_tokens],
        "plan": [options.plan_tokens],
        "actions": [options.actions_shown, options.action_tokens],
    }
    assert f"up to {ACTIONS_MAX}" in told["actions"][0]


def test_patterns_labels_expiry_and_the_tag_are_those_of_the_code() -> None:
    for annotated in (Label, Reference):
        pattern = get_args(annotated)[1].pattern
        assert f"`{pattern.removeprefix('^').removesuffix(chr(92) + 'Z')}`" in SECTION
    assert f"`{DEFAULT_LABEL}`" in SECTION
    assert set(DEFAULT_LABELS) <= words(SECTION)
    assert f"for {ContextOptions().expiry_s / 60:.0f} minutes (`context.expiry_s`)" in SECTION
    assert "context" in TAGS
    assert "`<context>`" in SECTION
