"""The strict reading of what a Messages API accepts, for whoever judges requests that the engine builds."""

from typing import Any

from torpor_fake_api.rules import judge
from torpor_fake_api.rules.case import Content, NoWitness
from torpor_fake_api.rules.judge import rules_broken
from torpor_fake_api.rules.violation import Violation

__all__ = ["Violation", "rules_broken", "violations"]


class _Paused(NoWitness):
    """A host whose last reply ended in a pause."""

    def was_paused(self, content: Content) -> bool:
        return True


def violations(body: Any, *, after_pause: bool = False) -> list[Violation]:
    """Everything that is wrong with a decoded request.

    Args: after_pause: the reply before it ended in ``pause_turn``, so it may end with what the assistant said.
    """
    return judge.violations(body, witness=_Paused() if after_pause else None)
