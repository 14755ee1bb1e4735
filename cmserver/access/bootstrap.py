"""The very first start: one team, and one key that may do everything in it."""

from __future__ import annotations

import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access import keys, repository
from cmserver.access.audit import record
from cmserver.access.model import MintedKey, Principal
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn

log: FilteringBoundLogger = structlog.get_logger(__name__)


async def bootstrap(db: Db, team_name: str, key_text: str | None) -> MintedKey | None:
    """Fill an empty database; the key, or None when there is a team already. Safe when several processes start at once."""

    async def fill(conn: Conn) -> MintedKey | None:
        await repository.lock_bootstrap(conn)
        if await repository.any_team(conn):
            return None
        team = await repository.insert_team(conn, new_id(), team_name)
        key = await keys.mint(conn, team.id, scopes=["*"], actor_id="owner", name="first key", text=key_text)
        await repository.put_member(conn, team.id, "owner", "owner", {})
        who = Principal(team_id=team.id, project_id=None, key_id=key.id, actor_id="bootstrap", scopes=frozenset({"*"}))
        await record(conn, who, "team.created", "team", team.id, name=team.name)
        await record(conn, who, "member.set", "team_member", "owner", role="owner")
        await record(conn, who, "key.created", "api_key", key.id, scopes=["*"])
        return key

    key = await db.in_system(fill)
    if key is not None:
        log.info("team.created", name=team_name)
        log.info("key.created", key=str(key.id))
    return key
