"""Anthropic's models through its client library: JSON by a schema if the model supports it, else XML."""

from __future__ import annotations

import asyncio
import re

import httpx2
import msgspec
from anthropic import (
    AnthropicError,
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncAnthropic,
    DefaultAsyncHttpxClient,
    Timeout,
    omit,
)
from anthropic.types import OutputConfigParam

from cmserver.base.errors import Invalid
from cmserver.models.providers import failures
from cmserver.models.providers.http_client import require_key
from cmserver.models.providers.model import MAX_ANSWER_BYTES, Completion, FailureKind, Prompt, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import answer_schema
from cmserver.models.providers.table import PROVIDERS

_NAME = "Anthropic"
_BASE_URL = "https://api.anthropic.com"
_CONNECT_SECONDS = 10.0

_ABOUT_FORMAT = re.compile(r"output[_ ]format|output_config\.format|structured[_ ]output|schema", re.IGNORECASE)
_ABOUT_EFFORT = re.compile(r"\beffort\b", re.IGNORECASE)
_ABOUT_BOTH = "output_config"
"""How the API and gateways name what they refuse: "This model does not support the effort parameter.",
"output_config: Extra inputs are not permitted" ..."""


class _Block(msgspec.Struct):
    type: str
    text: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    """Without the cache's tokens."""
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _StopDetails(msgspec.Struct):
    category: str | None = None
    explanation: str | None = None


class _Message(msgspec.Struct):
    """The parts of an answer that are used; the library does not check that they are present."""

    content: list[_Block]
    usage: _Usage
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class Anthropic:
    """Calls the Messages API, without retries; a schema or an effort that was refused is left out from then on."""

    def __init__(self, settings: ProviderSettings, key: str) -> None:
        self.name = settings.name
        self.model = settings.model or PROVIDERS["anthropic"].model or ""
        self._key = key
        self._answer_max_tokens = settings.answer_max_tokens
        self._structured = True
        self._effort = True
        # Key and address are always passed: the library would take them from the environment, where another program's may be.
        self._client = AsyncAnthropic(
            api_key=key,
            base_url=settings.base_url or _BASE_URL,
            timeout=Timeout(settings.timeout_seconds, connect=min(_CONNECT_SECONDS, settings.timeout_seconds)),
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(
                follow_redirects=False,  # events go only to the configured address
                event_hooks={"response": [_read_limited]},
            ),
            open_telemetry=False,  # an environment variable could make it record whole requests
        )

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer the prompt or raise ProviderError."""
        # Raised without their cause: a traceback would show the library's message, which is the whole body.
        while True:
            structured, effort = self._structured, self._effort
            try:
                return self._parse_completion(await self._ask(prompt, structured=structured, effort=effort))
            except APIStatusError as error:
                text = self._redacted_text(error.response)
                failed = failures.classify_status(_NAME, error.status_code, text, error.response.headers)
                if not self._drop_refused_parts(error, failed, structured=structured, effort=effort):
                    raise failed from None
            except APIConnectionError as error:
                raise _classify_connection_error(error) from None
            except AnthropicError as error:
                raise failures.incomplete_answer_error(_NAME, f"its client library gave up with {type(error).__name__}") from None

    async def _ask(self, prompt: Prompt, *, structured: bool, effort: bool) -> httpx2.Response:
        """Send the prompt and return the answer; `structured` asks for JSON of the schema, `effort` for little effort."""
        rendered = await asyncio.to_thread(render, prompt, "json" if structured else "xml")
        config: OutputConfigParam = {}
        if effort:
            config["effort"] = "low"
        if structured:
            config["format"] = {"type": "json_schema", "schema": answer_schema(prompt)}
        response = await self._client.messages.with_raw_response.create(
            model=self.model,
            max_tokens=min(prompt.answer_tokens or self._answer_max_tokens, self._answer_max_tokens),
            output_config=config or omit,
            system=[{"type": "text", "text": rendered.system, "cache_control": {"type": "ephemeral"}}],
            messages=[{"role": "user", "content": rendered.user}],
        )
        return response.http_response

    def _parse_completion(self, response: httpx2.Response) -> Completion:
        """The completion in the answer; ProviderError for a refusal, an answer without text, or one that cannot be read."""
        try:
            message = msgspec.json.decode(response.content, type=_Message)
        except (msgspec.DecodeError, RecursionError):
            raise (
                failures.find_error_in_body(_NAME, self._redacted_text(response), response.headers)
                or failures.incomplete_answer_error(_NAME, "what came is no message of the Messages API")
            ) from None
        text = "".join(block.text or "" for block in message.content if block.type == "text")
        details = message.stop_details or _StopDetails()
        completion = Completion(
            text=text or details.explanation or "",
            model=self.model,
            input_tokens=message.usage.input_tokens or 0,
            output_tokens=message.usage.output_tokens or 0,
            cache_read_tokens=message.usage.cache_read_input_tokens or 0,
            cache_write_tokens=message.usage.cache_creation_input_tokens or 0,
            truncated=message.stop_reason == "max_tokens",
        )
        if message.stop_reason == "refusal":
            about = f" ({details.category})" if details.category else ""
            raise ProviderError(FailureKind.REFUSED, f"{_NAME}'s {self.model} refused to answer{about}.", completion=completion)
        if message.stop_reason == "model_context_window_exceeded":
            raise ProviderError(
                FailureKind.CONTEXT_TOO_LONG, f"{_NAME}'s {self.model} ran out of its context window.", completion=completion
            )
        if not text.strip():
            raise failures.empty_answer_error(_NAME, completion)
        return completion

    def _redacted_text(self, response: httpx2.Response) -> str:
        return response.text.replace(self._key, "***")

    def _drop_refused_parts(self, error: APIStatusError, failed: ProviderError, *, structured: bool, effort: bool) -> bool:
        """Remember which parts were refused; whether to call again without them."""
        if error.status_code not in {400, 422} or failed.kind is not FailureKind.SETUP_REQUIRED:
            return False
        message = self._redacted_text(error.response)
        no_format = structured and _ABOUT_FORMAT.search(message) is not None
        no_effort = effort and _ABOUT_EFFORT.search(message) is not None
        if not no_format and not no_effort and _ABOUT_BOTH in message:
            no_format, no_effort = structured, effort
        self._structured = self._structured and not no_format
        self._effort = self._effort and not no_effort
        return no_format or no_effort


class _TooLongError(Exception):
    """The answer exceeds MAX_ANSWER_BYTES."""


async def _read_limited(response: httpx2.Response) -> None:
    """Read the answer before the library does, which would accept any length and charset."""
    received = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream, request=response.request)
    read = bytearray()
    async for part in received.aiter_bytes():
        read += part
        if len(read) > MAX_ANSWER_BYTES:
            raise _TooLongError
    response.headers.pop("content-encoding", None)
    response.stream = httpx2.ByteStream(bytes(read))
    response.encoding = "utf-8"


def _classify_connection_error(error: APIConnectionError) -> ProviderError:
    """Why no answer came, as a ProviderError."""
    cause = error.__cause__
    if isinstance(cause, _TooLongError):
        return failures.incomplete_answer_error(_NAME, f"it has more than {MAX_ANSWER_BYTES >> 20} MB")
    if isinstance(cause, (httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        return failures.unreachable_error(_NAME, "no connection in time")
    if isinstance(cause, (httpx2.ConnectError, httpx2.ProxyError)):
        is_distrusted = "CERTIFICATE_VERIFY_FAILED" in str(cause)
        return failures.unreachable_error(_NAME, failures.DISTRUSTED if is_distrusted else str(cause) or "no connection")
    if isinstance(error, APITimeoutError):
        return failures.incomplete_answer_error(_NAME, "it took longer than CMSERVER_PROVIDER_TIMEOUT_SECONDS")
    return failures.incomplete_answer_error(_NAME, "the connection broke off")


def make(settings: ProviderSettings) -> Anthropic:
    """Make the provider. Raises Invalid without a key or for a wrong address."""
    key = require_key("provider anthropic", settings.api_key, "ANTHROPIC_API_KEY")
    try:
        return Anthropic(settings, key)
    except (httpx2.InvalidURL, ValueError) as error:
        raise Invalid(f"CMSERVER_BASE_URL holds an address that cannot be used for the provider anthropic: {error}.") from error
