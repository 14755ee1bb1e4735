"""Cleans metadata of requests."""

from __future__ import annotations

from typing import cast

from cmserver.redaction.clean import clean_aside

Metadata = dict[str, object]


async def clean_metadata(metadata: Metadata | None, size_bytes: int) -> Metadata:
    """The metadata without secrets; empty for None."""
    cleaned = await clean_aside(metadata or {}, size_bytes=size_bytes, at="$.metadata")
    return cast("Metadata", cleaned.value)
