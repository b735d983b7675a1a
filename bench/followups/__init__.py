"""Whether what a follow-up points at is still to be seen: ``python -m bench.followups [--json] [--quick]``."""
