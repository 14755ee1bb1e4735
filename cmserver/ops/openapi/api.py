"""What this server answers, for programs and for people: both made of the routes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.http.operation import Operation, Text
from cmserver.ops.openapi.document import Document, document, encoded
from cmserver.ops.openapi.page import content_security_policy, page


class Reference:
    """Both forms, made when they are first asked for."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    @cached_property
    def _document(self) -> Document:
        return document(self._operations)

    @cached_property
    def json(self) -> bytes:
        return encoded(self._document)

    @cached_property
    def html(self) -> str:
        return page(self._document)


async def get_openapi(request: Request) -> Response:
    """The API as an OpenAPI 3.1 document."""
    return Response(_reference(request).json, media_type="application/json")


async def get_docs(request: Request) -> Response:
    """The same as a page to read."""
    return Response(
        _reference(request).html, media_type="text/html", headers={"Content-Security-Policy": content_security_policy()}
    )


def _reference(request: Request) -> Reference:
    return cast("Reference", request.app.state.reference)


routes = [
    Operation("GET", "/openapi.json", get_openapi, scope=None, answers={200: Text("application/json", "The document.")}),
    Operation("GET", "/docs", get_docs, scope=None, answers={200: Text("text/html", "The page.")}),
]
