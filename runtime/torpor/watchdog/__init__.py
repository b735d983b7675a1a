"""Measures how late the event loop is, and names what held it up."""
