"""The environment variables of Contextify, for an operator who brings its env file along."""

from __future__ import annotations

from collections.abc import Collection, Mapping

CONTEXTIFY_NAMES = {
    "DATABASE_URL": "database_url",
    "OLLAMA_URL": "embedder_base_url",
    "EMBEDDING_MODEL": "embedder_model",
    "SERVER_PORT": "port",
}
"""Variable -> the setting that it stands for. Contextify embeds with Ollama only."""

_BY_PROJECT = "`consolidation` of each project: `off`, `suggest` or `merge`"
_BY_EMBEDDER = "the thresholds that are [measured for each embedder](duplicates.md)"

CONTEXTIFY_UNUSED = {
    "CONSOLIDATION_ENABLED": _BY_PROJECT,
    "CONSOLIDATION_AUTO_MERGE_THRESHOLD": _BY_EMBEDDER,
    "CONSOLIDATION_SUGGEST_THRESHOLD": _BY_EMBEDDER,
    "CONSOLIDATION_MERGE_STRATEGY": "one way to merge, which keeps every fact",
    "NORMALIZE_PROJECT_ID": "nothing: a repository is one project on every machine",
}
"""Variable -> what stands in its place, in Markdown."""

_MIN_VARIABLES = 3


def find_contextify_variables(environ: Mapping[str, str]) -> Collection[str]:
    """The variables of Contextify in its own environment, else none.

    It is one where three of them are set: fewer, above all a lone DATABASE_URL, are mostly another program's.
    """
    found = [name for name in [*CONTEXTIFY_NAMES, *CONTEXTIFY_UNUSED] if environ.get(name)]
    return found if len(found) >= _MIN_VARIABLES else []
