"""Observations as the memories of Contextify's clients: one set of verbs for its routes and for its MCP tools."""
