"""Notifies all processes of changed teams, and of news for the live stream."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import repository
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn

CHANNEL = "cmserver_access"
"""A key, team or project changed. The payload is the team's id."""
SESSIONS = "cmserver_sessions"
"""A session was made private, or given back: processes remember where sessions are. The payload says nothing."""
NEWS = "cmserver_news"
"""Wakes the live stream for changes without a job: sessions, and observations written by hand."""


async def drop_cached(conn: Conn, team_id: UUID) -> None:
    """Make every process drop its cached entries of the team when the transaction commits."""
    await repository.notify(conn, CHANNEL, str(team_id))


def drop_cached_here(notifications: NotificationListener, team_id: UUID) -> None:
    """Drop this process's cached entries of the team at once; other processes drop theirs when they are notified."""
    notifications.deliver(CHANNEL, str(team_id))


async def forget_sessions(conn: Conn, notifications: NotificationListener) -> None:
    """Make every process look up anew where sessions are: this one at once, the others when the transaction commits."""
    await repository.notify(conn, SESSIONS, "")
    notifications.deliver(SESSIONS, "")


async def notify_stream(conn: Conn) -> None:
    """Wake the live stream, which otherwise polls once a second."""
    await repository.notify(conn, NEWS, "")
