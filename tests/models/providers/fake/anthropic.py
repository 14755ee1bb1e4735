"""The Messages API of Anthropic as it answers: recorded shapes, and `play`, which answers any request of ours sensibly."""

from __future__ import annotations

import msgspec

from tests.models.providers.fake.answers import answer_to, tokens
from tests.models.providers.fake.server import Asked, Reply, json_reply

MODEL = "claude-haiku-5-5"
NO_EFFORT = "This model does not support the effort parameter."
NO_FORMAT = f"'{MODEL}' does not support output format."
NO_OUTPUT_CONFIG = "output_config: Extra inputs are not permitted"


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def thinking(words: str = "The user wants observations.") -> dict[str, object]:
    return {"type": "thinking", "thinking": words, "signature": "EqQBCgIYAhIkMTIz"}


def redacted() -> dict[str, object]:
    return {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3p"}


def usage(*, input_tokens: int = 12, output_tokens: int = 5, cache_read: int = 0, cache_write: int = 0) -> dict[str, object]:
    return {
        "input_tokens": input_tokens,
        "cache_creation_input_tokens": cache_write,
        "cache_read_input_tokens": cache_read,
        "cache_creation": {"ephemeral_5m_input_tokens": cache_write, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"thinking_tokens": 0},
        "service_tier": "standard",
        "inference_geo": "not_available",
    }


def message(
    *content: dict[str, object],
    stop_reason: str = "end_turn",
    stop_details: dict[str, object] | None = None,
    used: dict[str, object] | None = None,
) -> dict[str, object]:
    """The body of an answer with status 200."""
    return {
        "model": MODEL,
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "stop_details": stop_details,
        "usage": used or usage(),
    }


def refusal(*content: dict[str, object], category: str | None = "cyber", explanation: str | None = None) -> dict[str, object]:
    details: dict[str, object] = {"type": "refusal", "category": category, "explanation": explanation}
    return message(*content, stop_reason="refusal", stop_details=details)


def max_tokens(*content: dict[str, object]) -> dict[str, object]:
    return message(*content, stop_reason="max_tokens", used=usage(output_tokens=8192))


def error(kind: str, words: str, *, code: str | None = None) -> dict[str, object]:
    """The body of an answer with status 4xx or 5xx."""
    inner: dict[str, object] = {"type": kind, "message": words}
    if code:
        inner["details"] = {"error_code": code}
    return {"type": "error", "error": inner, "request_id": "req_011CUB2XUHWkFnQzxcKBbjpF"}


def refused(words: str, *, status: int = 400) -> Reply:
    """A request that is found wrong in itself."""
    return json_reply(error("invalid_request_error", words), status=status)


class _Format(msgspec.Struct):
    schema: dict[str, object]


class _Config(msgspec.Struct):
    format: _Format | None = None


class _Turn(msgspec.Struct):
    content: str


class _Request(msgspec.Struct):
    messages: list[_Turn]
    output_config: _Config = msgspec.field(default_factory=_Config)


def play(http_request: Asked) -> Reply:
    """What a sensible model answers, in the form that was asked for.

    Tokens are characters / 4, of the request's body as it was sent and of the answer.
    """
    request = msgspec.json.decode(http_request.body, type=_Request)
    answer = answer_to(request.messages[-1].content, "json" if request.output_config.format else "xml")
    used = usage(input_tokens=len(http_request.body.decode()) // 4, output_tokens=tokens(answer))
    return json_reply(message(thinking(), text(answer), used=used))
