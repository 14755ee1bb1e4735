"""The doors to teams, projects and keys."""

from cmserver.access.api.audit import routes as audit
from cmserver.access.api.keys import routes as keys
from cmserver.access.api.projects import routes as projects
from cmserver.access.api.teams import routes as teams

routes = [*projects, *keys, *teams, *audit]
