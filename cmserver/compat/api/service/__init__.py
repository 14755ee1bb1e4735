"""The routes of the memory-service: its episodes are our turns, its summaries our summaries and overviews."""

from cmserver.compat.api.service.entities import routes as entities
from cmserver.compat.api.service.episodes import routes as episodes
from cmserver.compat.api.service.projects import routes as projects
from cmserver.compat.api.service.sessions import routes as sessions
from cmserver.compat.api.service.summaries import routes as summaries

routes = [*episodes, *sessions, *projects, *summaries, *entities]
"""All of them."""
