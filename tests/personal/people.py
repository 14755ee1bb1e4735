"""Teammates with an account, and a key that each made when signed in."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.keys import manage as manage_keys
from cmserver.access.keys.model import KeyRequest
from cmserver.access.model import Principal
from cmserver.access.people import repository as people
from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from tests.conftest import Person


async def make_account(db: Db, team_id: UUID, name: str, *, is_owner: bool = True) -> Principal:
    """A new person of the team, as they are when signed in."""
    async with db.system() as conn:
        user = await people.insert_user(conn, new_id(), name, password_hash=None, is_operator=False)
        await people.join(conn, team_id, name, user.id, "owner" if is_owner else "member")
    return Principal(
        kind="person",
        team_id=team_id,
        project_id=None,
        key_id=None,
        user_id=user.id,
        actor_id=name,
        scopes=frozenset({"admin"}),
        counts_as=new_id(),
    )


async def make_key(db: Db, person: Principal, project: str = "github.com/acme/orders") -> Person:
    """A key that they made for themselves."""
    async with db.tenant(person.team_id) as conn:
        key = await manage_keys.create(conn, person, KeyRequest(scopes=["admin"], requests_per_minute=None))
        found, _ = await make_project(conn, person, project)
    principal = msgspec.structs.replace(person, kind="key", key_id=key.id, counts_as=None)
    return Person(principal=principal, key=key.text, project=found)


async def make_two(db: Db, team_id: UUID) -> tuple[Person, Person]:
    """Ann and Ben, teammates."""
    ann, ben = [await make_key(db, await make_account(db, team_id, name)) for name in ("ann", "ben")]
    return ann, ben


async def be_a_person(db: Db, whose: Person) -> UUID:
    """Make the person's key that of a new account; returns its id."""
    async with db.system() as conn:
        user = await people.insert_user(conn, new_id(), f"person {new_id().hex[-6:]}", password_hash=None, is_operator=False)
        await conn.execute("UPDATE api_keys SET user_id = %s WHERE id = %s", [user.id, whose.principal.key_id])
    return user.id
