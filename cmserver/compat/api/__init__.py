"""Paths of other systems, onto the same verbs; one file per system, or a folder."""

from cmserver.compat.api.claude_mem import routes as claude_mem
from cmserver.compat.api.worker.context import routes as worker_context
from cmserver.compat.api.worker.health import routes as worker_health
from cmserver.compat.api.worker.lists import routes as worker_lists
from cmserver.compat.api.worker.observations import routes as worker_observations
from cmserver.compat.api.worker.search import routes as worker_search
from cmserver.compat.api.worker.sessions import routes as worker_sessions
from cmserver.compat.api.worker.settings import routes as worker_settings
from cmserver.compat.api.worker.stream import routes as worker_stream
from cmserver.compat.api.worker.timeline import routes as worker_timeline
from cmserver.compat.api.worker.v4 import routes as worker_v4

routes = [
    *worker_health,  # asked five times before each of the others
    *worker_sessions,
    *worker_context,
    *worker_observations,
    *worker_search,
    *worker_timeline,
    *worker_lists,
    *worker_settings,
    *worker_stream,
    *worker_v4,
    *claude_mem,
]
