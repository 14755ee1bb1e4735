"""The routes of Contextify, under /api/v1: its memories are our observations."""

from cmserver.doors.contextify.consolidation import routes as consolidation
from cmserver.doors.contextify.memories import routes as memories
from cmserver.doors.contextify.statistics import routes as statistics
from cmserver.doors.contextify.steward import routes as steward

routes = [
    *consolidation,  # /memories/duplicates is no id
    *memories,
    *statistics,
    *steward,
]
"""All of them."""
