"""Sockets, HTTP, and the performance of a plan."""
