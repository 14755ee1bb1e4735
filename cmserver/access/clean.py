"""Cleans names and policies that people give."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmserver.access.model import GenerationPolicy, find_rule_error
from cmserver.base import lookalikes
from cmserver.base.errors import Invalid
from cmserver.base.http.wire import convert
from cmserver.base.text import Text
from cmserver.redaction.redact import redact

Name = Annotated[Text, Meta(min_length=1, max_length=200)]
"""The name of a team, a project or a person."""


def clean_name(name: str, *, at: str) -> str:
    """The name without secrets and invisible characters; Invalid when nothing is left."""
    cleaned = lookalikes.clean_name(redact(lookalikes.clean_name(name))[0])
    if not cleaned:
        raise Invalid.at(at, "A name needs at least one visible character.")
    return cleaned


def clean_policy(policy: GenerationPolicy | None) -> GenerationPolicy:
    """The policy without secrets; an empty one for None. Invalid for empty or multi-line languages and skip rules."""
    policy = policy or GenerationPolicy()
    at = "$.generationPolicy"
    language = None if policy.language is None else _clean_line(policy.language, at=f"{at}.language")
    rules = [_clean_line(rule, at=f"{at}.skipRules[{index}]") for index, rule in enumerate(policy.skip_rules)]
    for index, rule in enumerate(rules):
        if (problem := find_rule_error(rule)) is not None:
            raise Invalid.at(f"{at}.skipRules[{index}]", problem)
    cleaned = msgspec.structs.replace(
        policy,
        language=language,
        skip_rules=list(dict.fromkeys(rules)),
        skip_tools=[redact(tool)[0] for tool in policy.skip_tools],
        skip_event_types=[redact(type_)[0] for type_ in policy.skip_event_types],
    )
    return convert(msgspec.to_builtins(cleaned), GenerationPolicy, at=at)  # redaction may have changed lengths


def _clean_line(text: str, *, at: str) -> str:
    """The text without secrets, because it becomes part of a prompt; Invalid when it is not one line of visible characters."""
    cleaned = redact(text)[0].strip()
    if not cleaned or not cleaned.isprintable():
        raise Invalid.at(at, "One line of visible text is expected.")
    return cleaned
