"""A Messages API for tests: a real HTTP server that enforces the rules, keeps what it got and misbehaves by script.

It shares no code with the engine and imports nothing of it. ``server.serving`` runs it in process, ``python -m
torpor_fake_api`` as a process of its own.
"""
