"""Flags of a home by its file: decided at once, remembered, read again."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from openfeature import api
from structlog.testing import capture_logs

from tests.support.doubles import ManualClock
from torpor.errors import ConfigError
from torpor.flags.contract import EVERYTHING_ON, FlagContext
from torpor.flags.face import Flags
from torpor.flags.options import FlagOptions

ADA = FlagContext(tenant="north", owner="ada", agent="clinic")
GRACE = FlagContext(tenant="south", owner="grace", agent="clinic")
NORTH_OFF = """
[flags."tool.pay"]
default = true
[[flags."tool.pay".rules]]
tenant = "north"
value = false
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home without flags."""
    (tmp_path / "config").mkdir()
    return tmp_path


def declare(home: Path, text: str) -> None:
    (home / "config" / "flags.toml").write_text(text)


def flags_of(home: Path, *, contexts_max: int = 10) -> Flags:
    flags = Flags(home, clock=ManualClock(), options=FlagOptions(contexts_max=contexts_max))
    flags.load()
    return flags


def is_on(flags: Flags, context: FlagContext) -> bool:
    decided = flags.decided(context)
    assert decided is not None
    return decided.is_on("tool.pay")


def test_home_without_flags_has_everything_on(home: Path) -> None:
    flags = flags_of(home)

    assert flags.decided(ADA) is EVERYTHING_ON
    assert flags.keys == frozenset()


def test_home_without_flags_imports_nothing_for_them(home: Path) -> None:
    probe = (
        "import sys; from pathlib import Path; from torpor.clock import SystemClock;"
        "from torpor.flags.face import Flags; from torpor.flags.options import FlagOptions;"
        "Flags(Path(sys.argv[1]), clock=SystemClock(), options=FlagOptions()).load(); print(*sys.modules)"
    )

    loaded = subprocess.run([sys.executable, "-c", probe, str(home)], capture_output=True, text=True, check=True)

    assert "torpor.flags.face" in loaded.stdout
    assert "openfeature" not in loaded.stdout


def test_rules_decide_for_whom_they_name(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)

    assert (is_on(flags, ADA), is_on(flags, GRACE)) == (False, True)
    decided = flags.decided(ADA)
    assert decided is not None
    decision = decided.decisions["tool.pay"]
    assert (decision.variant, decision.reason) == ("rule-1", "TARGETING_MATCH")


async def test_asking_says_the_same(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)

    assert await flags.ask(ADA) is flags.decided(ADA)


def test_nothing_is_evaluated_twice(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)

    assert flags.decided(ADA) is flags.decided(FlagContext(tenant="north", owner="ada", agent="clinic"))


def test_owners_decided_alike_share_what_is_kept(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home, contexts_max=1)

    first = flags.decided(ADA)

    assert flags.decided(FlagContext(tenant="north", owner="edsger", agent="desk")) is first


def test_two_homes_in_one_process_do_not_see_each_other(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "config").mkdir()
    declare(home, NORTH_OFF)
    declare(other, '[flags."tool.pay"]\ndefault = true\n')

    first, second = flags_of(home), flags_of(other)

    assert [is_on(flags, ADA) for flags in (first, second)] == [False, True]


def test_start_with_a_broken_file_is_refused(home: Path) -> None:
    declare(home, '[flags."tool.pay"]\ndefault = "no"\n')

    with pytest.raises(ConfigError, match=r"config/flags\.toml:1: .*tool\.pay.*expected bool, got str"):
        flags_of(home)


def test_start_with_an_unreadable_file_is_refused(home: Path) -> None:
    (home / "config" / "flags.toml").mkdir()

    with pytest.raises(ConfigError, match="cannot be read"):
        flags_of(home)


def test_file_that_is_not_utf8_is_refused(home: Path) -> None:
    (home / "config" / "flags.toml").write_bytes(b"# \xff\n")

    with pytest.raises(ConfigError, match="is not UTF-8"):
        flags_of(home)


async def test_refresh_takes_an_edit_at_once(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)
    before = flags.decided(ADA)

    declare(home, NORTH_OFF.replace("north", "south"))
    await flags.refresh()

    assert flags.decided(ADA) != before
    assert not is_on(flags, GRACE)


async def test_refresh_without_an_edit_keeps_what_is_known(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)
    before = flags.decided(ADA)

    declare(home, f"# another word\n{NORTH_OFF}")
    await flags.refresh()

    assert flags.decided(ADA) is before


async def test_broken_edit_keeps_the_last_good_one(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)
    before = flags.decided(ADA)

    declare(home, NORTH_OFF + "value =")
    await flags.refresh()

    assert flags.decided(ADA) is before
    assert flags.keys == {"tool.pay"}


async def test_what_is_wrong_with_an_edit_is_logged_once(home: Path) -> None:
    flags = flags_of(home)
    with capture_logs() as logged:
        for text in (NORTH_OFF + "value =", NORTH_OFF + "value =", NORTH_OFF, NORTH_OFF + "value ="):
            declare(home, text)
            await flags.refresh()

    assert [entry["event"] for entry in logged] == ["flags.broken", "flags.changed", "flags.broken"]


async def test_a_file_that_says_again_what_it_said_before_it_broke_is_logged_as_mended(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)
    with capture_logs() as logged:
        for text in (NORTH_OFF + "value =", NORTH_OFF, NORTH_OFF):
            declare(home, text)
            await flags.refresh()

    assert [entry["event"] for entry in logged] == ["flags.broken", "flags.mended"]


async def test_only_the_flags_that_changed_are_logged(home: Path) -> None:
    other = "[flags.memory]\ndefault = true\n"
    declare(home, NORTH_OFF + other)
    flags = flags_of(home)
    with capture_logs() as logged:
        declare(home, NORTH_OFF.replace("north", "south") + other)
        await flags.refresh()
        declare(home, NORTH_OFF.replace("north", "south"))
        await flags.refresh()

    assert [(entry["flags"], entry["declared"]) for entry in logged] == [(["tool.pay"], 2), (["memory"], 1)]
    assert (logged[0]["partly"], logged[1]["on"]) == (["tool.pay"], ["memory"])


async def test_first_flag_of_a_running_home_counts_and_the_last_one_goes(home: Path) -> None:
    flags = flags_of(home)

    declare(home, NORTH_OFF)
    await flags.refresh()
    was_on = is_on(flags, ADA)
    declare(home, "# nothing is switched off\n")
    await flags.refresh()

    assert not was_on
    assert flags.decided(ADA) is EVERYTHING_ON


def lose(home: Path) -> None:
    (home / "config" / "flags.toml").unlink()


def lose_folder(home: Path) -> None:
    (home / "config").rename(home / "elsewhere")


def link_to_nothing(home: Path) -> None:
    lose(home)
    (home / "config" / "flags.toml").symlink_to("nowhere")


def replace_by_pipe(home: Path) -> None:
    lose(home)
    os.mkfifo(home / "config" / "flags.toml")


@pytest.mark.parametrize(
    ("loss", "event"),
    [
        (lose, "flags.missing"),
        (lose_folder, "flags.missing"),
        (lambda home: declare(home, "\n"), "flags.missing"),
        (link_to_nothing, "flags.broken"),
        (replace_by_pipe, "flags.broken"),
        (lambda home: declare(home, "a = " + "1" * 5_000), "flags.broken"),
    ],
)
async def test_what_was_switched_off_stays_off_when_the_file_is_lost(
    home: Path, loss: Callable[[Path], None], event: str
) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)
    with capture_logs() as logged:
        loss(home)
        await flags.refresh()
        await flags.refresh()

    assert not is_on(flags, ADA)
    assert [(entry["event"], entry["log_level"]) for entry in logged] == [(event, "error")]


@pytest.mark.parametrize("loss", [link_to_nothing, replace_by_pipe])
def test_start_without_a_file_that_ought_to_be_there_is_refused(home: Path, loss: Callable[[Path], None]) -> None:
    declare(home, NORTH_OFF)
    loss(home)

    with pytest.raises(ConfigError, match="cannot be read"):
        flags_of(home)


async def test_flags_leave_nothing_in_the_sdk(home: Path) -> None:
    declare(home, NORTH_OFF)
    flags = flags_of(home)
    async with flags.running():
        inside = flags.decided(ADA)

    assert inside is not None
    assert flags.decided(ADA) is None
    assert api.get_provider_metadata().name == "No-op Provider"
    assert (await flags.ask(ADA)).decisions["tool.pay"].reason == "ERROR"
