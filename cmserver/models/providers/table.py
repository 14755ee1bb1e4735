"""The providers by their names in CMSERVER_PROVIDER, beside the rules: one row each."""

from __future__ import annotations

import msgspec


class KnownProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as its operator chooses it; the defaults are those of one that speaks OpenAI's API."""

    name: str
    title: str = ""
    """What messages call it; a module of its own says that itself."""
    recipient: str = ""
    """Who is sent the texts, in a sentence; empty for nobody beside this machine."""
    model: str | None = None
    """The model when CMSERVER_MODEL is not set; None if the operator must choose. With OpenAI's API only at `base_url`."""
    suggested_model: str | None = None
    """The model that is offered where the operator must choose."""
    example: str = "the name under which the server lists it"
    """Of a model, for who has to choose."""
    base_url: str = ""
    effort: str | None = None
    """`reasoning_effort` of OpenAI's API; None sends none. One with a key gets it only at `base_url`."""
    has_key: bool = True
    bill: str = ""
    """What is paid for instead of tokens; empty where it bills by the token."""
    module: str = "openai"
    """The file beside this one that calls it, imported on first use: a client library may take a second to load."""
    has_large_client: bool = False
    """Whether its client library takes more memory (44 MB) than a process should that never calls it."""

    @property
    def key_setting(self) -> str | None:
        """The setting of its key; None if it needs none."""
        return f"{self.name.upper()}_API_KEY" if self.has_key else None

    @property
    def takes_base_url(self) -> bool:
        """Whether it may be at another address than its usual one."""
        return self.module != "claude_cli"


PROVIDERS = {
    row.name: row
    for row in (
        KnownProvider(name="anthropic", recipient="Anthropic", model="claude-haiku-5-5", module="anthropic", has_large_client=True),
        KnownProvider(
            name="openai",
            title="OpenAI",
            recipient="OpenAI",
            model="gpt-6-luna",
            base_url="https://api.openai.com/v1",
            effort="low",
        ),
        KnownProvider(name="gemini", recipient="Google", model="gemini-3.5-flash-lite", module="gemini"),
        KnownProvider(
            name="openrouter",
            title="OpenRouter",
            recipient="OpenRouter, and by it to the model's company",
            suggested_model="openai/gpt-6-luna",
            example="openai/gpt-6-luna for example; openrouter.ai/models lists them",
            base_url="https://openrouter.ai/api/v1",
        ),
        KnownProvider(
            name="ollama",
            title="Ollama",
            example="one that `ollama list` shows, qwen3:8b for example",
            base_url="http://127.0.0.1:11434/v1",
            effort="none",
            has_key=False,
            bill="free; give it a context of 32,768 tokens (OLLAMA_CONTEXT_LENGTH)",
        ),
        KnownProvider(
            name="claude-cli",
            recipient="Anthropic, by the login of your claude program",
            model="haiku",
            has_key=False,
            bill="no bill: it counts against your Claude plan",
            module="claude_cli",
        ),
    )
}
