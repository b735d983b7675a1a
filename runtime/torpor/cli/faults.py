"""What a person is told of a model's faults: in one line, with what can be done about it; knows no server."""

import html
import re
from typing import Final

from torpor.conversation.text import clean
from torpor.provider_errors import NOT_ASKED
from torpor.records.events import ModelFailedEvent

CUT_SHORT: Final = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Stop reasons of a reply that is not all that the model had to say."""
IS_CUT: Final = "the reply was cut at the output limit; ask for the rest, or raise max_tokens of the agent"

_LINE_MAX_CHARS: Final = 500
_PAGE: Final = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_UNSEEN: Final = re.compile(r"<(style|script)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
_TAG: Final = re.compile(r"<[^>]*(?:>|\Z)")
_SHORTEN: Final = "older turns are folded already, so send less at once or begin a new conversation"
_REMEDIES: Final = {
    "model_key_refused": "put a valid key in place and start the server again; `{program} doctor` tries it",
    "model_billing_refused": "look at the account's credit and limits; `{program} doctor` tells when it is mended",
    "model_unknown": "name a model that the host serves in the agent's file; `{program} doctor` tries it",
    "model_unavailable": "`{program} doctor` tells whether the host can be reached",
    "model_stream_lost": "`{program} doctor` tells whether the host can be reached",
    "model_rate_limited": "wait, or raise the limit at the host",
    "model_overloaded": "wait, or name a fallback in the agent's file",
    "model_timed_out": "ask for less at once, or raise turn.model_deadline_s",
    "model_context_too_long": _SHORTEN,
    "model_request_too_large": _SHORTEN,
    "context_too_long": "send less at once, or begin a new conversation",
    "fixed_context_too_large": (
        "shorten the agent's prompt, tools or skills, or raise the budget_tokens of its profile; "
        "`{program} config check` tells what they take"
    ),
    "model_request_invalid": "mostly an option of the agent's [model]; `{program} doctor` tries them",
    "attachment_not_taken": "a note stands for the file from now on; send it in another form",
    "attachment_missing": "send the file again",
    "attachment_damaged": "send the file again; `{program} verify` names all that were damaged",
    "attachments_unavailable": "look at where [blobs] lie; the server's log says why they cannot be read",
    "output_limit": "raise max_tokens of the agent",
    "crashed": "`{program} inspect` names the step that ended it",
}


def remedy(code: str, *, program: str) -> str:
    """What can be done about a turn that failed so; empty where nothing but its offers can."""
    return _REMEDIES.get(code, "").format(program=program)


def one_line(text: str) -> str:
    """``text`` of anybody, fit to stand in a line on a terminal; of a page that some proxy answered with, its words."""
    plain = _TAG.sub(" ", _UNSEEN.sub(" ", text)) if _PAGE.match(text) else text
    line = " ".join(clean(html.unescape(plain) if plain != text else plain).text.split())
    return line if len(line) <= _LINE_MAX_CHARS else f"{line[: _LINE_MAX_CHARS - 1]}…"


def asked_again(event: ModelFailedEvent) -> str:
    """That a call failed and what is done about it; empty where nothing is."""
    if not event.retry_at_us:
        return ""
    pause_s = max(0.0, (event.retry_at_us - event.at_us) / 1_000_000)
    when = f"in {pause_s:.0f} s" if pause_s >= 1 else "at once"
    other = f", then of {event.next_model}" if event.next_model else ""
    if event.code in NOT_ASKED:
        return f"the files of the conversation could not be read, {event.code}; tried again {when}"
    return f"the model failed, {event.code}; it is asked again {when}{other}"
