"""Models: one contract, one module per kind of host."""
