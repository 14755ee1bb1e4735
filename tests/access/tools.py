"""What the tests of this room share: asking with a key, and what is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from cmserver.base.db import Db
from tests.rows import rows
from tests.timeouts import until


class Api:
    """Asks with one key; a path without `/v1` before it."""

    def __init__(self, client: httpx.AsyncClient, key: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {key}"}

    async def get(self, path: str, **params: str | int | bool) -> httpx.Response:
        return await self._client.get(f"/v1{path}", params=params or None, headers=self._headers)

    async def post(self, path: str, **body: object) -> httpx.Response:
        return await self._client.post(f"/v1{path}", json=body, headers=self._headers)

    async def put(self, path: str, **body: object) -> httpx.Response:
        return await self._client.put(f"/v1{path}", json=body, headers=self._headers)

    async def patch(self, path: str, **body: object) -> httpx.Response:
        return await self._client.patch(f"/v1{path}", json=body, headers=self._headers)

    async def delete(self, path: str) -> httpx.Response:
        return await self._client.delete(f"/v1{path}", headers=self._headers)

    async def made(self, **body: object) -> dict[str, Any]:
        """A new key, as POST /v1/keys gives it."""
        response = await self.post("/keys", **body)
        assert response.status_code == 201, response.text
        return response.json()


async def everything(db: Db) -> list[dict[str, Any]]:
    """All of this room but the audit log, to compare before and after."""
    return await rows(
        db,
        """
        SELECT to_jsonb(t) AS it FROM teams t UNION ALL SELECT to_jsonb(m) FROM team_members m
        UNION ALL SELECT to_jsonb(p) FROM projects p UNION ALL SELECT to_jsonb(a) FROM project_aliases a
        UNION ALL SELECT to_jsonb(k) - 'last_used_at' FROM api_keys k ORDER BY 1
        """,
    )


async def audited(db: Db, prefix: str) -> list[tuple[str, str | None]]:
    """Action and resource of each audit row whose action begins so, in order."""
    found = await rows(db, "SELECT action, resource_id FROM audit_log WHERE starts_with(action, %s) ORDER BY id", prefix)
    return [(row["action"], row["resource_id"]) for row in found]


async def until_it_waits_for_a_lock(db: Db, act: asyncio.Task[Any]) -> None:
    waits = "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted"
    await until("it waits for a lock", lambda: rows(db, waits), act)
