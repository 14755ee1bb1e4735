"""Last words from a transcript complete the turn that they are of, where it has none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from cmserver.base.db import Db
from tests.conftest import Cast
from tests.rows import rows


async def deliver(client: httpx.AsyncClient, cast: Cast, agent: str, name: str, **fields: object) -> None:
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
    payload = {"hook_event_name": name, "session_id": "s1", **fields}
    answer = await client.post(f"/v1/hooks/{agent}", json=payload, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {} or name != "TranscriptEnd"


def claude_line(text: str, at: datetime | str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"role": "assistant", "content": content}, "timestamp": _iso(at)}


def codex_line(text: str, at: datetime | str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "response_item", "payload": {"role": "assistant", "content": content}, "timestamp": _iso(at)}


def _iso(at: datetime | str) -> str:
    return at if isinstance(at, str) else at.isoformat().replace("+00:00", "Z")


async def replies(db: Db) -> list[str | None]:
    return [row["reply"] for row in await rows(db, "SELECT reply FROM turns ORDER BY created_at")]


async def test_an_interrupted_turn_gets_the_words_that_its_transcript_ends_with(client: httpx.AsyncClient, cast: Cast, db: Db):
    for agent, line in (("claude-code", claude_line), ("codex", codex_line)):
        await deliver(client, cast, agent, "UserPromptSubmit", prompt=f"Why is {agent} slow?", prompt_id="p1")
        between = datetime.now(UTC)
        await deliver(client, cast, agent, "UserPromptSubmit", prompt="Never mind", prompt_id="p2")
        for _ in range(2):
            await deliver(client, cast, agent, "TranscriptEnd", transcript_line=line(f"{agent} was cold.", between))

    assert await replies(db) == ["claude-code was cold.", None, "codex was cold.", None]
    events = await rows(db, "SELECT count(*) AS events FROM agent_events WHERE event_type = 'assistant_message'")
    assert events == [{"events": 2}]


async def test_a_turn_that_has_its_answer_and_a_session_that_nobody_knows_stay_as_they_are(
    client: httpx.AsyncClient, cast: Cast, db: Db
):
    await deliver(client, cast, "claude-code", "UserPromptSubmit", prompt="Why?")
    await deliver(client, cast, "claude-code", "Stop", last_assistant_message="Because.")
    now = datetime.now(UTC)
    lines: list[object] = [
        claude_line("Something else.", now),
        claude_line("", now),
        claude_line("Before the turn.", now - timedelta(hours=1)),
        claude_line("Years ago.", now - timedelta(days=4000)),
        claude_line("When?", "yesterday"),
        {"message": {"role": "user", "content": [{"text": "A prompt."}]}, "timestamp": _iso(now)},
        {"message": {"role": "assistant", "content": "text"}},
        [],
        None,
    ]
    for line in lines:
        await deliver(client, cast, "claude-code", "TranscriptEnd", transcript_line=line)
    await deliver(client, cast, "claude-code", "TranscriptEnd", session_id="unknown", transcript_line=claude_line("New.", now))

    assert await replies(db) == ["Because."]
    assert await rows(db, "SELECT external_session_id AS name FROM server_sessions") == [{"name": "s1"}]


async def test_what_a_transcript_says_is_redacted(client: httpx.AsyncClient, cast: Cast, db: Db):
    await deliver(client, cast, "claude-code", "UserPromptSubmit", prompt="Why?")
    text = "It is <private>quokka</private> and AKIAIOSFODNN7EXAMPLE."
    await deliver(client, cast, "claude-code", "TranscriptEnd", transcript_line=claude_line(text, datetime.now(UTC)))

    (reply,) = await replies(db)
    assert reply is not None
    assert "It is" in reply
    assert "quokka" not in reply
