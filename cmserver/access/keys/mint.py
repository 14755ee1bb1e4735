"""Makes keys. What they may be is said by `grant`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from cmserver.access.keys import repository
from cmserver.access.keys.model import Grant, Made
from cmserver.access.model import OLDER_SCOPES, SCOPES, MintedKey
from cmserver.base.errors import Invalid
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn


def new_key_text() -> str:
    return f"cms_{new_id().hex}_{secrets.token_hex(24)}"


async def mint(
    conn: Conn,
    team_id: UUID,
    *,
    scopes: Iterable[str],
    actor_id: str,
    name: str = "",
    project_id: UUID | None = None,
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
    events_per_month: int | None = None,
    text: str | None = None,
) -> MintedKey:
    """Make a key, whoever asks. `text` is for a key that an operator brought along (CMSERVER_BOOTSTRAP_KEY)."""
    wanted = list(scopes)
    known(wanted)
    grant = Grant(
        scopes=wanted,
        project_id=project_id,
        actor_id=actor_id,
        expires_at=expires_at,
        requests_per_minute=requests_per_minute,
        events_per_month=events_per_month,
    )
    made = await make(conn, team_id, grant, name=name, text=text)
    return MintedKey(id=made.key.id, text=made.text)


async def make(conn: Conn, team_id: UUID, grant: Grant, *, name: str, text: str | None = None) -> Made:
    """A key that is allowed what is granted. Whether it may be is for the caller to say."""
    text = text or new_key_text()
    key_id, key_hash = parse(text)
    key = await repository.insert(conn, key_id or new_id(), team_id, key_hash=key_hash, name=name, grant=grant)
    return Made(key=key, text=text)


def known(scopes: Iterable[str]) -> None:
    """Invalid when one of the words is no scope."""
    for scope in scopes:
        if scope not in SCOPES and scope not in OLDER_SCOPES:
            raise Invalid.at("$.scopes", f"There is no scope {scope!r}. The scopes are: {', '.join([*SCOPES, *OLDER_SCOPES])}.")


def parse(text: str) -> tuple[UUID | None, str]:
    """The key's id and the hash of its secret. A key of another form (brought along, or from claude-mem) is hashed whole."""
    parts = text.split("_", 2)
    if len(parts) == 3 and parts[0] == "cms":
        try:
            return UUID(hex=parts[1]), hashlib.sha256(parts[2].encode()).hexdigest()
        except ValueError:
            pass
    return None, hashlib.sha256(text.encode(errors="replace")).hexdigest()
