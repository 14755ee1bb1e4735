"""All routes of the web interface. A new file of pages adds its `routes` here, before NoPage."""

from __future__ import annotations

from starlette.routing import BaseRoute

from cmserver.doors.web import static_files
from cmserver.doors.web.page import NoPage
from cmserver.doors.web.pages import (
    accounts,
    analytics,
    audit,
    costs,
    doctor,
    graph,
    jobs,
    keys,
    live,
    observation,
    observations,
    profile,
    projects,
    queue,
    review,
    server,
    sessions,
    steward,
    team,
    today,
    why,
)

PAGES: list[BaseRoute] = [
    *today.routes,
    *projects.routes,
    *sessions.routes,
    *why.routes,
    *observations.routes,
    *observation.routes,
    *review.routes,
    *graph.routes,
    *live.routes,
    *team.routes,
    *keys.routes,
    *audit.routes,
    *server.routes,
    *profile.routes,
    *accounts.routes,
    *queue.routes,
    *jobs.routes,
    *costs.routes,
    *analytics.routes,
    *steward.routes,
    *doctor.routes,
]

routes: list[BaseRoute] = [
    *PAGES,
    *static_files.routes,
    NoPage(),  # answers whatever is left below /ui
]
