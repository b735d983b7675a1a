"""Bounds of policy search; how many tokens a turn may spend on excerpts is its budget's business."""

import msgspec

from torpor.records.bounds import Count, Score, Share


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts, bytes and a share."""

    excerpts_max: Count = 4
    """Excerpts that one turn is given."""
    score_share: Share = 0.5
    """What scores less than this share of the best excerpt is not given."""
    score_min: Score = 0.0
    """What scores less is not given, however good the best one is; 0 for no such floor."""
    budget_tokens: Count = 2_500
    """What they may cost together, for agents whose profile grants policies no allotment."""
    query_words_max: Count = 24
    """Different words of a message that are looked for; the first ones count."""
    file_max_bytes: Count = 262_144
    """A larger file is told and left out."""
