"""Keys: what is stored of them, who may come in, and how soon a revocation is felt."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from cmserver.access import keys
from cmserver.access.bootstrap import bootstrap
from cmserver.access.keys import Authenticator
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden, Invalid, Unauthenticated
from tests.conftest import Cast, mint


async def test_a_key_stands_for_its_team_and_scopes_and_only_its_hash_is_stored(db: Db, cast: Cast):
    principal = await Authenticator(db)(cast.alice.key, "")

    assert (principal.team_id, principal.team_name, principal.actor_id) == (cast.alice.team_id, "blue", "alice")
    async with db.system() as conn:
        cursor = await conn.execute("SELECT row_to_json(k)::text FROM api_keys k")
        stored = " ".join(row[0] for row in await cursor.fetchall())
    secret = cast.alice.key.split("_", 2)[2]
    assert secret not in stored
    assert hashlib.sha256(secret.encode()).hexdigest() in stored


async def test_no_key_and_every_kind_of_bad_key(db: Db, cast: Cast):
    authenticate = Authenticator(db)
    async with db.system() as conn:
        past = datetime.now(UTC) - timedelta(seconds=1)
        expired = await keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="old", expires_at=past)
        revoked = await keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="gone")
        await conn.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", [revoked.id])

    with pytest.raises(Unauthenticated):
        await authenticate(None, "")
    for bad in (
        "nonsense",
        "cms_x_y",
        cast.alice.key + "0",
        "cms_" + cast.charlie.key[4:36] + "_" + cast.alice.key[37:],
        expired.text,
    ):
        with pytest.raises(Forbidden):
            await authenticate(bad, "")
    with pytest.raises(Forbidden):
        await authenticate(revoked.text, "")


async def test_a_key_that_expires_while_it_is_remembered_is_over_at_once(db: Db, cast: Cast):
    authenticate = Authenticator(db)
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    async with db.system() as conn:
        key = await keys.mint(conn, cast.alice.team_id, scopes=["*"], actor_id="brief", expires_at=soon)
    await authenticate(key.text, "")

    while datetime.now(UTC) < soon:
        await asyncio.sleep(0.02)

    with pytest.raises(Forbidden):
        await authenticate(key.text, "")


async def test_a_revoked_key_is_refused_when_it_is_no_longer_remembered(db: Db, cast: Cast, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keys, "_REMEMBERED_SECONDS", 0.05)
    authenticate = Authenticator(db)
    principal = await authenticate(cast.bob.key, "")
    async with db.system() as conn:
        await conn.execute("UPDATE api_keys SET revoked_at = now() WHERE id = %s", [principal.key_id])

    await asyncio.sleep(0.06)

    with pytest.raises(Forbidden):
        await authenticate(cast.bob.key, "")


async def test_older_scope_words_mean_the_sets_they_meant(db: Db, cast: Cast):
    _, text = await mint(db, cast.alice.team_id, "hook", scopes=["memories:write"])

    principal = await Authenticator(db)(text, "")

    assert principal.may("events:write")
    assert principal.may("sessions:write")
    assert not principal.may("observations:read")


async def test_a_scope_that_does_not_exist_is_refused(db: Db, cast: Cast):
    async with db.system() as conn:
        with pytest.raises(Invalid, match="no scope"):
            await keys.mint(conn, cast.alice.team_id, scopes=["everything"], actor_id="x")


async def test_the_first_start_makes_one_team_and_key_however_many_processes_begin_at_once(db: Db):
    made = await asyncio.gather(*(bootstrap(db, "default", None) for _ in range(4)))

    (key,) = [one for one in made if one is not None]
    principal = await Authenticator(db)(key.text, "")
    assert principal.team_name == "default"
    assert principal.may("admin")
    assert await bootstrap(db, "other", None) is None


async def test_a_key_brought_along_works_whatever_its_form(db: Db):
    await bootstrap(db, "default", "cmem_0123456789abcdef0123456789abcdef")

    assert (await Authenticator(db)("cmem_0123456789abcdef0123456789abcdef", "")).team_name == "default"
