"""Paths of other systems, onto the same verbs; one file per system."""

from cmserver.compat.api.claude_mem import routes as claude_mem

routes = [*claude_mem]
