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
from cmserver.providers.failures import cut_off, in_body, in_prose, nothing_said
from cmserver.providers.model import Completion, FailureKind, Given, Prompt, ProviderError
from cmserver.providers.posting import Door, Heard, checked_key
from cmserver.providers.wording.render import render
from cmserver.providers.wording.schema import SCHEMAS


class _Preset(msgspec.Struct, frozen=True, kw_only=True):
    """What a name of CMSERVER_PROVIDER stands for."""

    who: str
    base_url: str
    key_setting: str | None = None
    """Where its key is set; None needs none."""
    model: str | None = None
    """The usual one, at the usual address. The operator's choice where there are hundreds."""
    effort: str | None = None
    """How much the model should think; None leaves it alone."""
    example: str = ""


PRESETS = {
    "openai": _Preset(
        who="OpenAI",
        base_url="https://api.openai.com/v1",
        key_setting="OPENAI_API_KEY",
        model="gpt-6-luna",
        effort="low",
        example="the name under which the server lists it",
    ),
    "openrouter": _Preset(
        who="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_setting="OPENROUTER_API_KEY",
        example="openai/gpt-6-luna for example; openrouter.ai/models lists them",
    ),
    "ollama": _Preset(
        who="Ollama",
        base_url="http://127.0.0.1:11434/v1",
        effort="none",
        example="one that `ollama list` shows, qwen3:8b for example",
    ),
}

_Limit = Literal["max_completion_tokens", "max_tokens"]
_OTHER: dict[_Limit, _Limit] = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_EFFORT_REFUSED = re.compile(r"reasoning|thinking|\bthink\b|effort", re.IGNORECASE)
_SCHEMA_REFUSED = re.compile(
    r"response[_ ]?format|json[_ ]schema|structured[_ ]output|schema|grammar|guided|requested parameters", re.IGNORECASE
)
_OURS = re.compile(r"<(?:observation|summary|skip)", re.IGNORECASE)


class OpenAI:
    """Asks one model at one address. What it has learned about it holds for as long as the process."""

    def __init__(self, name: str, model: str, door: Door, *, answer_max_tokens: int, effort: str | None, is_openai: bool) -> None:
        self._name = name
        self._model = model
        self._door = door
        self._answer_max_tokens = answer_max_tokens
        self._effort = effort
        self._limit: _Limit = "max_completion_tokens" if is_openai else "max_tokens"
        self._limit_tried = False
        self._holds_to_schema: bool | None = None
        """None until it is known."""

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> str:
        return self._model

    async def complete(self, prompt: Prompt) -> Completion:
        """As JSON where the server holds the model to the schema, else as XML."""
        if self._holds_to_schema is False:
            return await self._ask(prompt, structured=False)
        try:
            completion = await self._ask(prompt, structured=True)
        except _SchemaRefusedError:
            self._holds_to_schema = False
            return await self._ask(prompt, structured=False)
        if self._holds_to_schema or completion.truncated:
            return completion
        self._holds_to_schema = _is_json(completion.text)
        if self._holds_to_schema or _OURS.search(completion.text):
            return completion
        try:
            again = await self._ask(prompt, structured=False)
        except ProviderError as error:
            error.completion = _both(completion, error.completion) if error.completion else completion
            raise
        return _both(completion, again)

    async def _ask(self, prompt: Prompt, *, structured: bool) -> Completion:
        """What the server refuses of the request is changed, each part once, and it is asked again."""
        wording = await asyncio.to_thread(render, prompt, "json" if structured else "xml")
        while True:
            sent = (self._limit, self._effort)
            body: dict[str, object] = {
                "model": self._model,
                "messages": [{"role": "system", "content": wording.system}, {"role": "user", "content": wording.user}],
                self._limit: self._answer_max_tokens,
            }
            if self._effort:
                body["reasoning_effort"] = self._effort
            if structured:
                schema = {"name": prompt.kind, "strict": True, "schema": SCHEMAS[prompt.kind]}
                body["response_format"] = {"type": "json_schema", "json_schema": schema}
            heard = await self._door.post("/chat/completions", body)
            error = self._door.failure(heard)
            if error is None:
                return self._completion(heard)
            if error.kind is FailureKind.SETUP_REQUIRED and (self._adapts(heard.text) or sent != (self._limit, self._effort)):
                continue  # another call may have learned it meanwhile
            doubtful = error.kind is FailureKind.SETUP_REQUIRED or heard.status in {500, 501}  # some servers break on a schema
            if structured and doubtful and _SCHEMA_REFUSED.search(heard.text):
                raise _SchemaRefusedError from error
            raise error

    def _adapts(self, refusal: str) -> bool:
        """Whether the next request differs in what this one was refused for."""
        if not self._limit_tried and self._limit in refusal:
            self._limit, self._limit_tried = _OTHER[self._limit], True
            return True
        if self._effort and _EFFORT_REFUSED.search(refusal):
            self._effort = None
            return True
        return False

    def _completion(self, heard: Heard) -> Completion:
        who = self._door.who
        try:
            reply = msgspec.json.decode(heard.text, type=_Reply)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise cut_off(who, "what came is not the JSON of an answer") from error
        if not reply.choices:
            raise cut_off(who, "it held no choices")
        choice = reply.choices[0]
        completion = self._counted(reply, choice)
        if error := self._failure_in(choice, completion):
            error.completion = completion
            raise error
        return completion

    def _counted(self, reply: _Reply, choice: _Choice) -> Completion:
        usage = _usage(reply.usage)
        details = usage.prompt_tokens_details or _PromptDetails()
        read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
        message = choice.message or _Message()
        return Completion(
            text=without_thoughts(_text(message.content)) or message.refusal or "",
            model=self._model,
            input_tokens=max(0, (usage.prompt_tokens or 0) - read - written),
            output_tokens=usage.completion_tokens or 0,
            cache_read_tokens=read,
            cache_write_tokens=written,
            cost_usd=_cost(usage),
            truncated=choice.finish_reason == "length",
        )

    def _failure_in(self, choice: _Choice, completion: Completion) -> ProviderError | None:
        who, text, reason = self._door.who, completion.text, choice.finish_reason
        inner = bytes(choice.error).decode() or "null"
        if inner != "null" or reason == "error":
            return in_body(who, f'{{"error": {inner}}}') or cut_off(who, "its provider reports an error")
        if (choice.message and choice.message.refusal) or reason in {"content_filter", "refusal"}:
            return ProviderError(FailureKind.REFUSED, f"{who} refused to answer ({reason or 'refusal'}).")
        if not text.strip():
            return nothing_said(who, completion)
        return None if _is_json(text) or _OURS.search(text) else in_prose(who, text)


class _SchemaRefusedError(Exception):
    """The server does not hold this model to a schema."""


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CostDetails(msgspec.Struct):
    upstream_inference_cost: Decimal | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    """With what was read from and written to the cache."""
    completion_tokens: int | None = None
    """With the thoughts."""
    prompt_tokens_details: _PromptDetails | None = None
    cost: Decimal | None = None
    """OpenRouter's: what was paid to it, in dollars."""
    is_byok: bool | None = None
    cost_details: _CostDetails | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Message(msgspec.Struct):
    """Thoughts are in `reasoning` or `reasoning_content`, which are not read."""

    content: str | list[_Part] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    finish_reason: str | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Reply(msgspec.Struct):
    choices: list[_Choice] = []
    usage: msgspec.Raw = msgspec.Raw()


def _usage(raw: msgspec.Raw) -> _Usage:
    """Odd figures cost the figures, not the answer."""
    try:
        return msgspec.json.decode(raw, type=_Usage | None) or _Usage()
    except msgspec.DecodeError:
        return _Usage()


def _cost(usage: _Usage) -> Decimal | None:
    """With a key of the provider's own behind OpenRouter, what is paid there comes on top."""
    if usage.cost is None or not usage.is_byok or usage.cost_details is None:
        return usage.cost
    return usage.cost + (usage.cost_details.upstream_inference_cost or 0)


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):
        return "".join(part.text or "" for part in content if part.type == "text")
    return content or ""


_THOUGHTS = re.compile(r"\s*<(think|thinking|thought)>.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
_THOUGHTS_END = re.compile(r"</(?:think|thinking|thought)>", re.IGNORECASE)


def without_thoughts(text: str) -> str:
    """The answer after what a local model has thought aloud; the tag that opens it may stand in the model's template."""
    thoughts = _THOUGHTS.match(text)
    if thoughts:
        return text[thoughts.end() :].lstrip()
    end = _THOUGHTS_END.search(text)
    if end is None or _is_json(text) or _OURS.search(text, 0, end.start()):
        return text
    return text[end.end() :].lstrip()


def _is_json(text: str) -> bool:
    return re.match(r"\s*(?:```\w*\s*)?\{", text) is not None


def _both(first: Completion, second: Completion) -> Completion:
    """The second answer, at the cost of both."""
    costs = [one.cost_usd for one in (first, second) if one.cost_usd is not None]
    return msgspec.structs.replace(
        second,
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
        cache_read_tokens=first.cache_read_tokens + second.cache_read_tokens,
        cache_write_tokens=first.cache_write_tokens + second.cache_write_tokens,
        cost_usd=sum(costs, Decimal()) if costs else None,
    )


def make(given: Given) -> OpenAI:
    """Invalid without a key (where one is needed) or a model (where there is no usual one)."""
    preset = PRESETS[given.name]
    at_home = given.base_url is None
    key = checked_key(given.api_key, preset.key_setting) if preset.key_setting else None
    if preset.key_setting and at_home and not key:
        raise Invalid(
            f"The provider {given.name} needs a key: set {preset.key_setting}, or {preset.key_setting}_FILE to a file with it."
        )
    model = given.model or (preset.model if at_home else None)
    if not model:
        raise Invalid(f"The provider {given.name} needs a model: set CMSERVER_MODEL ({preset.example}).")
    is_openai = at_home and given.name == "openai"
    door = Door(
        preset.who if at_home or given.name != "openai" else "The server at CMSERVER_BASE_URL",
        given.base_url or preset.base_url,
        headers={"authorization": f"Bearer {key}"} if key else {},
        secret=key,
        timeout_seconds=given.timeout_seconds,
    )
    return OpenAI(
        given.name,
        model,
        door,
        answer_max_tokens=given.answer_max_tokens,
        effort=preset.effort if is_openai or given.name == "ollama" else None,
        is_openai=is_openai,
    )
