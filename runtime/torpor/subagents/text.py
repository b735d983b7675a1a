"""The plainest result: what the sub-agent says in the end. Pure."""

from typing import Final

from torpor.conversation.quoting import prefix
from torpor.records.blocks import canonical
from torpor.subagents.findings import Findings
from torpor.subagents.results import Accepted, Unacceptable

TEXT: Final = "text"
ANSWER_BYTES_MAX: Final = 8_192


class Text:
    """Implements ``results.ResultType``."""

    name = TEXT

    def instructions(self) -> str:
        return (
            "Your last message is your answer, and all that whoever asked you will read of your work: make it complete,"
            f" and at most {ANSWER_BYTES_MAX:,} bytes long."
        )

    def accept(self, text: str, findings: Findings) -> Accepted:
        """Raises: Unacceptable: nothing was said, or too much."""
        size_bytes = len(text.encode())
        if not text.strip():
            raise Unacceptable("Your last message says nothing. Answer the task now.")
        if size_bytes > ANSWER_BYTES_MAX:
            raise Unacceptable(
                f"Your answer has {size_bytes:,} bytes, expected at most {ANSWER_BYTES_MAX:,}: shorten it."
            )
        return Accepted(told=bytes(canonical({"answer": text.strip()})))

    def overrun(self, findings: Findings) -> Accepted:
        """An honest nothing, but for the titles of what was selected."""
        told: dict[str, object] = {"answer": "", "unfinished": "its budget was over before it answered"}
        if findings.selected:
            told["selected"] = [prefix(finding.title, bytes_max=160) for finding in findings.selected]
        return Accepted(told=bytes(canonical(told)))
