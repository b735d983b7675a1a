"""Live fan-out of committed events and of deltas. A hint, never the truth: gaps are filled from the journal."""
