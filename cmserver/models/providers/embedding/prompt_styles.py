"""What a model expects before a text, by its model card: many embed a query and a stored text differently."""

from __future__ import annotations

import re

import msgspec

from cmserver.models.providers.embedding.model import EmbedderSettings, Purpose
from cmserver.models.providers.embedding.remote import MAX_CHARS

_TASK = "Given a search query, retrieve the notes about a software project that answer it"
_SENTENCE = "Represent this sentence for searching relevant passages: "


class PromptStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How a model expects its texts, by its documentation."""

    query: str = ""
    document: str = ""
    """Prefixes by purpose; no server adds them itself."""
    max_chars: int = MAX_CHARS
    """Three characters per token of a small context: Ollama may refuse longer texts in spite of `truncate`."""

    def prefix(self, purpose: Purpose) -> str:
        return self.query if purpose == "query" else self.document


_STYLES: dict[str, PromptStyle] = {
    r"nomic-embed-text": PromptStyle(query="search_query: ", document="search_document: ", max_chars=6_000),
    r"embeddinggemma": PromptStyle(query="task: search result | query: ", document="title: none | text: ", max_chars=6_000),
    r"qwen3-embedding": PromptStyle(query=f"Instruct: {_TASK}\nQuery:"),
    r"mxbai-embed-large": PromptStyle(query=_SENTENCE, max_chars=1_500),
    r"snowflake-arctic-embed(?:2|.*-v2)": PromptStyle(query="query: "),
    r"snowflake-arctic-embed": PromptStyle(query=_SENTENCE, max_chars=1_500),
    r"bge-(?:small|base|large)(?:-en|$)": PromptStyle(query=_SENTENCE, max_chars=1_500),
    r"(?:multilingual-)?e5-.*instruct": PromptStyle(query=f"Instruct: {_TASK}\nQuery: ", max_chars=1_500),
    r"(?:multilingual-)?e5-(?:small|base|large)": PromptStyle(query="query: ", document="passage: ", max_chars=1_500),
    r"all-minilm": PromptStyle(max_chars=750),
}
"""How a model's name begins, as a pattern -> its style. The first that matches counts."""
_PLAIN = PromptStyle()


def find_style(model: str) -> PromptStyle:
    """The style of the model by its name, with or without namespace and tag (`someone/nomic-embed-text:v1.5`)."""
    name = model.rpartition("/")[2].partition(":")[0].lower().removeprefix("text-embedding-")  # LM Studio's prefix
    return next((style for pattern, style in _STYLES.items() if re.match(pattern, name)), _PLAIN)


def choose_style(settings: EmbedderSettings, model: str) -> PromptStyle:
    """The style of the embedder's model; with the prefix of the vectors that are stored, where the settings are a record's."""
    is_own_server = settings.provider == "ollama" or (settings.provider == "openai" and settings.base_url is not None)
    style = find_style(model) if is_own_server else _PLAIN
    if settings.document_prefix is None:
        return style
    return msgspec.structs.replace(style, document=settings.document_prefix)
