"""A child finds what a plan may name, and reads it."""

from tests.support.tools import called
from tests.unit.subagents.plan_parts import CATALOGUE, SHIPPED
from torpor.records.terms import Effect, Outcome
from torpor.subagents.catalogue_tools import INTERVENTION_TOOL_NAMES, intervention_tools
from torpor.toolhost.contract import ToolResult

SEARCH, READ = intervention_tools(CATALOGUE)


async def search(**arguments: object) -> ToolResult:
    return await called(SEARCH, arguments)


async def read(name: str) -> ToolResult:
    return await called(READ, {"id": name})


def test_both_only_read() -> None:
    assert {SEARCH.name, READ.name} == INTERVENTION_TOOL_NAMES
    assert (SEARCH.effect, READ.effect) == (Effect.READ, Effect.READ)


async def test_a_search_tells_the_best_in_a_line_each() -> None:
    assert (await search(query="insomnia")).text == (
        "short-nights: Short nights; for insomnia, low-mood; dose options gentle, strict; contraindications seizures\n"
        "sleep-diary: Sleep diary; for insomnia; dose options two-weeks; contraindications none"
    )
    assert (await search(query="insomnia", limit=1)).text.count("\n") == 0


async def test_a_search_that_finds_nothing_tells_the_problems_that_there_are() -> None:
    result = await search(query="volcano")
    assert result.outcome is Outcome.SUCCEEDED
    assert result.text == (
        "Nothing in the catalogue fits. These are the problems that it knows:\n"
        "- insomnia: Trouble sleeping\n- knee-pain: A knee that hurts\n- low-mood: Depression"
    )


async def test_an_intervention_is_read_with_all_that_a_plan_needs() -> None:
    assert (await read("short-nights")).text == (
        "short-nights: Short nights\n"
        "Time in bed is cut; a diary helps.\n"
        "for:\n- insomnia: Trouble sleeping\n- low-mood: Depression\n"
        "dose options:\n- gentle: Six hours\n- strict: Five hours\n"
        "cautions:\n- No long drives.\n"
        "contraindications, each to be known as absent:\n- seizures: Epilepsy"
    )
    assert (await read("cycling")).text.endswith(
        "cautions:\n- none\ncontraindications, each to be known as absent:\n- none"
    )


async def test_an_id_that_is_not_there_is_told_with_those_that_may_be_meant() -> None:
    result = await read("sleep-dairy")
    assert result.outcome is Outcome.FAILED
    assert "no intervention 'sleep-dairy' is in the catalogue, perhaps 'sleep-diary'" in result.text
    assert "search_interventions finds those there are" in (await read("zzz")).text


async def test_a_limit_out_of_range_is_refused() -> None:
    assert (await search(query="sleep", limit=0)).outcome is Outcome.FAILED
    assert (await search(query="sleep", limit=21)).outcome is Outcome.FAILED


async def test_no_text_of_the_shipped_catalogue_is_longer_than_a_short_result() -> None:
    tool = intervention_tools(SHIPPED)[1]
    sizes = [len((await called(tool, {"id": id_})).text) for id_ in SHIPPED.ids]
    assert max(sizes) < 1_500
