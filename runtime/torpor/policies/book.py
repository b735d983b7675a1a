"""The policies of a home: read, searched by what a user wrote, and read again when a file changes.

Above: the preparation of a turn, which freezes excerpts into it. A file that breaks keeps its last good version; one
that goes takes its excerpts along. Searching is synchronous and takes well under a millisecond for a hundred excerpts.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
import structlog

from torpor.conversation.budget import BYTES_PER_TOKEN, tokens_of_bytes
from torpor.conversation.graphemes import cut
from torpor.file_watch import watch
from torpor.ordinary_files import shown
from torpor.policies.index import Found, PolicyIndex
from torpor.policies.options import PolicyOptions
from torpor.policies.parse import Excerpt, PolicyFile, PolicyProblem
from torpor.policies.source import POLICIES_FOLDER, read_policies

CUT_MARK: Final = " [cut off here]"
"""Ends an excerpt of which only the beginning fits."""

_log = structlog.get_logger()


class PolicyBook:
    """One for a process; every method belongs to its event loop."""

    def __init__(self, home: Path, *, options: PolicyOptions) -> None:
        self._home = home
        self._options = options
        self._good: dict[str, PolicyFile] = {}
        self._index = PolicyIndex(())
        self.problems: tuple[PolicyProblem, ...] = ()
        """What was wrong with the files when they were read last."""

    @property
    def policies(self) -> tuple[PolicyFile, ...]:
        """In order of their files' names."""
        return tuple(self._good.values())

    def load(self) -> None:
        """Read every file and build the index; files that cannot be used are told and left out."""
        self._take(*self._read())

    async def refresh(self) -> None:
        """The same in a thread; a file that broke keeps its last good version."""
        self._take(*await anyio.to_thread.run_sync(self._read))

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["PolicyBook"]:
        """Follow the files until the block ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, name="policies:follow")
            yield self
            tasks.cancel_scope.cancel()

    def search(
        self, text: str, *, limit: int, budget_tokens: int, ids: frozenset[str] | None = None
    ) -> tuple[Excerpt, ...]:
        """At most ``limit`` excerpts that fit ``text``, best first, which together cost at most ``budget_tokens``.

        Whole ones only: what does not fit any more is passed over. When already the best one is too large, its
        beginning is given alone, cut between characters as people see them and ending in ``CUT_MARK``.

        Args: ids: of the policies that may be found; None for all.
        """
        chosen: list[Excerpt] = []
        left_tokens = budget_tokens
        fitting = self.found(text, ids=ids)
        score_min = max(fitting[0].score * self._options.score_share if fitting else 0.0, self._options.score_min)
        for found in fitting:
            if found.score < score_min or len(chosen) == limit:
                break
            cost_tokens = tokens_of(found.excerpt)
            if cost_tokens <= left_tokens:
                chosen.append(found.excerpt)
                left_tokens -= cost_tokens
            elif not chosen:
                beginning = _beginning(found.excerpt, budget_tokens)
                return (beginning,) if beginning else ()
        return tuple(chosen)

    def found(self, text: str, *, ids: frozenset[str] | None = None) -> list[Found]:
        """Every excerpt that fits ``text`` at all, with its score, best first."""
        return self._index.search(text, words_max=self._options.query_words_max, ids=ids)

    async def _follow(self) -> None:
        await watch([self._home / POLICIES_FOLDER], changed=self.refresh)

    def _read(self) -> tuple[dict[str, PolicyFile], tuple[PolicyProblem, ...], PolicyIndex | None]:
        """The policies as they are now; no index where none of them changed."""
        good, problems = read_policies(self._home, last_good=self._good, file_max_bytes=self._options.file_max_bytes)
        return good, problems, None if good == self._good else PolicyIndex(tuple(good.values()))

    def _take(
        self, good: dict[str, PolicyFile], problems: tuple[PolicyProblem, ...], index: PolicyIndex | None
    ) -> None:
        for problem in problems:
            if problem not in self.problems:
                kept = problem.file in map(shown, good)
                _log.error(
                    "policy.broken",
                    file=f"{POLICIES_FOLDER}/{problem.file}",
                    line=problem.line,
                    why=problem.message,
                    kept=kept,
                )
        self.problems = problems
        if index is not None:
            old, self._good, self._index = self._index, good, index
            old.close()
            _log.info("policies.read", policies=len(good), excerpts=len(index))

    def __repr__(self) -> str:
        return f"<PolicyBook policies={len(self._good)} excerpts={len(self._index)}>"


def tokens_of(excerpt: Excerpt) -> int:
    """What an excerpt costs about, with its heading and its names."""
    texts = (excerpt.id, excerpt.version, excerpt.heading, excerpt.text)
    return tokens_of_bytes(sum(len(text.encode("utf-8", "surrogatepass")) for text in texts))


def _beginning(excerpt: Excerpt, budget_tokens: int) -> Excerpt | None:
    """As much of ``excerpt`` as fits; None when not even one character does."""
    bare = msgspec.structs.replace(excerpt, text="")
    room_bytes = budget_tokens * BYTES_PER_TOKEN - sum(
        len(text.encode("utf-8", "surrogatepass")) for text in (bare.id, bare.version, bare.heading, CUT_MARK)
    )
    if room_bytes <= 0:
        return None
    head = excerpt.text.encode("utf-8", "surrogatepass")[:room_bytes].decode("utf-8", "ignore")
    text = cut(excerpt.text, chars_max=len(head)).rstrip()
    return msgspec.structs.replace(excerpt, text=text + CUT_MARK) if text else None
