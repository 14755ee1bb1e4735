"""Secrets in short fields: names, kinds and agents are redacted before they are stored, as texts are."""

from __future__ import annotations

import httpx
from psycopg import sql

from cmserver.access.people import manage, repository
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from tests.conftest import Cast
from tests.doors.web.visitor import ORIGIN, signed_out
from tests.redaction.shapes import made

TOKEN = "ghp_" + made(36)


async def test_no_label_keeps_a_secret(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, db: Db):
    project, headers = cast.alice.project.canonical_id, cast.alice.headers
    memory = {"title": "Deploys wait", "content": "until noon", "project_id": project, "agent_source": TOKEN}
    observation = {"projectId": project, "title": "Deploys", "callerType": TOKEN, "agent": TOKEN}
    policy = {"generationPolicy": {"skipTools": [TOKEN], "skipEventTypes": [TOKEN]}}
    async with db.system() as conn:
        invitation = await manage.invite(conn, cast.alice.principal, "member")
    answers = [
        await client.post("/v1/observations", json=observation, headers=headers),
        await client.post("/api/v1/memories", json=memory, headers=headers | {"X-Session-Id": TOKEN}),
        await client.post("/api/v1/memories/recall", json={"query": "deploys", "agent_source": TOKEN}, headers=headers),
        await client.post("/api/v1/memories/search", json={"query": "deploys", "agent_source": TOKEN}, headers=headers),
        await client.patch(f"/v1/projects/{project}", json=policy, headers=headers),
        await client.patch("/v1/teams/blue", json=policy, headers=headers),
        await signed_out(app).client.post(
            f"/ui/join/{invitation.token}",
            data={"name": f"Eve {TOKEN}", "password": "long enough words"},
            headers={"Origin": ORIGIN},
        ),
    ]

    assert [answer.status_code for answer in answers] == [201, 201, 200, 200, 200, 200, 303]
    async with db.system() as conn:
        users = await repository.users(conn, limit=10)
        names = await (await conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).fetchall()
        found: list[str] = []
        for (name,) in names:
            look = sql.SQL("SELECT count(*) FROM {} t WHERE t::text LIKE %s").format(sql.Identifier(name))
            row = await (await conn.execute(look, [f"%{TOKEN[:20]}%"])).fetchone()
            found += [name] if row and row[0] else []
    assert found == []
    assert [user.name for user in users] == ["Eve [redacted:github_token]"]
