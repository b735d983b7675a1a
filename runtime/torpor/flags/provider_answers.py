"""Decisions of an OpenFeature provider from elsewhere, which may be slow, raise, or change its mind at any time.

It is asked in threads and never on the event loop. What it said for a context is kept and given at once, however old;
it is asked again in the background after a while, and for every kept context when it says that something changed.

    nobody asked ──ask──> waiting ──answer──> known ──refresh_s, or an event──> known, being asked again
                             └──deadline──> declared defaults, for retry_s

When it fails, what it said before stays, marked ``STALE``: a flag that was switched off must not come on again because
its provider went down. Where it never said anything, the declared default holds, marked ``ERROR``.
"""

import importlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio
import msgspec
import structlog
from openfeature.provider import FeatureProvider

from torpor.clock import Clock
from torpor.errors import ConfigError
from torpor.flags.cache import RecentlyUsed, Shared
from torpor.flags.contract import Decided, Decision, FlagContext, defaulted
from torpor.flags.declared import Declarations
from torpor.flags.evaluator import Evaluator, told
from torpor.flags.options import FlagOptions
from torpor.threads import Threads

_log = structlog.get_logger()
_NEVER_S: Final = float("inf")


class _Entry:
    """What is known for one context."""

    __slots__ = ("came", "context", "decided", "due_s", "is_asked")

    def __init__(self, context: FlagContext) -> None:
        self.context = context
        self.decided: Decided | None = None
        self.due_s = -_NEVER_S
        self.is_asked = False
        self.came = anyio.Event()


class _Answer(msgspec.Struct, frozen=True):
    generation: int
    decisions: tuple[Decision, ...]
    fault: str


class ProviderAnswers:
    """Implements ``flags.face.Answers``; made on the event loop that it serves."""

    def __init__(self, declarations: Declarations, *, clock: Clock, options: FlagOptions) -> None:
        self._declarations = declarations
        self._clock = clock
        self._options = options
        self._threads = Threads(options.threads_max, name="flags")
        self._entries: RecentlyUsed[_Entry] = RecentlyUsed(options.contexts_max)
        self._shared = Shared()
        self._evaluator: Evaluator | None = None
        self._generation = 0
        self._asked = 0
        self._is_failing = False
        self._is_closed = False
        self._is_told = threading.Event()

    async def start(self) -> None:
        """Make and start the provider; one that is slower than ``start_deadline_s`` is heard once it is ready.

        Raises: ConfigError: there is no such provider, or its factory does not make one.
        """
        opened = anyio.Event()
        faults: list[ConfigError] = []

        def ended(result: Evaluator | ConfigError) -> None:
            if isinstance(result, ConfigError):
                faults.append(result)
                _log.error("flags.provider_failed", why=str(result))
            elif not self._is_closed:
                self._evaluator = result
                self._ask_everybody()
            opened.set()

        self._threads.submit(self._opened, ended=ended)
        with anyio.move_on_after(self._options.start_deadline_s):
            await opened.wait()
        if faults:
            raise faults[0]
        if not opened.is_set():
            _log.warning("flags.provider_slow", provider=self._options.provider, after_s=self._options.start_deadline_s)

    def decided(self, context: FlagContext) -> Decided | None:
        """What the provider said last; None when it was not asked for ``context`` yet."""
        entry = self._entries.get(context)
        if entry is None or entry.decided is None:
            return None
        if entry.due_s <= self._clock.monotonic_s():
            self._ask(entry)
        return entry.decided

    async def ask(self, context: FlagContext) -> Decided:
        """The same, waiting ``deadline_s`` at most for a first answer."""
        if (known := self.decided(context)) is not None:
            return known
        entry = self._entries.get(context)
        if entry is None:
            entry = _Entry(context)
            self._entries.put(context, entry)
        self._ask(entry)
        if self._evaluator is not None:
            with anyio.move_on_after(self._options.deadline_s):
                await entry.came.wait()
        if entry.decided is None:
            self._settle(entry, self._defaults(), after_s=self._options.retry_s)
            is_there = self._evaluator is not None
            self._failing(f"no answer within {self._options.deadline_s:g} s" if is_there else "it has not started")
        assert entry.decided is not None, "it was settled just now"
        return entry.decided

    def replace(self, declarations: Declarations) -> None:
        """Decide these flags from now on; new ones have their defaults until the provider was asked."""
        self._declarations = declarations
        for entry in self._entries.latest_first():
            if entry.decided is not None:
                known = entry.decided.decisions
                entry.decided = self._shared.decided(
                    known.get(key) or defaulted(key, default=flag.default, reason="DEFAULT")
                    for key, flag in declarations.items()
                )
        self._ask_everybody()

    async def aclose(self) -> None:
        """Shut the provider down, within ``stop_deadline_s``."""
        self._is_closed = True
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            stopping = Threads(1, name="flags stop")
            stopped = anyio.Event()
            stopping.submit(
                partial(evaluator.stop, deadline_s=self._options.stop_deadline_s), ended=lambda _: stopped.set()
            )
            with anyio.move_on_after(self._options.stop_deadline_s, shield=True):
                await stopped.wait()
            stopping.close()
        self._threads.close()

    def _opened(self) -> Evaluator | ConfigError:
        """In a thread: import, make and start the provider."""
        try:
            evaluator = Evaluator(_made(self._options), changed=self._changed_elsewhere)
        except ConfigError as exc:
            return exc
        try:
            evaluator.start()
        except BaseException as exc:  # noqa: BLE001  # foreign code; the SDK goes on asking it, and it may recover
            _log.error("flags.provider_failed", provider=self._options.provider, why=told(exc))
        if self._is_closed:
            evaluator.stop(deadline_s=0)
        return evaluator

    def _ask(self, entry: _Entry) -> None:
        """Have the provider asked, unless it is already, or too many wait for it."""
        evaluator = self._evaluator
        if evaluator is None or entry.is_asked or self._asked >= self._options.contexts_max:
            return
        entry.is_asked = True
        self._asked += 1
        generation, declarations = self._generation, self._declarations

        def asked() -> _Answer:
            decisions, fault = evaluator.evaluate(declarations, entry.context)
            return _Answer(generation, decisions, fault)

        self._threads.submit(asked, ended=partial(self._answered, entry))

    def _ask_everybody(self) -> None:
        """What was said until now is out of date; those who were active last are asked about first."""
        self._generation += 1
        for entry in self._entries.latest_first():
            entry.due_s = -_NEVER_S
            self._ask(entry)

    def _answered(self, entry: _Entry, answer: _Answer) -> None:
        self._asked -= 1
        entry.is_asked = False
        known = entry.decided.decisions if entry.decided is not None else {}
        fresh = {decision.key: _unless_failed(decision, known.get(decision.key)) for decision in answer.decisions}
        decided = self._shared.decided(
            fresh.get(key) or known.get(key) or defaulted(key, default=flag.default, reason="DEFAULT")
            for key, flag in self._declarations.items()
        )
        self._settle(entry, decided, after_s=self._options.retry_s if answer.fault else self._options.refresh_s)
        if answer.fault:
            self._failing(answer.fault)
        elif self._is_failing:
            self._is_failing = False
            _log.info("flags.provider_recovered", provider=self._options.provider)
        if answer.generation != self._generation:
            self._ask(entry)

    def _settle(self, entry: _Entry, decided: Decided, *, after_s: float) -> None:
        entry.decided = decided
        entry.due_s = self._clock.monotonic_s() + after_s
        entry.came.set()

    def _defaults(self) -> Decided:
        return self._shared.decided(
            defaulted(key, default=flag.default, reason="ERROR") for key, flag in self._declarations.items()
        )

    def _failing(self, why: str) -> None:
        """Tells the first failure of a row."""
        if not self._is_failing:
            self._is_failing = True
            _log.warning("flags.provider_failed", provider=self._options.provider, why=why)

    def _changed_elsewhere(self) -> None:
        """On a thread of the SDK; events that come faster than the loop hears of them count as one."""
        if not self._is_told.is_set():
            self._is_told.set()
            # Its own thread: the SDK's would keep the process from ending if the loop ended in this very moment.
            threading.Thread(target=self._tell, name="flags changed", daemon=True).start()

    def _tell(self) -> None:
        self._threads.hand_over(self._told)

    def _told(self) -> None:
        self._is_told.clear()
        self._ask_everybody()

    def __repr__(self) -> str:
        return f"<ProviderAnswers contexts={len(self._entries)} asked={self._asked} failing={self._is_failing}>"


def _unless_failed(decision: Decision, known: Decision | None) -> Decision:
    """What was said before, where nothing is said now."""
    if decision.reason != "ERROR" or known is None or known.reason == "ERROR":
        return decision
    return msgspec.structs.replace(known, reason="STALE")


def _made(options: FlagOptions) -> FeatureProvider:
    """What the factory makes.

    Raises: ConfigError: there is no such factory, it does not take the options, or it makes no provider.
    """
    where, key = "config/torpor.toml", "flags.provider"
    module, _, name = options.provider.partition(":")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except BaseException as exc:  # likewise
        expected = f"package.module:factory that can be imported here ({told(exc)})"
        raise ConfigError(where, key=key, found=options.provider, expected=expected) from exc
    try:
        provider = factory(**options.provider_options)
    except BaseException as exc:  # foreign code, at start, in a thread
        expected = f"keyword arguments of {options.provider}, which raised {told(exc)}"
        found = sorted(options.provider_options)  # values may be secrets
        raise ConfigError(where, key="flags.provider_options", found=found, expected=expected) from exc
    if not hasattr(provider, "resolve_boolean_details"):
        expected = "a factory of an OpenFeature provider"
        raise ConfigError(where, key=key, found=options.provider, expected=expected)
    made: FeatureProvider = provider
    return made
