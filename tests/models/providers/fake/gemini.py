"""Gemini's generateContent as it answers: recorded shapes, and `play`, which answers any request of ours."""

from __future__ import annotations

import msgspec

from tests.models.providers.fake.answers import answer_to, tokens
from tests.models.providers.fake.server import Asked, Reply, json_reply

MODEL = "gemini-3.5-flash-lite"


def usage(*, prompt: int = 120, candidates: int = 30, thoughts: int = 0, cached: int = 0) -> dict[str, object]:
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": candidates,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + candidates + thoughts,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }


def part(words: str) -> dict[str, object]:
    return {"text": words, "thoughtSignature": "EqQBCgIYAhIkMTIz"}


def thought(words: str = "Let me see which events matter.") -> dict[str, object]:
    return {"text": words, "thought": True}


def content(*parts: dict[str, object], finish_reason: str = "STOP", used: object = None) -> dict[str, object]:
    """The body of an answer with status 200. What is filtered comes without parts."""
    content: dict[str, object] = {"parts": list(parts), "role": "model"} if parts else {"role": "model"}
    return {
        "candidates": [{"content": content, "finishReason": finish_reason, "index": 0}],
        "usageMetadata": used if used is not None else usage(),
        "modelVersion": MODEL,
        "responseId": "kRwhaYC8Eqig1PIP0ZuQ6Ac",
    }


def blocked(reason: str) -> dict[str, object]:
    """The prompt itself was refused: no candidates."""
    return {"promptFeedback": {"blockReason": reason}, "usageMetadata": usage(candidates=0), "modelVersion": MODEL}


def error(code: int, status: str, words: str, *details: dict[str, object]) -> dict[str, object]:
    return {"error": {"code": code, "message": words, "status": status, "details": list(details)}}


def quota(*quota_ids: str, retry_delay: str | None = None) -> dict[str, object]:
    """429: its words are the same for the quota of a minute and of a day."""
    violations = [
        {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": quota_id,
            "quotaDimensions": {"location": "global", "model": MODEL},
            "quotaValue": "15",
        }
        for quota_id in quota_ids
    ]
    details: list[dict[str, object]] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations},
        {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"url": "https://ai.google.dev/gemini-api/docs/rate-limits"}]},
    ]
    if retry_delay:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": retry_delay})
    words = "You exceeded your current quota, please check your plan and billing details."
    return error(429, "RESOURCE_EXHAUSTED", words, *details)


class _Part(msgspec.Struct):
    text: str


class _Content(msgspec.Struct):
    parts: list[_Part]


class _Config(msgspec.Struct, rename="camel"):
    response_json_schema: dict[str, object] | None = None


class _Request(msgspec.Struct, rename="camel"):
    contents: list[_Content]
    generation_config: _Config


def play(http_request: Asked) -> Reply:
    """In the form that was asked for; tokens are characters / 4, of the request's body as it was sent and of the answer."""
    request = msgspec.json.decode(http_request.body, type=_Request)
    answer = answer_to(request.contents[-1].parts[0].text, "json" if request.generation_config.response_json_schema else "xml")
    used = usage(prompt=tokens(http_request.body.decode()), candidates=tokens(answer))
    return json_reply(content(thought(), part(answer), used=used))
