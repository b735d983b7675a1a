"""The embedded store: one SQLite file, one writer, no server to install."""
