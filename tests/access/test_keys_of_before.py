"""Migration 0010: keys that somebody else than their person had rotated are nobody's."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from cmserver.base import migrate as module
from cmserver.base.ids import new_id
from cmserver.base.migrate import migrate

TEAM, ANN, BEN = new_id(), new_id(), new_id()


def rotate(conn: psycopg.Connection, old: UUID, *, by_key: UUID | None = None, by_user: UUID | None = None) -> UUID:
    """As it was done before: the new key is the old one's person's, whoever made it."""
    new = insert(conn)
    conn.execute("UPDATE api_keys SET replaced_by = %s WHERE id = %s", [new, old])
    if by_key or by_user:
        conn.execute(
            "INSERT INTO audit_log (team_id, action, resource_type, resource_id, api_key_id, user_id)"
            " VALUES (%s, 'key.rotated', 'api_key', %s, %s, %s)",
            [TEAM, str(old), by_key, by_user],
        )
    return new


def insert(conn: psycopg.Connection) -> UUID:
    key = new_id()
    conn.execute(
        "INSERT INTO api_keys (id, key_hash, team_id, actor_id, user_id, made_by) VALUES (%s, %s, %s, 'ann', %s, %s)",
        [key, key.hex, TEAM, ANN, ANN],
    )
    return key


async def test_what_another_one_rotated_is_nobodys_and_what_came_of_it(empty_database: str, monkeypatch: pytest.MonkeyPatch):
    before = [migration for migration in module.migrations() if migration.number < 10]
    with monkeypatch.context() as patch:
        patch.setattr(module, "migrations", lambda: before)
        await migrate(empty_database)
    with psycopg.connect(empty_database) as conn:
        conn.execute("INSERT INTO teams (id, name) VALUES (%s, 'blue')", [TEAM])
        conn.execute("INSERT INTO users (id, name) VALUES (%s, 'ann'), (%s, 'ben')", [ANN, BEN])
        first = insert(conn)
        kept = [first, rotate(conn, first, by_key=first), rotate(conn, insert(conn), by_user=ANN)]
        stolen = rotate(conn, insert(conn), by_key=new_id(), by_user=BEN)
        lost = [stolen, rotate(conn, stolen, by_key=stolen, by_user=ANN), rotate(conn, insert(conn))]

    assert "0010_personal" in await migrate(empty_database)

    with psycopg.connect(empty_database) as conn:
        found = dict(conn.execute("SELECT id, user_id FROM api_keys").fetchall())
    assert {found[key] for key in kept} == {ANN}
    assert {found[key] for key in lost} == {None}
