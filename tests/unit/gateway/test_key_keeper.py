"""The keys of an issuer stay fresh at a bounded price, and the last good ones stay when it is unwell."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock

from tests.support.issuer import issuer_options, key_set, public_jwk
from torpor.gateway.key_keeper import KeyKeeper, KeysUnreadable

ONE, TWO = key_set(public_jwk("ES256")), key_set(public_jwk("ES256", "two"))


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, MockClock]]:
    """Time passes when nobody has anything to do."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Source:
    """What an issuer answers: text, an error to raise, or None for no answer at all."""

    def __init__(self, *answers: bytes | Exception | None) -> None:
        self.answers = list(answers)
        self.asked_s: list[float] = []

    async def load(self) -> bytes:
        self.asked_s.append(anyio.current_time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    def gaps_s(self) -> list[float]:
        return [round(after - before, 3) for before, after in zip(self.asked_s, self.asked_s[1:], strict=False)]


def keeper_of(source: Source, **more: Any) -> KeyKeeper:
    times = {"jwks_refresh_s": 300.0, "jwks_pause_s": 3.0, "jwks_deadline_s": 5.0, **more}
    return KeyKeeper(source.load, source="keys", options=issuer_options(**times))


def kids(keeper: KeyKeeper) -> list[str]:
    return [key.kid for key in keeper.keys.keys]


async def test_keys_are_there_from_the_start_and_looked_at_again_at_an_interval() -> None:
    source = Source(ONE, ONE, TWO)
    keeper = keeper_of(source)
    async with keeper.running():
        assert kids(keeper) == ["one"]
        await anyio.sleep(600.5)

        assert kids(keeper) == ["two"]
        assert source.gaps_s() == [300.0, 300.0]


async def test_whoever_asks_gets_what_is_found_after_the_question() -> None:
    keeper = keeper_of(Source(ONE, TWO))
    async with keeper.running():
        assert await keeper.renewed()
        assert kids(keeper) == ["two"]


async def test_any_number_of_questions_costs_the_issuer_one_look_in_each_pause() -> None:
    source = Source(ONE)
    keeper = keeper_of(source)
    async with keeper.running(), anyio.create_task_group() as tasks:
        for _ in range(1_000):
            tasks.start_soon(keeper.renewed)
        await anyio.sleep(1.5)
        for _ in range(1_000):
            tasks.start_soon(keeper.renewed)
        await anyio.sleep(3)
        for _ in range(1_000):
            tasks.start_soon(keeper.renewed)
        await anyio.sleep(10)

    assert source.gaps_s() == [3.0, 3.0]


async def test_a_question_during_a_look_is_answered_by_the_next_one() -> None:
    source = Source(ONE, None, TWO)
    keeper = keeper_of(source)
    found: list[tuple[bool, list[str]]] = []

    async def ask() -> None:
        found.append((await keeper.renewed(), kids(keeper)))

    async with keeper.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.sleep(4)  # the look that was asked for hangs
        tasks.start_soon(ask)

    assert found == [(False, ["one"]), (True, ["two"])]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (KeysUnreadable("HTTP 503"), "HTTP 503"),
        (b"<html>", "not JSON"),
        (b"{}", "no JSON object with a list 'keys'"),
        (None, "no answer in time"),
    ],
)
async def test_the_last_good_keys_stay_when_newer_ones_cannot_be_had(bad: bytes | Exception | None, why: str) -> None:
    source = Source(ONE, bad, TWO)
    keeper = keeper_of(source)
    async with keeper.running():
        with capture_logs() as logs:
            assert not await keeper.renewed()
        assert (kids(keeper), keeper.failure) == (["one"], why)
        (told,) = [line for line in logs if line["event"] == "auth.keys_kept"]
        assert (told["log_level"], told["why"], told["keys"]) == ("warning", why, 1)

        assert await keeper.renewed()
        assert (kids(keeper), keeper.failure) == (["two"], None)


async def test_after_failures_it_looks_sooner_and_then_more_and_more_seldom() -> None:
    source = Source(KeysUnreadable("down"))
    async with keeper_of(source).running():
        await anyio.sleep(1_000)

    assert source.gaps_s()[:3] == [6.0, 12.0, 24.0]
    assert max(source.gaps_s()) == 300.0


async def test_without_any_answer_a_question_ends_in_time() -> None:
    keeper = keeper_of(Source(ONE, None))
    async with keeper.running():
        began_s = anyio.current_time()

        assert not await keeper.renewed()
        assert anyio.current_time() - began_s == pytest.approx(8.0)  # the pause, and the deadline of the look


async def test_a_first_look_that_fails_leaves_a_server_that_can_start() -> None:
    keeper = keeper_of(Source(KeysUnreadable("down"), ONE))
    async with keeper.running():
        assert (kids(keeper), keeper.failure) == ([], "down")
        assert await keeper.renewed()

        assert kids(keeper) == ["one"]


def told(logs: list[Any], event: str) -> list[Any]:
    return [line for line in logs if line["event"] == event]


async def test_what_is_loaded_is_told_when_it_is_another_set() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0"}
    source = Source(ONE, ONE, key_set(public_jwk("ES256"), secret))
    keeper = keeper_of(source)
    looks: list[Callable[[], Any]] = [keeper.renewed, keeper.renewed]
    with capture_logs() as logs:
        async with keeper.running():
            for look in looks:
                await look()

    first, second = told(logs, "auth.keys_loaded")
    assert (first["keys"], first["log_level"]) == (["one"], "info")
    assert (second["passed_over"], second["log_level"]) == (
        ["key 2: is secret, and a key set is public: the issuer must replace it"],
        "warning",
    )
    assert "c2VjcmV0" not in repr(logs)


async def test_an_issuer_that_withdraws_every_key_is_heard() -> None:
    keeper = keeper_of(Source(ONE, b'{"keys": []}'))
    async with keeper.running():
        assert await keeper.renewed()

        assert kids(keeper) == []
