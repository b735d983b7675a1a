"""The host without its sockets: paths, keys, errors, messages, models."""

from typing import Any

import pytest

from tests.unit.fake_api.hosts import HEADERS, get, host, post, raw_request, send
from tests.unit.fake_api.parts import HELLO, assistant, mark, request, rounds, user
from torpor_fake_api.scripting.catalogue import misbehave
from torpor_fake_api.scripting.faults import Cut, HttpError
from torpor_fake_api.scripting.replies import Reply, Thinking, ToolUse, says

NAMED = request(model="toy-4k", max_tokens=500, tools=None, system=None)


def asking(*messages: Any, **fields: Any) -> dict[str, Any]:
    return request(*messages, **({"model": "toy-4k", "max_tokens": 500} | fields))


def test_a_valid_request_gets_what_the_script_says() -> None:
    response = post(host("Good day."), NAMED)

    assert response.status == 200
    assert response.body["content"] == [{"type": "text", "text": "Good day."}]
    assert response.headers["request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({}, 401, "x-api-key header is required"),
        ({"authorization": "Basic x"}, 401, "x-api-key header is required"),
        ({"x-api-key": "right", "authorization": "Bearer right"}, 401, "may not both be given"),
        ({"x-api-key": "wrong"}, 401, "invalid x-api-key"),
        ({"authorization": "Bearer wrong"}, 401, "invalid bearer token"),
        ({"x-api-key": "right"}, 400, "anthropic-version: header is required"),
        ({"x-api-key": "right", "anthropic-version": "2026-10-21"}, 200, ""),
        ({"authorization": "bearer right", "anthropic-version": "2026-10-21"}, 200, ""),
    ],
)
def test_a_request_needs_one_valid_key_and_a_version(headers: dict[str, str], status: int, message: str) -> None:
    response = send(host(api_key="right"), raw_request("GET", "/v1/models", headers=headers))

    assert response.status == status
    assert message in response.body.get("error", {}).get("message", "")
    assert "request-id" in response.headers


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"model": ', "request body is not valid JSON: Input data was truncated"),
        (b'{"model": "\\ud83d"}', "request body is not valid JSON: no low surrogate in string"),
        (b'{"model": "\xff"}', "request body is not valid JSON: Invalid UTF-8"),
        (b'{"temperature": NaN}', "request body is not valid JSON: JSON is malformed"),
        (b"[]", "the body is not a JSON object"),
        (b"{}", "model: Field required"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes, message: str) -> None:
    response = send(host(), raw_request("POST", "/v1/messages", body))

    assert (response.status, response.body["error"]["type"]) == (400, "invalid_request_error")
    assert response.body["error"]["message"].startswith(message)
    assert response.body["request_id"] == response.headers["request-id"]


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v1/messages", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/complete", 404),
        ("GET", "/v1/models/nobody", 404),
        ("GET", "/v1/models?limit=0", 400),
        ("GET", "/v1/models?limit=many", 400),
    ],
)
def test_other_paths_are_errors(method: str, target: str, status: int) -> None:
    assert send(host(), raw_request(method, target)).status == status


def test_an_unknown_model_is_not_found() -> None:
    response = post(host(), NAMED | {"model": "nobody"})

    assert (response.status, response.body["error"]) == (
        404,
        {"type": "not_found_error", "message": "model: nobody"},
    )


def test_a_body_too_large_is_refused_by_its_size() -> None:
    response = send(host(), raw_request("POST", "/v1/messages", size_bytes=32 * 1024 * 1024 + 1))

    assert (response.status, response.body["error"]["type"]) == (413, "request_too_large")


def test_the_first_violation_is_told_and_all_of_them_are_kept() -> None:
    refusing = host("never said")
    response = post(refusing, asking(user({"type": "text", "text": ""}), max_tokens=-1))

    assert response.body["error"]["message"] == "max_tokens: -1 is not a positive integer"
    assert [found.rule for found in refusing.received[0].violations] == ["V-05", "V-31"]
    assert refusing.messages.script.queued == 1, "a refused request takes nothing from the script"


def test_a_prompt_longer_than_the_window_is_refused() -> None:
    refusing = host()
    response = post(refusing, asking(user({"type": "text", "text": "word " * 4000})))

    assert response.body["error"]["message"].startswith("prompt is too long: 4")
    assert response.body["error"]["message"].endswith("tokens > 4000 maximum")
    assert [found.rule for found in refusing.received[0].violations] == ["V-70"]


def test_tokens_are_counted_as_they_are_used() -> None:
    counting = host()
    body = asking(*rounds(2))
    counted = post(counting, {k: v for k, v in body.items() if k != "max_tokens"}, path="/v1/messages/count_tokens")

    assert counted.body == {"input_tokens": post(counting, body).body["usage"]["input_tokens"]}


def test_a_count_of_an_invalid_request_is_refused() -> None:
    assert post(host(), asking(), path="/v1/messages/count_tokens").status == 400


def test_a_second_request_reads_what_the_first_one_cached_until_it_ends() -> None:
    caching = host()
    body = asking(system=[{"type": "text", "text": "Be brief. " * 20} | mark()])

    first, second, late = (post(caching, body, now_s=now_s).body["usage"] for now_s in (0, 299, 600))

    assert first["cache_creation_input_tokens"] == second["cache_read_input_tokens"] > 0
    assert (second["cache_creation_input_tokens"], late["cache_read_input_tokens"]) == (0, 0)


def test_a_request_that_fails_before_its_reply_writes_no_cache() -> None:
    caching = host(misbehave("overloaded"))
    body = asking(system=[{"type": "text", "text": "Be brief. " * 20} | mark()])

    assert post(caching, body).status == 529
    assert post(caching, body).body["usage"]["cache_read_input_tokens"] == 0


def test_max_tokens_of_zero_fills_the_cache_and_takes_nothing_from_the_script() -> None:
    warming = host("never said")
    response = post(warming, asking(max_tokens=0, system=[{"type": "text", "text": "Be brief. " * 20} | mark()]))

    assert (response.body["content"], response.body["stop_reason"]) == ([], "max_tokens")
    assert response.body["usage"]["cache_creation_input_tokens"] > 0
    assert (response.body["usage"]["output_tokens"], warming.messages.script.queued) == (0, 1)


def test_thinking_is_accepted_as_it_was_and_refused_altered() -> None:
    thinking = host(says(Thinking("hm"), ToolUse("look_up")))
    content = post(thinking, asking()).body["content"]
    result = {"type": "tool_result", "tool_use_id": content[1]["id"], "content": "found"}

    def status(*replayed: Any) -> int:
        return post(thinking, asking(user(HELLO), assistant(*replayed), user(result))).status

    assert status(*content) == 200
    assert status(content[0] | {"thinking": "hum"}, content[1]) == 400
    assert status(content[1]) == 400


def test_thinking_of_another_model_is_accepted_and_not_read() -> None:
    switching = host(says(Thinking("hm, " * 50), "hello"))
    content = post(switching, asking()).body["content"]
    later = asking(user(HELLO), assistant(*content), user(HELLO))

    here, there = (post(switching, later | {"model": model}).body for model in ("toy-4k", "claude-sonnet-4-6"))

    assert there["usage"]["input_tokens"] < here["usage"]["input_tokens"] - 50


def test_a_paused_turn_goes_on_when_it_is_sent_back_as_often_as_it_pauses() -> None:
    pausing = host(misbehave("pause_turn", over=says("one")), misbehave("pause_turn", over=says("two")), "three")
    content: list[Any] = []

    for said in ("one", "two", "three"):
        messages = [user(HELLO), assistant(*content)] if content else [user(HELLO)]
        content += post(pausing, asking(*messages)).body["content"]
        assert content[-1]["text"] == said

    assert post(pausing, asking(user(HELLO), assistant(*content))).body["error"]["message"].startswith("messages.1")


def test_a_reply_that_broke_off_is_remembered_as_far_as_it_came() -> None:
    breaking = host(says(Thinking("hm"), Thinking("more"), "text", fault=Cut(at="after_events:6")))
    reaction = post(breaking, asking(stream=True)).reaction
    assert reaction.answer
    first = reaction.answer.message.content[0]

    assert post(breaking, asking(user(HELLO), assistant(first, HELLO), user(HELLO))).status == 200


@pytest.mark.parametrize(
    ("fault", "header"),
    [
        (HttpError(status=429, retry_after_s=2.5), ("retry-after", "2.5")),
        (HttpError(status=429, retry_after_s=0.25, retry_after_as="ms"), ("retry-after-ms", "250")),
        (
            HttpError(status=429, retry_after_s=60, retry_after_as="date"),
            ("retry-after", "Mon, 30 Nov 2026 12:01:00 GMT"),
        ),
        (HttpError(status=503, headers={"x-should-retry": "false"}), ("x-should-retry", "false")),
    ],
)
def test_a_scripted_error_tells_when_to_come_back(fault: HttpError, header: tuple[str, str]) -> None:
    response = post(host(Reply(fault=fault)), NAMED)

    assert response.status == fault.status
    assert header in response.headers.items()


def test_a_scripted_error_without_retry_has_no_such_header() -> None:
    response = post(host(misbehave("rate_limited_bare")), NAMED)

    assert response.status == 429
    assert not [name for name in response.headers if name.startswith("retry-after")]


def test_a_page_of_a_proxy_has_no_envelope_and_no_request_id() -> None:
    response = post(host(misbehave("bad_gateway")), NAMED)

    assert (response.status, response.headers["content-type"]) == (502, "text/html")
    assert response.text.startswith("<h1>")
    assert "request-id" not in response.headers


def test_a_script_that_cannot_be_played_says_so() -> None:
    failing = host(misbehave("cut", at="after_deltas:9", over=says("one")))
    response = post(failing, NAMED | {"stream": True})

    assert response.status == 500
    assert response.body["error"]["message"] == (
        "script: the reply has 1 of the 9 events after which the fault should come"
    )
    assert failing.received[0].problem


def test_models_are_listed_page_by_page_and_told_one_by_one() -> None:
    telling = host()
    first = get(telling, "/v1/models?limit=3").body
    second = get(telling, f"/v1/models?limit=1000&after_id={first['last_id']}").body

    ids = [model["id"] for model in first["data"] + second["data"]]
    assert ids == list(telling.messages.models)
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert get(telling, "/v1/models/toy-4k").body["max_input_tokens"] == 4000


def test_two_hosts_give_different_ids() -> None:
    assert post(host(seed="a"), NAMED).body["id"] != post(host(seed="b"), NAMED).body["id"]


def test_what_was_received_is_kept_and_described_without_its_key() -> None:
    keeping = host()
    post(keeping, NAMED)
    [received] = keeping.received

    assert (received.body, received.headers) == (NAMED, HEADERS)
    told = received.described()
    assert (told["path"], told["status"], told["outcome"]) == ("/v1/messages", 200, "finished")
    assert told["headers"] == {"anthropic-version": "2026-10-21"}
    assert repr(received) == "<Received POST /v1/messages 200 finished>"
    assert repr(keeping) == "<Host profile=strict requests=1>"
