"""One task per conversation: it owns the journal, and nobody else writes it."""
