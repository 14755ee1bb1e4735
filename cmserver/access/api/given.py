"""What people call and note: without secrets, and never empty."""

from __future__ import annotations

from typing import Annotated, TypeVar, cast

from msgspec import Meta
from starlette.requests import Request

from cmserver.access.announce import CHANNEL
from cmserver.access.model import Principal
from cmserver.base.errors import Invalid
from cmserver.base.http.wire import body, convert
from cmserver.base.live import Hub
from cmserver.base.redaction.clean import clean_aside, decode_json
from cmserver.base.redaction.redact import redact
from cmserver.base.text import Text

T = TypeVar("T")

Name = Annotated[Text, Meta(min_length=1, max_length=200)]
"""What people call a team, a project or somebody."""

Metadata = dict[str, object]


async def read_sized(request: Request, type_: type[T]) -> tuple[T, int]:
    """The body as a wire Struct, and its size in bytes."""
    raw = await body(request)
    return convert(decode_json(raw or b"{}"), type_), len(raw)


def clean_name(name: str, *, at: str) -> str:
    """Invalid when nothing is left of it."""
    cleaned = redact(name)[0].strip()
    if not cleaned:
        raise Invalid.at(at, "A name has at least one character that can be seen.")
    return cleaned


async def clean_metadata(request: Request, metadata: Metadata | None, size_bytes: int) -> Metadata:
    """Null is none."""
    most = cast("int", request.app.state.field_max_chars)
    cleaned = await clean_aside(metadata or {}, field_max_chars=most, size_bytes=size_bytes, at="$.metadata")
    return cast("Metadata", cleaned.value)


def forget(request: Request, who: Principal) -> None:
    """Forget what this process knows of the team, before it answers. The others forget when they hear of the change."""
    cast("Hub", request.app.state.hub).tell(CHANNEL, str(who.team_id))
