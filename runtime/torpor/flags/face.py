"""Feature flags as the rest of the engine sees them: which are declared, and what is decided for whom.

Above: the turn loop, which pins what it offers and checks what it does. Below: the rules of ``config/flags.toml``, or
any OpenFeature provider that the options name. A home that declares no flag has everything switched on; nothing is
imported, evaluated or remembered for it.
"""

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import structlog

from torpor.clock import Clock
from torpor.errors import ConfigError
from torpor.file_watch import watch
from torpor.flags.contract import EVERYTHING_ON, Decided, FlagContext, defaulted
from torpor.flags.declared import Declarations, FlagProblem, FlagsUnreadable
from torpor.flags.options import FlagOptions
from torpor.flags.source import FLAGS_FILE, flags_there, read_flags
from torpor.flags.wording import by_reach, off_in_words
from torpor.misfits import Words

_log = structlog.get_logger()


class FlagsInvalid(ConfigError):
    """The file cannot be used; its text is the first problem, with its line."""

    def __init__(self, problems: tuple[FlagProblem, ...]) -> None:
        first = problems[0]
        where = f"{FLAGS_FILE}:{first.line}" if first.line else FLAGS_FILE
        super().__init__(where, key=first.key or "content", found=Words(first.message), expected="flags in TOML")
        self.args = (f"{where}: {first}; `torpor config check` tells all that is wrong",)


class Answers(Protocol):
    """Who decides."""

    def decided(self, context: FlagContext) -> Decided | None: ...

    async def ask(self, context: FlagContext) -> Decided: ...

    def replace(self, declarations: Declarations) -> None: ...

    async def aclose(self) -> None: ...


class Flags:
    """One for a process; every method belongs to its event loop."""

    def __init__(self, home: Path, *, clock: Clock, options: FlagOptions) -> None:
        self._home = home
        self._clock = clock
        self._options = options
        self._declarations: Declarations = {}
        self._answers: Answers | None = None
        self._problems: tuple[FlagProblem, ...] = ()
        """What was wrong with the file when it was read last, which is told once."""
        self._is_missing = False

    @property
    def declarations(self) -> Declarations:
        """What is declared, sorted by key."""
        return self._declarations

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all that is declared."""
        return frozenset(self._declarations)

    def off_in_words(self, key: str) -> str:
        """For whom ``key`` is off, by the rules of the file; of another provider, that it is the one to ask."""
        if self._options.provider and key in self._declarations:
            return f"as {self._options.provider} decides {key}"
        return off_in_words(key, self._declarations)

    def load(self) -> None:
        """Read the file; without one, nothing is declared and everything is on.

        Raises: ConfigError: the file cannot be used; a start with it might switch on what somebody switched off.
        """
        try:
            self._declarations = read_flags(self._home)
        except FlagsUnreadable as exc:
            raise FlagsInvalid(exc.problems) from exc
        if self._declarations and not self._options.provider:
            self._decide_by_file()

    def decided(self, context: FlagContext) -> Decided | None:
        """What is known now: at once, without an exception, and free of cost when nothing changed.

        None only when another provider was not asked for this context yet; then ``ask``.
        """
        if not self._declarations:
            return EVERYTHING_ON
        return None if self._answers is None else self._answers.decided(context)

    async def ask(self, context: FlagContext) -> Decided:
        """What is decided, after ``deadline_s`` at the latest; a provider that fails or is slow leaves the defaults.

        Cancellation: at once.
        """
        if not self._declarations:
            return EVERYTHING_ON
        if self._answers is None:
            flags = self._declarations.items()
            return Decided(defaulted(key, default=flag.default, reason="ERROR") for key, flag in flags)
        return await self._answers.ask(context)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Flags"]:
        """Start the provider that the options name, and follow the file until the block ends.

        Raises: ConfigError: there is no such provider.
        """
        try:
            if self._declarations:
                await self._open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, name="flags:follow")
                yield self
                tasks.cancel_scope.cancel()
        finally:
            answers, self._answers = self._answers, None
            if answers is not None:
                await answers.aclose()

    async def refresh(self) -> None:
        """Read the file again; a broken one changes nothing and is logged as ``flags.broken``; so is
        ``flags.mended`` when the file says again what counted meanwhile.

        Nor does one that is gone, logged as ``flags.missing``: what somebody switched off must not come on because a
        file was moved. A file without flags, but with a comment, declares none.
        """
        try:
            there = await anyio.to_thread.run_sync(flags_there, self._home)
        except FlagsUnreadable as exc:
            for problem in exc.problems:
                if problem not in self._problems:
                    _log.error("flags.broken", file=FLAGS_FILE, line=problem.line, why=str(problem))
            self._problems = exc.problems
            return
        was_broken, self._problems = bool(self._problems), ()
        if there is None and self._declarations:
            if not self._is_missing:
                _log.error("flags.missing", file=FLAGS_FILE, kept=len(self._declarations))
            self._is_missing = True
            return
        self._is_missing = False
        old, declarations = self._declarations, there or {}
        if declarations == old:
            if was_broken:
                _log.info("flags.mended", file=FLAGS_FILE, declared=len(declarations))
            return
        self._declarations = declarations
        if self._answers is not None:
            self._answers.replace(declarations)
        else:
            try:
                await self._open()
            except ConfigError as exc:
                _log.error("flags.provider_failed", why=str(exc))  # the operator's fault, not ours
        changed = sorted(key for key in old.keys() | declarations.keys() if old.get(key) != declarations.get(key))
        now = {} if self._options.provider else by_reach(changed, declarations)
        _log.info("flags.changed", flags=changed, declared=len(declarations), **now)

    async def _follow(self) -> None:
        await watch([self._home / FLAGS_FILE], changed=self.refresh)

    async def _open(self) -> None:
        """Make who decides, unless that was done."""
        if self._answers is None:
            await anyio.to_thread.run_sync(importlib.import_module, "openfeature.api")
            if self._options.provider:
                await self._open_provider()
            else:
                self._decide_by_file()

    def _decide_by_file(self) -> None:
        # OpenFeature takes 60 ms to import, for nothing where no flag is declared.
        from torpor.flags.file_answers import FileAnswers  # noqa: PLC0415

        self._answers = FileAnswers(self._declarations, contexts_max=self._options.contexts_max)

    async def _open_provider(self) -> None:
        from torpor.flags.provider_answers import ProviderAnswers  # noqa: PLC0415  # likewise

        answers = ProviderAnswers(self._declarations, clock=self._clock, options=self._options)
        await answers.start()
        self._answers = answers

    def __repr__(self) -> str:
        return f"<Flags declared={len(self._declarations)} provider={self._options.provider or FLAGS_FILE!r}>"
