"""Errors before the reply: the exceptions that the SDK makes of them."""

import time
from email.utils import parsedate_to_datetime

import anthropic
import pytest

from tests.integration.fake_api.asking import asking, assistant
from tests.integration.fake_api.conftest import Client
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.server import FakeApi, serving

CLASSES = [
    ("invalid_request", "BadRequestError", "invalid_request_error"),
    ("prompt_too_long", "BadRequestError", "invalid_request_error"),
    ("spend_limit", "BadRequestError", "invalid_request_error"),
    ("not_authenticated", "AuthenticationError", "authentication_error"),
    ("billing", "PaymentRequiredError", "billing_error"),
    ("billing_forbidden", "PermissionDeniedError", "billing_error"),
    ("forbidden", "PermissionDeniedError", "permission_error"),
    ("model_not_found", "NotFoundError", "not_found_error"),
    ("conflict", "ConflictError", "conflict_error"),
    ("too_large", "ContentTooLargeError", "request_too_large"),
    ("rate_limited", "RateLimitError", "rate_limit_error"),
    ("rate_limited_bare", "RateLimitError", "rate_limit_error"),
    ("server_error", "InternalServerError", "api_error"),
    ("unavailable", "ServiceUnavailableError", "api_error"),
    ("gateway_timeout", "GatewayTimeoutError", "timeout_error"),
    ("overloaded", "OverloadedError", "overloaded_error"),
]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("name", "exception", "error_type"), CLASSES)
async def test_each_status_is_its_own_exception(
    api: FakeApi, client: Client, *, name: str, exception: str, error_type: str, is_stream: bool
) -> None:
    api.say(misbehave(name))

    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.messages.create(**asking(stream=is_stream))

    assert type(caught.value) is getattr(anthropic, exception)
    assert (caught.value.type, caught.value.request_id) == (error_type, api.requests[0].request_id)
    assert caught.value.status_code == api.requests[0].status
    assert (await client.messages.create(**asking())).stop_reason == "end_turn", "the next request is served"


@pytest.mark.parametrize(
    ("name", "exception"), [("bad_gateway", "InternalServerError"), ("too_large_at_edge", "ContentTooLargeError")]
)
async def test_a_page_of_a_proxy_has_a_status_and_nothing_else(
    api: FakeApi, client: Client, *, name: str, exception: str
) -> None:
    api.say(misbehave(name))

    with pytest.raises(getattr(anthropic, exception)) as caught:
        await client.messages.create(**asking())

    assert (caught.value.type, caught.value.request_id) == (None, None)


async def test_retry_after_comes_in_seconds_as_a_date_in_milliseconds_or_not_at_all(
    api: FakeApi, client: Client
) -> None:
    async def headers(name: str) -> dict[str, str]:
        api.say(misbehave(name))
        with pytest.raises(anthropic.RateLimitError) as caught:
            await client.messages.create(**asking())
        return {key: value for key, value in caught.value.response.headers.items() if key.startswith("retry-after")}

    assert await headers("rate_limited") == {"retry-after": "1"}
    assert await headers("rate_limited_ms") == {"retry-after-ms": "250"}
    assert await headers("rate_limited_hours") == {"retry-after": "7200"}
    assert await headers("rate_limited_bare") == {}
    date = (await headers("rate_limited_date"))["retry-after"]
    assert parsedate_to_datetime(date).timestamp() <= time.time() + 2


async def test_an_invalid_request_is_refused_with_its_place(api: FakeApi, client: Client) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        await client.messages.create(**asking("hello", assistant({"type": "text", "text": " "}), "and?"))

    assert caught.value.api_message == (
        "messages.1.content.0.text: text content blocks must contain non-whitespace text"
    )
    assert [found.rule for found in api.requests[0].violations] == ["V-31"]


async def test_an_unknown_model_is_not_found(client: Client) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(**asking(model="nobody"))
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("nobody")


async def test_a_wrong_key_is_refused() -> None:
    async with (
        serving(api_key="right") as api,
        anthropic.AsyncAnthropic(api_key="wrong", base_url=api.url, max_retries=0) as client,
    ):
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.create(**asking())
        await client.with_options(api_key="right").messages.create(**asking())


async def test_a_body_too_large_is_read_to_its_end_and_refused(client: Client) -> None:
    with pytest.raises(anthropic.ContentTooLargeError):
        await client.with_options(timeout=30).messages.create(**asking("x" * (32 * 1024 * 1024)))


async def test_the_sdk_retries_an_overloaded_host(api: FakeApi, client: Client) -> None:
    api.say(misbehave("rate_limited_ms"), "Now.")

    message = await client.with_options(max_retries=1).messages.create(**asking())

    assert message.content[0].to_dict()["text"] == "Now."
    assert [received.headers["x-stainless-retry-count"] for received in api.requests] == ["0", "1"]
