"""Makes the first team and its first key in an empty database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cmserver.access import repository
from cmserver.access.audit import record
from cmserver.access.keys import manage as manage_keys
from cmserver.access.keys import repository as keys
from cmserver.access.keys.model import NewKey
from cmserver.access.model import Principal
from cmserver.access.people import repository as people
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn

log = get_logger(__name__)

KeepKey = Callable[[str], Awaitable[None]]
"""Stores the text of a key before the commit that makes it valid, so that a kill loses neither. May be called repeatedly."""


async def _keep_nothing(_text: str) -> None:
    pass


async def bootstrap(db: Db, team_name: str, key_text: str | None, keep: KeepKey = _keep_nothing) -> NewKey | None:
    """Make the first team and key; None when there is a team. Safe when several processes start at once."""

    async def fill(conn: Conn) -> NewKey | None:
        """Make the team, its key and its owner unless there is a team; the key is kept before the commit."""
        await repository.lock_bootstrap(conn)
        if await repository.any_team(conn):
            return None
        team = await repository.insert_team(conn, new_id(), team_name)
        key = await manage_keys.mint(conn, team.id, scopes=["*"], actor_id="owner", name="first key", text=key_text)
        await people.insert_member(conn, team.id, "owner", "owner")
        principal = Principal(
            kind="key", team_id=team.id, project_id=None, key_id=key.id, actor_id="bootstrap", scopes=frozenset({"*"})
        )
        await record(conn, principal, "team.created", "team", team.id, name=team.name)
        await record(conn, principal, "member.set", "team_member", "owner", role="owner")
        await record(conn, principal, "key.created", "api_key", key.id, scopes=["*"])
        await keep(key.text)
        return key

    key = await db.in_system(fill)
    if key is not None:
        log.info("team.created", name=team_name)
        log.info("key.created", key=str(key.id))
    return key


async def is_key(conn: Conn, text: str) -> bool:
    """Whether the key exists, also when it was revoked or expired."""
    key_id, key_hash = manage_keys.parse(text)
    stored = await repository.find_keys(conn, [key_id] if key_id else [], [] if key_id else [key_hash])
    return any(key.key_hash == key_hash for key in stored)


async def replace_unused_first_key(db: Db, keep: KeepKey) -> NewKey | None:
    """Rotate the database's first key when its credentials file is lost; None when it was used, or there are others."""

    async def replace(conn: Conn) -> NewKey | None:
        """Rotate the first key if it was never used; the new one is kept before the commit."""
        await repository.lock_bootstrap(conn)
        unused_key = await keys.unused_first(conn)
        if unused_key is None:
            return None
        server = Principal.of_server(unused_key.team_id, actor_id="bootstrap")
        new_key = await manage_keys.rotate(conn, server, unused_key.id, overlap_seconds=0)
        await keep(new_key.text)
        return new_key

    key = await db.in_system(replace)
    if key is not None:
        log.info("key.created", key=str(key.id))
    return key
