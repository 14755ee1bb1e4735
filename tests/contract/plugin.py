"""claude-mem's plugin as it comes, in both of its modes: what its hooks ask, in their order, and what they do with the answers.

An answer that a hook would not go on with is an AssertionError that says which.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import httpx

from tests.contract.shapes import Shape, differences

Mode = Literal["worker", "server"]
VERSION = "13.15.3"
"""What is installed."""
_BUN = {"User-Agent": "Bun/1.3.1", "Accept": "*/*", "Accept-Encoding": "gzip, deflate, br, zstd"}
_SHOWN_CHARS = 10_000
"""Claude Code shows no more of what a hook says."""
_ROW: Shape = {
    "id": int,
    "memory_session_id": (str, None),
    "type": str,
    "title": (str, None),
    "files_read": str,
    "files_modified": str,
    "created_at_epoch": int,
}


class Plugin:
    """The hooks of one session. In server mode they speak to the server with a key, and to the worker's port all the same."""

    def __init__(self, http: httpx.AsyncClient, session: str, *, mode: Mode, project: str, key: str | None = None) -> None:
        self._http = http
        self._session = session
        self._mode = mode
        self._project = project
        self._key = key
        self._now = 1_780_000_000_000

    async def start(self) -> str:
        """SessionStart: what the model is told."""
        await self._preflight()
        query = f"/api/context/inject?projects={self._project}&platformSource=claude"
        plain = await self._ask("GET", query)
        await self._ask("GET", f"{query}&colors=true")
        assert plain.headers["content-type"].startswith("text/plain"), plain.headers["content-type"]
        assert 0 < len(plain.text) < _SHOWN_CHARS, f"{len(plain.text)} characters of context"
        return plain.text

    async def prompt(self, text: str) -> None:
        """UserPromptSubmit."""
        await self._preflight()
        if self._mode == "server":
            await self._started({"project": self._project, "prompt": text})
            return
        told = await self._worker(
            "init",
            {"contentSessionId": self._session, "project": self._project, "prompt": text, "platformSource": "claude"},
        )
        assert type(told.get("sessionDbId")) is int, f"no number of the session in {told}"
        assert type(told.get("promptNumber")) is int, f"no number of the prompt in {told}"

    async def tool(self, name: str, given: object, answered: object) -> None:
        """PostToolUse."""
        await self._preflight()
        used = {"tool_name": name, "tool_input": given, "tool_response": answered, "cwd": f"/home/alice/src/{self._project}"}
        if self._mode == "server":
            await self._event("tool_use", {**used, "platformSource": "claude"})
            return
        told = await self._worker("observations", {"contentSessionId": self._session, "platformSource": "claude", **used})
        assert told["status"] in {"queued", "skipped"}, told

    async def read(self, path: str) -> list[dict[str, Any]]:
        """PreToolUse of Read: what is known about the file."""
        await self._preflight()
        told = (
            await self._ask(
                "GET", f"/api/observations/by-file?path=/home/alice/{path}&path={path}&projects={self._project}&limit=40"
            )
        ).json()
        wrong = list(differences(told, {"observations": [_ROW], "count": int}))
        assert not wrong, wrong
        for row in told["observations"]:
            assert isinstance(json.loads(row["files_read"]), list)
            assert isinstance(json.loads(row["files_modified"]), list)
        return told["observations"]

    async def stop(self, message: str) -> None:
        """Stop, at the end of each turn."""
        await self._preflight()
        if self._mode == "server":
            session_id = await self._started(None)
            await self._event("assistant_message", {"last_assistant_message": message, "platformSource": "claude"}, session_id)
            await self._ask("POST", f"/v1/sessions/{session_id}/end", {}, key=self._key)
            return
        told = await self._worker(
            "summarize", {"contentSessionId": self._session, "last_assistant_message": message, "platformSource": "claude"}
        )
        assert told["status"] in {"queued", "skipped"}, told

    async def _preflight(self) -> None:
        """Asked before each call, of the worker's port in either mode."""
        asked = (
            ["health", "readiness"]
            if self._mode == "server"
            else ["health", "readiness", "health", "health", "readiness", "health"]
        )
        for what in asked:
            told = (await self._ask("GET", f"/api/{what}")).json()
            assert told["status"] in {"ok", "ready"}, told
            assert told.get("version", VERSION) == VERSION, "it takes the server for an old worker, and sends nothing"

    async def _worker(self, what: str, body: object) -> dict[str, Any]:
        return (await self._ask("POST", f"/api/sessions/{what}", body)).json()

    async def _started(self, metadata: dict[str, object] | None) -> str:
        body: dict[str, object] = {
            "projectId": self._project,
            "externalSessionId": self._session,
            "contentSessionId": self._session,
            "agentId": None,
            "agentType": None,
            "platformSource": "claude",
        }
        told = (
            await self._ask(
                "POST", "/v1/sessions/start", body if metadata is None else {**body, "metadata": metadata}, key=self._key
            )
        ).json()
        assert isinstance(told["session"]["id"], str), told
        return told["session"]["id"]

    async def _event(self, event_type: str, payload: object, session_id: str | None = None) -> None:
        self._now += 1
        body = {
            "projectId": self._project,
            "sourceType": "hook",
            "eventType": event_type,
            "occurredAtEpoch": self._now,
            "contentSessionId": self._session,
            "platformSource": "claude",
            "payload": payload,
        }
        told = (
            await self._ask("POST", "/v1/events", {**body, "serverSessionId": session_id} if session_id else body, key=self._key)
        ).json()
        assert isinstance(told["event"]["id"], str), told

    async def _ask(self, method: str, path: str, body: object = None, *, key: str | None = None) -> httpx.Response:
        headers = {**_BUN, "Authorization": f"Bearer {key}"} if key else _BUN
        response = await self._http.request(method, path, json=body, headers=headers)
        assert response.is_success, f"{method} {path} answered {response.status_code}: {response.text[:500]}"
        return response
