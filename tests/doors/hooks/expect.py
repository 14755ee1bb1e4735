"""What a recorded payload must become: every field of the call, its events, and the answer, written down short."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec

from cmserver.doors.hooks.api import render_output
from cmserver.doors.hooks.model import Adapter, HookCall, HookEvent, HookReply, Moment
from cmserver.ingest.door import JOB, Arrival, find_rule
from cmserver.recall.model import SessionStart
from cmserver.tooluse.model import ToolUse
from cmserver.tooluse.read import read_tool_use

SAMPLES = Path(__file__).parent / "samples"
ROOT = "/home/alice/src/orders"
DELIVERY = "d1"
_TOOL_USES = {"tool_use", "tool_use_failure"}
BOTH = HookReply(context="what is known", message="a line")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An event that comes of a sample; by default with its payload as it came, known by the delivery."""

    type: str
    id: str = f"delivery:{DELIVERY}"
    generate: bool = False
    metadata: dict[str, object] = {}
    added: dict[str, object] = {}
    """Fields that the event has and the sample has not."""
    payload: dict[str, object] | None = None
    """The whole of it, where it is another."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The call that comes of a sample, and what the agent is answered when there is something to say."""

    kept: Kept | None
    moment: Moment = "other"
    source: SessionStart = "startup"
    prompt: str | None = None
    file: str | None = None
    is_subagent: bool = False
    metadata: dict[str, object] = {}
    context: bool = False
    message: bool = True


def sample(folder: str, name: str) -> dict[str, object]:
    return msgspec.json.decode((SAMPLES / folder / f"{name}.json").read_bytes(), type=dict[str, object])


def names(folder: str) -> list[str]:
    return sorted(path.stem for path in (SAMPLES / folder).glob("*.json"))


def find_turn(event: Kept, payload: dict[str, object]) -> str | None:
    """The id of the turn that a prompt or a reply is known by, as the agent calls it."""
    if event.type not in {"user_prompt", "assistant_message"}:
        return None
    found = payload.get("prompt_id") or payload.get("turn_id")
    return found if isinstance(found, str) else None


def _expected_tool(event: Kept, payload: dict[str, object]) -> ToolUse | None:
    return read_tool_use(str(payload["tool_name"]), payload.get("tool_input")) if event.type in _TOOL_USES else None


def gets_job(event: HookEvent) -> bool:
    """Whether something is to be made of the event, where its project says nothing against it."""
    return find_rule("job", Arrival(event_type=event.event_type, by_hook=True, tool=event.tool)).name == JOB


def expected_call(payload: dict[str, object], expected: Expected) -> HookCall:
    kept = expected.kept
    events = [
        HookEvent(
            event_type=event.type,
            payload=event.payload or {**payload, **event.added},
            source_event_id=event.id,
            identity="id" if event.id.startswith("tool:") else "turn" if find_turn(event, payload) else "moment",
            turn_id=find_turn(event, payload),
            tool=_expected_tool(event, event.payload or payload),
            metadata=event.metadata,
        )
        for event in ([kept] if kept else [])
    ]
    return HookCall(
        name=cast("str", payload["hook_event_name"]),
        session_id=cast("str", payload["session_id"]),
        cwd=ROOT,
        moment=expected.moment,
        events=events,
        source=expected.source,
        prompt=expected.prompt,
        file=expected.file,
        is_subagent=expected.is_subagent,
        metadata=expected.metadata,
    )


def expected_output(payload: dict[str, object], expected: Expected) -> dict[str, object]:
    """The answer to BOTH."""
    specific = {"hookEventName": payload["hook_event_name"], "additionalContext": BOTH.context}
    message: dict[str, object] = {"systemMessage": BOTH.message} if expected.message else {}
    return {"hookSpecificOutput": specific, **message} if expected.context else message


def answered(adapter: Adapter, call: HookCall | None, reply: HookReply) -> dict[str, object]:
    """As it goes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(render_output(adapter, call, reply)), type=dict[str, object])


def check(adapter: Adapter, folder: str, name: str, expected: Expected) -> None:
    """The sample becomes exactly the call that is expected, and is answered so with and without something to say."""
    body = sample(folder, name)

    call = adapter.parse(body, DELIVERY)

    assert call == expected_call(body, expected)
    assert [gets_job(event) for event in call.events] == ([expected.kept.generate] if expected.kept else [])
    assert answered(adapter, call, HookReply()) == {}
    assert answered(adapter, call, BOTH) == expected_output(body, expected)
