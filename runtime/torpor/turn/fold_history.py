"""Folds older turns with a summariser: asks it, piece by piece where there is much to read, and judges what it says.

Fail-open: whatever the summariser does, this comes to a record that says so, and the turn goes on. An answer that is
empty, refused, cut off, too long, no text, or does not make the request smaller is a failure and is never stored.
"""

import contextlib
import itertools
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import anyio
import msgspec

from torpor.conversation.budget import BYTES_PER_TOKEN, added
from torpor.conversation.folding import Plan, carried_so_far, folded, plan_of
from torpor.conversation.proposal import BadSummary, read_proposal
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Compact, Folding
from torpor.conversation.summary import Carried, CompactionOptions, Proposal, carried, told_bytes
from torpor.conversation.transcript import transcript
from torpor.conversation.view import View
from torpor.model.contract import Model, ModelRequest
from torpor.provider_errors import ProviderError
from torpor.records.blocks import text_block
from torpor.records.bounds import Count
from torpor.records.journal import CompactionFailed, ContextReplaced
from torpor.records.summary import Item, Summary
from torpor.records.terms import FoldReason, Usage
from torpor.turn.fold_record import FoldTerms, capped, offered, unaided
from torpor.turn.places import Share
from torpor.turn.side_model import Unheard, finished_text, side_preamble

TEXT_CHARS: Final = 6_000
"""Of what a user or the model said in one piece, in what a summariser reads."""
PART_CHARS: Final = 1_000
"""Of one call or result."""
ROOM_MIN: Final = 400
"""Bytes that a summariser is given at once, however small its window is."""
ENVELOPE_BYTES: Final = 128
"""Of a request, around the question."""
CHARS_PER_TOKEN: Final = 3
"""Of the room that a summariser is told it has; fewer than are counted, for characters of more than one byte."""
WORTH_ASKING_TOKENS: Final = 24
"""Of a summary, in place of turns that have to go: for less nobody is asked."""
TRIES: Final = 2
"""Of one piece; the second one when the first answer cannot be used."""
DEFAULT_PROMPT: Final = """\
You keep the memory of a conversation between a user and an assistant. You are given the summary so far, the items \
that are still open, and the turns that are taken out of the conversation. Answer with one JSON object, nothing else:
{"facts": ["..."], "decisions": ["..."], "entities": ["name or id: what it is"],
 "open": [{"kind": "correction|denial|question|proposal", "text": "...", "turn": 3}],
 "closed": [{"id": "i1-2", "turn": 5}]}
facts: what later turns may need, figures and exact names as they were said; of the summary so far, keep what still \
holds. open: only what is new: corrections the user made, things the user refused or forbade, questions nobody \
answered, proposals nobody decided. closed: ids of open items that these turns settled, with the turn that did. Never \
soften a correction or a refusal, and invent nothing."""
_BETWEEN: Final = "\n\n"
_SO_FAR: Final = "Summary so far:\n"
_TURNS: Final = "\n\nTurns to fold:\n\n"
_CONTINUED: Final = ", continued"
_ENOUGH: Final = frozenset({"end_turn", "stop_sequence"})


class SummariserOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[summary]`` of an agent's file."""

    model: dict[str, Any] = {}
    """Like ``[model]``; empty for the agent's own. ``kind = "none"`` folds without a model."""
    prompt: str = DEFAULT_PROMPT
    """Its system prompt."""
    max_tokens: Count = 2_048
    """Of its answer."""


class Summariser:
    """A model that is asked for summaries; shared by an agent's conversations."""

    def __init__(self, options: SummariserOptions, *, model: Model, name: str, window_tokens: int) -> None:
        """Args: name: of the model.  window_tokens: of the model."""
        self.model = model
        self.name = name
        self.window_tokens = window_tokens
        self.max_tokens = options.max_tokens
        self.preamble = side_preamble(name, prompt=options.prompt, max_tokens=options.max_tokens)


class Spent:
    """What the calls of a fold have cost so far, known also when it is cut."""

    __slots__ = ("calls", "usage")

    def __init__(self) -> None:
        self.calls = 0
        self.usage = Usage()


async def replacement(
    state: ConversationState,
    step: Compact,
    *,
    summariser: Summariser | None,
    folding: Folding,
    places: Share,
    terms: FoldTerms,
    spent: Spent,
) -> ContextReplaced | CompactionFailed:
    """What becomes of a step that replaces a part of the view; without a summariser, or where it has failed already,
    at once. Cancellation: nothing does, and ``spent`` says what it cost."""
    has_failed = state.turn is not None and state.turn.has_fold_failed
    # What was said last is worth more words than its beginnings, if there is anybody to find them.
    asks = step.reason is FoldReason.SUMMARY or (step.reason is FoldReason.EVERYTHING and not has_failed)
    options = capped(state, step, folding=folding)
    if step.reason is FoldReason.EVERYTHING and options.summary_tokens < WORTH_ASKING_TOKENS:
        asks = False
    if summariser is None or not asks:
        return unaided(state, step, folding=folding, terms=terms)
    fold = HistoryFold(
        summariser,
        options=options,
        places=places,
        skills=terms.skills,
        spent=spent,
        reads_earlier=terms.reads_earlier,
    )
    made = await fold.record(state, step)
    if isinstance(made, CompactionFailed):
        return made
    return offered(state, step, made, folding=folding, terms=terms)


class HistoryFold:
    """One attempt to fold with a summariser."""

    def __init__(
        self,
        summariser: Summariser,
        *,
        options: CompactionOptions,
        places: Share,
        skills: AbstractSet[str],
        spent: Spent,
        reads_earlier: bool = True,
    ) -> None:
        """Args: skills: keys that may still be loaded.  reads_earlier: whether the model has the tool that reads what
        goes."""
        self._summariser = summariser
        self._options = options
        self._places = places
        self._skills = skills
        self._spent = spent
        self._reads_earlier = reads_earlier

    async def record(self, state: ConversationState, step: Compact) -> ContextReplaced | CompactionFailed:
        """What came of it. Cancellation: nothing did."""
        plan, deadline_s = plan_of(state, step.reason), self._options.deadline_s
        code, detail = "deadline", f"no summary within {deadline_s:g} s"
        with anyio.move_on_after(deadline_s):
            try:
                summary, items = await self._words(state, plan, turn=step.turn)
                return self._judged(state, plan, summary, items, step)
            except ProviderError as exc:
                code, detail = exc.code, str(exc)
            except BadSummary as exc:
                code, detail = "bad_summary", str(exc)
        return CompactionFailed(
            turn=step.turn, code=code, detail=detail, usage=self._spent.usage, calls=self._spent.calls
        )

    def _judged(
        self, state: ConversationState, plan: Plan, summary: Summary, items: Carried, step: Compact
    ) -> ContextReplaced:
        """What it comes to is not reckoned yet. Raises: BadSummary: the request would not get smaller."""
        made = folded(
            state,
            plan,
            reason=step.reason,
            summary=summary,
            carried=items,
            skills=self._skills,
            options=self._options,
            reads_earlier=self._reads_earlier,
        )
        gone = plan.kept[0].size_bytes
        if (came := sum(len(memoryview(block)) for block in made.head)) >= gone:
            raise BadSummary(f"the summary has {came} bytes in place of {gone}, expected less")
        return msgspec.structs.replace(
            made, usage=self._spent.usage, model=self._summariser.name, calls=self._spent.calls
        )

    async def _words(self, state: ConversationState, plan: Plan, *, turn: int) -> tuple[Summary, Carried]:
        """What is said of the whole: each piece is read with the summary and the items of those before it."""
        summary, items = state.summary, carried_so_far(state)
        unread: Sequence[str] = transcript(plan.folded, text_chars=TEXT_CHARS, part_chars=PART_CHARS)
        for number in itertools.count(1):
            piece, unread = _piece(unread, bytes_max=self._room(summary, items.items))
            said = await self._asked(self._question(summary, items.items, piece), name=f"{turn}-fold-{number}")
            summary = said.summary
            items = carried(
                items,
                said,
                generation=state.generation + 1,
                last_turn=plan.folded[-1][0],
                options=self._options,
            )
            if not unread:
                break
        return summary, items

    def _room(self, summary: Summary, items: Sequence[Item]) -> int:
        """Bytes of what is read at once: a share of the summariser's window, and no more than is left in it beside
        prompt, what is known so far, and the answer."""
        window_tokens = self._summariser.window_tokens
        answer_tokens = min(self._summariser.max_tokens, window_tokens // 2)
        told = self._summariser.preamble.size_bytes + told_bytes(self._question(summary, items, "")) + ENVELOPE_BYTES
        left = (window_tokens - answer_tokens) * BYTES_PER_TOKEN - told
        share = math.floor(window_tokens * self._options.chunk_share) * BYTES_PER_TOKEN
        return max(min(share, left), ROOM_MIN)

    async def _asked(self, question: str, *, name: str) -> Proposal:
        """Raises: ProviderError, BadSummary: of the last try."""
        for attempt in range(1, TRIES):
            with contextlib.suppress(ProviderError, BadSummary):
                return await self._answer(question, call=f"{name}-{attempt}")
        return await self._answer(question, call=f"{name}-{TRIES}")

    async def _answer(self, question: str, *, call: str) -> Proposal:
        """Raises: ProviderError, BadSummary."""
        view = View().extended("user", [text_block(question)])
        request = ModelRequest(call=call, preamble=self._summariser.preamble, view=view)
        async with self._places:
            self._spent.calls += 1
            reply = await self._summariser.model.reply(request, Unheard())
        self._spent.usage = added(self._spent.usage, reply.usage)
        said = finished_text(reply, who="the summariser", enough=_ENOUGH, error=BadSummary)
        if _SO_FAR in said and _TURNS in said:
            raise BadSummary("the summariser repeated what it was asked, with the summary before in it")
        return read_proposal(said, options=self._options)

    def _question(self, summary: Summary, items: Sequence[Item], piece: str) -> str:
        so_far = msgspec.json.encode(summary).decode()
        open_items = "\n".join(f"{item.id} ({item.kind.value}): {item.text}" for item in items) or "none"
        room = self._options.summary_tokens * CHARS_PER_TOKEN
        return (
            f"{_SO_FAR}{so_far}\n\nOpen items:\n{open_items}\n\n"
            f"Facts, decisions and entities together may have {room} characters.{_TURNS}{piece}"
        )


def _piece(turns: Sequence[str], *, bytes_max: int) -> tuple[str, Sequence[str]]:
    """Turns together, as many as may be read at once, and those that are left; one that is too long alone is cut.

    Args: bytes_max: within a request; ``ROOM_MIN`` or more.
    """
    count, room = 0, bytes_max
    for turn in turns:
        room -= told_bytes(turn + _BETWEEN)
        if room < 0:
            break
        count += 1
    if count:
        return _BETWEEN.join((*turns[:count], "")), turns[count:]
    title, _, rest = turns[0].partition("\n")
    part = _beginning(rest, bytes_max=bytes_max - told_bytes(f"{title}\n{_BETWEEN}"))
    later = f"{title.removesuffix(_CONTINUED)}{_CONTINUED}\n{rest[len(part) :]}"
    return f"{title}\n{part}{_BETWEEN}", (later, *turns[1:])


def _beginning(text: str, *, bytes_max: int) -> str:
    part = text.encode()[:bytes_max].decode(errors="ignore")
    while (size_bytes := told_bytes(part)) > bytes_max:
        data = part.encode()
        part = data[: len(data) * bytes_max // size_bytes].decode(errors="ignore")
    return part
