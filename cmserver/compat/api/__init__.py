"""Routes of other systems, one module or folder per system."""

from cmserver.compat.api.claude_mem import routes as claude_mem
from cmserver.compat.api.contextify import routes as contextify
from cmserver.compat.api.service import routes as service
from cmserver.compat.api.worker.context import routes as worker_context
from cmserver.compat.api.worker.health import routes as worker_health
from cmserver.compat.api.worker.observations import routes as worker_observations
from cmserver.compat.api.worker.search import routes as worker_search
from cmserver.compat.api.worker.sessions import routes as worker_sessions
from cmserver.compat.api.worker.tool_uses import routes as worker_tool_uses
from cmserver.compat.api.worker.v4 import routes as worker_v4
from cmserver.compat.api.worker.viewer import routes as worker_viewer

routes = [
    *worker_health,  # asked five times before each of the others
    *worker_sessions,
    *worker_context,
    *worker_observations,
    *worker_tool_uses,
    *worker_search,
    *worker_viewer,
    *worker_v4,
    *claude_mem,
    *contextify,
    *service,
]
