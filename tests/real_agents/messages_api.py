"""Anthropic's Messages API as real clients of it call it: streamed answers from a script, and a note of everything that was asked.

Any path is answered, and all of them are recorded: what a client does besides is to be seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tests.models.providers.fake.server import Asked, Reply, json_reply

MESSAGES: Final = "/v1/messages"

_USAGE: Final = {"input_tokens": 90, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}


def text(words: str) -> dict[str, object]:
    return {"type": "text", "text": words}


def tool_use(name: str, given: Mapping[str, object], identifier: str = "toolu_1") -> dict[str, object]:
    return {"type": "tool_use", "id": identifier, "name": name, "input": dict(given)}


def streamed(
    *blocks: dict[str, object],
    stop_reason: str | None = None,
    usage: Mapping[str, int] | None = None,
    model: str = "claude-haiku-5-5",
) -> Reply:
    """One assistant message as a stream of server-sent events."""
    events = _events(blocks, stop_reason or _usual_stop(blocks), {**_USAGE, **(usage or {})}, model)
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return Reply(headers={"content-type": "text/event-stream", "request-id": "req_played"}, body=body.encode())


def failed(status: int, kind: str, message: str, **headers: str) -> Reply:
    """An answer with an error status, in the API's shape. `x-should-retry: false` has clients give up at once."""
    return json_reply(
        {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_played"},
        status=status,
        x_should_retry="false",
        **headers,
    )


def is_for_the_model(asked: Asked) -> bool:
    return asked.method == "POST" and asked.path.partition("?")[0] == MESSAGES


class Script:
    """Plays its replies in order to the requests for the model, then the last one for ever; anything else is not found."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)

    def __call__(self, asked: Asked) -> Reply:
        if not is_for_the_model(asked):
            return failed(404, "not_found_error", "Not found")
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def _usual_stop(blocks: Sequence[dict[str, object]]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _events(
    blocks: Sequence[dict[str, object]], stop_reason: str, usage: Mapping[str, int], model: str
) -> Iterator[dict[str, object]]:
    message: dict[str, object] = {"id": "msg_played", "type": "message", "role": "assistant", "model": model, "content": []}
    yield {
        "type": "message_start",
        "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}},
    }
    for index, block in enumerate(blocks):
        if block["type"] == "tool_use":
            yield {"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}}
            delta: dict[str, object] = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
            delta = {"type": "text_delta", "text": block["text"]}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": None}, "usage": dict(usage)}
    yield {"type": "message_stop"}
