"""What is measured, each in a process of its own; ``bench.turns`` and ``bench.idle`` make rows of it."""
