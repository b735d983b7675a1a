"""Decisions by the rules of ``config/flags.toml``: at once, on the event loop, remembered until the file changes."""

import structlog

from torpor.flags.cache import RecentlyUsed, Shared
from torpor.flags.contract import Decided, FlagContext
from torpor.flags.declared import Declarations
from torpor.flags.evaluator import Evaluator
from torpor.flags.file_provider import FileProvider

_log = structlog.get_logger()


class FileAnswers:
    """Implements ``flags.face.Answers``."""

    def __init__(self, declarations: Declarations, *, contexts_max: int) -> None:
        self._declarations = declarations
        self._provider = FileProvider(declarations)
        self._evaluator = Evaluator(self._provider)
        self._evaluator.start()
        self._known: RecentlyUsed[Decided] = RecentlyUsed(contexts_max)
        self._shared = Shared()

    def decided(self, context: FlagContext) -> Decided:
        """By the rules as they are now."""
        found = self._known.get(context)
        if found is None:
            decisions, fault = self._evaluator.evaluate(self._declarations, context)
            if fault:
                _log.warning("flags.not_evaluated", why=fault)
            found = self._shared.decided(decisions)
            self._known.put(context, found)
        return found

    async def ask(self, context: FlagContext) -> Decided:
        """As ``decided``."""
        return self.decided(context)

    def replace(self, declarations: Declarations) -> None:
        """Decide by these from now on."""
        self._declarations = declarations
        self._known.clear()
        self._provider.replace(declarations)

    async def aclose(self) -> None:
        """Take the provider out of the SDK's registry."""
        self._evaluator.stop(deadline_s=0)
