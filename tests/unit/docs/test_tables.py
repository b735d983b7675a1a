"""The tables of docs/protocol.md and of docs/design.md say what the code says."""

import re
import typing
from pathlib import Path

import msgspec
import pytest

from tests.unit.operations.example import journal
from torpor.conversation.publish import event_of
from torpor.errors import ClientError
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.rows import listing_row
from torpor.gateway.rules import RULES
from torpor.records.events import AnyEvent, Event
from torpor.records.frames import AnyClientFrame, AnyServerFrame, ClientFrame, Hello
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.records.terms import Outcome, WhenBusy
from torpor.settings import SECTIONS
from torpor.store.contract import DirectoryRow, Head
from torpor.supervisor.contract import Listing

DOCS = Path(__file__).parents[3] / "docs"


def table(document: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below ``heading`` by their first cell, code marks taken off."""
    _, _, below = (DOCS / document).read_text().partition(f"# {heading}\n")
    lines = re.findall(r"^\|.*\|$", below.partition("\n\n#")[0], re.MULTILINE)
    first_table = below[below.index(lines[0]) :].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first_table]
    return {row[0].strip("`"): row[1:] for row in rows}


def words(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def tag(struct: type[msgspec.Struct]) -> str:
    return str(struct.__struct_config__.tag)


def fields(struct: type[msgspec.Struct], *, but: type[msgspec.Struct]) -> set[str]:
    return set(struct.__struct_fields__) - set(but.__struct_fields__)


def client_errors(root: type[ClientError] = ClientError) -> set[type[ClientError]]:
    """What a server may answer; the client raises a few of its own."""
    found = {error for child in root.__subclasses__() for error in ({child} | client_errors(child))}
    return {error for error in found if not error.__module__.startswith("torpor.client")}


def test_frames_of_the_client_are_told_with_their_fields() -> None:
    told = {frame: words(cells[0]) for frame, cells in table("protocol.md", "Frames of the client").items()}

    assert told == {tag(frame): fields(frame, but=ClientFrame) for frame in typing.get_args(AnyClientFrame)}


def test_frames_of_the_client_are_told_with_the_scope_they_need() -> None:
    told = {frame: cells[1] for frame, cells in table("protocol.md", "Frames of the client").items()}

    assert told == {tag(Hello): ""} | {tag(frame): rule.scope.value for frame, rule in RULES.items()}


def test_frames_of_the_server_are_told_with_their_fields() -> None:
    told = {frame: words(cells[0]) for frame, cells in table("protocol.md", "Frames of the server").items()}

    assert told == {tag(frame): set(frame.__struct_fields__) for frame in typing.get_args(AnyServerFrame)}


def test_events_are_told_with_their_fields() -> None:
    told = {event: words(cells[0]) for event, cells in table("protocol.md", "Events").items()}

    assert told == {tag(event): fields(event, but=Event) for event in typing.get_args(AnyEvent)}


def test_rows_of_a_list_are_told_with_their_fields() -> None:
    stored = DirectoryRow(
        key=ConversationKey("default", "ada", "c1"),
        agent="clerk",
        title="",
        head=Head(),
        created_us=0,
        updated_us=0,
        due_us=None,
        quarantine="",
    )
    row = listing_row(Listing(row=stored, live=None))

    assert {name for cell in table("protocol.md", "Rows of a list") for name in words(f"`{cell}`")} == set(row)


def test_errors_are_told_with_whether_to_retry() -> None:
    told = {code: cells[0] for code, cells in table("protocol.md", "Errors").items()}

    assert told == {error.code: error.retry.value for error in client_errors()}


def test_close_codes_are_told_with_whether_to_resume() -> None:
    told = {int(code): cells for code, cells in table("protocol.md", "Closing").items()}

    assert told == {reason.code: ["yes" if reason.resume else "no", reason.text] for reason in CloseReason}


@pytest.mark.parametrize(
    ("document", "heading", "values"),
    [
        ("design.md", "5. A tool call is one thing with a state", {outcome.value for outcome in Outcome}),
        ("design.md", "Records", {tag(record) for record in typing.get_args(JournalRecord)}),
    ],
)
def test_vocabulary_is_told_whole(document: str, heading: str, values: set[str]) -> None:
    assert set(table(document, heading)) == values


def test_what_becomes_of_a_message_that_meets_a_turn_is_told_whole() -> None:
    text = (DOCS / "protocol.md").read_text()
    _, _, below = text.partition("meets a running turn:\n")

    assert set(re.findall(r"^\| `(\w+)` \|", below.partition("\n#")[0], re.MULTILINE)) == {
        way.value for way in WhenBusy
    }


def test_records_are_told_with_the_events_they_become() -> None:
    told = {kind: cells[-1].strip("`") for kind, cells in table("design.md", "Records").items()}
    events = {tag(type(record)): event_of(record) for record in journal()}

    assert told == {kind: tag(type(event)) if event else "" for kind, event in events.items()}


def test_every_number_that_the_design_explains_is_the_default() -> None:
    for name, (value, _) in table("design.md", "Numbers").items():
        section, _, key = name.partition(".")
        default = getattr(SECTIONS[section](), key)
        told = value.strip("`").replace(",", "")
        assert told == str(default) or float(told) == default, name
