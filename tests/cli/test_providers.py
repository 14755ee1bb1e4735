"""`cmserver providers`."""

from __future__ import annotations

from cmserver.base.db import Db
from cmserver.models.calls import repository as calls
from cmserver.ops.wire import ProvidersOut, ResumedProviderOut
from tests.cli.conftest import Cms
from tests.conftest import Cast, mint


async def pause(db: Db) -> None:
    async with db.system() as conn:
        await calls.pause_provider(conn, "offline", "quota_exhausted", "No credit.", 60)


async def test_the_providers_are_listed_with_what_keeps_them(cms: Cms, cast: Cast, db: Db):
    await pause(db)

    said = await cms("providers", "list", key=cast.alice.key)

    assert said.code == 0, said.err
    assert said.column("state") == ["paused"]
    assert said.out.endswith("quota_exhausted: No credit.\n")


async def test_a_provider_is_resumed_once(cms: Cms, cast: Cast, db: Db):
    await pause(db)

    first = await cms("providers", "resume", "offline", key=cast.alice.key)
    second = await cms("providers", "resume", "offline", key=cast.alice.key)

    assert (first.code, first.out) == (0, "offline is resumed.\n")
    assert (second.code, second.out) == (0, "offline was not paused.\n")
    assert (await cms("providers", "list", "--json", key=cast.alice.key)).read(ProvidersOut).providers[0].state == "ready"


async def test_whoever_holds_the_database_needs_no_key(cms: Cms, cast: Cast, db: Db):
    await pause(db)

    said = await cms("providers", "resume", "offline", "--operator", "--team", "blue", "--json")

    assert said.code == 0, said.err
    assert said.read(ResumedProviderOut).resumed


async def test_a_key_of_a_team_is_told_that_this_is_the_operators(cms: Cms, cast: Cast, db: Db):
    _, key = await mint(db, cast.alice.team_id, "admin", scopes=["admin"])

    refused = await cms("providers", "resume", "offline", key=key)
    unknown = await cms("providers", "resume", "nobody", key=cast.alice.key)

    assert (refused.code, unknown.code) == (1, 1)
    assert "scope *" in refused.err
    assert "CMSERVER_PROVIDER names: offline." in unknown.err
