"""Keys: how they are made, and what is stored of them."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from cmserver.access.authenticate import Authenticator
from cmserver.access.bootstrap import bootstrap
from cmserver.access.keys import manage as manage_keys
from cmserver.base.db import Db
from cmserver.base.errors import Invalid
from tests.conftest import Cast


async def test_a_key_stands_for_its_team_and_scopes_and_only_its_hash_is_stored(db: Db, cast: Cast, authenticate: Authenticator):
    principal = await authenticate(cast.alice.key, "")

    assert (principal.team_id, principal.team_name, principal.actor_id) == (cast.alice.team_id, "blue", "alice")
    async with db.system() as conn:
        cursor = await conn.execute("SELECT row_to_json(k)::text FROM api_keys k")
        stored = " ".join(row[0] for row in await cursor.fetchall())
    secret = cast.alice.key.split("_", 2)[2]
    assert secret not in stored
    assert hashlib.sha256(secret.encode()).hexdigest() in stored


async def test_a_scope_that_does_not_exist_is_refused(db: Db, cast: Cast):
    async with db.system() as conn:
        with pytest.raises(Invalid, match="scope 'everything'"):
            await manage_keys.mint(conn, cast.alice.team_id, scopes=["everything"], actor_id="x")


async def test_the_first_start_makes_one_team_and_key_however_many_processes_begin_at_once(db: Db, authenticate: Authenticator):
    made = await asyncio.gather(*(bootstrap(db, "default", None) for _ in range(4)))

    (key,) = [key for key in made if key is not None]
    principal = await authenticate(key.text, "")
    assert principal.team_name == "default"
    assert principal.may("admin")
    assert await bootstrap(db, "other", None) is None


async def test_a_key_brought_along_works_whatever_its_form(db: Db, authenticate: Authenticator):
    await bootstrap(db, "default", "cmem_0123456789abcdef0123456789abcdef")

    assert (await authenticate("cmem_0123456789abcdef0123456789abcdef", "")).team_name == "default"
