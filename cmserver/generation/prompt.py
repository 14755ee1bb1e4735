"""Builds a provider's prompt from claimed jobs: their events with tags, and what the session has recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from cmserver.access.model import SKIP_RULE_PREFIXES, GenerationPolicy
from cmserver.base.ids import epoch_ms
from cmserver.events.model import PROMPT_TYPES
from cmserver.generation.model import ClaimedJob
from cmserver.generation.skip_rules import find_skip_rule
from cmserver.observations.model import Observation
from cmserver.providers.model import CommandResult, PriorObservation, Prompt, PromptEvent, RecordingPreferences, Verbosity
from cmserver.rules.acts import read_command_results
from cmserver.sessions.turns.model import SessionPrompt
from cmserver.tooluse.model import ToolKind
from cmserver.tooluse.read import TOOL_KINDS
from cmserver.tooluse.text import join_root

MAX_PRIOR_OBSERVATIONS = 50
"""The newest ones of the session."""
MAX_OPEN_ENDS = 50
"""The newest ones of the project."""
MAX_REQUESTS = 20
"""The user's first request and the newest."""
MAX_REQUEST_CHARS = 4_000
_MAX_AGENT_CHARS = 128
_MIN_QUOTED_CHARS = 8
_MAX_QUOTED_CHARS = 100_000
"""The part of an event in which a quote is looked for."""


class SessionContext(msgspec.Struct, frozen=True, kw_only=True):
    """Context from the jobs' session; the last two only for its summary."""

    prompts: Sequence[SessionPrompt] = ()
    observations: Sequence[Observation] = ()
    open_ends: Sequence[Observation] = ()
    """What is open in the project, oldest first."""
    last_message: str | None = None
    earlier_summary: str | None = None
    events: int = 0


def build_prompt(
    jobs: Sequence[ClaimedJob],
    session: SessionContext,
    *,
    language: str,
    verbosity: Verbosity = "normal",
    names_entities: bool = False,
    event_tokens: int,
) -> Prompt:
    """The prompt for a batch of events or for one summary. For events, requests made after the last event are left out."""
    first = jobs[0]
    is_summary = first.source_type == "session_summary"
    preferences = resolve_preferences(first.policy, first.team_policy, language=language, verbosity=verbosity)
    current = max((job.prompt_number or 0 for job in jobs), default=0)
    return Prompt(
        kind="summary" if is_summary else "observations",
        project=first.project_name,
        root=find_root(jobs),
        requests=[prompt.text for prompt in session.prompts if is_summary or prompt.prompt_number <= current],
        recorded=[_prior_observation(observation) for observation in session.observations],
        open_ends=[_prior_observation(observation) for observation in session.open_ends],
        last_message=session.last_message,
        earlier_summary=session.earlier_summary,
        events=[] if is_summary else [prompt_event(number, job) for number, job in enumerate(jobs, start=1)],
        events_in_session=session.events,
        preferences=msgspec.structs.replace(preferences, names_entities=names_entities),
        event_tokens=event_tokens,
    )


def resolve_preferences(
    project: GenerationPolicy, team: GenerationPolicy, *, language: str, verbosity: Verbosity
) -> RecordingPreferences:
    """The project's policy, else the team's, else the settings. Skip rules add up; those that code enforces are left out."""
    return RecordingPreferences(
        verbosity=project.verbosity or team.verbosity or verbosity,
        language=project.language or team.language or language,
        skip_rules=[
            rule for rule in dict.fromkeys([*team.skip_rules, *project.skip_rules]) if not rule.startswith(SKIP_RULE_PREFIXES)
        ],
    )


def excluding_rule(job: ClaimedJob) -> str | None:
    """The skip rule of the project or team that excludes the job's event, or None."""
    rules = [*job.team_policy.skip_rules, *job.policy.skip_rules]
    if not rules or job.source_type != "agent_event":
        return None
    return find_skip_rule(rules, prompt_event(1, job), find_root([job]))


def _event_payload(job: ClaimedJob) -> dict[str, object]:
    """The event's payload if it is an object, else an empty one."""
    payload = job.payload
    return cast("dict[str, object]", payload) if isinstance(payload, dict) else {}


def prompt_event(number: int, job: ClaimedJob) -> PromptEvent:
    """The event of a job as prompts show it; `number` is its place in the batch."""
    payload = _event_payload(job)
    name = payload.get("tool_name")
    error = payload.get("error")
    is_tool = isinstance(name, str)
    return PromptEvent(
        tag=f"e{number}",
        event_type=job.event_type or "unknown",
        occurred_at_epoch=epoch_ms(job.occurred_at or job.created_at),
        tool_name=name if isinstance(name, str) else None,
        tool_input=payload.get("tool_input") if is_tool else None,
        tool_response=payload.get("tool_response", payload.get("tool_output")) if is_tool else None,
        error=error if is_tool and isinstance(error, str) else None,
        payload=None if is_tool else job.payload,
        agent=agent_of(job).get("agent_type"),
    )


def agent_of(job: ClaimedJob) -> dict[str, str]:
    """`agent_id` and `agent_type` of the sub-agent that caused the event. Empty for the session's own agent."""
    payload = _event_payload(job)
    named = {name: payload.get(name, payload.get(older)) for name, older in (("agent_id", "agentId"), ("agent_type", "agentType"))}
    return {name: text[:_MAX_AGENT_CHARS] for name, text in named.items() if isinstance(text, str) and text}


def is_by_user(job: ClaimedJob) -> bool:
    """Whether the job's event is what a user said: a prompt, or the answer to a question of the agent's."""
    name = _event_payload(job).get("tool_name")
    return job.event_type in PROMPT_TYPES or (isinstance(name, str) and TOOL_KINDS.get(name) is ToolKind.QUESTION)


def find_quoted_job(quote: str | None, jobs: Sequence[ClaimedJob]) -> ClaimedJob | None:
    """The job whose event says the quote word by word, white space aside; None when none does. Last words come first."""
    if not quote:
        return None
    wanted = _squeeze(quote.removesuffix("…"))
    if len(wanted) < _MIN_QUOTED_CHARS:
        return None
    texts = ((job, "\n".join(_texts(job.payload))[:_MAX_QUOTED_CHARS]) for job in reversed(jobs))
    return next((job for job, text in texts if wanted in _squeeze(text)), None)


def _squeeze(text: str) -> str:
    """The text without white space and Markdown's emphasis, which a quote leaves out."""
    return re.sub(r"[\s*_`]+", "", text)


def _texts(value: object) -> Iterator[str]:
    """Every text in a payload."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, object]", value).values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _texts(inner)


def command_results_metadata(jobs: Sequence[ClaimedJob]) -> dict[str, object]:
    """The metadata `commands`: how the commands ended that the events ran. Empty when they ran none."""
    results = read_command_results([prompt_event(number, job) for number, job in enumerate(jobs, start=1)], find_root(jobs))
    return {"commands": msgspec.to_builtins(results)} if results else {}


def command_results(metadata: dict[str, object]) -> list[CommandResult]:
    """The command results in an observation's metadata; empty when people gave `commands` there another meaning."""
    try:
        return msgspec.convert(metadata.get("commands", []), list[CommandResult])
    except msgspec.ValidationError:
        return []


def find_root(jobs: Sequence[ClaimedJob]) -> str | None:
    """What paths are relative to: the root that their session's client named, and the folder that an event names."""
    folders = (_event_payload(job).get("cwd") for job in jobs)
    cwd = next((folder for folder in folders if isinstance(folder, str) and folder), None)
    return join_root(next((job.root for job in jobs if job.root), None), cwd)


def _prior_observation(observation: Observation) -> PriorObservation:
    return PriorObservation(
        number=observation.number,
        type=observation.type,
        title=observation.title or observation.content[:100],
        facts=observation.facts or [],
        files_read=observation.files_read or [],
        files_modified=observation.files_modified or [],
        commands=command_results(observation.metadata),
        quote=observation.quote,
        anchors=observation.anchors or [],
        state=observation.state,
    )
