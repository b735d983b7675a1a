"""The skills of one turn, as the engine's tools reach them: what is offered, not yet loaded, and still switched on."""

import difflib
import heapq
import itertools
from collections.abc import Collection, Sequence
from typing import Final

from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.state import LoadedSkill
from torpor.errors import ToolFailed
from torpor.records.ids import CallId
from torpor.records.journal import SkillLoaded
from torpor.skillbook.parse import Skill
from torpor.skillbook.slug import NAME_CHARS_MAX, slug
from torpor.turn.offer import Offer

NEAR_MAX: Final = 3
"""Names that are suggested for one that does not exist."""
COMPARED_MAX: Final = 200
"""Names that are compared with it letter by letter, which takes a tenth of a millisecond each."""
_VERSION_CHARS: Final = 12


class TurnSkills:
    """Shared by the calls of one batch."""

    def __init__(
        self,
        *,
        turn: int,
        offer: Offer,
        loaded: Sequence[LoadedSkill],
    ) -> None:
        """Args: offer: as it is now, so that a skill that was switched off or removed since is not to be had."""
        self._turn = turn
        self._offered = offer.skills
        self._named = offer.named
        self._catalogue = offer.catalogue
        self._loaded = {skill.key: skill.digest for skill in loaded}
        self._new: dict[CallId, SkillLoaded] = {}

    def of_call(self, call_id: CallId) -> "CallSkills":
        """Implements ``toolhost.contract.SkillAccess`` for one call."""
        return CallSkills(self, call_id)

    def loaded_by(self, call_id: CallId) -> SkillLoaded | None:
        """The record that follows the result of a call that succeeded; None when it loaded nothing."""
        return self._new.get(call_id)

    def load(self, name: str, *, call_id: CallId) -> str:
        """See the contract. A version that the conversation has is not given again; another one is."""
        skill = self.named(name)
        loaded = self._catalogue.body(skill)
        # Two skills of one key are two: the second must not take the place of the first, nor of what that one forbids.
        address = self._catalogue.address(skill)
        if self._loaded.get(address) == loaded.digest:
            return f"Skill {address} is already loaded in this conversation; its instructions stand further up."
        self._loaded[address] = loaded.digest
        text = f"Skill {address}, version {loaded.digest[:_VERSION_CHARS]}:\n\n{loaded.text}"
        self._new[call_id] = SkillLoaded(
            turn=self._turn,
            call_id=call_id,
            skill=address,
            digest=loaded.digest,
            allowed_tools=skill.allowed_tools,
            tokens=tokens_of_bytes(len(text.encode())),
        )
        return text

    async def read_file(self, name: str, path: str) -> str:
        """See the contract."""
        skill = self.named(name)
        file = await self._catalogue.read_file(skill, path)
        if not file.is_text:
            return f"{file.path} of skill {skill.key} is no text: {file.size_bytes:,} bytes that cannot be shown"
        return file.text

    def search(self, query: str, *, limit: int) -> str:
        """See the contract."""
        found = self._catalogue.search(query, limit=limit, among=self._offered)
        return "\n".join(f"{skill.key}: {skill.description}" for skill in found) or f"no skill fits {query!r}"

    def named(self, name: str) -> Skill:
        """The skill of that name. Raises: ToolFailed: it is not offered, or not any more."""
        skill = self._named(name)
        if skill is None:
            near = _near(name, self._offered)
            said = name if len(name) <= NAME_CHARS_MAX else f"{name[:NAME_CHARS_MAX]}…"
            if not near:
                raise ToolFailed(f"no skill {said!r} is available any more, go on without it")
            raise ToolFailed(f"no skill {said!r} is available, expected one as it is listed, perhaps {', '.join(near)}")
        return skill


def _near(name: str, keys: Collection[str]) -> list[str]:
    """Keys that look like ``name``, else the first ones; of many, those that share a word with it are compared."""
    wanted = slug(name[:NAME_CHARS_MAX])
    words = set(wanted.split("-"))
    likely = keys if len(keys) <= COMPARED_MAX else (key for key in keys if not words.isdisjoint(key.split("-")))
    compared = list(itertools.islice(likely, COMPARED_MAX))
    return difflib.get_close_matches(wanted, compared, n=NEAR_MAX, cutoff=0.3) or heapq.nsmallest(
        NEAR_MAX, compared or keys
    )


class CallSkills:
    """``TurnSkills`` for one call."""

    __slots__ = ("_call_id", "_skills")

    def __init__(self, skills: TurnSkills, call_id: CallId) -> None:
        self._skills = skills
        self._call_id = call_id

    def load(self, name: str) -> str:
        return self._skills.load(name, call_id=self._call_id)

    async def read_file(self, name: str, path: str) -> str:
        return await self._skills.read_file(name, path)

    def search(self, query: str, *, limit: int) -> str:
        return self._skills.search(query, limit=limit)
