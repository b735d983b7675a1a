"""The strict reading of what a Messages API accepts, for whoever judges requests that the engine builds."""

from torpor_fake_api.rules.judge import rules_broken, violations
from torpor_fake_api.rules.violation import Violation

__all__ = ["Violation", "rules_broken", "violations"]
