"""From stored events to a provider's prompt: tags, tool uses lifted out of their payloads, what the session has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from cmserver.base.ids import epoch_ms
from cmserver.generation.model import HeldJob
from cmserver.generation.skipping import skipped
from cmserver.generation.wishes import wishes
from cmserver.observations.model import Observation
from cmserver.providers.model import Prompt, PromptEvent, Recorded
from cmserver.sessions.model import SessionPrompt

RECORDED_LINES = 50
"""How much of what a session has recorded a prompt shows; its newest."""
REQUESTS = 20
REQUEST_CHARS = 4_000
"""How many of the user's requests a prompt shows (the first and the newest), and how much of each."""
_AGENT_CHARS = 128


def tag(place: int) -> str:
    """How the answer names the event at this place of the batch (from 0): e1, e2 ..."""
    return f"e{place + 1}"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the jobs' session; the last three for its summary only."""

    prompts: Sequence[SessionPrompt] = ()
    recorded: Sequence[Observation] = ()
    last_message: str | None = None
    earlier_summary: str | None = None
    events: int = 0


def build(jobs: Sequence[HeldJob], session: Session, *, language: str, event_tokens: int) -> Prompt:
    """The prompt of a batch of events, or of one summary.

    Of events the last request is the one that was current when the last of them arrived.
    """
    first = jobs[0]
    is_summary = first.source_type == "session_summary"
    current = max((job.prompt_number or 0 for job in jobs), default=0)
    return Prompt(
        kind="summary" if is_summary else "observations",
        project=first.project_name,
        root=root_of(jobs),
        requests=[prompt.text for prompt in session.prompts if is_summary or prompt.prompt_number <= current],
        recorded=[_recorded(one) for one in session.recorded],
        last_message=session.last_message,
        earlier_summary=session.earlier_summary,
        events=[] if is_summary else [_event(place, job) for place, job in enumerate(jobs)],
        events_in_session=session.events,
        wishes=wishes(first.policy, first.team_policy, language),
        event_tokens=event_tokens,
    )


def forbidden(job: HeldJob) -> str | None:
    """The skip rule of its project or team that forbids to record the event; None when none does."""
    rules = [*job.team_policy.skip_rules, *job.policy.skip_rules]
    if not rules or job.source_type != "agent_event":
        return None
    return skipped(rules, _event(0, job), root_of([job]))


def payload_of(job: HeldJob) -> dict[str, object]:
    """The event's payload when it is an object, else an empty one."""
    payload = job.payload
    return cast("dict[str, object]", payload) if isinstance(payload, dict) else {}


def _event(place: int, job: HeldJob) -> PromptEvent:
    payload = payload_of(job)
    name = payload.get("tool_name")
    error = payload.get("error")
    is_tool = isinstance(name, str)
    return PromptEvent(
        tag=tag(place),
        event_type=job.event_type or "unknown",
        occurred_at_epoch=epoch_ms(job.occurred_at or job.created_at),
        tool_name=name if isinstance(name, str) else None,
        tool_input=payload.get("tool_input") if is_tool else None,
        tool_response=payload.get("tool_response", payload.get("tool_output")) if is_tool else None,
        error=error if is_tool and isinstance(error, str) else None,
        payload=None if is_tool else job.payload,
        agent=agent_of(job).get("agent_type"),
    )


def agent_of(job: HeldJob) -> dict[str, str]:
    """The sub-agent that did it, as its hook told: `agent_id` and `agent_type`. Empty for the session's own agent."""
    payload = payload_of(job)
    named = {name: payload.get(name, payload.get(older)) for name, older in (("agent_id", "agentId"), ("agent_type", "agentType"))}
    return {name: text[:_AGENT_CHARS] for name, text in named.items() if isinstance(text, str) and text}


def root_of(jobs: Sequence[HeldJob]) -> str | None:
    """The working folder of the agent, where an event tells it."""
    for job in jobs:
        cwd = payload_of(job).get("cwd")
        if isinstance(cwd, str) and cwd:
            return cwd
    return None


def _recorded(one: Observation) -> Recorded:
    return Recorded(
        number=one.number,
        type=one.type,
        title=one.title or one.content[:100],
        facts=one.facts or [],
        files_read=one.files_read or [],
        files_modified=one.files_modified or [],
    )
