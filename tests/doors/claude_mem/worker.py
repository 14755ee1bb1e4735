"""What the tests of claude-mem's worker routes have in common: sessions, prompts, and what a tool's answer says."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx

from cmserver.base.db import Db
from tests.conftest import Person

Json = dict[str, Any]


async def session(client: httpx.AsyncClient, who: Person, named: str, platform: str = "claude", project: str | None = None) -> UUID:
    """A session that the agent calls so."""
    body = {"projectId": project or who.project.canonical_id, "externalSessionId": named, "platformSource": platform}
    answered = await client.post("/v1/sessions/start", json=body, headers=who.headers)
    assert answered.status_code in {200, 201}, answered.text
    return UUID(answered.json()["session"]["id"])


async def prompt(client: httpx.AsyncClient, who: Person, in_session: UUID, text: str, project: str | None = None) -> str:
    """What a user asks for in the session; the id of its event."""
    body = {
        "projectId": project or who.project.canonical_id,
        "eventType": "user_prompt",
        "serverSessionId": str(in_session),
        "payload": {"prompt": text},
    }
    answered = await client.post("/v1/events", json=body, headers=who.headers)
    assert answered.status_code == 201, answered.text
    return answered.json()["event"]["id"]


async def got(client: httpx.AsyncClient, path: str, headers: dict[str, str], /, **params: object) -> Any:
    answered = await client.get(path, params={name: str(value) for name, value in params.items()}, headers=headers)
    assert answered.status_code == 200, answered.text
    return answered.json()


def text_of(content: Json) -> str:
    """The one text of a tool's answer."""
    assert list(content) == ["content"]
    (part,) = content["content"]
    assert part["type"] == "text"
    return part["text"]


def cells_of(text: str) -> list[list[str]]:
    """The lines of the table in it, without its head, as a reader of Markdown sees them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in _split(line)] for line in lines[2:]]


def _split(line: str) -> list[str]:
    cells, escaped = [""], False
    for letter in line.strip("|"):
        if escaped:
            cells[-1] += letter
        elif letter == "|":
            cells.append("")
        elif letter != "\\":
            cells[-1] += letter
        escaped = letter == "\\" and not escaped
    return cells


async def served(db: Db) -> list[Json]:
    """What was noted of readers, in order."""
    async with db.system() as conn:
        cursor = await conn.execute(
            "SELECT action, details FROM audit_log WHERE action IN ('observations.served', 'prompts.served') ORDER BY id"
        )
        return [{"action": action, **details} for action, details in await cursor.fetchall()]
