"""The ends of turns and sessions as the doors ask for them: each in a transaction of its own, then the bell for its summary."""

from __future__ import annotations

from uuid import UUID

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.generation.bell import Bell
from cmserver.generation.model import Job
from cmserver.ingest import session as sessions
from cmserver.ingest.model import Checkpoints
from cmserver.sessions.model import Session


class Ends:
    """One per process. What each end means, and what it refuses, stands in `ingest.session`."""

    def __init__(self, db: Db, bell: Bell, *, max_attempts: int, after: Checkpoints) -> None:
        self._db = db
        self._bell = bell
        self._max_attempts = max_attempts
        self._after = after

    async def turn(self, who: Principal, session_id: UUID) -> Job | None:
        """A checkpoint: the new summary job, if enough has happened for one."""
        job = await self._db.in_tenant(
            who.team_id,
            lambda conn: sessions.checkpoint(
                conn, who, session_id, source_adapter="hook", max_attempts=self._max_attempts, after=self._after
            ),
        )
        if job is not None:
            self._bell.ring()
        return job

    async def session(self, who: Principal, session_id: UUID) -> None:
        """The agent's hook says that it is over."""
        _, _, is_new = await self._db.in_tenant(
            who.team_id,
            lambda conn: sessions.end(conn, who, session_id, source_adapter="hook", max_attempts=self._max_attempts),
        )
        if is_new:
            self._bell.ring()

    async def session_or_turn(self, who: Principal, session_id: UUID) -> tuple[Session, Job | None]:
        """Somebody says over the API that it is over; some say so after each turn."""
        session, job, is_new = await self._db.in_tenant(
            who.team_id,
            lambda conn: sessions.end_of_run_or_turn(
                conn, who, session_id, source_adapter="api", max_attempts=self._max_attempts, after=self._after
            ),
        )
        if is_new:
            self._bell.ring()
        return session, job
