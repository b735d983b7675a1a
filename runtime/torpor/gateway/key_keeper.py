"""Keeps the public keys of an issuer fresh, and the last good ones when they cannot be had.

Above: ``Authenticator``, which looks at ``keys`` and asks for newer ones when a token names one that is not there.
Below: a function that gets the text of the set, from a file or over the network.

One task looks: at the start, at an interval, and sooner when somebody asks, but never twice within the pause, so that
tokens with made-up names of keys cost the issuer nothing. Whoever asks waits for a look that begins after the question.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup

from torpor.gateway.auth_options import AuthOptions
from torpor.gateway.key_set import KeySet, KeyUnusable, read_key_set

_RETRY_S_MIN: Final = 1.0
_SLACK_S: Final = 1.0
"""For a look that ends with its own deadline to be told."""
_log = structlog.get_logger()


class KeysUnreadable(Exception):
    """The text of a key set cannot be had; says why, in words for an operator."""


Load = Callable[[], Awaitable[bytes]]
"""Raises: KeysUnreadable. Everything slow in it can be cancelled."""


class KeyKeeper:
    """See the module docstring. ``source`` is what logs call the issuer's set."""

    def __init__(self, load: Load, *, source: str, options: AuthOptions) -> None:
        self._load = load
        self._source = source
        self._options = options
        self.keys = KeySet()
        """The last good ones."""
        self.failure: str | None = None
        """Why the last look failed; None when it did not."""
        self._failures = 0
        """In a row."""
        self._asked = anyio.Event()
        self._looked = anyio.Event()
        """Set by the end of the next look to begin."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TaskGroup]:
        """Look once, then keep looking until the block ends. A first look that fails is no error: see ``failure``."""
        await self._look()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep, name="gateway:keys")
            try:
                yield tasks
            finally:
                tasks.cancel_scope.cancel()

    async def ask(self) -> None:
        """Have it look soon. Does not wait; whoever wants to know what comes of it calls ``renewed``."""
        self._asked.set()

    async def renewed(self) -> bool:
        """Wait for one look that begins now or later; whether it came in time and found a set."""
        looked = self._looked
        self._asked.set()
        with anyio.move_on_after(self._options.jwks_pause_s + self._options.jwks_deadline_s + _SLACK_S):
            await looked.wait()
        return looked.is_set() and self.failure is None

    async def _keep(self) -> None:
        while True:
            await anyio.sleep(self._options.jwks_pause_s)
            with anyio.move_on_after(self._wait_s()):
                await self._asked.wait()
            await self._look()

    def _wait_s(self) -> float:
        """How long after the pause a look comes unasked: doubling after failures, up to the interval."""
        due_s = self._options.jwks_refresh_s
        if self._failures:
            due_s = min(due_s, max(self._options.jwks_pause_s, _RETRY_S_MIN) * 2.0 ** min(self._failures, 16))
        return max(due_s - self._options.jwks_pause_s, 0.0)

    async def _look(self) -> None:
        looked, self._looked = self._looked, anyio.Event()
        self._asked = anyio.Event()
        self.failure = "no answer in time"
        try:
            with anyio.move_on_after(self._options.jwks_deadline_s):
                keys = read_key_set(await self._load())
                self.failure = None
                self._take(keys)
        except (KeysUnreadable, KeyUnusable) as exc:
            self.failure = str(exc)
        self._failures = 0 if self.failure is None else self._failures + 1
        if self.failure is not None:
            _log.warning("auth.keys_kept", source=self._source, why=self.failure, keys=len(self.keys.keys))
        looked.set()

    def _take(self, keys: KeySet) -> None:
        before, self.keys = self.keys, keys
        names = [key.kid for key in keys.keys]
        if names != [key.kid for key in before.keys] or keys.passed_over != before.passed_over:
            tell = _log.info if keys.keys and not keys.passed_over else _log.warning
            tell("auth.keys_loaded", source=self._source, keys=names, passed_over=list(keys.passed_over))

    def __repr__(self) -> str:
        return f"<KeyKeeper {self._source} keys={len(self.keys.keys)} failure={self.failure!r}>"
