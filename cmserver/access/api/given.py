"""What people call and note: without secrets, and never empty."""

from __future__ import annotations

from typing import Annotated, TypeVar, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request

from cmserver.access.announce import CHANNEL
from cmserver.access.laws import malformed
from cmserver.access.model import GenerationPolicy, Principal
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


def clean_policy(policy: GenerationPolicy | None) -> GenerationPolicy:
    """Null is one that says nothing. Invalid for a language or a skip rule that says nothing, or has several lines."""
    policy = policy or GenerationPolicy()
    at = "$.generationPolicy"
    language = None if policy.language is None else _clean_line(policy.language, at=f"{at}.language")
    rules = [_clean_line(rule, at=f"{at}.skipRules[{place}]") for place, rule in enumerate(policy.skip_rules)]
    for place, rule in enumerate(rules):
        if (why := malformed(rule)) is not None:
            raise Invalid.at(f"{at}.skipRules[{place}]", why)
    cleaned = msgspec.structs.replace(policy, language=language, skip_rules=list(dict.fromkeys(rules)))
    return convert(msgspec.to_builtins(cleaned), GenerationPolicy, at=at)  # what is left may be too short, and a mark too long


def _clean_line(text: str, *, at: str) -> str:
    """Models are shown it among what they are told to do: one line, and without secrets."""
    cleaned = redact(text)[0].strip()
    if not cleaned or not cleaned.isprintable():
        raise Invalid.at(at, "A line of text is expected, with characters that can be seen.")
    return cleaned


def forget(request: Request, who: Principal) -> None:
    """Forget what this process knows of the team, before it answers. The others forget when they hear of the change."""
    cast("Hub", request.app.state.hub).tell(CHANNEL, str(who.team_id))
