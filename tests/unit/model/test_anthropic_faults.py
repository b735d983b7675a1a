"""What a host's error answers are called here."""

import json

import pytest

from torpor.errors import Retry
from torpor.model.anthropic_faults import fault_of, retry_after_of
from torpor.provider_errors import (
    BillingRefused,
    ContextTooLong,
    KeyRefused,
    ModelUnknown,
    Overloaded,
    ProviderError,
    ProviderUnavailable,
    RateLimited,
    RequestInvalid,
    RequestTooLarge,
)

NOW_US = 1_764_500_000_000_000  # 2025-11-30 10:53:20 UTC


def fault(status: int, kind: str = "", message: str = "why", **headers: str) -> ProviderError:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode() if kind else b""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return fault_of(status=status, body=body, headers=named, model="m", now_us=NOW_US)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "invalid_request_error", RequestInvalid),
        (401, "authentication_error", KeyRefused),
        (402, "billing_error", BillingRefused),
        (403, "billing_error", BillingRefused),
        (403, "permission_error", KeyRefused),
        (404, "not_found_error", ModelUnknown),
        (413, "request_too_large", RequestTooLarge),
        (422, "something_new", RequestInvalid),
        (429, "rate_limit_error", RateLimited),
        (408, "something_new", ProviderUnavailable),
        (409, "conflict_error", ProviderUnavailable),
        (500, "api_error", ProviderUnavailable),
        (504, "timeout_error", ProviderUnavailable),
        (529, "overloaded_error", Overloaded),
        (200, "overloaded_error", Overloaded),
        (200, "rate_limit_error", RateLimited),
        (200, "invalid_request_error", RequestInvalid),
        (200, "api_error", ProviderUnavailable),
    ],
)
def test_the_type_decides_whatever_the_status(status: int, kind: str, expected: type[ProviderError]) -> None:
    assert type(fault(status, kind)) is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, RequestInvalid),
        (401, KeyRefused),
        (402, BillingRefused),
        (403, KeyRefused),
        (404, ModelUnknown),
        (413, RequestTooLarge),
        (418, RequestInvalid),
        (429, RateLimited),
        (502, ProviderUnavailable),
        (529, Overloaded),
    ],
)
def test_the_status_decides_where_no_type_is_told(status: int, expected: type[ProviderError]) -> None:
    assert type(fault(status)) is expected


@pytest.mark.parametrize(
    "message",
    [
        "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
    ],
)
def test_an_account_without_credit_is_told_by_its_words(message: str) -> None:
    found = fault(400, "invalid_request_error", message)
    assert (type(found), str(found)) == (BillingRefused, message)


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 214431 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 196601 + 16000 > 200000",
    ],
)
def test_a_request_beyond_the_window_is_told_by_its_words(message: str) -> None:
    found = fault(400, "invalid_request_error", message)
    assert (type(found), str(found)) == (ContextTooLong, message)


def test_a_model_that_is_not_there_is_named() -> None:
    assert str(fault(404, "not_found_error", "no such model")) == "no such model (model 'm')"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "no message"),
        (b" \n", "no message"),
        (b"<h1>502 Bad Gateway</h1>", "<h1>502 Bad Gateway</h1>"),
        (b"\xff bad", "\N{REPLACEMENT CHARACTER} bad"),
        (b"[" * 100_000, "[" * 100_000),
        (b'{"error": "broken"}', "broken"),
        (b'{"error": ""}', "no message"),
        (b'{"detail": "broken"}', '{"detail": "broken"}'),
        (b'["broken"]', '["broken"]'),
        (b'{"error": {}}', "no message"),
        (b'{"error": {"type": null, "message": null}}', "no message"),
        (b'{"error": {"type": 5, "message": {"a": 1}}}', '{"error": {"type": 5, "message": {"a": 1}}}'),
        (b'{"error": {"type": "api_error", "message": "why"}}', "why"),
    ],
)
def test_whatever_came_in_place_of_the_envelope_is_told(body: bytes, told: str) -> None:
    found = fault_of(status=503, body=body, headers={}, model="m", now_us=NOW_US)
    assert (type(found), str(found)) == (ProviderUnavailable, told)


@pytest.mark.parametrize(
    ("headers", "told"),
    [({"location": "http://elsewhere/"}, "redirects to http://elsewhere/"), ({}, "an address that it does not tell")],
)
def test_a_redirect_names_its_place_and_is_not_asked_again(headers: dict[str, str], told: str) -> None:
    found = fault_of(status=307, body=b"", headers=headers, model="m", now_us=NOW_US)
    assert (type(found), found.retry) == (RequestInvalid, Retry.NEVER)
    assert told in str(found)
    assert "model.base_url" in str(found)


def test_what_may_pass_may_be_asked_again_and_nothing_else() -> None:
    safe = {type(found) for status in range(400, 600) if (found := fault(status)).retry is Retry.SAFE}
    assert safe == {RateLimited, Overloaded, ProviderUnavailable}


def test_only_a_host_that_is_down_speaks_against_the_host() -> None:
    assert {type(found) for status in range(400, 600) if (found := fault(status)).is_of_host} == {ProviderUnavailable}


def test_the_hosts_wish_to_wait_comes_along() -> None:
    assert fault(429, retry_after="7").retry_after_s == 7
    assert fault(529, retry_after="7").retry_after_s == 7
    assert fault(503, retry_after="7").retry_after_s == 7
    assert fault(429).retry_after_s is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Sun, 30 Nov 2025 10:53:25 GMT"}, 5.0),
        ({"retry-after": "Sun, 30 Nov 2025 10:53:15 GMT"}, 0.0),
        ({"retry-after": "Sun, 30 Nov 2025 10:53:25 -0000"}, 5.0),
        ({"retry-after": "1 Jan 99999999999999999999 1:1:1 -0000"}, None),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e12"}, None),
    ],
)
def test_a_wish_to_wait_is_milliseconds_seconds_or_a_date(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_of(headers, now_us=NOW_US) == expected
