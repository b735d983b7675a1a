"""Feature flags: what of a home is switched on for whom, behind one small face; OpenFeature decides."""
