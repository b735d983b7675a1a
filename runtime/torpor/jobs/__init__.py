"""Durable background work: what an append ordered is done, at least once, beside the conversations."""
