"""Engine tools that bring skills into a conversation; offered only where there is a skill to bring.

They know nothing of files, flags or the conversation: all of that is behind ``contract.SkillAccess``, which the turn
hands over with each call.
"""

from typing import Annotated, Any, Final

import msgspec

from torpor.errors import ToolRefused
from torpor.toolhost.contract import SkillAccess, ToolContext
from torpor.toolhost.declare import Tool, tool
from torpor.toolhost.options import ToolOptions

LOAD_SKILL: Final = "load_skill"
READ_SKILL_FILE: Final = "read_skill_file"
SEARCH_SKILLS: Final = "search_skills"


def skill_tools(*, options: ToolOptions) -> tuple[Tool[..., Any], ...]:
    """All three."""

    @tool(name=LOAD_SKILL, effect="read", result_cap_bytes=options.skill_cap_bytes)
    async def load_skill(context: ToolContext, name: str) -> str:
        """Read the instructions of a skill before doing what it is for.

        Args:
            name: As in the list of available skills.
        """
        return _skills_of(context).load(name)

    @tool(name=READ_SKILL_FILE, effect="read")
    async def read_skill_file(context: ToolContext, name: str, path: str) -> str:
        """Read a file that belongs to a skill, such as a reference that its instructions point to.

        Args:
            name: The skill.
            path: As its instructions or its list of files name it.
        """
        return await _skills_of(context).read_file(name, path)

    @tool(name=SEARCH_SKILLS, effect="read")
    async def search_skills(
        context: ToolContext, query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5
    ) -> str:
        """Find skills that the list of available skills has no room for.

        Args:
            query: What the skill should be for, in a few words.
            limit: How many to name at most.
        """
        return _skills_of(context).search(query, limit=limit)

    return (load_skill, read_skill_file, search_skills)


def _skills_of(context: ToolContext) -> SkillAccess:
    if context.skills is None:
        raise ToolRefused("no skills are available here")
    return context.skills
