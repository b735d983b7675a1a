"""Research: a sub-agent searches the evidence of the home and answers with the ids of the best sources.

The result type is pure: what the parent is told are sources that were really found, at most a few, each short. The
tools are those of the sub-agent: what they find goes into its collector, and its model sees just enough to choose.
"""

import hashlib
from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from torpor.conversation.graphemes import cut
from torpor.conversation.quoting import prefix
from torpor.conversation.text import clean
from torpor.errors import ToolRefused
from torpor.records.blocks import canonical
from torpor.subagents.evidence import EvidenceIndex, Found
from torpor.subagents.findings import ID_CHARS_MAX, Findings
from torpor.subagents.results import Accepted, read_answer
from torpor.toolhost.contract import Finding, FindingSink, Selection, ToolContext
from torpor.toolhost.declare import Tool, tool
from torpor.toolhost.reserved import SEARCH_EVIDENCE, SELECT_SOURCES

RESEARCH: Final = "research"
SOURCES_MAX: Final = 8
REFLECTION_BYTES: Final = 480
TOLD_BYTES_MAX: Final = 6_000
"""Of JSON, as are the others: what has to be escaped counts as it is written."""
_TITLE_BYTES: Final = 160
_LOCATOR_BYTES: Final = 96
_EXCERPT_BYTES: Final = 256
_GLANCE_CHARS: Final = 110
"""Of an excerpt that the sub-agent's own model sees."""
_IDS_MAX: Final = 64
_ESCAPED_BYTES_MAX: Final = 6
"""Of one byte of text in JSON."""

Ids = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)], ...], msgspec.Meta(max_length=_IDS_MAX)]


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the sub-agent's final text must be."""

    source_ids: Ids
    """The best first."""
    planner_reflection: str


class Research:
    """Implements ``results.ResultType``."""

    name = RESEARCH

    def __init__(self, *, sources_max: int = SOURCES_MAX) -> None:
        self._sources_max = sources_max

    def instructions(self) -> str:
        return (
            f"Select good sources with {SELECT_SOURCES} as soon as you find them: when your budget is over, only those"
            " that are selected count. End with a JSON object and nothing else:\n"
            '{"source_ids": ["..."], "planner_reflection": "..."}\n'
            f"source_ids: ids that searches showed, the best first, at most {self._sources_max}; an empty list"
            " when nothing fits. planner_reflection: one or two sentences on how you searched and what is missing."
            " Write no ids, titles or excerpts into it."
        )

    def accept(self, text: str, findings: Findings) -> Accepted:
        """The sources in the order of the answer, each once. Raises: Unacceptable: it is no ``Answer``."""
        answer = read_answer(text, Answer)
        asked = dict.fromkeys(answer.source_ids)
        sources = [finding for id_ in asked if (finding := findings.get(id_)) is not None]
        unknown = tuple(id_ for id_ in asked if findings.get(id_) is None)
        return self._accepted(sources, answer.planner_reflection, findings=findings, dropped=unknown)

    def overrun(self, findings: Findings) -> Accepted:
        """What was selected by then, never what was merely found."""
        said = "The research ended before its answer was complete; "
        said += "these sources were selected by then." if findings.selected else "no source was selected by then."
        return self._accepted(findings.selected, said, findings=findings, dropped=())

    def _accepted(
        self, sources: Iterable[Finding], reflection: str, *, findings: Findings, dropped: tuple[str, ...]
    ) -> Accepted:
        """Whatever its model says of it, failed searches are told: no source is something else then."""
        chosen = tuple(sources)[: self._sources_max]
        said = f"{(gap := _gap(findings))} {clean(reflection).text}"
        note = _short(" ".join(said.split()), bytes_max=REFLECTION_BYTES)
        fields = {"type": RESEARCH, "sources": msgspec.to_builtins(chosen), "planner_reflection": note}
        kept = bytes(canonical(fields | ({"searches": findings.counts} if gap else {})))
        bundle = hashlib.sha256(kept).hexdigest()
        told = _told(bundle, chosen, note, excerpt_bytes=(room := _EXCERPT_BYTES))
        while (over := len(told) - TOLD_BYTES_MAX) > 0 and room > 0:  # ids are never cut, and may be long
            told = _told(bundle, chosen, note, excerpt_bytes=(room := room - 1 - over // len(chosen)))
        return Accepted(told=told, kept=kept, dropped=dropped)


def glance(entry: Found | Finding) -> str:
    """An entry in one line, as the sub-agent's own model sees it."""
    short = cut(entry.excerpt, chars_max=_GLANCE_CHARS)
    short += "…" if len(short) < len(entry.excerpt) else ""
    about = ", ".join(str(part) for part in (entry.year, entry.kind, entry.strength) if part)
    return " | ".join(filter(None, (entry.id, entry.title, about, short)))


def research_tools(evidence: EvidenceIndex) -> tuple[Tool[..., Any], ...]:
    """``search_evidence`` and ``select_sources``; both need a collector in their context."""

    @tool(name=SEARCH_EVIDENCE, effect="read")
    async def search_evidence(
        context: ToolContext, query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=10)] = 5
    ) -> str:
        """Find entries of the evidence index that share words with a query, the best first.

        Args:
            query: A few words of what to look for; other forms of a word are found as well, other words for it are not.
            limit: How many to show at most.
        """
        collector = collector_of(context)
        entries = evidence.search(query, limit=limit)
        for entry in entries:
            await collector.found(_finding(entry))
        return "\n".join(map(glance, entries)) or "Nothing in the evidence index shares a word with it; try others."

    @tool(name=SELECT_SOURCES, effect="read")
    async def select_sources(context: ToolContext, ids: Ids) -> str:
        """Select sources that searches have found, in addition to those selected before.

        Args:
            ids: As the searches show them, the best first.
        """
        return _said(await collector_of(context).select(ids))

    return (search_evidence, select_sources)


def collector_of(context: ToolContext) -> FindingSink:
    """Raises: ToolRefused: nothing is collected in this call."""
    if context.collector is None:
        raise ToolRefused("nothing is collected here, since this is no sub-agent that collects")
    return context.collector


def _finding(entry: Found) -> Finding:
    return Finding(
        id=entry.id,
        title=entry.title,
        locator=entry.locator,
        excerpt=entry.excerpt,
        year=entry.year,
        kind=entry.kind,
        strength=entry.strength,
    )


def _said(selection: Selection) -> str:
    lines = [f"Selected so far: {', '.join(selection.counted) or 'none'}."]
    if selection.beyond:
        most = len(selection.counted)
        lines.append(f"No room for more than {most}: {', '.join(selection.beyond)}. Your answer may name others.")
    if selection.unknown:
        lines.append(f"No search has found: {', '.join(selection.unknown)}.")
    return "\n".join(lines)


def _told(bundle: str, sources: Iterable[Finding], note: str, *, excerpt_bytes: int) -> bytes:
    """As much as the parent's model is told."""
    told = [
        {
            "id": source.id,
            "title": _short(source.title, bytes_max=_TITLE_BYTES),
            "locator": _short(source.locator, bytes_max=_LOCATOR_BYTES),
            "excerpt": _short(source.excerpt, bytes_max=excerpt_bytes),
        }
        for source in sources
    ]
    return bytes(canonical({"research_bundle_id": bundle, "sources": told, "planner_reflection": note}))


def _gap(findings: Findings) -> str:
    """What searches that failed, or were not made, leave open; empty where there are none. At most 420 bytes."""
    made, failed = findings.searches, findings.failed
    if findings.is_idle:
        return "[No search was made, so it is not known whether there are sources.]"
    if not failed:
        return ""
    if failed < made:
        return f"[{failed} of {made} searches failed. Why: {findings.why}.]"
    which = "The only search" if made == 1 else f"All {made} searches"
    return f"[{which} failed, so it is not known whether there are sources. Why: {findings.why}.]"


def _short(text: str, *, bytes_max: int) -> str:
    """The beginning of ``text`` that stands in so many bytes of JSON."""
    short = prefix(text, bytes_max=bytes_max)
    while (over := len(bytes(canonical(short))) - len('""') - bytes_max) > 0 and short:
        short = prefix(short, bytes_max=len(short.encode()) - 1 - over // _ESCAPED_BYTES_MAX)
    return short
