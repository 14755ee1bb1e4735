"""The doors to teams, projects and keys."""

from cmserver.access.api.audit import routes as audit
from cmserver.access.api.keys import routes as keys
from cmserver.access.api.projects import routes as projects
from cmserver.access.api.teams import routes as teams
from cmserver.access.api.users import routes as users

routes = [*projects, *keys, *teams, *users, *audit]
