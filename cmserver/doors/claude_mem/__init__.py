"""The routes of claude-mem: its worker's, which its hooks, its tools and its viewer call, and its server's."""

from cmserver.doors.claude_mem.context import routes as worker_context
from cmserver.doors.claude_mem.health import routes as worker_health
from cmserver.doors.claude_mem.memories import routes as memories
from cmserver.doors.claude_mem.observations import routes as worker_observations
from cmserver.doors.claude_mem.search import routes as worker_search
from cmserver.doors.claude_mem.sessions import routes as worker_sessions
from cmserver.doors.claude_mem.tool_uses import routes as worker_tool_uses
from cmserver.doors.claude_mem.v4 import routes as worker_v4
from cmserver.doors.claude_mem.viewer import routes as worker_viewer

routes = [
    *worker_health,  # asked five times before each of the others
    *worker_sessions,
    *worker_context,
    *worker_observations,
    *worker_tool_uses,
    *worker_search,
    *worker_viewer,
    *worker_v4,
    *memories,
]
"""All of them."""
