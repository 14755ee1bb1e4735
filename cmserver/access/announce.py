"""What every process remembers of keys, teams and projects is forgotten everywhere when it changes."""

from __future__ import annotations

from uuid import UUID

from cmserver.access import repository
from cmserver.base.sql import Conn

CHANNEL = "cmserver_access"
NEWS = "cmserver_news"
"""Rung for the live stream where no job is queued or done: a session, or an observation that somebody wrote by hand."""


async def changed(conn: Conn, team_id: UUID) -> None:
    """Tell every process to forget what it remembers of the team. Heard when the transaction commits, never before.

    Whoever remembers hears it by `hub.on(CHANNEL, ...)`: the payload is the team's id, or empty when anything may have been missed.
    """
    await repository.notify(conn, CHANNEL, str(team_id))


async def news(conn: Conn) -> None:
    """There is something for the live stream. One that is missed is found a second later."""
    await repository.notify(conn, NEWS, "")
