"""Flags of a provider from elsewhere, which is slow, raises, hangs and changes its mind."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from openfeature.flag_evaluation import FlagResolutionDetails

from tests.support.doubles import ManualClock
from tests.support.flag_providers import PlayedProvider
from torpor.errors import ConfigError
from torpor.flags.contract import Decided, Decision, FlagContext
from torpor.flags.face import Flags
from torpor.flags.options import FlagOptions

PAY, LOOK = "tool.pay", "tool.look"
DECLARED = f'[flags."{PAY}"]\ndefault = true\n[flags."{LOOK}"]\ndefault = false\n'
SHORT_S = 0.05
LONG_S = 20.0


def of(owner: str) -> FlagContext:
    return FlagContext(tenant="north", owner=owner, agent="clinic")


ADA, LAST = of("ada"), of("last")
"""With one thread, an answer for ``LAST`` comes after everything that was asked before it."""


class House:
    """Flags of a home that declares two, asked from one provider on one thread."""

    def __init__(self, home: Path, provider: PlayedProvider, *, options: dict[str, Any]) -> None:
        self.clock = ManualClock()
        self.provider = provider
        self.file = home / "config" / "flags.toml"
        self.flags = Flags(home, clock=self.clock, options=FlagOptions(**options))

    async def asked(self, context: FlagContext = ADA) -> dict[str, tuple[bool, str]]:
        return summary(await self.flags.ask(context))

    def known(self, context: FlagContext = ADA) -> dict[str, tuple[bool, str]]:
        decided = self.flags.decided(context)
        return summary(decided) if decided is not None else {}


def summary(decided: Decided) -> dict[str, tuple[bool, str]]:
    return {key: (decision.value, decision.reason) for key, decision in decided.decisions.items()}


@asynccontextmanager
async def house(tmp_path: Path, played: PlayedProvider, **options: Any) -> AsyncIterator[House]:
    """A house whose flags run."""
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "flags.toml").write_text(DECLARED)
    given = {
        "provider": "tests.support.flag_providers:given",
        "provider_options": {"provider": played},
        "threads_max": 1,
        "deadline_s": LONG_S,
    }
    built = House(tmp_path, played, options=given | options)
    built.flags.load()
    with anyio.fail_after(LONG_S * 2):
        async with built.flags.running():
            yield built


@pytest.fixture
def provider() -> PlayedProvider:
    return PlayedProvider({PAY: False, LOOK: True})


async def test_provider_decides_with_its_variant_and_reason(tmp_path: Path, provider: PlayedProvider) -> None:
    async with house(tmp_path, provider) as built:
        assert built.flags.decided(ADA) is None

        decided = await built.flags.ask(ADA)

        assert summary(decided) == {PAY: (False, "TARGETING_MATCH"), LOOK: (True, "TARGETING_MATCH")}
        assert decided.decisions[PAY].variant == "played"
        assert built.flags.decided(ADA) == decided
    assert provider.is_shut_down


async def test_flag_that_the_provider_does_not_know_has_its_default(tmp_path: Path) -> None:
    async with house(tmp_path, PlayedProvider({PAY: False})) as built:
        assert await built.asked() == {PAY: (False, "TARGETING_MATCH"), LOOK: (False, "DEFAULT")}


async def test_flag_for_which_the_provider_fails_has_its_default(tmp_path: Path) -> None:
    async with house(tmp_path, PlayedProvider({PAY: OSError("no"), LOOK: True})) as built:
        assert await built.asked() == {PAY: (True, "ERROR"), LOOK: (True, "TARGETING_MATCH")}


async def test_value_of_another_kind_is_a_failure(tmp_path: Path) -> None:
    async with house(tmp_path, PlayedProvider({PAY: "off", LOOK: True})) as built:
        assert await built.asked() == {PAY: (True, "ERROR"), LOOK: (True, "TARGETING_MATCH")}


class Mute(Exception):
    """Says nothing of itself."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


def details(**fields: Any) -> Callable[[], Any]:
    given: dict[str, Any] = {"value": False, "variant": "off", "reason": "STATIC"} | fields
    return lambda: FlagResolutionDetails(**given)


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (details(variant=7), (False, "7", "STATIC")),
        (details(variant=["a", "b"]), (False, "list", "STATIC")),
        (details(variant=b"\xff"), (False, "bytes", "STATIC")),
        (details(variant="\ud800"), (False, "\ufffd", "STATIC")),
        (details(variant="v" * 1_000_000), (False, "v" * 64, "STATIC")),
        (details(variant=10**5_000), (True, "default", "ERROR")),
        (details(reason=["a"]), (False, "off", "list")),
        (details(reason="\ud800\0"), (False, "off", "\ufffd\u2400")),
        (details(value=0), (True, "default", "ERROR")),
        (details(value="false"), (True, "default", "ERROR")),
        (details(value=None), (True, "default", "ERROR")),
        (details(error_code="BOOM"), (True, "default", "ERROR")),
        (lambda: None, (True, "default", "ERROR")),
        (Mute(), (True, "default", "ERROR")),
        (SystemExit(3), (True, "default", "ERROR")),
        (KeyboardInterrupt(), (True, "default", "ERROR")),
    ],
    ids=range(16),
)
async def test_whatever_a_provider_answers_becomes_a_decision_that_a_journal_holds(
    tmp_path: Path, answer: object, decision: tuple[bool, str, str]
) -> None:
    played = PlayedProvider({PAY: answer, LOOK: True})
    async with house(tmp_path, played) as built:
        found = (await built.flags.ask(ADA)).decisions[PAY]
        played.values = {PAY: False, LOOK: True}

        assert (found.value, found.variant, found.reason) == decision
        assert msgspec.json.decode(msgspec.json.encode(found), type=Decision) == found
        assert await built.asked(LAST) == {PAY: (False, "TARGETING_MATCH"), LOOK: (True, "TARGETING_MATCH")}


async def test_slow_provider_leaves_the_defaults_and_is_heard_when_it_answers(
    tmp_path: Path, provider: PlayedProvider
) -> None:
    provider.evaluating.clear()
    async with house(tmp_path, provider, deadline_s=SHORT_S) as built:
        defaults = await built.asked()
        provider.evaluating.set()
        await provider.evaluation_of("north/ada")
        await built.asked(LAST)
        while built.known(LAST)[PAY][1] == "ERROR":  # its own deadline may pass before its turn comes
            await anyio.lowlevel.checkpoint()

        assert defaults == {PAY: (True, "ERROR"), LOOK: (False, "ERROR")}
        assert built.known() == {PAY: (False, "TARGETING_MATCH"), LOOK: (True, "TARGETING_MATCH")}


async def test_hanging_provider_is_waited_for_once_and_not_at_every_look(
    tmp_path: Path, provider: PlayedProvider
) -> None:
    provider.evaluating.clear()
    async with house(tmp_path, provider, deadline_s=SHORT_S) as built:
        await built.asked()

        assert built.known() == {PAY: (True, "ERROR"), LOOK: (False, "ERROR")}
        provider.evaluating.set()


async def test_asking_can_be_cancelled(tmp_path: Path, provider: PlayedProvider) -> None:
    provider.evaluating.clear()
    async with house(tmp_path, provider) as built:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(built.flags.ask, ADA)
            await provider.evaluation_of("north/ada")
            tasks.cancel_scope.cancel()

        assert built.flags.decided(ADA) is None
        provider.evaluating.set()


async def test_old_answer_is_given_while_it_is_asked_for_again(tmp_path: Path, provider: PlayedProvider) -> None:
    async with house(tmp_path, provider, refresh_s=30.0) as built:
        await built.asked()
        provider.values = {PAY: True, LOOK: True}
        built.clock.advance(29.0)
        young = built.known()
        await built.asked(LAST)
        still_young = built.known()

        built.clock.advance(2.0)
        old = built.known()
        await built.asked(of("barrier"))

        assert young == still_young == old
        assert old[PAY] == (False, "TARGETING_MATCH")
        assert built.known()[PAY] == (True, "TARGETING_MATCH")


async def test_what_was_switched_off_stays_off_while_the_provider_fails(
    tmp_path: Path, provider: PlayedProvider
) -> None:
    async with house(tmp_path, provider, refresh_s=30.0, retry_s=5.0) as built:
        await built.asked()
        provider.values = {PAY: OSError("down"), LOOK: OSError("down")}
        built.clock.advance(31.0)
        built.known()
        await built.asked(LAST)
        failing = built.known()

        provider.values = {PAY: False, LOOK: False}
        built.clock.advance(6.0)
        built.known()
        await built.asked(of("barrier"))

        assert failing == {PAY: (False, "STALE"), LOOK: (True, "STALE")}
        assert built.known() == {PAY: (False, "TARGETING_MATCH"), LOOK: (False, "TARGETING_MATCH")}


async def test_change_that_the_provider_tells_reaches_whoever_was_asked_for(
    tmp_path: Path, provider: PlayedProvider
) -> None:
    async with house(tmp_path, provider) as built:
        await built.asked()
        while provider.pending():
            await provider.evaluation()

        provider.change({PAY: True, LOOK: True})
        await provider.evaluation_of("north/ada")
        await built.asked(LAST)

        assert built.known() == {PAY: (True, "TARGETING_MATCH"), LOOK: (True, "TARGETING_MATCH")}


async def test_provider_that_starts_slowly_is_heard_once_it_is_ready(tmp_path: Path, provider: PlayedProvider) -> None:
    provider.starting.clear()
    async with house(tmp_path, provider, start_deadline_s=SHORT_S) as built:
        before = await built.asked()
        provider.starting.set()
        await provider.evaluation_of("north/ada")
        await built.asked(LAST)

        assert before == {PAY: (True, "ERROR"), LOOK: (False, "ERROR")}
        assert built.known() == {PAY: (False, "TARGETING_MATCH"), LOOK: (True, "TARGETING_MATCH")}


async def test_provider_that_fails_to_start_does_not_keep_the_engine_from_it(
    tmp_path: Path, provider: PlayedProvider
) -> None:
    provider.fails_to_start = True
    async with house(tmp_path, provider) as built:
        assert set(await built.asked()) == {PAY, LOOK}


async def test_flag_declared_later_has_its_default_until_the_provider_was_asked(
    tmp_path: Path, provider: PlayedProvider
) -> None:
    async with house(tmp_path, provider) as built:
        await built.asked()
        provider.values["memory"] = False
        provider.evaluating.clear()
        built.file.write_text(f"{DECLARED}[flags.memory]\ndefault = true\n")
        await built.flags.refresh()
        at_first = built.known()

        provider.evaluating.set()
        await built.asked(LAST)

        assert at_first == {
            PAY: (False, "TARGETING_MATCH"),
            LOOK: (True, "TARGETING_MATCH"),
            "memory": (True, "DEFAULT"),
        }
        assert built.known()["memory"] == (False, "TARGETING_MATCH")


async def test_provider_that_hangs_at_its_end_is_left_behind(tmp_path: Path, provider: PlayedProvider) -> None:
    provider.stopping.clear()
    async with house(tmp_path, provider, stop_deadline_s=SHORT_S) as built:
        await built.asked()

    assert not provider.is_shut_down
    provider.stopping.set()


async def test_event_after_the_end_is_nobodys(tmp_path: Path, provider: PlayedProvider) -> None:
    async with house(tmp_path, provider) as built:
        await built.asked()

    provider.change({PAY: True})

    assert built.flags.decided(ADA) is None


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"provider": "tests.support.flag_providers:absent"}, "flags.provider"),
        ({"provider": "no.such.package:make"}, "flags.provider"),
        ({"provider": "without_a_colon"}, "flags.provider"),
        ({"provider": "tests.support.flag_providers:refusing", "provider_options": {}}, "flags.provider_options"),
        ({"provider": "tests.support.flag_providers:exiting", "provider_options": {}}, "flags.provider_options"),
        ({"provider_options": {"unknown": 1}}, "flags.provider_options"),
        ({"provider_options": {"provider": "text"}}, "flags.provider"),
    ],
)
async def test_start_without_a_usable_provider_is_refused(
    tmp_path: Path, provider: PlayedProvider, options: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with house(tmp_path, provider, **options):
            pass

    assert caught.value.key == key


async def test_provider_is_not_even_imported_where_no_flag_is_declared(tmp_path: Path) -> None:
    options = FlagOptions(provider="no.such.package:make")
    flags = Flags(tmp_path, clock=ManualClock(), options=options)
    flags.load()

    async with flags.running():
        assert (await flags.ask(ADA)).is_on(PAY)


_HANGS_FOR_EVER = """
import sys, threading
from pathlib import Path
import anyio
from tests.support.flag_providers import PlayedProvider
from torpor.clock import SystemClock
from torpor.flags.contract import FlagContext
from torpor.flags.face import Flags
from torpor.flags.options import FlagOptions

provider = PlayedProvider({})
provider.evaluating.wait = lambda _: threading.Event().wait()
flags = Flags(Path(sys.argv[1]), clock=SystemClock(), options=FlagOptions(
    provider="tests.support.flag_providers:given", provider_options={"provider": provider}, deadline_s=0.05))
flags.load()

async def main():
    async with flags.running():
        print((await flags.ask(FlagContext(tenant="t", owner="o", agent="a"))).is_on("tool.pay"))

anyio.run(main, backend=sys.argv[2])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_provider_that_hangs_for_ever_does_not_keep_the_process_from_ending(tmp_path: Path, backend: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "flags.toml").write_text(DECLARED)

    ended = subprocess.run(
        [sys.executable, "-c", _HANGS_FOR_EVER, str(tmp_path), backend],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ended.stdout.splitlines()[-1] == "True"
