"""A server does known work; the numbers at /metrics are that work, to the last one."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.home.houses import Home, House, living, token_of
from tests.support.doubles import Gate, calls, fails, replies, use, waits
from tests.support.scrape import OPENMETRICS, Numbers, get, scraped
from torpor.client.failures import RequestRefused
from torpor.errors import StoreFull
from torpor.provider_errors import RequestInvalid
from torpor.records.blocks import text_block
from torpor.store.requests import Outcome, Request
from torpor.store.sqlite.journal import SqliteCore

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
"""The handshake of a client that then says nothing."""
ONCE: dict[str, dict[str, Any]] = {"retry": {"retries_max": 0}}
DONE = replies(text_block("Done."))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.settings(**ONCE)
    home.tools("file_it")
    return home


async def known_work(house: House) -> None:
    """Four turns: one with a tool, one with a tool that nobody has, one that fails, one that is cancelled."""
    gate = Gate()
    house.model.then(
        calls(use("file_it", "a")),
        DONE,
        calls(use("make_up_my_mind", "a")),
        DONE,
        fails(RequestInvalid("no")),
        waits(gate, DONE, said=("Well",)),
    )
    await house.ask("File it.")
    await house.ask("Make something up.", conversation="c2")
    await house.ask("Fail.", conversation="c2")
    message = await house.say("Wait.", conversation="c1")
    with anyio.fail_after(10):
        await gate.reached.wait()
    await house.client.cancel("c1")
    await house.ended(message, conversation="c1")


async def spent(house: House) -> dict[str, int]:
    """Tokens of every reply in the journals."""
    total = {"input": 0, "output": 0}
    for conversation in ("c1", "c2"):
        for reply in await house.records("model_replied", conversation=conversation):
            total["input"] += reply["usage"].get("input_tokens", 0)
            total["output"] += reply["usage"].get("output_tokens", 0)
    return total


async def test_known_work_is_counted_to_the_last_turn_call_and_token(home: Home) -> None:
    async with living(home) as house:
        await known_work(house)
        numbers = await scraped(house.server.url)
        tokens = await spent(house)

    assert numbers.by("torpor_messages_total", "agent") == {("clerk",): 4}
    assert numbers.by("torpor_turns_started_total", "agent") == {("clerk",): 4}
    assert numbers.by("torpor_turns_ended_total", "agent", "outcome") == {
        ("clerk", "finished"): 2,
        ("clerk", "failed"): 1,
        ("clerk", "cancelled"): 1,
    }
    assert numbers.by("torpor_turn_failures_total", "code") == {("model_request_invalid",): 1}
    assert numbers.value("torpor_turn_seconds_count", agent="clerk") == 4
    assert numbers.by("torpor_model_calls_total", "model", "outcome") == {
        ("scripted", "replied"): 4,
        ("scripted", "model_request_invalid"): 1,
        ("scripted", "cancelled"): 1,
    }
    assert numbers.value("torpor_model_seconds_count", model="scripted") == 6
    assert numbers.value("torpor_model_first_delta_seconds_count", model="scripted") == 3  # two replies, one cut off
    assert numbers.by("torpor_model_tokens_total", "kind") == {
        ("input",): tokens["input"],
        ("output",): tokens["output"],
        ("cache_read",): 0,
        ("cache_write",): 0,
    }
    assert numbers.by("torpor_tool_calls_total", "tool", "outcome") == {
        ("file_it", "succeeded"): 1,
        ("unknown", "failed"): 1,
    }
    assert numbers.value("torpor_tool_seconds_count", tool="file_it") == 1


async def test_events_are_counted_once_a_fork_and_a_new_title_among_them(home: Home) -> None:
    async with living(home, DONE) as house:
        await house.ask("Hello.")
        before = (await scraped(house.server.url)).value("torpor_events_committed_total") or 0
        await house.client.fork("c1", "c2", title="Other")
        await house.client.rename("c1", "First")
        after = (await scraped(house.server.url)).value("torpor_events_committed_total") or 0

    assert after - before == 3


async def test_store_is_counted_as_the_journals_have_it(home: Home) -> None:
    async with living(home) as house:
        await known_work(house)
        numbers = await scraped(house.server.url)
        records = [await house.records(conversation=conversation) for conversation in ("c1", "c2")]

    assert numbers.value("torpor_commit_records_total") == sum(map(len, records))
    assert numbers.by("torpor_commits_total", "outcome").keys() == {("committed",)}
    commits = numbers.value("torpor_commits_total", outcome="committed")
    assert commits is not None
    assert numbers.value("torpor_commit_seconds_count") == commits
    flushes, writes = (
        numbers.value("torpor_store_flush_seconds_count"),
        numbers.value("torpor_store_flush_requests_sum"),
    )
    assert flushes is not None
    assert writes is not None
    assert flushes <= writes
    assert writes >= commits
    assert numbers.value("torpor_store_waiting") == 0
    assert (numbers.value("torpor_store_database_bytes") or 0) > 0


async def test_parts_tell_how_they_stand_while_a_turn_runs(home: Home) -> None:
    gate = Gate()
    async with living(home, waits(gate, DONE)) as house:
        message = await house.say("Wait.")
        with anyio.fail_after(10):
            await gate.reached.wait()
        during = await scraped(house.server.url)
        gate.opened.set()
        await house.ended(message)
        after = await scraped(house.server.url)

    assert during.value("torpor_model_places_taken") == 1
    assert during.value("torpor_turns_started_total", agent="clerk") == 1
    assert during.by("torpor_turns_ended_total", "outcome") == {}
    assert during.value("torpor_gateway_connections") == 1
    assert after.value("torpor_model_places_taken") == 0
    assert after.value("torpor_gateway_opened_total") == 1


async def test_errors_of_clients_are_counted_by_their_code(home: Home) -> None:
    async with living(home) as house:
        for _ in range(2):
            with pytest.raises(RequestRefused):
                await house.client.cancel("c9")
        numbers = await scraped(house.server.url)

    assert numbers.by("torpor_gateway_errors_total", "code") == {("unknown_conversation",): 2}


async def test_clients_are_counted_by_how_they_came_back_and_why_they_were_closed(home: Home) -> None:
    home.settings(gateway={"hello_deadline_s": 1.5, "sweep_s": 0.05})  # which those who scrape keep on a busy machine
    async with living(home, DONE) as house:
        await house.ask("Hello?")
        async with house.client.watch("c1") as watch:
            await anext(watch)
        async with await anyio.connect_tcp("127.0.0.1", int(house.server.url.rpartition(":")[2])) as silent:
            await silent.send(UPGRADE)
            with anyio.fail_after(10):
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while await silent.receive():
                        pass
                while not (numbers := await scraped(house.server.url)).by("torpor_gateway_closed_total", "reason"):
                    pass

    assert numbers.by("torpor_gateway_joined_total", "how") == {("resumed",): 1, ("reload",): 1}
    assert numbers.by("torpor_gateway_closed_total", "reason") == {("hello_overdue",): 1}


async def test_page_names_nobody_and_nothing_that_was_said(home: Home) -> None:
    async with living(home) as house:
        await known_work(house)
        page = (await get(house.server.url, "/metrics")).body

    for word in ("developer", "c1", "c2", "File it", "Done", "make_up_my_mind", house.server.development_token):
        assert word not in page


async def test_openmetrics_is_given_to_who_asks_for_it(home: Home) -> None:
    async with living(home, DONE) as house:
        await house.ask("Hello?")
        plain = await get(house.server.url, "/metrics")
        modern = await get(house.server.url, "/metrics", accept=OPENMETRICS)

    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    told = Numbers(modern.body, is_openmetrics=True)
    assert told.value("torpor_turns_ended_total", agent="clerk", outcome="finished") == 1
    assert told.kinds["torpor_turn_seconds"] == "histogram"


async def test_page_is_read_and_nothing_else(home: Home) -> None:
    async with living(home) as house:
        head = await get(house.server.url, "/metrics", method="HEAD")
        post = await get(house.server.url, "/metrics", method="POST")

    assert (head.status, head.body, int(head.headers["content-length"]) > 0) == (200, "", True)
    assert (post.status, post.headers["allow"]) == (405, "GET, HEAD")


async def test_process_is_told_beside_the_engine(home: Home) -> None:
    async with living(home) as house:
        numbers = await scraped(house.server.url)

    for name in ("process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"):
        assert (numbers.value(name) or 0) > 0


class TestAccess:
    """Who may read the numbers."""

    async def test_client_on_this_machine_may(self, home: Home) -> None:
        async with living(home) as house:
            assert (await get(house.server.url, "/metrics")).status == 200

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("localhost:8001", 200),
            ("metrics.localhost", 200),
            ("[::1]:8001", 200),
            ("evil.example", 401),
            ("127.0.0.1.evil.example:8001", 401),
            ("[::1", 401),
        ],
    )
    async def test_page_whose_own_name_leads_here_may_not(self, home: Home, host: str, status: int) -> None:
        async with living(home) as house:
            assert (await get(house.server.url, "/metrics", host=host)).status == status

    async def test_client_behind_a_proxy_needs_an_operators_token(self, home: Home) -> None:
        async with living(home) as house:
            far = {"x_forwarded_for": "192.0.2.7"}
            token = house.server.development_token
            nobody = await get(house.server.url, "/metrics", **far)
            operator = await get(house.server.url, "/metrics", authorization=f"Bearer {token}", **far)

        assert (nobody.status, operator.status) == (401, 200)
        assert nobody.headers["www-authenticate"].startswith("Bearer")

    async def test_everybody_needs_one_where_it_is_asked_for(self, home: Home) -> None:
        home.settings(metrics={"access": "operator"})
        async with living(home) as house:
            url, chatter = house.server.url, token_of(home, "ann")
            statuses = [
                (await get(url, "/metrics", **headers)).status
                for headers in (
                    {},
                    {"authorization": "Bearer nonsense"},
                    {"authorization": f"Bearer {chatter}"},
                    {"authorization": f"Bearer {house.server.development_token}"},
                )
            ]

        assert statuses == [401, 401, 403, 200]

    async def test_this_machine_is_not_trusted_where_a_proxy_ends_tls(self, home: Home) -> None:
        (home.path / "secret.txt").write_text("of at least thirty-two characters")
        home.settings(gateway={"tls": "terminated"}, auth={"secret_file": "secret.txt"})
        async with living(home) as house:
            assert (await get(house.server.url, "/metrics")).status == 401

    async def test_open_is_open(self, home: Home) -> None:
        home.settings(metrics={"access": "open"})
        async with living(home) as house:
            assert (await get(house.server.url, "/metrics", x_forwarded_for="192.0.2.7")).status == 200

    async def test_off_is_nowhere(self, home: Home) -> None:
        home.settings(metrics={"access": "off"})
        async with living(home) as house:
            assert (await get(house.server.url, "/metrics")).status == 404


class TestReadiness:
    """What ``/readyz`` says of the store."""

    async def test_server_whose_store_refuses_writes_is_not_ready_until_it_takes_one(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        is_full, commit = [True], SqliteCore.commit

        def refuses(core: SqliteCore, requests: Sequence[Request]) -> list[Outcome]:
            return [StoreFull("the disk is full")] * len(requests) if is_full[0] else commit(core, requests)

        async with living(home, DONE) as house:
            before = (await get(house.server.url, "/readyz")).status
            monkeypatch.setattr(SqliteCore, "commit", refuses)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(house.ask, "Hello?")  # which the client says again until it is taken
                with anyio.fail_after(10):
                    while (await get(house.server.url, "/readyz")).status == 200:
                        pass
                numbers = await scraped(house.server.url)
                is_full[0] = False
            after = (await get(house.server.url, "/readyz")).status

        assert (before, after) == (200, 200)
        assert (numbers.value("torpor_commits_total", outcome=StoreFull.code) or 0) >= 1
