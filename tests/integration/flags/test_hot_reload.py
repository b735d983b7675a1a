"""Edits of config/flags.toml reach running flags."""

from pathlib import Path

import anyio

from tests.support.doubles import ManualClock
from torpor.flags.contract import FlagContext
from torpor.flags.face import Flags
from torpor.flags.options import FlagOptions

ADA = FlagContext(tenant="north", owner="ada", agent="clinic")


class ToldFlags(Flags):
    """Says after each reading that it was done."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, clock=ManualClock(), options=FlagOptions())
        self.read = anyio.Event()

    async def refresh(self) -> None:
        await super().refresh()
        self.read.set()
        self.read = anyio.Event()


async def until_on(flags: ToldFlags, *, value: bool) -> None:
    """Wait for the reading after which payments are on, or off."""
    with anyio.fail_after(20):
        while True:
            read, decided = flags.read, flags.decided(ADA)
            if decided is not None and decided.is_on("tool.pay") is value:
                return
            await read.wait()


async def test_edits_are_taken_while_the_engine_runs(tmp_path: Path) -> None:
    file = tmp_path / "config" / "flags.toml"
    file.parent.mkdir()
    flags = ToldFlags(tmp_path)
    flags.load()

    async with flags.running():
        with anyio.fail_after(20):
            await flags.read.wait()  # the watch has begun
        file.write_text('[flags."tool.pay"]\ndefault = false\n')
        await until_on(flags, value=False)

        broken = flags.read
        file.write_text('[flags."tool.pay"]\ndefault = maybe\n')
        with anyio.fail_after(20):
            await broken.wait()
        await until_on(flags, value=False)

        part = file.with_name("flags.part")
        part.write_text('[flags."tool.pay"]\ndefault = true\n')
        part.replace(file)  # as editors do it
        await until_on(flags, value=True)

        part.write_text('[flags."tool.pay"]\ndefault = false\n')
        part.replace(file)
        await until_on(flags, value=False)
        gone = flags.read
        file.unlink()
        with anyio.fail_after(20):
            await gone.wait()
        await until_on(flags, value=False)
        file.write_text("# nothing is switched off\n")
        await until_on(flags, value=True)
