"""Contextify's settings: what an operator of it has in his env file or config.yaml, and what stands for it here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

NAMES_BY_SETTING: Final = {
    "database_url": ("DATABASE_URL", "database.url"),
    "embedder_base_url": ("OLLAMA_URL", "embedding.ollama_url"),
    "embedder_model": ("EMBEDDING_MODEL", "embedding.model"),
    "port": ("SERVER_PORT", "server.port"),
}
"""Setting -> the variable and the key of config.yaml that stand for it. Contextify embeds with Ollama only."""

POLICY_BY_NAME: Final = {
    "memory.default_ttl": "defaultTtlSeconds",
    "memory.ttl_extend_factor": "extendFactor",
    "memory.cleanup_interval": "cleanupSeconds",
    "memory.promote_importance": "promoteImportance",
    "memory.promote_access_count": "promoteAccesses",
    "memory.auto_merge_threshold": "autoMergeAbove",
    "memory.similarity_threshold": "suggestAbove",
    "consolidation.auto_merge_threshold": "autoMergeAbove",
    "consolidation.suggest_threshold": "suggestAbove",
    "consolidation.merge_strategy": "mergeStrategy",
    "CONSOLIDATION_AUTO_MERGE_THRESHOLD": "autoMergeAbove",
    "CONSOLIDATION_SUGGEST_THRESHOLD": "suggestAbove",
    "CONSOLIDATION_MERGE_STRATEGY": "mergeStrategy",
}
"""Key or variable -> what stands for it in a team's policy of retention."""

_ENABLED: Final = ("consolidation.enabled", "CONSOLIDATION_ENABLED")
_DURATION_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|m|s|ms)")
_UNIT_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_BY_TEAM: Final = "[the team's policy](../howto/move-from-contextify.md#bring-the-settings-along), which the import sets"
_BY_PROJECT: Final = "`consolidation` of each project: `off`, `suggest` or `merge`"

UNUSED_VARIABLES: Final = {
    "CONSOLIDATION_ENABLED": _BY_PROJECT,
    "CONSOLIDATION_AUTO_MERGE_THRESHOLD": _BY_TEAM,
    "CONSOLIDATION_SUGGEST_THRESHOLD": _BY_TEAM,
    "CONSOLIDATION_MERGE_STRATEGY": _BY_TEAM,
    "NORMALIZE_PROJECT_ID": "nothing: a repository is one project on every machine",
}
"""Variable of Contextify alone -> what stands in its place, in Markdown."""


class ImportedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration of Contextify says, in cmserver's words."""

    values: dict[str, str]
    """Setting -> value, as text."""
    policy: dict[str, str]
    """Field of a team's policy of retention -> value, as text; durations in seconds."""
    unused: list[str]
    """Names without a setting here."""


def translate_contextify(values: Mapping[str, str]) -> ImportedSettings:
    """Translate variables, or keys of config.yaml as `section.key`; empty values count as not set."""
    settings_by_name = {name: setting for setting, names in NAMES_BY_SETTING.items() for name in names if name}
    imported = {settings_by_name[name]: value for name, value in values.items() if value and name in settings_by_name}
    if "embedder_base_url" in imported or "embedder_model" in imported:
        imported["embedder"] = "ollama"
    policy = {
        POLICY_BY_NAME[name]: _read_duration(value) if POLICY_BY_NAME[name].endswith("Seconds") else value
        for name, value in values.items()
        if value and name in POLICY_BY_NAME
    }
    if any(values.get(name, "").lower() in {"false", "0"} for name in _ENABLED):
        policy.pop("autoMergeAbove", None)
    known = {*settings_by_name, *POLICY_BY_NAME, *_ENABLED}
    return ImportedSettings(
        values=imported, policy=policy, unused=[name for name, value in values.items() if value and name not in known]
    )


def _read_duration(text: str) -> str:
    """Seconds, of what Go reads as a duration (`1h30m`); a plain number and anything else as it is."""
    parts = list(_DURATION_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return text
    return str(round(sum(float(part[1]) * _UNIT_SECONDS[part[2]] for part in parts)))
