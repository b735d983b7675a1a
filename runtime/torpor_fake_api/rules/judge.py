"""``violations(body)``: everything that a host would refuse in a decoded request, one rule and one place each.

The rules read the request alone; what only a host knows (its models, its own replies) comes as arguments. Headers and
the count of tokens are judged elsewhere.
"""

from typing import Any

from torpor_fake_api.models import UNLISTED, ModelFacts
from torpor_fake_api.profiles import STRICT, Profile
from torpor_fake_api.rules.blocks import block_violations
from torpor_fake_api.rules.case import Case, NoWitness, Witness, dicts, merged
from torpor_fake_api.rules.envelope import envelope_violations
from torpor_fake_api.rules.marks import mark_violations
from torpor_fake_api.rules.order import order_violations
from torpor_fake_api.rules.pairs import pair_violations
from torpor_fake_api.rules.pictures import picture_violations
from torpor_fake_api.rules.thinking import thinking_violations
from torpor_fake_api.rules.tools import tool_violations
from torpor_fake_api.rules.violation import Violation, in_path_order

_RULES = (
    envelope_violations,
    tool_violations,
    order_violations,
    block_violations,
    picture_violations,
    pair_violations,
    thinking_violations,
    mark_violations,
)


def violations(
    body: Any,
    *,
    profile: Profile = STRICT,
    model: ModelFacts = UNLISTED,
    witness: Witness | None = None,
    counts_only: bool = False,
    size_bytes: int | None = None,
) -> list[Violation]:
    """Everything that a host of this profile would refuse in ``body``, in path order; empty for a valid request.

    Args: counts_only: it asks for a count of tokens.  size_bytes: of the body as it was sent, where that is known.
    """
    if not isinstance(body, dict):
        return [Violation("V-01", "", "the body is not a JSON object")]
    messages = dicts(body.get("messages"))
    case = Case(
        body=body,
        messages=messages if profile.alternates else merged(messages),
        profile=profile,
        model=profile.facts(model),
        witness=witness or NoWitness(),
        counts_only=counts_only,
        size_bytes=size_bytes,
    )
    return in_path_order(violation for rule in _RULES for violation in rule(case))


def rules_broken(body: Any) -> set[str]:
    """The names of the rules among the strict ``violations``."""
    return {violation.rule for violation in violations(body)}
