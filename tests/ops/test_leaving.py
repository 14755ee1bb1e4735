"""Who leaves a team takes along what is theirs alone; it is gone from the team, and what they gave it stays."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import psycopg
import pytest
from psycopg import sql

from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people.model import PersonalMemory
from cmserver.base.db import Db
from cmserver.base.errors import NotFound
from cmserver.generation.job_notifier import JobNotifier
from tests.conftest import Cast, Person
from tests.ops.test_erasure import WORD, tables_with
from tests.ops.test_private_sessions import PRIVATE, talk, work
from tests.personal.people import make_two
from tests.personal.test_personal import act, remember
from tests.rows import rows

Json = dict[str, Any]


@pytest.fixture
async def two(db: Db, cast: Cast) -> tuple[Person, Person]:
    """Ann and Ben of Alice's team."""
    return await make_two(db, cast.alice.team_id)


async def live(client: httpx.AsyncClient, db: Db, notifier: JobNotifier, who: Person) -> None:
    """Something of theirs alone, a private session, and one that they gave the team."""
    await remember(client, who, f"Call me a {WORD}.")
    await talk(client, who, "mine", f"{WORD} secret", private=True)
    await talk(client, who, "ours", "lamp")
    async with db.system() as conn:
        await conn.execute("INSERT INTO embedding_models (provider, model, state) VALUES ('ollama', 'one', 'current')")
    await work(db, notifier, who)


def with_the_word(database: str) -> set[str]:
    """The tables that have a row with the word."""
    with psycopg.connect(database) as conn:
        tables = [*dict.fromkeys([*tables_with(conn, "team_id"), *tables_with(conn, "id")])]
        said = {
            table: conn.execute(
                sql.SQL("SELECT count(*) FROM {} t WHERE to_jsonb(t)::text LIKE %s").format(sql.Identifier(table)),
                [f"%{WORD}%"],
            ).fetchone()
            for table in tables
        }
    return {table for table, count in said.items() if count and count[0]}


async def leave(client: httpx.AsyncClient, db: Db, who: Person, by: Person) -> None:
    name = who.principal.actor_id
    await act(client, by, "DELETE", f"/v1/users/{name}")


async def kept(db: Db, who: Person) -> PersonalMemory:
    assert who.principal.user_id is not None
    async with db.system() as conn:
        (left,) = await people.left_memories(conn, who.principal.user_id)
        content = await people.left_content(conn, who.principal.user_id, left.id)
    assert content is not None
    return content


async def test_what_is_theirs_alone_is_gone_from_the_team_and_kept_for_them(
    client: httpx.AsyncClient, two: tuple[Person, Person], cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    ann, ben = two
    await live(client, db, notifier, ann)
    exported = await act(client, ann, "GET", "/v1/personal-memory")
    nothing = await act(client, ben, "GET", "/v1/personal-memory")

    await leave(client, db, ann, cast.alice)

    assert with_the_word(database) == {"left_memories"}
    assert await rows(db, "SELECT id FROM teams WHERE private_of IS NOT NULL") == []
    content = await kept(db, ann)
    assert msgspec.to_builtins(content) == exported
    assert [row["content"] for row in content.personal] == [f"Call me a {WORD}."]
    (session,) = content.sessions
    assert WORD in str(session["turns"])
    assert content.observations
    assert nothing == {"personal": [], "sessions": [], "observations": []}
    sessions = (await act(client, ben, "GET", "/v1/sessions"))["sessions"]
    assert [one["actorId"] for one in sessions] == ["ann"]


async def test_nobody_but_the_person_takes_it_and_it_ends(
    client: httpx.AsyncClient, two: tuple[Person, Person], cast: Cast, db: Db, notifier: JobNotifier
):
    ann, ben = two
    await live(client, db, notifier, ann)
    await leave(client, db, ann, cast.alice)
    assert ann.principal.user_id is not None
    assert ben.principal.user_id is not None

    async with db.system() as conn:
        (left,) = await people.left_memories(conn, ann.principal.user_id)
        assert await people.left_content(conn, ben.principal.user_id, left.id) is None
        assert await people.delete_left(conn, ben.principal.user_id, left.id) == 0
        with pytest.raises(NotFound):
            await manage_people.become_former(conn, ben.principal.user_id, left.id)
        await conn.execute("UPDATE left_memories SET expires_at = now()")
        assert await people.left_memories(conn, ann.principal.user_id) == []
        assert await people.left_content(conn, ann.principal.user_id, left.id) is None
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        async with db.tenant(cast.alice.team_id) as conn:
            await conn.execute("SELECT FROM left_memories")


async def test_what_they_gave_the_team_stands_as_a_former_members_where_they_say_so(
    client: httpx.AsyncClient, two: tuple[Person, Person], cast: Cast, db: Db, notifier: JobNotifier
):
    ann, ben = two
    await live(client, db, notifier, ann)
    await talk(client, ben, "b", "chair")  # and is told of ann's work, by her name
    told = await rows(db, "SELECT text FROM context_injections WHERE strpos(text, 'ann') > 0")
    await leave(client, db, ann, cast.alice)
    assert ann.principal.user_id is not None

    async with db.system() as conn:
        (left,) = await people.left_memories(conn, ann.principal.user_id)
        await manage_people.become_former(conn, ann.principal.user_id, left.id)

    for table in ("server_sessions", "turns"):
        names = await rows(db, f"SELECT actor_id FROM {table} ORDER BY 1")  # pyright: ignore[reportArgumentType] - of ours
        assert [row["actor_id"] for row in names] == ["a former member", "ben"]
    assert told
    assert await rows(db, "SELECT text FROM context_injections WHERE strpos(text, 'ann') > 0") == []


async def test_an_owner_erases_private_sessions_and_learns_nothing(
    client: httpx.AsyncClient, two: tuple[Person, Person], cast: Cast, db: Db, notifier: JobNotifier, database: str
):
    ann, _ = two
    await talk(client, ann, "mine", f"{WORD} secret", private=True)
    await work(db, notifier, ann)

    answers = [await act(client, cast.alice, "DELETE", f"/v1/users/{name}/private") for name in ("ann", "ben")]
    refused = await client.delete("/v1/users/ann/private", headers={**cast.alice.headers, **PRIVATE})

    assert answers == [{"name": "ann"}, {"name": "ben"}]
    assert with_the_word(database) == set()
    assert refused.status_code == 403
    assert "lamp" not in await talk(client, ann, "again", "door", private=True), "it begins anew"
