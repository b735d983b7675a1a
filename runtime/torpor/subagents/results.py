"""What kind of result a sub-agent owes, and how its final text becomes one. Pure.

Above: whoever runs the sub-agent; it puts ``instructions`` behind the system prompt, answers what is ``Unacceptable``
with the message while the budget lasts, and takes the ``overrun`` when it is over.
"""

import re
from typing import Any, Final, Protocol, TypeVar

import msgspec

from torpor.misfits import Words, misfit
from torpor.subagents.findings import Findings

T = TypeVar("T")

_FENCED: Final = re.compile(r"```[a-z]*[ \t]*\n(.*?)\n?```", re.DOTALL)
_WHOLE: Final = "Answer again with the JSON object alone, with nothing before it and nothing behind it."


class Unacceptable(Exception):
    """A final text is not of the type of result that is owed; ``message`` tells the model what to mend."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A result."""

    told: bytes
    """Canonical JSON: all that the parent's model is told."""
    kept: bytes = b""
    """Canonical JSON that is kept for the owner under its own digest (sha256, hex); empty where nothing is."""
    dropped: tuple[str, ...] = ()
    """Ids in the answer that nothing found has."""


class ResultType(Protocol):
    """One kind of result; knows neither the model nor the tools."""

    @property
    def name(self) -> str: ...

    def instructions(self) -> str:
        """Which JSON object to answer with, in words for the model."""
        ...

    def accept(self, text: str, findings: Findings) -> Accepted:
        """The result that a final text is. Raises: Unacceptable."""
        ...

    def overrun(self, findings: Findings) -> Accepted:
        """What there is when the budget is over before a final text is accepted: what was selected, or nothing."""
        ...


def read_answer(text: str, type_: type[T]) -> T:
    """The JSON object that ``text`` is, or that stands in its one code fence.

    Raises: Unacceptable: it is no JSON, or not of ``type_``; of the latter, the first fault is told.
    """
    fenced = _FENCED.findall(text)
    body = fenced[0] if len(fenced) == 1 else text.strip()
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as exc:
        raise Unacceptable(f"Your answer is not a JSON object: {_fault(exc)}. {_WHOLE}") from exc
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as exc:
        found = misfit(exc, type_)
        place = found.path.removeprefix(".") or "the answer"
        seen = found.found if isinstance(found.found, Words) else Words(found.found)
        said = (
            f"{place} is {seen!r}, expected {found.expected}"
            if seen.words
            else f"{place} is not as expected: {found.expected}"
        )
        raise Unacceptable(f"Your answer does not fit: {said}. {_WHOLE}") from exc


def _fault(exc: Exception) -> str:
    match exc:
        case msgspec.DecodeError():
            return str(exc).replace("JSON is malformed: ", "")
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return "it has half of a character"
