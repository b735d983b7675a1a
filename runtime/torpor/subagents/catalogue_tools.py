"""The tools by which a child finds what a plan may name. They read the catalogue and nothing else."""

from typing import Annotated, Any, Final

import msgspec

from torpor.errors import ToolFailed
from torpor.subagents.catalogue import Intervention, InterventionCatalogue
from torpor.toolhost.declare import Tool, tool
from torpor.toolhost.reserved import READ_INTERVENTION, SEARCH_INTERVENTIONS

INTERVENTION_TOOL_NAMES: Final = frozenset({SEARCH_INTERVENTIONS, READ_INTERVENTION})


def intervention_tools(catalogue: InterventionCatalogue) -> tuple[Tool[..., Any], ...]:
    """Both; ``INTERVENTION_TOOL_NAMES`` are their names."""

    @tool(name=SEARCH_INTERVENTIONS, effect="read")
    async def search_interventions(query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=20)] = 8) -> str:
        """Find interventions that a plan may name, by what they are for or by words of their title.

        Args:
            query: A problem or what should be done, in a few words.
            limit: How many to name at most.
        """
        found = catalogue.search(query, limit=limit)
        if not found:
            return f"Nothing in the catalogue fits. These are the problems that it knows:\n{problems_text(catalogue)}"
        return "\n".join(map(line_of, found))

    @tool(name=READ_INTERVENTION, effect="read")
    async def read_intervention(id: str) -> str:  # noqa: A002 - the model's word for it
        """Read what there is to know of an intervention: its dose options, cautions and contraindications.

        Args:
            id: As a search names it.
        """
        entry = catalogue.get(id)
        if entry is None:
            near = catalogue.nearest(id)
            expected = (
                f"perhaps {' or '.join(map(repr, near))}" if near else "search_interventions finds those there are"
            )
            raise ToolFailed(f"no intervention {id[:64]!r} is in the catalogue, {expected}")
        return text_of(entry, catalogue)

    return (search_interventions, read_intervention)


def line_of(entry: Intervention) -> str:
    """An entry in one line, as a search tells it."""
    doses = ", ".join(option.id for option in entry.dose_options)
    checks = ", ".join(entry.contraindications) or "none"
    problems = ", ".join(entry.applies_to)
    return f"{entry.id}: {entry.title}; for {problems}; dose options {doses}; contraindications {checks}"


def text_of(entry: Intervention, catalogue: InterventionCatalogue) -> str:
    """An entry with all there is to know of it."""
    checks = [f"- {id_}: {catalogue.contraindications.get(id_, '')}" for id_ in entry.contraindications]
    return "\n".join(
        (
            f"{entry.id}: {entry.title}",
            entry.summary,
            "for:",
            *(f"- {code}: {catalogue.problems.get(code, '')}" for code in entry.applies_to),
            "dose options:",
            *(f"- {option.id}: {option.text}" for option in entry.dose_options),
            "cautions:",
            *([f"- {caution}" for caution in entry.cautions] or ["- none"]),
            "contraindications, each to be known as absent:",
            *(checks or ["- none"]),
        )
    )


def problems_text(catalogue: InterventionCatalogue) -> str:
    """The codes of problems, one a line."""
    return "\n".join(f"- {code}: {title}" for code, title in catalogue.problems.items())
