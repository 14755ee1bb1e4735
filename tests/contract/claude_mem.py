"""The calls that claude-mem's own clients make in server mode, in the order in which a session makes them: what they send, and what
they must get. Each field is one that they read; more fields are welcome, missing or renamed ones are not."""

from __future__ import annotations

import msgspec

from tests.contract.shapes import Shape

TEXT_OR_NULL = (str, None)
EPOCH_OR_NULL = (int, None)

SESSION: Shape = {
    "id": str,
    "projectId": str,
    "teamId": str,
    "externalSessionId": TEXT_OR_NULL,
    "contentSessionId": TEXT_OR_NULL,
    "agentId": TEXT_OR_NULL,
    "agentType": TEXT_OR_NULL,
    "platformSource": TEXT_OR_NULL,
    "generationStatus": str,
    "metadata": dict,
    "startedAtEpoch": int,
    "endedAtEpoch": EPOCH_OR_NULL,
    "lastGeneratedAtEpoch": EPOCH_OR_NULL,
    "createdAtEpoch": int,
    "updatedAtEpoch": int,
}
EVENT: Shape = {
    "id": str,
    "projectId": str,
    "teamId": str,
    "serverSessionId": TEXT_OR_NULL,
    "sourceAdapter": str,
    "sourceEventId": TEXT_OR_NULL,
    "eventType": str,
    "platformSource": TEXT_OR_NULL,
    "payload": object,
    "metadata": dict,
    "occurredAtEpoch": int,
    "receivedAtEpoch": int,
    "createdAtEpoch": int,
}
OBSERVATION: dict[str, Shape] = {
    "id": str,
    "projectId": str,
    "teamId": str,
    "serverSessionId": TEXT_OR_NULL,
    "kind": str,
    "content": str,
    "metadata": dict,
    "createdAtEpoch": int,
    "updatedAtEpoch": int,
}
GENERATED: Shape = {
    **OBSERVATION,
    "metadata": {
        "title": TEXT_OR_NULL,
        "subtitle": TEXT_OR_NULL,
        "facts": [str],
        "narrative": TEXT_OR_NULL,
        "concepts": [str],
        "files_read": [str],
        "files_modified": [str],
        "provider": str,
        "model": str,
    },
    "generationKey": str,
    "createdByJobId": str,
    "source": {"id": str, "sourceType": str, "sourceId": str, "generationJobId": str, "createdAtEpoch": int},
}
ENQUEUED: dict[str, Shape] = {
    "id": str,
    "status": str,
    "bullmqJobId": str,
    "sourceType": ("agent_event", "session_summary", "observation_reindex"),
    "sourceId": str,
    "transport": ("enqueued", "queued_only", "skipped"),
    "createdAtEpoch": int,
    "updatedAtEpoch": int,
}
LISTED: dict[str, Shape] = {
    "id": str,
    "projectId": str,
    "teamId": str,
    "sourceType": str,
    "sourceId": str,
    "status": ("queued", "processing", "completed", "failed", "cancelled"),
    "attempts": int,
    "maxAttempts": int,
    "createdAtEpoch": int,
    "completedAtEpoch": EPOCH_OR_NULL,
    "failedAtEpoch": EPOCH_OR_NULL,
    "lastError": (dict, str, None),
}
JOB: dict[str, Shape] = {
    **LISTED,
    "agentEventId": TEXT_OR_NULL,
    "serverSessionId": TEXT_OR_NULL,
    "jobType": str,
    "bullmqJobId": str,
    "nextAttemptAtEpoch": EPOCH_OR_NULL,
    "cancelledAtEpoch": EPOCH_OR_NULL,
    "updatedAtEpoch": int,
}
JOBS: dict[str, Shape] = {"jobs": [LISTED], "total": int, "limit": int, "offset": int}
KEY: dict[str, Shape] = {"id": str, "apiKey": str, "scopes": [str], "expiresAt": TEXT_OR_NULL, "mcpUrl": str, "connectCommand": str}
INFO: Shape = {
    "name": str,
    "runtime": str,
    "authMode": str,
    "postgres": {"initialized": True, "schemaVersion": int},
    "boundaries": {"queueManager": {"status": str}, "generationWorkerManager": {"status": str}},
    "queueLanes": [
        {"kind": str, "name": str, "waiting": int, "active": int, "completed": int, "failed": int, "delayed": int, "stalled": int}
    ],
}


def refused(name: str) -> Shape:
    return {"error": name, "message": str}


WRONG: Shape = {"error": "ValidationError", "issues": [{"path": object, "message": str}]}

PROJECT = "github.com/acme/orders"
_EVENT = {
    "projectId": PROJECT,
    "sourceType": "hook",
    "eventType": "tool_use",
    "occurredAtEpoch": 1_780_000_000_000,
    "contentSessionId": "c0ffee",
    "platformSource": "claude",
    "payload": {"tool_name": "Write", "tool_input": {"file_path": "a.py", "content": "print()"}},
    "memorySessionId": None,
}
_NEW = "of a newer client"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`{name}` in the path is what an earlier call kept under that name; `keep` says where the answer has it."""

    send: str
    body: object = None
    status: int
    shape: Shape
    keep: dict[str, str] = {}


SESSION_OF_A_CLIENT = [
    Call(
        send="POST /v1/sessions/start",
        body={
            "projectId": PROJECT,
            "externalSessionId": "c0ffee",
            "contentSessionId": None,
            "agentId": "main",
            "agentType": "primary",
            "platformSource": "claude",
            "metadata": {"prompt": "add a retry", "cwd": "/home/alice/orders"},
            "unknown": _NEW,
        },
        status=201,
        shape={"session": SESSION},
        keep={"session": "session.id", "project": "session.projectId", "team": "session.teamId"},
    ),
    Call(
        send="POST /v1/sessions/start",
        body={"projectId": PROJECT, "externalSessionId": "c0ffee", "platformSource": "claude"},
        status=200,
        shape={"session": SESSION},
    ),
    Call(send="GET /v1/sessions/{session}", status=200, shape={"session": SESSION}),
    Call(
        send="POST /v1/events",
        body={**_EVENT, "unknown": _NEW},
        status=201,
        shape={"event": EVENT, "generationJob": ENQUEUED},
        keep={"event": "event.id", "job": "generationJob.id"},
    ),
    Call(send="POST /v1/events", body=_EVENT, status=201, shape={"event": EVENT, "generationJob": ENQUEUED}),
    Call(send="POST /v1/events?generate=false", body={**_EVENT, "eventType": "prompt"}, status=201, shape={"event": EVENT}),
    Call(
        send="POST /v1/events/batch",
        body=[{**_EVENT, "eventType": name, "unknown": _NEW} for name in ("first", "second")],
        status=201,
        shape={"events": [{"event": EVENT, "generationJob": ENQUEUED}]},
    ),
    Call(send="POST /v1/events/batch", body=[], status=400, shape=WRONG),
    Call(send="POST /v1/events", body={"projectId": PROJECT}, status=400, shape=WRONG),
    Call(send="GET /v1/events/{event}", status=200, shape={"event": EVENT}),
    Call(send="GET /v1/events/{event}/observations", status=200, shape={"eventId": str, "observations": []}),
    Call(send="GET /v1/jobs", status=200, shape={**JOBS, "requestId": str}),
    Call(
        send="GET /v1/jobs?status=queued&source_type=agent_event&limit=1&offset=1&since=2026-01-01T00:00:00.000Z",
        status=200,
        shape={**JOBS, "limit": 1, "offset": 1, "requestId": str},
    ),
    Call(send="GET /v1/jobs/{job}", status=200, shape={"generationJob": JOB}),
    Call(
        send="POST /v1/jobs/{job}/retry",
        status=200,
        shape={"generationJob": JOB, "retriedCount": 0, "alreadyQueued": True, "requestId": str},
    ),
    Call(
        send="POST /v1/jobs/{job}/cancel",
        status=200,
        shape={"generationJob": {**JOB, "status": "cancelled"}, "alreadyCancelled": False, "requestId": str},
    ),
    Call(
        send="POST /v1/jobs/{job}/cancel",
        status=200,
        shape={"generationJob": {**JOB, "status": "cancelled"}, "alreadyCancelled": True, "requestId": str},
    ),
    Call(
        send="POST /v1/jobs/{job}/retry",
        status=200,
        shape={"generationJob": {**JOB, "status": "queued"}, "retriedCount": 1, "alreadyQueued": False, "requestId": str},
    ),
    Call(send="GET /v1/teams/{team}/jobs?status=queued&limit=10&offset=0", status=200, shape=JOBS),
    Call(send="GET /v1/projects/{project}/jobs?status=queued&limit=10&offset=0", status=200, shape=JOBS),
    Call(send="POST /v1/sessions/{session}/end", body={}, status=200, shape={"session": SESSION, "generationJob": ENQUEUED}),
    Call(send="POST /v1/sessions/{session}/end", body={}, status=200, shape={"session": SESSION}),
]
"""Until the workers have had their turn."""

WHEN_ALL_IS_GENERATED = [
    Call(send="GET /v1/jobs/{job}", status=200, shape={"generationJob": {**JOB, "status": "completed", "completedAtEpoch": int}}),
    Call(send="POST /v1/jobs/{job}/retry", status=409, shape=refused("Conflict")),
    Call(send="POST /v1/jobs/{job}/cancel", status=409, shape=refused("Conflict")),
    Call(send="GET /v1/events/{event}/observations", status=200, shape={"eventId": str, "observations": [GENERATED]}),
    Call(
        send="POST /v1/memories",
        body={
            "projectId": PROJECT,
            "content": "Orders are retried three times.",
            "kind": "manual",
            "serverSessionId": None,
            "metadata": {"tag": "orders"},
            "unknown": _NEW,
        },
        status=201,
        shape={
            "memory": {**OBSERVATION, "kind": "manual", "content": "Orders are retried three times.", "metadata": {"tag": "orders"}}
        },
        keep={"memory": "memory.id"},
    ),
    Call(
        send="POST /v1/memories",
        body={"projectId": PROJECT, "kind": "manual", "type": "decision", "narrative": "Billing is asynchronous."},
        status=201,
        shape={"memory": OBSERVATION},
    ),
    Call(
        send="POST /v1/search",
        body={"projectId": PROJECT, "query": "retried", "limit": 20, "platformSource": "claude", "unknown": _NEW},
        status=200,
        shape={"observations": [OBSERVATION]},
    ),
    Call(
        send="POST /v1/context",
        body={"projectId": PROJECT, "query": "retried", "limit": 10, "platformSource": "claude", "unknown": _NEW},
        status=200,
        shape={"observations": [OBSERVATION], "context": str},
    ),
    Call(send="POST /v1/search", body={"projectId": PROJECT, "query": "retried", "limit": 101}, status=400, shape=WRONG),
    Call(send="POST /v1/context", body={"projectId": PROJECT, "query": "retried", "limit": 51}, status=400, shape=WRONG),
    Call(send="DELETE /v1/memories/{memory}", status=200, shape={"deleted": True, "id": str}),
    Call(send="DELETE /v1/memories/{memory}", status=404, shape={"error": str}),
    Call(send="GET /v1/info", status=200, shape=INFO),
    Call(send="GET /v1/usage", status=200, shape={"since": str, "usage": dict}),
    Call(send="GET /v1/events/{nobody}", status=404, shape=refused("NotFound")),
    Call(send="GET /v1/sessions/{nobody}", status=404, shape=refused("NotFound")),
    Call(send="GET /v1/jobs/{nobody}", status=404, shape=refused("NotFound")),
    Call(send="GET /v1/teams/{nobody}/jobs", status=404, shape=refused("NotFound")),
    Call(send="GET /v1/projects/{nobody}/jobs", status=404, shape=refused("NotFound")),
    Call(
        send="DELETE /v1/projects/{project}/memory",
        status=200,
        shape={"purged": True, "projectId": str, "counts": {"observations": int, "events": int, "sessions": int, "jobs": int}},
    ),
]

KEYS = [
    Call(
        send="POST /v1/keys", body={"label": "laptop", "expiresInDays": 30}, status=201, shape={**KEY, "scopes": ["memories:read"]}
    ),
    Call(send="POST /v1/keys", body={}, status=201, shape=KEY),
    Call(send="POST /v1/keys", body={"expiresInDays": 366}, status=400, shape=WRONG),
    Call(send="POST /v1/keys", body={"label": "x" * 121}, status=400, shape=WRONG),
]
"""Whoever may make keys."""
