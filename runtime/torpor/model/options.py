"""What an agent's ``[model]`` table may say, by kind of host."""

from typing import Annotated, Literal

import msgspec

from torpor.model.windows import LOCAL_TOKENS
from torpor.records.bounds import Amount, Count, Seconds


class ScriptedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``kind = "scripted"``: no model at all, a rehearsal is played."""

    kind: Literal["scripted"]
    rehearsal: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
    """Name of a file in ``config/rehearsals``, without its ``.toml``."""
    model: str = ""
    """What requests and the journal call it; by default its kind."""
    pace_cps: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Characters per second, instead of the rehearsal's own; 0 says everything at once."""


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``kind = "local"``: a file with a model, run on this machine inside this process."""

    kind: Literal["local"]
    path: str
    """A GGUF file; a relative path starts from the home."""
    threads: Amount = 0
    """Cores that a reply may take; 0 takes those that are free when the file is loaded."""
    window_tokens: Count = LOCAL_TOKENS
    """Of a request and its reply together, up to what the file supports; takes memory once the file is loaded."""
    progress_deadline_s: Seconds = 300.0
    """The longest silence within a reply; a long request is read in silence."""
