"""Types of error by status."""

import json

import pytest

from torpor_fake_api.errors import Refusal, envelope, type_of


@pytest.mark.parametrize(
    ("status", "error_type"),
    [
        (400, "invalid_request_error"),
        (405, "invalid_request_error"),
        (413, "request_too_large"),
        (502, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_a_status_has_its_type_of_error(status: int, error_type: str) -> None:
    assert type_of(status) == Refusal(status, "no").error_type == error_type


def test_the_envelope_names_type_message_and_request() -> None:
    assert json.loads(envelope("api_error", "oops", request_id="req_1")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "oops"},
        "request_id": "req_1",
    }
