"""What a sub-agent has found and selected. Pure.

Above: the collector, which fills it, and the result types, which tell of it. What is told is only ever what was
found: an id that nothing found has is unknown, whoever names it.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from torpor.conversation.quoting import prefix
from torpor.conversation.text import clean, is_blank
from torpor.errors import ToolFailed
from torpor.toolhost.contract import Finding, Selection

ID_CHARS_MAX: Final = 64
"""Of a finding."""
_NAME_BYTES: Final = 320
_EXCERPT_BYTES: Final = 1_024
_LABEL_BYTES: Final = 64
_WHYS_MAX: Final = 3
"""Different reasons that are told; the others are counted."""
_WHY_BYTES: Final = 200
"""Of one reason alone; of several, all of them have ``_WHYS_BYTES``."""
_WHYS_BYTES: Final = 280
SEARCH_FAILED: Final = "; the search failed, which does not tell whether there is anything to find"
"""Behind the reason, for the model that searched."""
_YEAR_MAX: Final = 9_999


class Findings:
    """Grows while its sub-agent works; findings in the order in which they were found first."""

    def __init__(self, *, findings_max: int, selected_max: int) -> None:
        """Args: findings_max: different ones.  selected_max: that count; later ones are beyond."""
        self._findings_max = findings_max
        self._selected_max = selected_max
        self._found: dict[str, Finding] = {}
        self._selected: dict[str, None] = {}
        self.duplicates = 0
        """Findings that were there already, and were merged."""
        self.left_out = 0
        """Findings that had no room; one that comes again is counted again."""
        self.searches = 0
        """Calls of its tools that have ended."""
        self.failed = 0
        """Of them, those that brought no answer, not even an empty one."""
        self._whys: dict[str, bool] = {}
        """Each different reason of these once, and whether it is one of the evidence itself."""

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(self._found.values())

    @property
    def selected(self) -> tuple[Finding, ...]:
        """In the order of the selection."""
        return tuple(self._found[id_] for id_ in self._selected)

    def get(self, id_: str) -> Finding | None:
        return self._found.get(id_)

    def add(self, finding: Finding) -> None:
        """One that is there already keeps its place and its words, and gets what it lacked."""
        known = self._found.get(finding.id)
        if known is not None:
            self.duplicates += 1
            self._found[finding.id] = _merged(known, finding)
        elif len(self._found) < self._findings_max:
            self._found[finding.id] = finding
        else:
            self.left_out += 1

    def searched(self, *, failure: str | None = None, of_evidence: bool = False) -> None:
        """A call of one of its tools has ended.

        Args: failure: what it ended with in place of an answer.  of_evidence: whether the evidence itself was searched.
        """
        self.searches += 1
        if failure is not None:
            self.failed += 1
            why = _line(failure.removesuffix(SEARCH_FAILED), bytes_max=_WHY_BYTES).rstrip(" .")
            self._whys.setdefault(why, of_evidence)

    @property
    def why(self) -> str:
        """Each different reason of searches that failed, that of the evidence itself first; at most 320 bytes."""
        whys = sorted(self._whys, key=lambda why: not self._whys[why])
        told = whys[:_WHYS_MAX]
        share = min(_WHY_BYTES, _WHYS_BYTES // max(len(told), 1))
        lines = [prefix(why, bytes_max=share).rstrip(" .") for why in told]
        if more := len(whys) - len(told):
            lines.append(f"{more} other reason{'s' if more > 1 else ''}")
        return "; also: ".join(lines)

    @property
    def is_idle(self) -> bool:
        """Nothing was looked for."""
        return not self.searches and not self._found

    @property
    def lacking(self) -> dict[str, dict[str, int | str]]:
        """What an answer says of searches that failed, as a field of it; empty where none did."""
        return {"searches": self.counts} if self.failed else {}

    @property
    def counts(self) -> dict[str, int | str]:
        """Of searches."""
        return {"made": self.searches, "failed": self.failed, "why": self.why}

    def select(self, ids: Iterable[str]) -> Selection:
        """Add to what is selected; an id that is selected already keeps its place."""
        beyond: dict[str, None] = {}
        unknown: dict[str, None] = {}
        for id_ in ids:
            if id_ not in self._found:
                unknown[id_] = None
            elif id_ not in self._selected and len(self._selected) >= self._selected_max:
                beyond[id_] = None
            else:
                self._selected[id_] = None
        return Selection(counted=tuple(self._selected), beyond=tuple(beyond), unknown=tuple(unknown))

    def __repr__(self) -> str:
        return (
            f"<Findings found={len(self._found)} selected={len(self._selected)} duplicates={self.duplicates} "
            f"left_out={self.left_out}>"
        )


def fitted(finding: Finding) -> Finding:
    """A finding as it can be stored and sent: cleaned, its lines joined, its texts cut to a few hundred bytes.

    Raises: ToolFailed: it is no finding, or its id is empty, too long, or nothing that a model can see and write.
    """
    try:
        msgspec.convert(msgspec.structs.asdict(finding), Finding)
    except (msgspec.ValidationError, TypeError, AttributeError) as exc:
        raise ToolFailed(f"a finding is not as it must be: {exc}") from exc
    if abs(finding.year) > _YEAR_MAX:
        raise ToolFailed(f"a finding is of a year beyond {_YEAR_MAX}, expected four digits, or 0 where it has none")
    if len(finding.id) > ID_CHARS_MAX or not _can_be_read(finding.id):
        found, expected = finding.id[: ID_CHARS_MAX + 1], f"1 to {ID_CHARS_MAX} plain characters"
        raise ToolFailed(f"a finding has the id {found!r}, expected {expected}")
    return msgspec.structs.replace(
        finding,
        title=_line(finding.title, bytes_max=_NAME_BYTES),
        locator=_line(finding.locator, bytes_max=_NAME_BYTES),
        excerpt=_line(finding.excerpt, bytes_max=_EXCERPT_BYTES),
        kind=_line(finding.kind, bytes_max=_LABEL_BYTES),
        strength=_line(finding.strength, bytes_max=_LABEL_BYTES),
    )


def _can_be_read(id_: str) -> bool:
    is_seen = all(char == " " or not is_blank(char) for char in id_)
    return bool(id_) and is_seen and _line(id_, bytes_max=_NAME_BYTES) == id_


def _line(text: str, *, bytes_max: int) -> str:
    return prefix(clean(" ".join(text.split())).text, bytes_max=bytes_max)


def _merged(known: Finding, again: Finding) -> Finding:
    lacked = {name: getattr(again, name) for name in Finding.__struct_fields__ if not getattr(known, name)}
    return msgspec.structs.replace(known, **lacked) if lacked else known
