"""Calls the API in this process, without a key, for whoever has access to the database.

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
from cmserver.base import credentials
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Conflict, NotFound, Unauthenticated
from cmserver.base.ids import new_id, parse_id
from cmserver.base.migrate import MigrationError, installation_secret, newest
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.generation.job_notifier import JobNotifier
from cmserver.ops import repository as ops
from cmserver.ops.backup.journal import begin_journal

ACTOR = "operator"
"""The operator's name in the audit log."""

OTHER_SCHEMA = "The database does not have this program's schema. Start the server once (`cmserver run`) to migrate it."


class Operator:
    """Replaces the authenticator: every request is the operator's, for the team that they act for."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._principal: Principal | None = None

    async def __call__(self, _key: str | None, _scope: str, _address: str) -> Principal:
        if self._principal is None:
            raise Unauthenticated("Name the team: --operator --team NAME.")
        return self._principal

    @property
    def has_team(self) -> bool:
        """Whether a team was chosen."""
        return self._principal is not None

    async def all_teams(self) -> list[Team]:
        """All teams, including archived ones."""
        async with self._db.system() as conn:
            return await access.all_teams(conn)

    async def act_for(self, name: str) -> None:
        """Choose the team with that id or name; an archived one only when no other has the name."""
        teams = [team for team in await self.all_teams() if team.name == name or team.id == parse_id(name)]
        teams = [team for team in teams if team.archived_at is None] or teams
        if not teams:
            raise NotFound(f"There is no team {name!r}. `cmserver teams list --operator` lists all teams.")
        if len(teams) > 1:
            raise Conflict(f"Several archived teams are called {name!r}: use the id (`cmserver teams list --operator`).")
        self._choose(teams[0].id, teams[0].name)

    def act_for_no_team(self) -> None:
        """Choose a team that does not exist: enough to create one."""
        self._choose(new_id(), "")

    def _choose(self, team_id: UUID, name: str) -> None:
        self._principal = Principal.of_server(team_id, actor_id=ACTOR, team_name=name)


@asynccontextmanager
async def open_operator_client(settings: Settings, database: DatabaseUrls) -> AsyncGenerator[tuple[httpx.AsyncClient, Operator]]:
    """A client of the API in this process on that database, and the operator it acts as."""
    journal = ErasureJournal(settings.backup_folder)
    async with Db(database, size=4, journal=journal) as db:
        async with db.system() as conn:
            try:
                schema = await ops.SCHEMA.one(conn)
                secret = await installation_secret(conn)
            except errors.UndefinedTable as error:
                raise MigrationError(OTHER_SCHEMA) from error
        if schema.number != newest():
            raise MigrationError(OTHER_SCHEMA)
        await begin_journal(db, journal)
        listener = NotificationListener(database.session)
        notifier = JobNotifier(db, listener)
        operator = Operator(db)
        from cmserver.app import create_app  # noqa: PLC0415 - half a second, with MCP's SDK, that no other command should take

        app = create_app(settings, db, listener, notifier, secret=secret, authenticate=operator)
        # The server's address, for links that the API makes.
        stored = credentials.read(settings.data_dir)
        url = httpx.URL(stored.url if stored is not None else f"http://127.0.0.1:{settings.port}")
        transport = httpx.ASGITransport(app, root_path=url.path.rstrip("/"))  # pyright: ignore[reportArgumentType] - httpx types ASGI more narrowly
        # Any key: without one, /v1/info shows only what is public.
        async with httpx.AsyncClient(transport=transport, base_url=url, headers={"X-Api-Key": ACTOR}) as client:
            yield client, operator
        await notifier.flush()  # notifies running servers
