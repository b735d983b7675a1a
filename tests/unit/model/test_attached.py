"""What is sent in the place of markers."""

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.marked import attachment
from torpor.conversation.view import Preamble, View, preamble_of
from torpor.model.anthropic_faults import fault_of
from torpor.model.anthropic_wire import WireRequests
from torpor.model.attached import sent_block
from torpor.provider_errors import AttachmentNotTaken, RequestInvalid
from torpor.records.attachments import marker_block
from torpor.records.blocks import text_block

PREAMBLE: Preamble = preamble_of({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "s"}]})
PICTURE, PDF, NOTE = b"\x89PNG picture", b"%PDF-1.7", 'a "note"\n\u00e9'.encode()
FILES = (
    attachment(PICTURE),
    attachment(PDF, media_type="application/pdf", pages=1, name="letter"),
    attachment(NOTE, media_type="text/plain", name="note"),
)
BYTES = {each.blob: data for each, data in zip(FILES, (PICTURE, PDF, NOTE), strict=True)}
EXPECTED: list[dict[str, Any]] = [
    {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PICTURE).decode()},
    },
    {
        "type": "document",
        "title": "letter",
        "source": {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(PDF).decode()},
    },
    {
        "type": "document",
        "title": "note",
        "source": {"type": "text", "media_type": "text/plain", "data": NOTE.decode()},
    },
]


def test_each_kind_becomes_the_block_that_hosts_take() -> None:
    assert [json.loads(sent_block(each, BYTES[each.blob])) for each in FILES] == EXPECTED


def view_of(order: Sequence[int]) -> View:
    view = View().extended("user", [marker_block(FILES[0]), text_block("first")])
    view = view.extended("assistant", [text_block("seen")])
    return view.extended("user", [*(marker_block(FILES[number]) for number in order)])


def sent(wire: WireRequests, view: View) -> Any:
    return json.loads(wire.body(PREAMBLE, view, attached=BYTES))


@pytest.mark.parametrize("keep", [lambda view: view, View.packed, lambda view: view.settled(View())])
@pytest.mark.parametrize("cache_ttl", ["off", "5m"])
@pytest.mark.parametrize("order", [(0,), (2, 1, 0), (1, 1, 2)])
def test_bytes_stand_where_markers_do_and_nothing_else_moves(
    keep: Callable[[View], View], cache_ttl: str, order: Sequence[int]
) -> None:
    body = sent(WireRequests(cache_ttl=cache_ttl), keep(view_of(order)))
    blocks = [block for message in body["messages"] for block in message["content"]]
    marks = [block.pop("cache_control", None) for block in blocks]
    text = [{"type": "text", "text": "first"}, {"type": "text", "text": "seen"}]
    assert blocks == [EXPECTED[0], *text, *(EXPECTED[number] for number in order)]
    assert (marks[-1] is not None) == (cache_ttl == "5m")


def fault(message: str) -> Exception:
    body = json.dumps({"error": {"type": "invalid_request_error", "message": message}}).encode()
    return fault_of(status=400, body=body, headers={}, model="m", now_us=0)


@pytest.mark.parametrize(
    ("message", "at", "is_of_picture"),
    [
        ("messages.3.content.1.image.source: Could not process image", (3, 1), True),
        ("messages.0.content.12.document.source.base64: no", (0, 12), False),
        ("Could not process image", None, True),
        (f"messages.{'9' * 5000}.content.0.image.source: no", None, True),
        ("A maximum of 100 PDF pages may be provided", None, False),
    ],
)
def test_a_host_says_which_file_it_does_not_take(message: str, at: object, is_of_picture: bool) -> None:
    found = fault(message)
    assert isinstance(found, AttachmentNotTaken)
    assert (found.at, found.is_of_picture) == (at, is_of_picture)


def test_a_model_without_eyes_that_fails_on_its_side_does_not_take_pictures() -> None:
    body = json.dumps({"error": {"type": "server_error", "message": "image input is not supported"}}).encode()
    found = fault_of(status=500, body=body, headers={}, model="m", now_us=0)
    assert isinstance(found, AttachmentNotTaken)
    assert found.is_of_picture
    assert found.takes_none


def test_other_faults_are_of_no_file() -> None:
    assert type(fault("messages.1.content.0.text: must not be empty")) is RequestInvalid


@pytest.mark.parametrize(
    ("message", "is_of_messages"),
    [
        ("max_tokens: 4096 > 10, which is the maximum allowed", False),
        ("tools.0.custom.input_schema: describes an image that is no schema", False),
        ("messages.1.content.0.text: must not be empty", False),
        ("messages: roles must alternate", True),
        ("invalid request", True),
    ],
)
def test_a_host_that_names_another_part_of_the_request_means_no_file(message: str, is_of_messages: bool) -> None:
    found = fault(message)
    assert type(found) is RequestInvalid
    assert found.is_of_messages == is_of_messages
    assert found.worded("other").is_of_messages == is_of_messages
