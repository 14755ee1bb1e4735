"""OpenAI's Chat Completions, and everything that speaks them: OpenRouter, Ollama, vLLM, LM Studio, gateways.

What such a server understands of the request differs. What it refuses is left out from then on, and asked again at once. The API:
developers.openai.com/api/reference/resources/chat; openrouter.ai/docs/api/reference/overview;
docs.ollama.com/api/openai-compatibility.
"""

from __future__ import annotations

import asyncio
import re
from decimal import Decimal
from typing import Literal

import msgspec

from cmserver.base.errors import Invalid
from cmserver.models.providers.failures import empty_answer_error, find_error_in_body, incomplete_answer_error
from cmserver.models.providers.http_client import HttpAnswer, HttpEndpoint, check_key, decode_usage, require_key
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import answer_schema
from cmserver.models.providers.table import PROVIDERS

_Limit = Literal["max_completion_tokens", "max_tokens"]
_OTHER: dict[_Limit, _Limit] = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_EFFORT_REFUSED = re.compile(r"reasoning|thinking|\bthink\b|effort", re.IGNORECASE)
_SCHEMA_REFUSED = re.compile(
    r"response[_ ]?format|json[_ ]schema|structured[_ ]output|schema|grammar|guided|requested parameters", re.IGNORECASE
)
_OUR_TAGS = re.compile(r"<(?:observation|summary|skip)", re.IGNORECASE)


class OpenAI:
    """Calls one model at one address. What the server refuses is remembered as long as the process lives."""

    def __init__(
        self, name: str, model: str, endpoint: HttpEndpoint, *, answer_max_tokens: int, effort: str | None, is_openai: bool
    ) -> None:
        self.name = name
        self.model = model
        self._endpoint = endpoint
        self._answer_max_tokens = answer_max_tokens
        self._effort = effort
        self._limit: _Limit = "max_completion_tokens" if is_openai else "max_tokens"
        self._limit_tried = False
        self._supports_schema: bool | None = None
        """None until it is known."""

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer as JSON if the server enforces the schema, else as XML."""
        if self._supports_schema is False:
            return await self._ask(prompt, structured=False)
        try:
            completion = await self._ask(prompt, structured=True)
        except _SchemaRefusedError:
            self._supports_schema = False
            return await self._ask(prompt, structured=False)
        if self._supports_schema or completion.truncated:
            return completion
        self._supports_schema = _is_json(completion.text)
        if self._supports_schema or _OUR_TAGS.search(completion.text):
            return completion
        try:
            again = await self._ask(prompt, structured=False)
        except ProviderError as error:
            error.completion = _add_usage(completion, error.completion) if error.completion else completion
            raise
        return _add_usage(completion, again)

    async def _ask(self, prompt: Prompt, *, structured: bool) -> Completion:
        """Send the request; parts that the server refuses are changed, each once, and it is sent again."""
        rendered = await asyncio.to_thread(render, prompt, "json" if structured else "xml")
        while True:
            sent = (self._limit, self._effort)
            body: dict[str, object] = {
                "model": self.model,
                "messages": [{"role": "system", "content": rendered.system}, {"role": "user", "content": rendered.user}],
                self._limit: self._answer_max_tokens,
            }
            if self._effort:
                body["reasoning_effort"] = self._effort
            else:
                body |= _limits(prompt, self._limit, self._answer_max_tokens)
            if structured:
                schema = {"name": prompt.kind, "strict": True, "schema": answer_schema(prompt)}
                body["response_format"] = {"type": "json_schema", "json_schema": schema}
            answer = await self._endpoint.post("/chat/completions", body)
            error = self._endpoint.find_failure(answer)
            if error is None:
                return self._parse_completion(answer)
            if error.kind is FailureKind.SETUP_REQUIRED and (
                self._adapt_request(answer.text) or sent != (self._limit, self._effort)
            ):
                continue  # another call may have adapted it meanwhile
            doubtful = error.kind is FailureKind.SETUP_REQUIRED or answer.status in {500, 501}  # some servers break on a schema
            if structured and doubtful and _SCHEMA_REFUSED.search(answer.text):
                raise _SchemaRefusedError from error
            raise error

    def _adapt_request(self, refusal: str) -> bool:
        """Change what the refusal names; False if nothing is left to change."""
        if not self._limit_tried and self._limit in refusal:
            self._limit, self._limit_tried = _OTHER[self._limit], True
            return True
        if self._effort and _EFFORT_REFUSED.search(refusal):
            self._effort = None
            return True
        return False

    def _parse_completion(self, answer: HttpAnswer) -> Completion:
        """The completion in the answer; ProviderError for a refusal, or an answer without text."""
        name = self._endpoint.name
        try:
            reply = msgspec.json.decode(answer.text, type=_Reply)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise incomplete_answer_error(name, "what came is not the JSON of an answer") from error
        if not reply.choices:
            raise incomplete_answer_error(name, "it held no choices")
        choice = reply.choices[0]
        completion = self._build_completion(reply, choice)
        if error := self._find_failure(choice, completion):
            error.completion = completion
            raise error
        return completion

    def _build_completion(self, reply: _Reply, choice: _Choice) -> Completion:
        usage = decode_usage(reply.usage, _Usage)
        details = usage.prompt_tokens_details or _PromptDetails()
        read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
        message = choice.message or _Message()
        return Completion(
            text=strip_thoughts(_join_text(message.content)) or message.refusal or "",
            model=self.model,
            input_tokens=max(0, (usage.prompt_tokens or 0) - read - written),
            output_tokens=usage.completion_tokens or 0,
            cache_read_tokens=read,
            cache_write_tokens=written,
            cost_usd=_total_cost(usage),
            truncated=choice.finish_reason == "length",
        )

    def _find_failure(self, choice: _Choice, completion: Completion) -> ProviderError | None:
        """Why the completion cannot be used; None when it can."""
        name, text, reason = self._endpoint.name, completion.text, choice.finish_reason
        inner = bytes(choice.error).decode() or "null"
        if inner != "null" or reason == "error":
            return find_error_in_body(name, f'{{"error": {inner}}}') or incomplete_answer_error(
                name, "its provider reports an error"
            )
        if (choice.message and choice.message.refusal) or reason in {"content_filter", "refusal"}:
            return ProviderError(FailureKind.REFUSED, f"{name} refused to answer ({reason or 'refusal'}).")
        if not text.strip():
            return empty_answer_error(name, completion)
        return None


def _limits(prompt: Prompt, limit: _Limit, most: int) -> dict[str, object]:
    """The prompt's own limits; what a model thinks would count, too."""
    limits: dict[str, object] = {}
    if prompt.answer_tokens is not None:
        limits[limit] = min(prompt.answer_tokens, most)
    if prompt.temperature is not None:
        limits["temperature"] = prompt.temperature
    return limits


class _SchemaRefusedError(Exception):
    """The server does not support a schema for this model."""


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CostDetails(msgspec.Struct):
    upstream_inference_cost: Decimal | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    """Including tokens read from and written to the cache."""
    completion_tokens: int | None = None
    """Including the thoughts."""
    prompt_tokens_details: _PromptDetails | None = None
    cost: Decimal | None = None
    """US dollars paid to OpenRouter."""
    is_byok: bool | None = None
    cost_details: _CostDetails | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Message(msgspec.Struct):
    """Thoughts, in `reasoning` or `reasoning_content`, are ignored."""

    content: str | list[_Part] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: msgspec.Raw = msgspec.Raw()


def _total_cost(usage: _Usage) -> Decimal | None:
    """The cost; with one's own key behind OpenRouter, the upstream cost is added."""
    if usage.cost is None or not usage.is_byok or usage.cost_details is None:
        return usage.cost
    return usage.cost + (usage.cost_details.upstream_inference_cost or 0)


def _join_text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):
        return "".join(part.text or "" for part in content if part.type == "text")
    return content or ""


_THOUGHTS = re.compile(r"\s*<(think|thinking|thought)>.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
_THOUGHTS_END = re.compile(r"</(?:think|thinking|thought)>", re.IGNORECASE)


def strip_thoughts(text: str) -> str:
    """The text after a local model's thoughts, whose opening tag may be part of the model's template."""
    thoughts = _THOUGHTS.match(text)
    if thoughts:
        return text[thoughts.end() :].lstrip()
    end = _THOUGHTS_END.search(text)
    if end is None or _is_json(text) or _OUR_TAGS.search(text, 0, end.start()):
        return text
    return text[end.end() :].lstrip()


def _is_json(text: str) -> bool:
    return re.match(r"\s*(?:```\w*\s*)?\{", text) is not None


def _add_usage(first: Completion, second: Completion) -> Completion:
    """The second answer with the usage of both."""
    costs = [completion.cost_usd for completion in (first, second) if completion.cost_usd is not None]
    return msgspec.structs.replace(
        second,
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cache_read_tokens=first.cache_read_tokens + second.cache_read_tokens,
        cache_write_tokens=first.cache_write_tokens + second.cache_write_tokens,
        cost_usd=sum(costs, Decimal()) if costs else None,
    )


def make(settings: ProviderSettings) -> OpenAI:
    """Make the provider. Raises Invalid for a missing key or model."""
    preset = PROVIDERS[settings.name]
    at_home = settings.base_url is None
    key = None
    if preset.key_setting and at_home:
        key = require_key(f"provider {settings.name}", settings.api_key, preset.key_setting)
    elif preset.key_setting:
        key = check_key(settings.api_key, preset.key_setting)
    model = settings.model or (preset.model if at_home else None)
    if not model:
        raise Invalid(f"The provider {settings.name} needs a model: set CMSERVER_MODEL ({preset.example}).")
    is_openai = at_home and settings.name == "openai"
    endpoint = HttpEndpoint(
        preset.title if at_home or settings.name != "openai" else "The server at CMSERVER_BASE_URL",
        settings.base_url or preset.base_url,
        headers={"authorization": f"Bearer {key}"} if key else {},
        secret=key,
        timeout_seconds=settings.timeout_seconds,
    )
    return OpenAI(
        settings.name,
        model,
        endpoint,
        answer_max_tokens=settings.answer_max_tokens,
        effort=preset.effort if at_home or not preset.has_key else None,
        is_openai=is_openai,
    )
