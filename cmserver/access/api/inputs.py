"""Reads and cleans names, metadata and policies of requests."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request

from cmserver.access.announce import CHANNEL
from cmserver.access.model import GenerationPolicy, Principal, find_rule_error
from cmserver.base import lookalikes
from cmserver.base.errors import Invalid
from cmserver.base.http.wire import convert, dependency
from cmserver.base.notifications import NotificationListener
from cmserver.base.settings import Settings
from cmserver.base.text import Text
from cmserver.redaction.clean import clean_aside
from cmserver.redaction.redact import redact

Name = Annotated[Text, Meta(min_length=1, max_length=200)]
"""The name of a team, a project or a person."""

Metadata = dict[str, object]


def clean_name(name: str, *, at: str) -> str:
    """The name without secrets and invisible characters; Invalid when nothing is left."""
    cleaned = lookalikes.clean_name(redact(lookalikes.clean_name(name))[0])
    if not cleaned:
        raise Invalid.at(at, "A name needs at least one visible character.")
    return cleaned


async def clean_metadata(request: Request, metadata: Metadata | None, size_bytes: int) -> Metadata:
    """The metadata without secrets; empty for None."""
    field_max_chars = dependency(request, Settings).field_max_chars
    cleaned = await clean_aside(metadata or {}, field_max_chars=field_max_chars, size_bytes=size_bytes, at="$.metadata")
    return cast("Metadata", cleaned.value)


def clean_policy(policy: GenerationPolicy | None) -> GenerationPolicy:
    """The policy without secrets; an empty one for None. Invalid for empty or multi-line languages and skip rules."""
    policy = policy or GenerationPolicy()
    at = "$.generationPolicy"
    language = None if policy.language is None else _clean_line(policy.language, at=f"{at}.language")
    rules = [_clean_line(rule, at=f"{at}.skipRules[{index}]") for index, rule in enumerate(policy.skip_rules)]
    for index, rule in enumerate(rules):
        if (problem := find_rule_error(rule)) is not None:
            raise Invalid.at(f"{at}.skipRules[{index}]", problem)
    cleaned = msgspec.structs.replace(policy, language=language, skip_rules=list(dict.fromkeys(rules)))
    return convert(msgspec.to_builtins(cleaned), GenerationPolicy, at=at)  # redaction may have changed lengths


def _clean_line(text: str, *, at: str) -> str:
    """The text without secrets, because it becomes part of a prompt; Invalid when it is not one line of visible characters."""
    cleaned = redact(text)[0].strip()
    if not cleaned or not cleaned.isprintable():
        raise Invalid.at(at, "One line of visible text is expected.")
    return cleaned


def forget(request: Request, principal: Principal) -> None:
    """Drop this process's cached entries of the team before it answers; the others drop them when notified."""
    dependency(request, NotificationListener).deliver(CHANNEL, str(principal.team_id))
