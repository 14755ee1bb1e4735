"""The routes of the memory-service: its episodes are our turns, its summaries our summaries and overviews."""

from cmserver.doors.memory_service.entities import routes as entities
from cmserver.doors.memory_service.episodes import routes as episodes
from cmserver.doors.memory_service.projects import routes as projects
from cmserver.doors.memory_service.sessions import routes as sessions
from cmserver.doors.memory_service.summaries import routes as summaries

routes = [*episodes, *sessions, *projects, *summaries, *entities]
"""All of them."""
