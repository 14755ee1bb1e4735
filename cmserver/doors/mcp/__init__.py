"""The Model Context Protocol: an agent's own door to what is remembered."""
