"""What all routes of Contextify have in common: who calls, the session header, and errors as its clients read them."""

from __future__ import annotations

import re
from functools import wraps

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.errors import CmserverError, Gone
from cmserver.base.http.wire import Handler, dependency, refusal
from cmserver.base.ids import request_id
from cmserver.doors.guest import admit_caller
from cmserver.memories.memories import Memories, MemoryCaller
from cmserver.redaction.redact import redact

SESSION_HEADER = "X-Session-ID"
_SESSION = re.compile(r"[A-Za-z0-9._:/@-]{1,200}")
_GUEST_SCOPES = frozenset({"observations:write"})
"""What guests may do here besides what they may elsewhere: the original asks nobody for a key."""
_ENCODER = msgspec.json.Encoder()


def contextify(handler: Handler) -> Handler:
    """Wrap a handler: errors are `{"error": sentence}`, what is gone is not found, and X-Session-ID is sent back."""

    @wraps(handler)
    async def handle(request: Request) -> Response:
        try:
            response = await handler(request)
        except CmserverError as error:
            response = _refuse(error)
        session_id = session_of(request)
        if session_id is not None:
            response.headers[SESSION_HEADER] = session_id
        return response

    return handle


def _refuse(error: CmserverError) -> Response:
    response = refusal(error, request_id())
    content = msgspec.json.decode(bytes(response.body), type=dict[str, object])
    content["error"] = str(error)
    content.pop("supersededBy", None)
    response.status_code = 404 if isinstance(error, Gone) else response.status_code
    response.body = _ENCODER.encode(content)
    response.headers["content-length"] = str(len(response.body))
    return response


def session_of(request: Request) -> str | None:
    """The session in the client's words; None when there is none, or it is no name or looks like a secret."""
    value = request.headers.get(SESSION_HEADER, "").strip()
    return value if _SESSION.fullmatch(value) and redact(value)[0] == value else None


async def admit(request: Request, *, size_bytes: int = 0) -> MemoryCaller:
    """The owner of the key; without one a guest on this machine, who may read and write memories."""
    principal = await admit_caller(request, more_scopes=_GUEST_SCOPES)
    return MemoryCaller(principal=principal, session_id=session_of(request), size_bytes=size_bytes)


def memories(request: Request) -> Memories:
    return dependency(request, Memories)
