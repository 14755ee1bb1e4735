"""Contextify's settings: what an operator of it has in his env file or config.yaml, and what stands for it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

NAMES_BY_SETTING: Final = {
    "database_url": ("DATABASE_URL", "database.url"),
    "embedder_base_url": ("OLLAMA_URL", "embedding.ollama_url"),
    "embedder_model": ("EMBEDDING_MODEL", "embedding.model"),
    "port": ("SERVER_PORT", "server.port"),
    "search_meaning_weight": ("", "search.vector_weight"),
}
"""Setting -> the variable and the key of config.yaml that stand for it. Contextify embeds with Ollama only."""

_BY_PROJECT: Final = "`consolidation` of each project: `off`, `suggest` or `merge`"
_BY_EMBEDDER: Final = "the thresholds that are [measured for each embedder](duplicates.md)"

UNUSED_VARIABLES: Final = {
    "CONSOLIDATION_ENABLED": _BY_PROJECT,
    "CONSOLIDATION_AUTO_MERGE_THRESHOLD": _BY_EMBEDDER,
    "CONSOLIDATION_SUGGEST_THRESHOLD": _BY_EMBEDDER,
    "CONSOLIDATION_MERGE_STRATEGY": "one way to merge, which keeps every fact",
    "NORMALIZE_PROJECT_ID": "nothing: a repository is one project on every machine",
}
"""Variable of Contextify alone -> what stands in its place, in Markdown."""


class ImportedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration of Contextify says, in cmserver's words."""

    values: dict[str, str]
    """Setting -> value, as text."""
    unused: list[str]
    """Names without a setting here."""


def translate_contextify(values: Mapping[str, str]) -> ImportedSettings:
    """Translate variables, or keys of config.yaml as `section.key`; empty values count as not set."""
    settings_by_name = {name: setting for setting, names in NAMES_BY_SETTING.items() for name in names if name}
    imported = {settings_by_name[name]: value for name, value in values.items() if value and name in settings_by_name}
    if "embedder_base_url" in imported or "embedder_model" in imported:
        imported["embedder"] = "ollama"
    return ImportedSettings(
        values=imported, unused=[name for name, value in values.items() if value and name not in settings_by_name]
    )
