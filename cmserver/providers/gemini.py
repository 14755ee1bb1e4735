"""Google's Gemini API: generateContent, with the key in a header and never in the URL. ai.google.dev/api/generate-content"""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

import msgspec

from cmserver.base.errors import Invalid
from cmserver.providers.failures import cut_off, in_prose, nothing_said
from cmserver.providers.model import Completion, FailureKind, Given, Prompt, ProviderError
from cmserver.providers.posting import Door, Heard, checked_key
from cmserver.providers.wording.render import render
from cmserver.providers.wording.schema import SCHEMAS

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
MODEL = "gemini-3.5-flash-lite"
"""The cheap one of the present generation, and Google's replacement for gemini-2.5-flash."""

_REFUSED = {
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
}  # fmt: skip
"""Why a candidate ended, where the model or a filter would not say it."""
_THINKING_REFUSED = re.compile(r"thinking", re.IGNORECASE)
_SCHEMA_REFUSED = re.compile(r"schema|json mode|mime", re.IGNORECASE)


class Gemini:
    """Asks one model. What it has learned about it holds for as long as the process."""

    def __init__(self, model: str, door: Door, *, answer_max_tokens: int) -> None:
        self._model = model
        self._door = door
        self._answer_max_tokens = answer_max_tokens
        self._holds_to_schema = True
        self._thinks_by_level = True

    @property
    def name(self) -> str:
        return "gemini"

    @property
    def model(self) -> str:
        return self._model

    async def complete(self, prompt: Prompt) -> Completion:
        """As JSON where the model can be held to the schema, else as XML. What it refuses is left out, and it is asked again."""
        while True:
            structured, by_level = self._holds_to_schema, self._thinks_by_level
            body = await self._request(prompt, structured=structured, by_level=by_level)
            heard = await self._door.post(f"/models/{quote(self._model, safe='')}:generateContent", body)
            error = self._door.failure(heard)
            if error is None:
                return self._completion(heard)
            if error.kind is not FailureKind.SETUP_REQUIRED:
                raise error
            if by_level and _THINKING_REFUSED.search(heard.text):
                self._thinks_by_level = False
            elif structured and _SCHEMA_REFUSED.search(heard.text):
                self._holds_to_schema = False
            else:
                raise error

    async def _request(self, prompt: Prompt, *, structured: bool, by_level: bool) -> dict[str, object]:
        wording = await asyncio.to_thread(render, prompt, "json" if structured else "xml")
        config: dict[str, object] = {"maxOutputTokens": self._answer_max_tokens}
        if by_level:
            config["thinkingConfig"] = {"thinkingLevel": "low"}
        if structured:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": SCHEMAS[prompt.kind]}
        return {
            "systemInstruction": {"parts": [{"text": wording.system}]},
            "contents": [{"role": "user", "parts": [{"text": wording.user}]}],
            "generationConfig": config,
        }

    def _completion(self, heard: Heard) -> Completion:
        try:
            reply = msgspec.json.decode(heard.text, type=_Reply)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise cut_off("Gemini", "what came is not the JSON of an answer") from error
        candidate = reply.candidates[0] if reply.candidates else _Candidate()
        parts = candidate.content.parts if candidate.content else []
        usage = _usage(reply.usage_metadata)
        read = usage.cached_content_token_count or 0
        completion = Completion(
            text="".join(part.text or "" for part in parts if not part.thought),
            model=self._model,
            input_tokens=max(0, (usage.prompt_token_count or 0) - read),
            output_tokens=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
            cache_read_tokens=read,
            truncated=candidate.finish_reason == "MAX_TOKENS",
        )
        if error := self._failure_in(reply, candidate, completion):
            error.completion = completion
            raise error
        return completion

    def _failure_in(self, reply: _Reply, candidate: _Candidate, completion: Completion) -> ProviderError | None:
        blocked = reply.prompt_feedback and reply.prompt_feedback.block_reason
        if reason := blocked or (candidate.finish_reason if candidate.finish_reason in _REFUSED else None):
            return ProviderError(FailureKind.REFUSED, f"Gemini refused to answer ({reason}).")
        if not reply.candidates:
            return cut_off("Gemini", "it held no candidates")
        if not completion.text.strip():
            return nothing_said("Gemini", completion)
        return None if completion.text.lstrip().startswith(("{", "<")) else in_prose("Gemini", completion.text)


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
    """With what was read from the cache."""
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    """Without the thoughts, which cost as much."""
    thoughts_token_count: int | None = None


class _Reply(_Camel):
    candidates: list[_Candidate] = []
    prompt_feedback: _Feedback | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()


def _usage(raw: msgspec.Raw) -> _Usage:
    """Odd figures cost the figures, not the answer."""
    try:
        return msgspec.json.decode(raw, type=_Usage | None) or _Usage()
    except msgspec.DecodeError:
        return _Usage()


def make(given: Given) -> Gemini:
    """Invalid without a key."""
    key = checked_key(given.api_key, "GEMINI_API_KEY")
    if not key:
        raise Invalid("The provider gemini needs a key: set GEMINI_API_KEY, or GEMINI_API_KEY_FILE to a file with it.")
    door = Door(
        "Gemini",
        given.base_url or BASE_URL,
        headers={"x-goog-api-key": key},
        secret=key,
        timeout_seconds=given.timeout_seconds,
    )
    model = (given.model or MODEL).removeprefix("models/")
    return Gemini(model, door, answer_max_tokens=given.answer_max_tokens)
