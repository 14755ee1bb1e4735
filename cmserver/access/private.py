"""The private place of a person in a team: a team of theirs alone, in which their private sessions lie.

Nobody else is in it, so row-level security by team keeps it apart. A caller goes inside with the same key, and reads and writes
there as they do in their team.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID, uuid5

import msgspec

from cmserver.access import announce, repository
from cmserver.access.model import SCOPES, Principal, Project
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Issue, NoPerson
from cmserver.base.ids import new_id
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn

FIRST_NUMBER = 1_000_000_001
"""Numbers of what is private begin here; those of teams stay below."""
_ABOVE_TEAM = frozenset({"admin", "*", "keys:write"})


def is_private_number(name: str) -> bool:
    """Whether it is a number of what is private: `1000000012` or `#1000000012`."""
    digits = name.removeprefix("#")
    return digits.isascii() and digits.isdigit() and len(digits) < 19 and int(digits) >= FIRST_NUMBER


def require_private_person(principal: Principal, at: str) -> UUID:
    """The person who asks; NoPerson for a key that is nobody's."""
    if principal.user_id is None:
        message = "This key belongs to no person, so nobody could read what is private to it"
        how = "Sign in to the web interface and make a key there, or bind this one to you on your profile page."
        raise NoPerson(f"{message}. Nothing was kept. {how}", [Issue(at, message)])
    return principal.user_id


def go_inside(principal: Principal) -> Principal:
    """The person in their private place: what they may do to memory in the team, and nothing else.

    Nobody gets inside by another way, so it looks once more whose the place is: Forbidden for anybody else.
    """
    private_id = principal.private_id
    if private_id is None or principal.user_id is None or principal.private_to != principal.user_id:
        raise Forbidden("This is private to somebody else.")
    return msgspec.structs.replace(
        principal,
        team_id=private_id,
        project_id=None,
        scopes=frozenset(scope for scope in SCOPES if principal.may(scope)) - _ABOVE_TEAM,
        team_name=f"{principal.team_name} (private)",
        counts_as=uuid5(private_id, str(principal.usage_id)),
        private_id=None,
        private_to=None,
        home=principal,
    )


class PrivatePlaces:
    """Lets people into their private places, and makes those."""

    def __init__(self, db: Db, notifications: NotificationListener, projects: Projects) -> None:
        self._db = db
        self._notifications = notifications
        self._projects = projects

    async def enter(self, principal: Principal, *, at: str = "$") -> Principal:
        """The caller in their private place, which is made at the first time. NoPerson for a key that is nobody's."""
        if principal.home is not None:
            return principal
        user_id = require_private_person(principal, at)

        async def make(conn: Conn) -> UUID:
            made = await repository.private_place(conn, principal.team_id, user_id, new_id=new_id())
            await announce.drop_cached(conn, principal.team_id)
            return made

        if principal.private_id is None:
            principal = msgspec.structs.replace(principal, private_id=await self._db.in_system(make), private_to=user_id)
            announce.drop_cached_here(self._notifications, principal.team_id)
        inside = go_inside(principal)
        if principal.project_id is None:
            return inside
        project = await self._projects.find(principal, str(principal.project_id))
        return msgspec.structs.replace(inside, project_id=(await self.find_project(inside, project)).id)

    async def go_in(self, principal: object, *, scope: str, is_asked: bool, name: str) -> object:
        """The caller of a request that asks for what is private, or names it by its number. Forbidden without the scope there."""
        if not isinstance(principal, Principal) or not (is_asked or (principal.private_id and is_private_number(name))):
            return principal
        inside = await self.enter(principal)
        if scope:
            inside.require(scope)
        return inside

    async def find_project(self, inside: Principal, project: Project) -> Project:
        """The project of the private place that has the name of the team's; made when it is not there."""
        return await self._projects.find_or_make(inside, project.canonical_id)

    async def find_home_project(self, home: Principal, project: Project) -> Project:
        """The team's project that has the name of that of the private place; made when it is not there."""
        return await self._projects.find_or_make(home, project.canonical_id)


@asynccontextmanager
async def look_home(conn: Conn, principal: Principal) -> AsyncGenerator[Principal | None]:
    """The caller in their team, for who is in their private place: the transaction is there meanwhile, without a trace."""
    if principal.home is None:
        yield None
        return
    async with conn.transaction(force_rollback=True):  # which also takes the setting back
        await repository.set_team(conn, str(principal.home.team_id))
        yield principal.home


@asynccontextmanager
async def look_inside(conn: Conn, principal: Principal) -> AsyncGenerator[Principal | None]:
    """The caller in their private place, where the transaction is meanwhile; None for whoever has none, or is there."""
    if principal.private_id is None or principal.home is not None:
        yield None
        return
    inside = go_inside(principal)
    await repository.set_team(conn, str(inside.team_id))
    yield inside
    await repository.set_team(conn, str(principal.team_id))
