"""Pure: what a conversation is and what it does next. No clock, no randomness, no I/O, nothing awaited."""
