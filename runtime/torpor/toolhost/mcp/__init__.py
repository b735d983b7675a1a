"""MCP servers as tools: other people's processes, kept at arm's length."""
