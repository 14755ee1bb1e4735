"""Serves the files of `static/`: style sheet, scripts and icons. Their addresses carry a hash, so browsers keep them for a year.

They are sent compressed. The pages are not: beside what is remembered they repeat what an address says, and their length would tell
who listens whether the two are alike (BREACH).
"""

from __future__ import annotations

import hashlib
from functools import cache

import msgspec
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cmserver.base.errors import NotFound
from cmserver.doors.web import security
from cmserver.doors.web.page import error_page
from cmserver.doors.web.templates import STATIC
from cmserver.doors.web.visit import Visit

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".ico": "image/x-icon"}


class _File(msgspec.Struct, frozen=True):
    content: bytes
    media_type: str
    digest: str


@cache
def _files() -> dict[str, _File]:
    """Every file of the folder by its path in it."""
    return {
        path.relative_to(STATIC).as_posix(): _File(
            content := path.read_bytes(), _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:12]
        )
        for path in STATIC.rglob("*")
        if path.suffix in _TYPES
    }


async def get_static(request: Request) -> Response:
    """One of the files."""
    file = _files().get(str(request.path_params["name"]))
    if file is None:
        return error_page(Visit(request, None), NotFound("There is no such file."))
    is_current = request.query_params.get("v") == file.digest
    headers = {
        **security.HEADERS,
        "Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-cache",
        "ETag": f'"{file.digest}"',
    }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


routes = [Route("/ui/static/{name:path}", get_static, methods=["GET"], middleware=[Middleware(GZipMiddleware)])]
