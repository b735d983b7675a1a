"""Sub-agents: what they find, how it is collected, and what comes out of their answers."""
