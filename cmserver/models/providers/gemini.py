"""Google's Gemini API: generateContent, with the key in a header and never in the URL. ai.google.dev/api/generate-content"""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

import msgspec

from cmserver.models.providers.failures import empty_answer_error, incomplete_answer_error
from cmserver.models.providers.http_client import HttpAnswer, HttpEndpoint, decode_usage, require_key
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import answer_schema
from cmserver.models.providers.table import PROVIDERS

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"

_REFUSED = {
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
}  # fmt: skip
"""Finish reasons that mean a refusal by the model or a filter."""
_THINKING_REFUSED = re.compile(r"thinking", re.IGNORECASE)
_SCHEMA_REFUSED = re.compile(r"schema|json mode|mime", re.IGNORECASE)


class Gemini:
    """Calls one model. What the API refuses is remembered as long as the process lives."""

    name = "gemini"

    def __init__(self, model: str, endpoint: HttpEndpoint, *, answer_max_tokens: int) -> None:
        self.model = model
        self._endpoint = endpoint
        self._answer_max_tokens = answer_max_tokens
        self._supports_schema = True
        self._thinks_by_level = True

    async def complete(self, prompt: Prompt) -> Completion:
        """Answer as JSON if the model supports the schema, else as XML. Refused parts are left out and the call is repeated."""
        while True:
            structured, by_level = self._supports_schema, self._thinks_by_level
            body = await self._request(prompt, structured=structured, by_level=by_level)
            answer = await self._endpoint.post(f"/models/{quote(self.model, safe='')}:generateContent", body)
            error = self._endpoint.find_failure(answer)
            if error is None:
                return self._parse_completion(answer)
            if error.kind is not FailureKind.SETUP_REQUIRED:
                raise error
            if by_level and _THINKING_REFUSED.search(answer.text):
                self._thinks_by_level = False
            elif structured and _SCHEMA_REFUSED.search(answer.text):
                self._supports_schema = False
            else:
                raise error

    async def _request(self, prompt: Prompt, *, structured: bool, by_level: bool) -> dict[str, object]:
        """The body of a request; `structured` asks for JSON of the schema, `by_level` for little thinking."""
        rendered = await asyncio.to_thread(render, prompt, "json" if structured else "xml")
        config: dict[str, object] = {"maxOutputTokens": self._answer_max_tokens}
        if by_level:
            config["thinkingConfig"] = {"thinkingLevel": "low"}
        if structured:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": answer_schema(prompt)}
        return {
            "systemInstruction": {"parts": [{"text": rendered.system}]},
            "contents": [{"role": "user", "parts": [{"text": rendered.user}]}],
            "generationConfig": config,
        }

    def _parse_completion(self, answer: HttpAnswer) -> Completion:
        """The completion in the answer; ProviderError for a refusal, or an answer without text."""
        try:
            reply = msgspec.json.decode(answer.text, type=_Reply)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise incomplete_answer_error("Gemini", "what came is not the JSON of an answer") from error
        candidate = reply.candidates[0] if reply.candidates else _Candidate()
        parts = candidate.content.parts if candidate.content else []
        usage = decode_usage(reply.usage_metadata, _Usage)
        read = usage.cached_content_token_count or 0
        completion = Completion(
            text="".join(part.text or "" for part in parts if not part.thought),
            model=self.model,
            input_tokens=max(0, (usage.prompt_token_count or 0) - read),
            output_tokens=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            cache_read_tokens=read,
            truncated=candidate.finish_reason == "MAX_TOKENS",
        )
        if error := self._find_failure(reply, candidate, completion):
            error.completion = completion
            raise error
        return completion

    def _find_failure(self, reply: _Reply, candidate: _Candidate, completion: Completion) -> ProviderError | None:
        """Why the completion cannot be used; None when it can."""
        blocked = reply.prompt_feedback and reply.prompt_feedback.block_reason
        if reason := blocked or (candidate.finish_reason if candidate.finish_reason in _REFUSED else None):
            return ProviderError(FailureKind.REFUSED, f"Gemini refused to answer ({reason}).")
        if not reply.candidates:
            return incomplete_answer_error("Gemini", "it held no candidates")
        if not completion.text.strip():
            return empty_answer_error("Gemini", completion)
        return None


class _Camel(msgspec.Struct, rename="camel"):
    pass


class _Part(_Camel):
    text: str | None = None
    thought: bool = False


class _Content(_Camel):
    parts: list[_Part] = []


class _Candidate(_Camel):
    content: _Content | None = None
    finish_reason: str | None = None


class _Feedback(_Camel):
    block_reason: str | None = None


class _Usage(_Camel):
    prompt_token_count: int | None = None
    """Including tokens read from the cache."""
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    """Without the thoughts, which have the same price."""
    thoughts_token_count: int | None = None


class _Reply(_Camel):
    candidates: list[_Candidate] = []
    prompt_feedback: _Feedback | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()


def make(settings: ProviderSettings) -> Gemini:
    """Make the provider. Raises Invalid without a key."""
    key = require_key("provider gemini", settings.api_key, "GEMINI_API_KEY")
    endpoint = HttpEndpoint(
        "Gemini",
        settings.base_url or BASE_URL,
        headers={"x-goog-api-key": key},
        secret=key,
        timeout_seconds=settings.timeout_seconds,
    )
    model = (settings.model or PROVIDERS["gemini"].model or "").removeprefix("models/")
    return Gemini(model, endpoint, answer_max_tokens=settings.answer_max_tokens)
