"""The Python client: reconnects, resends under the same id, yields every event once and in order."""
