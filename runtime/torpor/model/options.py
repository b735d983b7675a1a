"""What an agent's ``[model]`` table may say, by kind of host."""

from typing import Annotated, Literal

import msgspec


class ScriptedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``kind = "scripted"``: no model at all, a rehearsal is played."""

    kind: Literal["scripted"]
    rehearsal: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]+$")]
    """Name of a file in ``config/rehearsals``, without its ``.toml``."""
    model: str = ""
    """What requests and the journal call it; by default its kind."""
    pace_cps: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Characters per second, instead of the rehearsal's own; 0 says everything at once."""
