"""Serves the HTTP API's reference: the OpenAPI document and a page, both built from the routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.http.operation import Operation, TextAnswer, get
from cmserver.base.http.wire import base_path, dependency, public_url
from cmserver.ops.openapi.document import Document, build_document, encode_document
from cmserver.ops.openapi.page import SERVER, build_content_security_policy, render_page

_PLAIN_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+[A-Za-z0-9._~/-]*")


class Reference:
    """The OpenAPI document as JSON and as HTML, built on first use."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    @cached_property
    def _document(self) -> Document:
        return build_document(self._operations)

    @cached_property
    def json(self) -> bytes:
        return encode_document(self._document)

    def encode_below(self, prefix: str) -> bytes:
        """The document of a server that is shown below a path."""
        return encode_document(msgspec.structs.replace(self._document, servers=[{"url": prefix}]))

    @cached_property
    def html(self) -> str:
        return render_page(self._document)


async def get_openapi(request: Request) -> Response:
    """The API as an OpenAPI 3.1 document."""
    reference, prefix = dependency(request, Reference), base_path(request)
    return Response(reference.encode_below(prefix) if prefix else reference.json, media_type="application/json")


async def get_docs(request: Request) -> Response:
    """The reference of the HTTP API as one HTML page."""
    headers = {"Content-Security-Policy": build_content_security_policy()}
    address = public_url(request)
    html = dependency(request, Reference).html
    if _PLAIN_ADDRESS.fullmatch(address):
        html = html.replace(SERVER, address)
    return Response(html, media_type="text/html", headers=headers)


routes = [
    get("/openapi.json", get_openapi, None, TextAnswer("application/json", "The document.")),
    get("/docs", get_docs, None, TextAnswer("text/html", "The page.")),
]
