"""Torpor: a long-running agent runtime, one durable actor per conversation."""
