"""The routes of Contextify, under /api/v1: its memories are our observations."""

from cmserver.compat.api.contextify.consolidation import routes as consolidation
from cmserver.compat.api.contextify.memories import routes as memories
from cmserver.compat.api.contextify.statistics import routes as statistics
from cmserver.compat.api.contextify.steward import routes as steward

routes = [
    *consolidation,  # /memories/duplicates is no id
    *memories,
    *statistics,
    *steward,
]
"""All of them."""
