"""The doors to teams, projects and keys."""

from cmserver.access.api.projects import routes as projects

routes = [*projects]
