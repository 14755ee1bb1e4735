"""Where an answer gives the id of a new thing, and which paths take it: what OpenAPI calls links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from cmserver.base.http.operation import Operation

GIVES: dict[tuple[str, str], dict[str, str]] = {
    ("POST", "/v1/sessions/start"): {"session": "/session/id", "project": "/session/projectId", "team": "/session/teamId"},
    ("POST", "/v1/sessions/{id}/end"): {"session": "/session/id", "job": "/generationJob/id"},
    ("POST", "/v1/events"): {"event": "/event/id", "job": "/generationJob/id", "project": "/event/projectId"},
    ("POST", "/v1/events/batch"): {"event": "/events/0/event/id", "job": "/events/0/generationJob/id"},
    ("POST", "/v1/observations"): {"observation": "/observation/number"},
    ("POST", "/v1/observations/batch"): {"observation": "/observations/0/number"},
    ("POST", "/v1/memories"): {"memory": "/memory/id", "observation": "/memory/number"},
    ("POST", "/v1/projects"): {"project": "/project/id", "team": "/project/teamId"},
    ("POST", "/v1/keys"): {"key": "/id"},
    ("POST", "/v1/keys/{id}/rotate"): {"key": "/id"},
    ("POST", "/v1/teams"): {"team": "/team/id"},
    ("POST", "/v1/reindex"): {"job": "/generationJob/id"},
}
"""The kinds of things whose ids an answer gives, and where in it they stand."""

TAKES: dict[str, str] = {
    "session": "/v1/sessions/{id}",
    "event": "/v1/events/{id}",
    "job": "/v1/jobs/{id}",
    "observation": "/v1/observations/{id}",
    "memory": "/v1/memories/{id}",
    "key": "/v1/keys/{id}",
    "project": "/v1/projects/{project}",
    "team": "/v1/teams/{team}",
}
"""Where a thing of the kind has its path; whatever goes on from there takes its id, too."""


class Link(msgspec.Struct, rename={"operation_id": "operationId"}, frozen=True, kw_only=True):
    """What one can do next with the answer."""

    operation_id: str
    parameters: dict[str, str]


def links(one: Operation, path: str, others: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Link]]:
    """Name and link from the answer of an operation to each that takes an id it gives. `others` are path and operation id."""
    for kind, pointer in GIVES.get((one.method, path), {}).items():
        start = TAKES[kind]
        parameter = start.rpartition("{")[2].removesuffix("}")
        for other, operation_id in others:
            if other == start or other.startswith(f"{start}/"):
                yield f"{kind}_{operation_id}", Link(operation_id=operation_id, parameters={parameter: f"$response.body#{pointer}"})
