"""Anthropic's models through its own client library: held to a schema where the model can be, and else asked for the XML format."""

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
from cmserver.providers import failures
from cmserver.providers.model import ANSWER_MOST_BYTES, Completion, FailureKind, Given, Prompt, ProviderError
from cmserver.providers.posting import checked_key
from cmserver.providers.wording.render import render
from cmserver.providers.wording.schema import SCHEMAS

_WHO = "Anthropic"
_MODEL = "claude-haiku-5-5"
_BASE_URL = "https://api.anthropic.com"
_CONNECT_SECONDS = 10.0

_ABOUT_FORMAT = re.compile(r"output[_ ]format|output_config\.format|structured[_ ]output|schema", re.IGNORECASE)
_ABOUT_EFFORT = re.compile(r"\beffort\b", re.IGNORECASE)
_ABOUT_BOTH = "output_config"
"""How the API and its gateways name what they do not take: "This model does not support the effort parameter.",
"output_config: Extra inputs are not permitted" ..."""


class _Block(msgspec.Struct):
    type: str
    text: str | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    """Without the two kinds below."""
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


class _StopDetails(msgspec.Struct):
    category: str | None = None
    explanation: str | None = None


class _Message(msgspec.Struct):
    """What we read of an answer. The library builds its own without looking whether the fields are there."""

    content: list[_Block]
    usage: _Usage
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class Anthropic:
    """Asks the Messages API, without retries: the queue does them.

    Once a model or an endpoint has said that it takes no schema, or no effort, this is left out for as long as the process lives.
    """

    def __init__(self, given: Given, key: str) -> None:
        self._name = given.name
        self._model = given.model or _MODEL
        self._key = key
        self._answer_max_tokens = given.answer_max_tokens
        self._structured = True
        self._effort = True
        # Key and address are always given: the library would look for them in the environment, where another program's may stand.
        self._client = AsyncAnthropic(
            api_key=key,
            base_url=given.base_url or _BASE_URL,
            timeout=Timeout(given.timeout_seconds, connect=min(_CONNECT_SECONDS, given.timeout_seconds)),
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(
                follow_redirects=False,  # events go where the operator said, and nowhere else
                event_hooks={"response": [_read]},
            ),
            open_telemetry=False,  # a variable could have it record whole requests
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> str:
        return self._model

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer the prompt or raise ProviderError."""
        # Failures are raised without their cause: a traceback would show what the library says, which is the whole body.
        while True:
            structured, effort = self._structured, self._effort
            try:
                return self._completion(await self._ask(prompt, structured=structured, effort=effort))
            except APIStatusError as error:
                failed = self._by_status(error)
                if not self._can_do_without(error, failed, structured=structured, effort=effort):
                    raise failed from None
            except APIConnectionError as error:
                raise _by_connection(error) from None
            except AnthropicError as error:
                raise failures.cut_off(_WHO, f"its client library gave up with {type(error).__name__}") from None

    async def _ask(self, prompt: Prompt, *, structured: bool, effort: bool) -> httpx2.Response:
        wording = await asyncio.to_thread(render, prompt, "json" if structured else "xml")
        config: OutputConfigParam = {}
        if effort:
            config["effort"] = "low"
        if structured:
            config["format"] = {"type": "json_schema", "schema": SCHEMAS[prompt.kind]}
        response = await self._client.messages.with_raw_response.create(
            model=self._model,
            max_tokens=self._answer_max_tokens,
            output_config=config or omit,
            system=[{"type": "text", "text": wording.system, "cache_control": {"type": "ephemeral"}}],
            messages=[{"role": "user", "content": wording.user}],
        )
        return response.http_response

    def _completion(self, response: httpx2.Response) -> Completion:
        try:
            message = msgspec.json.decode(response.content, type=_Message)
        except (msgspec.DecodeError, RecursionError):
            raise (
                failures.in_body(_WHO, self._text(response), response.headers)
                or failures.cut_off(_WHO, "what came is no message of the Messages API")
            ) from None
        text = "".join(block.text or "" for block in message.content if block.type == "text")
        details = message.stop_details or _StopDetails()
        completion = Completion(
            text=text or details.explanation or "",
            model=self._model,
            input_tokens=message.usage.input_tokens or 0,
            output_tokens=message.usage.output_tokens or 0,
            cache_read_tokens=message.usage.cache_read_input_tokens or 0,
            cache_write_tokens=message.usage.cache_creation_input_tokens or 0,
            truncated=message.stop_reason == "max_tokens",
        )
        if message.stop_reason == "refusal":
            about = f" ({details.category})" if details.category else ""
            raise ProviderError(FailureKind.REFUSED, f"{_WHO}'s {self._model} refused to answer{about}.", completion=completion)
        if message.stop_reason == "model_context_window_exceeded":
            raise ProviderError(
                FailureKind.CONTEXT_TOO_LONG, f"{_WHO}'s {self._model} ran out of its context window.", completion=completion
            )
        if not text.strip():
            raise failures.nothing_said(_WHO, completion)
        return completion

    def _by_status(self, error: APIStatusError) -> ProviderError:
        return failures.by_status(_WHO, error.status_code, self._text(error.response), error.response.headers)

    def _text(self, response: httpx2.Response) -> str:
        return response.text.replace(self._key, "***")

    def _can_do_without(self, error: APIStatusError, failed: ProviderError, *, structured: bool, effort: bool) -> bool:
        """Whether to ask again with less; what the model or the endpoint does not take is remembered."""
        if error.status_code not in {400, 422} or failed.kind is not FailureKind.SETUP_REQUIRED:
            return False
        said = self._text(error.response)
        no_format = structured and _ABOUT_FORMAT.search(said) is not None
        no_effort = effort and _ABOUT_EFFORT.search(said) is not None
        if not no_format and not no_effort and _ABOUT_BOTH in said:
            no_format, no_effort = structured, effort
        self._structured = self._structured and not no_format
        self._effort = self._effort and not no_effort
        return no_format or no_effort


class _TooLongError(Exception):
    """It is not read to its end."""


async def _read(response: httpx2.Response) -> None:
    """Reads the answer before the library does, which would take in whatever comes, and believe any charset."""
    received = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream, request=response.request)
    read = bytearray()
    async for part in received.aiter_bytes():
        read += part
        if len(read) > ANSWER_MOST_BYTES:
            raise _TooLongError
    response.headers.pop("content-encoding", None)
    response.stream = httpx2.ByteStream(bytes(read))
    response.encoding = "utf-8"


def _by_connection(error: APIConnectionError) -> ProviderError:
    cause = error.__cause__
    if isinstance(cause, _TooLongError):
        return failures.cut_off(_WHO, f"it has more than {ANSWER_MOST_BYTES >> 20} MB")
    if isinstance(cause, (httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        return failures.unreachable(_WHO, "no connection in time")
    if isinstance(cause, (httpx2.ConnectError, httpx2.ProxyError)):
        return failures.unreachable(_WHO, str(cause) or "no connection")
    if isinstance(error, APITimeoutError):
        return failures.cut_off(_WHO, "it took longer than CMSERVER_PROVIDER_TIMEOUT_SECONDS")
    return failures.cut_off(_WHO, "the connection broke off")


def make(given: Given) -> Anthropic:
    """It needs a key."""
    key = checked_key(given.api_key, "ANTHROPIC_API_KEY")
    if not key:
        raise Invalid("The provider anthropic needs a key: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE to the file it is in.")
    try:
        return Anthropic(given, key)
    except (httpx2.InvalidURL, ValueError) as error:
        raise Invalid(f"CMSERVER_BASE_URL has no address for the provider anthropic: {error}.") from error
