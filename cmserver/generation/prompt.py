"""Builds a provider's prompt from claimed jobs: their events with tags, and what the session has recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cmserver.access.model import SKIP_RULE_PREFIXES, GenerationPolicy
from cmserver.base.ids import epoch_ms
from cmserver.base.structs import reshape
from cmserver.base.tolerant_json import field, record
from cmserver.generation.model import ClaimedJob, ReportedEvent
from cmserver.generation.skip_rules import find_skip_rule
from cmserver.models.providers.model import PriorObservation, Prompt, RecordingPreferences, Verbosity
from cmserver.observations.model import Observation
from cmserver.reading.background import BackgroundShells
from cmserver.reading.model import UNKNOWN_BRANCH, Branch, CommandResult, EventReading
from cmserver.reading.read import read_event
from cmserver.rules.model import SessionRecord
from cmserver.sessions.turns.model import SessionPrompt
from cmserver.tooluse.model import ToolUse, WorkingFolder, find_working_folder

log: FilteringBoundLogger = structlog.get_logger(__name__)

LANGUAGE = "English"
"""Of observations, where neither the project nor its team says one."""
MAX_PRIOR_OBSERVATIONS = 50
"""The newest ones of the session."""
MAX_OPEN_ENDS = 50
"""The newest ones of the project."""
MAX_REQUESTS = 20
"""The user's first request and the newest."""
MAX_REQUEST_CHARS = 4_000


class SessionContext(msgspec.Struct, frozen=True, kw_only=True):
    """Context from the jobs' session; the last two only for its summary."""

    prompts: Sequence[SessionPrompt] = ()
    observations: Sequence[Observation] = ()
    open_ends: Sequence[Observation] = ()
    """What is open in the project, oldest first."""
    closed_elsewhere: Collection[int] = ()
    """The numbers of the turns of other sessions that have closed some of the session's observations."""
    last_message: str | None = None
    earlier_summary: str | None = None
    events: int = 0


def record_of_session(session: SessionContext) -> SessionRecord:
    """What the session had asked for and recorded until then, as it knew it: not what other sessions did meanwhile or before."""
    recorded = [_prior_observation(observation) for observation in session.observations]
    others = {it.number for it in session.observations if it.closed_by in session.closed_elsewhere}
    own = {it.number for it in recorded}
    open_ends = map(_prior_observation, session.open_ends)
    return SessionRecord(
        requests=[prompt.text for prompt in session.prompts],
        recorded=[msgspec.structs.replace(it, state="open") if it.number in others else it for it in recorded],
        # Their commands say which failures end: settle_failures sees to those of other sessions.
        open_ends=[it if it.number in own else msgspec.structs.replace(it, commands=[]) for it in open_ends],
        last_message=session.last_message,
    )


def build_prompt(
    jobs: Sequence[ClaimedJob],
    readings: Mapping[UUID, EventReading],
    root: str | None,
    session: SessionContext,
    *,
    language: str,
    verbosity: Verbosity = "normal",
    names_entities: bool = False,
    event_tokens: int,
) -> Prompt:
    """The prompt for a batch of events or for one summary."""
    first = jobs[0]
    preferences = resolve_preferences(first.policy, first.team_policy, language=language, verbosity=verbosity)
    return reshape(
        record_of_session(session),
        Prompt,
        kind="summary" if first.source_type == "session_summary" else "observations",
        project=first.project_name,
        root=root,
        earlier_summary=session.earlier_summary,
        events=[readings[job.id] for job in jobs if job.id in readings],
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


def excluding_rule(job: ClaimedJob, use: ToolUse | None) -> str | None:
    """The skip rule of the project or team that excludes the job's tool use, or None."""
    rules = [*job.team_policy.skip_rules, *job.policy.skip_rules]
    if not rules or use is None:
        return None
    return find_skip_rule(rules, use, _find_folder([job]))


def read_events(jobs: Sequence[ReportedEvent], root: str | None) -> dict[UUID, EventReading]:
    """What the events say, by id; each is read once for all that is made of it. What cannot be read is missing."""
    readings: dict[UUID, EventReading] = {}
    shells, branch = BackgroundShells(), UNKNOWN_BRANCH
    for job in jobs:
        if job.event_type is not None:
            at = epoch_ms(job.occurred_at or job.created_at)
            branch = Branch(job.branch, is_told=True) if job.branch else branch
            try:
                reading = read_event(job.event_type, job.payload, root, occurred_at_epoch=at, branch=branch, shells=shells)
                readings[job.id], branch = reading, reading.branch
            except Exception:
                log.exception("event.unreadable", id=str(job.id))
    return readings


def command_results(metadata: dict[str, object]) -> list[CommandResult]:
    """The command results in an observation's metadata; empty when people gave `commands` there another meaning."""
    try:
        return msgspec.convert(metadata.get("commands", []), list[CommandResult])
    except msgspec.ValidationError:
        return []


def find_root(jobs: Sequence[ReportedEvent]) -> str | None:
    """What paths are shown from: the root that the session's client named, else the first folder that an event names."""
    return _find_folder(jobs).root or None


def _find_folder(jobs: Sequence[ReportedEvent]) -> WorkingFolder:
    cwd = next((folder for job in jobs if (folder := field(record(job.payload), "cwd"))), None)
    return find_working_folder(next((job.root for job in jobs if job.root), None), cwd)


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
