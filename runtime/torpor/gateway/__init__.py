"""Clients' side of the engine: sessions over WebSocket, events out, commands in."""
