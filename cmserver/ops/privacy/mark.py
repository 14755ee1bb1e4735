"""Makes a session private, or gives it back to the team. One transaction, as the owner of the tables.

A private session lies in the private place of its person. What is told of it there is made anew; where it was it is erased, with
all that was derived of it, as a session that is deleted.
"""

from __future__ import annotations

from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access import repository as access
from cmserver.access.model import Principal, Project
from cmserver.access.private import PrivatePlaces, require_private_person
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn
from cmserver.consolidation.combine import undo
from cmserver.generation.intake import repository as intake
from cmserver.observations import repository as observations
from cmserver.observations.approval import repository as approvals
from cmserver.observations.history import repository as history
from cmserver.observations.write import record_deleted
from cmserver.ops.privacy import repository
from cmserver.ops.privacy.repository import ToldSession
from cmserver.sessions import repository as sessions
from cmserver.sessions.model import Session
from cmserver.sessions.read import NO_SUCH, find_session

_NOT_YOURS = "Only the person whose session this is can make it private, with their own key or signed in."
NEWEST = "newest"
_MOST_MERGES = 100


class SessionPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """A session, whether it is private, and who had been told of it when it became so."""

    session: Session
    is_private: bool
    told: list[ToldSession] = []


class PrivateSessions:
    """What marking sessions needs, at hand for the process."""

    def __init__(self, db: Db, notifications: NotificationListener, places: PrivatePlaces) -> None:
        self._db = db
        self._notifications = notifications
        self._places = places

    async def make_private(self, principal: Principal, name: str) -> SessionPrivacy:
        """Make the caller's session private, named by its id or its agent's; one that is private stays so.

        NoPerson for a key that is nobody's, Conflict for a session of somebody else, or of nobody.
        """
        home = principal.at_home
        user_id = require_private_person(home, "$.private")
        there = await self._find_inside(home, name)
        if there is not None:
            return SessionPrivacy(session=there, is_private=True, told=told_before(there))
        session, project = await self._find_here(home, name, user_id)
        inside = await self._places.enter(home)
        into = await self._places.find_project(inside, project)

        async def act(conn: Conn) -> SessionPrivacy:
            await self._lock(conn, home, session)
            await _require_own(conn, home, session.id, user_id)
            told = await repository.told(conn, home.team_id, session.id)
            derived = await observations.derived_from(conn, home.team_id, session_id=session.id)
            await approvals.release(conn, home.team_id, session.id)
            await _give(conn, home, session, inside, into)
            await audit.record(conn, home, "session.deleted", "session", session.id, project_id=session.project_id)
            await record_deleted(conn, home, derived)
            await audit.record(conn, inside, "session.made_private", "session", session.id, project_id=into.id)
            await sessions.set_told(conn, inside.team_id, session.id, msgspec.to_builtins(told))
            await sessions.stop_comparing(conn, inside.team_id, session.id)
            await self._tell(conn)
            return SessionPrivacy(session=await find_session(conn, inside, str(session.id)), is_private=True, told=told)

        return await self._db.in_system(act)

    async def give_back(self, principal: Principal, name: str) -> SessionPrivacy:
        """Give a private session of the caller's to the team; one that the team reads stays as it is."""
        home = principal.at_home
        require_private_person(home, "$.private")
        session = await self._find_inside(home, name)
        if session is None:
            return SessionPrivacy(session=(await self._find_here(home, name))[0], is_private=False)
        inside = await self._places.enter(home)
        async with self._db.tenant(inside.team_id) as conn:
            held = await access.project(conn, inside.team_id, session.project_id)
        if held is None:
            raise NotFound(NO_SUCH)
        into = await self._places.find_home_project(home, held)

        async def act(conn: Conn) -> SessionPrivacy:
            await self._lock(conn, inside, session)
            await sessions.set_told(conn, inside.team_id, session.id, None)
            await _give(conn, inside, session, home, into)
            await approvals.hold(conn, home.team_id, await approvals.decisions_of(conn, home.team_id, session.id))
            await audit.record(conn, home, "session.started", "session", session.id, project_id=into.id)
            await self._tell(conn)
            return SessionPrivacy(session=await find_session(conn, home, str(session.id)), is_private=False)

        return await self._db.in_system(act)

    async def find_newest(self, principal: Principal, folder: str | None, *, is_private: bool) -> str:
        """The id of the newest session that the caller's key began, in that folder of their agent; NotFound when there is none."""
        home = principal.at_home
        require_private_person(home, "$.id")
        if is_private and home.private_id is None:
            raise NotFound(NO_SUCH)
        there = await self._places.enter(home) if is_private else home
        async with self._db.tenant(there.team_id) as conn:
            found = await sessions.newest_of(conn, there.team_id, home.actor_id, folder)
        if found is None or not there.sees(found.project_id):
            raise NotFound(NO_SUCH)
        return str(found.id)

    async def _find_inside(self, home: Principal, name: str) -> Session | None:
        """The person's private session of that name. No place is made for whoever has none."""
        if home.private_id is None:
            return None
        inside = await self._places.enter(home)
        async with self._db.tenant(inside.team_id) as conn:
            try:
                return await find_session(conn, inside, name)
            except NotFound:
                return None

    async def _find_here(self, home: Principal, name: str, user_id: UUID | None = None) -> tuple[Session, Project]:
        """The team's session and its project. Conflict where it must be a person's own and is not, before anything is made."""
        async with self._db.tenant(home.team_id) as conn:
            session = await find_session(conn, home, name)
            if user_id is not None:
                await _require_own(conn, home, session.id, user_id)
            project = await access.project(conn, home.team_id, session.project_id, archived=True)
        if project is None:
            raise NotFound(NO_SUCH)
        return session, project

    async def _lock(self, conn: Conn, principal: Principal, session: Session) -> None:
        """Lock in the order of every writer. A worker that is busy with it loses its work, and its jobs are done anew."""
        await history.lock_project(conn, session.project_id)
        if await sessions.lock(conn, principal.team_id, session.id) is None:
            raise NotFound(NO_SUCH)
        await intake.lock_lane(conn, principal.team_id, session.id)

    async def _tell(self, conn: Conn) -> None:
        await announce.forget_sessions(conn, self._notifications)
        await announce.notify_stream(conn)


async def _require_own(conn: Conn, home: Principal, session_id: UUID, user_id: UUID) -> None:
    """Conflict unless the session is the person's alone."""
    if not await repository.is_of_person(conn, home.team_id, session_id, user_id):
        raise Conflict(_NOT_YOURS)
    if await repository.others_wrote(conn, home.team_id, session_id, home.own_names):
        raise Conflict("Somebody else has written in this session, too: it cannot become one person's.")


async def _give(conn: Conn, holder: Principal, session: Session, receiver: Principal, into: Project) -> None:
    """Give the session; what was merged with others is separated first. Conflict where that cannot be undone."""
    for _ in range(_MOST_MERGES):
        try:
            merged = await repository.give_session(conn, holder.team_id, session.id, receiver.team_id, into.id)
        except errors.ForeignKeyViolation as error:
            raise Conflict("Something was drawn from this session and from another one.") from error
        if not merged:
            return
        for number in dict.fromkeys(merged):
            await undo(conn, msgspec.structs.replace(holder, project_id=None), str(number))
    raise Conflict("Observations of this session were merged with others too often. Undo that first.")


def told_before(session: Session) -> list[ToldSession]:
    """Who had been told of it when it became private, as the session keeps it."""
    return msgspec.convert(session.metadata.get("told", []), list[ToldSession])
