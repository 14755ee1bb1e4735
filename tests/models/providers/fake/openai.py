"""Chat Completions as OpenAI, OpenRouter and Ollama answer them: recorded shapes, and `play`, which answers any request of ours."""

from __future__ import annotations

import msgspec

from tests.models.providers.fake.answers import answer_to, tokens
from tests.models.providers.fake.server import Asked, Reply, json_reply

MODEL = "gpt-6-luna"


def usage(*, prompt: int = 120, completion: int = 30, cached: int = 0, written: int = 0, **further: object) -> dict[str, object]:
    """OpenRouter's has `cost`, and more, besides."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "accepted_prediction_tokens": 0},
        **further,
    }


def message(content: object, *, refusal: str | None = None, **further: object) -> dict[str, object]:
    """`reasoning` is OpenRouter's and Ollama's, `reasoning_content` vLLM's and DeepSeek's."""
    return {"role": "assistant", "content": content, "refusal": refusal, "annotations": [], **further}


def completion(
    message: dict[str, object], *, finish_reason: str | None = "stop", used: object = None, **choice: object
) -> dict[str, object]:
    """The body of an answer with status 200."""
    return {
        "id": "chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT",
        "object": "chat.completion",
        "created": 1795000000,
        "model": f"{MODEL}-2026-09-22",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason, **choice}],
        "usage": used if used is not None else usage(),
        "service_tier": "default",
    }


def error(
    words: str, *, kind: str = "invalid_request_error", code: str | None = None, param: str | None = None
) -> dict[str, object]:
    return {"error": {"message": words, "type": kind, "param": param, "code": code}}


def refused(words: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> Reply:
    """A request that is found wrong in itself."""
    return json_reply(error(words, code=code, param=param), status=status)


def routed_error(code: int, words: str, **metadata: object) -> dict[str, object]:
    """OpenRouter's; with status 200 when the model had already begun."""
    return {"error": {"code": code, "message": words, "metadata": metadata}, "user_id": "user_2"}


class _Turn(msgspec.Struct):
    content: str


class _Request(msgspec.Struct):
    messages: list[_Turn]
    response_format: dict[str, object] | None = None


def play(http_request: Asked) -> Reply:
    """In the form that was asked for; tokens are characters / 4, of the request's body as it was sent and of the answer."""
    request = msgspec.json.decode(http_request.body, type=_Request)
    answer = answer_to(request.messages[-1].content, "json" if request.response_format else "xml")
    used = usage(prompt=tokens(http_request.body.decode()), completion=tokens(answer))
    return json_reply(completion(message(answer), used=used))
