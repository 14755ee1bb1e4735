"""A memory of three things and a turn, and pins of it."""

from __future__ import annotations

from typing import Any

import httpx

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.make import Make
from tests.rows import rows

PROJECT = "github.com/acme/orders"


async def remember_things(cast: Cast, make: Make) -> None:
    for title in ("Staging listens on port 8443", "The nightly export takes an hour", "Deploys wait for the export"):
        await make.observation(project=cast.alice.project, title=title)
    await make.turn(project=cast.alice.project, prompt="Which database?", reply="PostgreSQL 18, by pg_dump.")
    await make.turn(project=cast.alice.project, prompt="東京の倉庫はどこ?", reply="港区。")


async def send(client: httpx.AsyncClient, cast: Cast, method: str, path: str, body: object = None, status: int = 200) -> Any:
    answer = await client.request(method, path, json=body, headers=cast.alice.headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def pin(client: httpx.AsyncClient, cast: Cast, question: str, status: int = 201, **fields: object) -> Any:
    return await send(client, cast, "POST", "/v1/pins", {"projectId": PROJECT, "question": question, **fields}, status)


async def audited(db: Db) -> list[dict[str, Any]]:
    return await rows(
        db,
        "SELECT action, actor_id, details ->> 'cause' AS cause, details -> 'numbers' AS numbers FROM audit_log"
        " WHERE action IN ('pins.lost', 'pins.kept') ORDER BY id",
    )
