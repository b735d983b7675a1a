"""A request as the model would read it: its segments, their tokens, and what of it is already cached."""
