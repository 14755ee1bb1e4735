"""OpenAI's chat completions as real clients of them call it: streamed answers from a script, and a note of what was asked."""

from __future__ import annotations

import json
from typing import cast

from tests.models.providers.fake.server import Asked, Reply, json_reply

Line = str | dict[str, object]
"""What the model says next: words, or a tool call as `call` makes it."""


def call(name: str, **given: object) -> dict[str, object]:
    return {"name": name, "arguments": json.dumps(given)}


class ChatModel:
    """Plays its lines to whoever offers it tools; without any it says that it is done."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.heard: list[str] = []
        """Each request of the agent's own, as JSON."""

    def __call__(self, asked: Asked) -> Reply:
        if asked.method == "GET":
            return json_reply({"object": "list", "data": [{"id": "played", "object": "model"}]})
        if not asked.json.get("tools"):
            return streamed("Refunds")
        self.heard.append(json.dumps(asked.json, ensure_ascii=False))
        return streamed(self.lines.pop(0) if self.lines else "All done.")

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the newest request offers."""
        tools = cast("list[dict[str, dict[str, str]]]", json.loads(self.heard[-1])["tools"])
        return [tool["function"]["name"] for tool in tools]


def streamed(line: Line) -> Reply:
    """One answer as a stream of server-sent events."""
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "played"}
    if isinstance(line, str):
        delta, reason = {"role": "assistant", "content": line}, "stop"
    else:
        made = {"index": 0, "id": "call_1", "type": "function", "function": line}
        delta, reason = {"role": "assistant", "content": "", "tool_calls": [made]}, "tool_calls"
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
    said = {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    nothing: dict[str, object] = {}
    ended = {**chunk, "choices": [{"index": 0, "delta": nothing, "finish_reason": reason}], "usage": usage}
    body = "".join(f"data: {part}\n\n" for part in (json.dumps(said), json.dumps(ended), "[DONE]"))
    return Reply(headers={"content-type": "text/event-stream"}, body=body.encode())
