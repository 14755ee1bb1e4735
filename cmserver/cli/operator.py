"""Acting without a key: whoever holds the database asks the same API, in this process, for a team he names.

So the operator can still act when the only key is lost, or when no server runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID

import httpx
from psycopg import errors

from cmserver.access import repository as access
from cmserver.access.model import Principal, Team
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, NotFound, Unauthenticated
from cmserver.base.ids import new_id, parse_id
from cmserver.base.live import Hub
from cmserver.base.migrate import MigrationError, installation_secret, newest
from cmserver.base.settings import Settings
from cmserver.generation.bell import Bell
from cmserver.ops import repository as ops

ACTOR = "operator"
"""Who it was, in the audit log."""

_OTHER_SCHEMA = "The database does not have this program's schema. Start its server once (`cmserver run`), which brings it there."


class Operator:
    """Takes the place of the authenticator: every request comes from the operator, for the team that he acts for."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._who: Principal | None = None

    async def __call__(self, _key: str | None, _scope: str) -> Principal:
        if self._who is None:
            raise Unauthenticated("Say for which team: --operator --team NAME.")
        return self._who

    @property
    def acts(self) -> bool:
        """Whether a team has been named."""
        return self._who is not None

    async def all_teams(self) -> list[Team]:
        """Archived ones, too."""
        async with self._db.system() as conn:
            return await access.all_teams(conn)

    async def act_for(self, named: str) -> None:
        """From now on ask for the team of that id or name; an archived one when no other has the name."""
        teams = [team for team in await self.all_teams() if team.name == named or team.id == parse_id(named)]
        teams = [team for team in teams if team.archived_at is None] or teams
        if not teams:
            raise NotFound(f"There is no team {named!r}. `cmserver teams list --operator` shows all.")
        if len(teams) > 1:
            raise Conflict(f"Several archived teams are called {named!r}: name it by its id (`cmserver teams list --operator`).")
        self._become(teams[0].id, teams[0].name)

    def act_for_no_team(self) -> None:
        """From now on ask for a team that does not exist: enough to make one."""
        self._become(new_id(), "")

    def _become(self, team_id: UUID, name: str) -> None:
        self._who = Principal(
            team_id=team_id, team_name=name, project_id=None, key_id=None, actor_id=ACTOR, scopes=frozenset({"*"})
        )


@asynccontextmanager
async def as_operator(settings: Settings, database: str) -> AsyncGenerator[tuple[httpx.AsyncClient, Operator]]:
    """The API on the database of that URL, and who asks it."""
    async with Db(database, size=4) as db:
        async with db.system() as conn:
            try:
                schema = await ops.schema(conn)
                secret = await installation_secret(conn)
            except errors.UndefinedTable as error:
                raise MigrationError(_OTHER_SCHEMA) from error
        if schema.number != newest():
            raise MigrationError(_OTHER_SCHEMA)
        hub = Hub(database)
        bell = Bell(db, hub)
        who = Operator(db)
        from cmserver.app import create_app  # noqa: PLC0415 - half a second, with MCP's SDK, that no other command should take

        app = create_app(settings, db, hub, bell, secret=secret, authenticate=who)
        transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
        # Any key will do, but without one /v1/info tells only what everybody may know.
        async with httpx.AsyncClient(transport=transport, base_url="http://cmserver", headers={"X-Api-Key": ACTOR}) as client:
            yield client, who
        await bell.flush()  # running servers hear of it
