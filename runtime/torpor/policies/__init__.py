"""Policies of a home: files split into excerpts, found by the words of a message."""
