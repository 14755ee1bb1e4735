"""Measures a provider on the labelled set, with the prompt and the parser that workers use; needs no database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec

from cmserver.access.model import GenerationPolicy
from cmserver.generation.model import ClaimedJob
from cmserver.generation.prompt import SessionContext, build_prompt, read_events
from cmserver.models.providers.failures import find_error_in_prose
from cmserver.models.providers.model import (
    Completion,
    FailureKind,
    PriorObservation,
    Prompt,
    Provider,
    ProviderError,
    Verbosity,
    event_tag,
)
from cmserver.models.providers.prices import compute_cost
from cmserver.reading.model import EventReading
from cmserver.sessions.turns.model import SessionPrompt
from cmserver.tooluse.model import WorkingFolder
from tests.answers.read import ReadAnswer, read_answer
from tests.evaluation.cases import Case, Label, cases, payload

_BEGAN = datetime(2026, 11, 20, 9, tzinfo=UTC)
_EVENT_TOKENS = 16_000


class EventResult(msgspec.Struct, frozen=True, kw_only=True):
    """One event: its label, and what the provider made of it."""

    session: str
    event: str
    """The event in a few words."""
    label: Label
    types: list[str]
    files: list[str]
    asked: bool
    """False when the call for its session failed."""
    kept: bool
    """At least one observation names it."""
    types_given: list[str]
    files_given: list[str]
    reason: str | None
    """Why it was skipped, if the provider gave a reason."""

    @property
    def right_type(self) -> bool:
        return bool(set(self.types) & set(self.types_given))

    @property
    def files_named(self) -> int:
        return len(set(self.files) & set(self.files_given))


class EvaluationReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a provider did on the labelled set. A ratio is None when its divisor is 0."""

    provider: str
    model: str
    verbosity: str
    language: str
    events: int
    """Events labelled keep or skip; the others are not counted."""
    right_kept: int
    wrong_kept: int
    right_skipped: int
    missed: int
    precision: float | None
    recall: float | None
    f1: float | None
    type_accuracy: float | None
    """Share of the rightly kept events that have an observation of a right type."""
    file_recall: float | None
    """Share of the files of those events that their observations name."""
    observations: int
    calls: int
    failed_calls: int
    """Their events count as not kept."""
    cut_calls: int
    """Answers that reached the output-token limit."""
    input_tokens: int
    """Includes those read from or written to a cache."""
    cached_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    """None when the price of one of the calls is unknown."""
    failures: dict[str, str]
    """The error of each session whose call failed."""
    judged: list[EventResult]


class _Call(msgspec.Struct, kw_only=True):
    """One call and its result."""

    case: Case
    jobs: list[ClaimedJob]
    completion: Completion | None = None
    parsed: ReadAnswer | None = None
    error: str = ""


async def evaluate(
    provider: Provider,
    *,
    sessions: Sequence[Case] | None = None,
    verbosity: Verbosity = "normal",
    language: str = "English",
    event_tokens: int = _EVENT_TOKENS,
    timeout_seconds: float = 120.0,
    show_progress: Callable[[int], None] = lambda _: None,
) -> EvaluationReport:
    """Make one call per session, one after the other. A failed call is reported, not raised."""
    policy = GenerationPolicy(verbosity=verbosity, language=language)
    calls = [_Call(case=case, jobs=_jobs(case, policy)) for case in (cases() if sessions is None else sessions)]
    for done, call in enumerate(calls):
        show_progress(done)
        await _complete(provider, call, language, event_tokens, timeout_seconds)
    return _report(provider, verbosity, language, calls, [result for call in calls for result in _event_results(call)])


async def _complete(provider: Provider, call: _Call, language: str, event_tokens: int, timeout_seconds: float) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            call.completion = await provider.complete(_prompt(call.case, call.jobs, language, event_tokens))
        readings = _readings(call.case, call.jobs)
        changed = {event_tag(place): readings[job.id].changed_files for place, job in enumerate(call.jobs)}
        try:
            call.parsed = read_answer(call.completion.text, changed)
        except ProviderError as error:
            raise find_error_in_prose(provider.name, call.completion.text) or error from None
    except TimeoutError:
        call.error = f"{FailureKind.TRANSIENT.value}: {provider.name} did not answer within {timeout_seconds:g} seconds."
    except ProviderError as error:
        call.completion = call.completion or error.completion
        call.error = f"{error.kind.value}: {error}"


def _readings(case: Case, jobs: Sequence[ClaimedJob]) -> dict[UUID, EventReading]:
    return read_events(jobs, case.cwd)


def _prompt(case: Case, jobs: list[ClaimedJob], language: str, event_tokens: int) -> Prompt:
    prompts = [
        SessionPrompt(session_id=UUID(int=0), prompt_number=number, text=text, created_at=_BEGAN)
        for number, text in enumerate(case.requests, start=1)
    ]
    session = SessionContext(prompts=prompts)
    built = build_prompt(jobs, _readings(case, jobs), case.cwd, session, language=language, event_tokens=event_tokens)
    recorded = [PriorObservation(number=prior.number, type=prior.type, title=prior.title) for prior in case.recorded]
    return msgspec.structs.replace(built, recorded=recorded)


def _jobs(case: Case, policy: GenerationPolicy) -> list[ClaimedJob]:
    """The jobs that a worker would claim, numbered from 1: nothing is stored."""
    return [
        ClaimedJob(
            id=UUID(int=place),
            seq=place,
            team_id=UUID(int=0),
            project_id=UUID(int=0),
            lane=UUID(int=0),
            source_type="agent_event",
            source_id=UUID(int=place),
            source_run=1,
            agent_event_id=UUID(int=place),
            server_session_id=UUID(int=0),
            attempts=1,
            max_attempts=1,
            api_key_id=None,
            actor_id=None,
            request_id=None,
            generation_run_id=None,
            job_payload=None,
            created_at=_BEGAN + timedelta(seconds=20 * place),
            event_type="tool_use_failure" if event.failed else "tool_use",
            payload=payload(case, event),
            occurred_at=_BEGAN + timedelta(seconds=20 * place),
            origin=case.agent,
            prompt_number=len(case.requests),
            project_name=case.project,
            project_open=True,
            policy=policy,
            team_policy=GenerationPolicy(),
            key_revoked=False,
            key_expired=False,
            key_scopes=None,
            key_project_id=None,
            unreached_times=0,
        )
        for place, event in enumerate(case.events, start=1)
    ]


def _event_results(call: _Call) -> list[EventResult]:
    parsed = call.parsed or ReadAnswer()
    results: list[EventResult] = []
    for place, event in enumerate(call.case.events):
        drafts = parsed.cites(event_tag(place))
        folder = WorkingFolder(call.case.cwd)
        named = [folder.relative(path) for draft in drafts for path in [*draft.files_modified, *draft.files_read]]
        results.append(
            EventResult(
                session=call.case.name,
                event=" ".join(event.shown.split())[:80],
                label=event.label,
                types=event.types,
                files=event.files,
                asked=call.parsed is not None,
                kept=bool(drafts),
                types_given=[draft.type for draft in drafts],
                files_given=list(dict.fromkeys(named)),
                reason=parsed.reasons.get(event_tag(place)),
            )
        )
    return results


def _report(provider: Provider, verbosity: str, language: str, calls: list[_Call], judged: list[EventResult]) -> EvaluationReport:
    right = [event for event in judged if event.label == "keep" and event.kept]
    missed = sum(event.label == "keep" and not event.kept for event in judged)
    wrong = sum(event.label == "skip" and event.kept for event in judged)
    precision, recall = _ratio(len(right), len(right) + wrong), _ratio(len(right), len(right) + missed)
    completions = [call.completion for call in calls if call.completion is not None]
    cached = sum(completion.cache_read_tokens for completion in completions)
    return EvaluationReport(
        provider=provider.name,
        model=completions[0].model if completions else provider.model,
        verbosity=verbosity,
        language=language,
        events=sum(event.label != "either" for event in judged),
        right_kept=len(right),
        wrong_kept=wrong,
        right_skipped=sum(event.label == "skip" and not event.kept for event in judged),
        missed=missed,
        precision=precision,
        recall=recall,
        f1=_ratio(2 * len(right), 2 * len(right) + wrong + missed),
        type_accuracy=_ratio(sum(event.right_type for event in right), len(right)),
        file_recall=_ratio(sum(event.files_named for event in right), sum(len(event.files) for event in right)),
        observations=sum(len(call.parsed.observations) for call in calls if call.parsed),
        calls=len(calls),
        failed_calls=sum(call.parsed is None for call in calls),
        cut_calls=sum(completion.truncated for completion in completions),
        input_tokens=sum(
            completion.input_tokens + completion.cache_read_tokens + completion.cache_write_tokens for completion in completions
        ),
        cached_tokens=cached,
        output_tokens=sum(completion.output_tokens for completion in completions),
        cost_usd=_total_cost(provider, completions),
        failures={call.case.name: call.error for call in calls if call.parsed is None},
        judged=judged,
    )


def _total_cost(provider: Provider, completions: list[Completion]) -> Decimal | None:
    if provider.name == "offline":
        return Decimal(0)
    prices = [compute_cost(provider.name, completion) for completion in completions]
    priced = [price for price in prices if price is not None]
    return sum(priced, Decimal(0)) if len(priced) == len(prices) else None


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def count_by_type(report: EvaluationReport) -> Sequence[tuple[str, int, int, int]]:
    """Per right type of the events to keep: events, kept events, events kept with a right type."""
    events = [event for event in report.judged if event.label == "keep"]
    by_name = {
        name: [event for event in events if name in event.types] for name in sorted({t for event in events for t in event.types})
    }
    return [
        (name, len(events), sum(event.kept for event in events), sum(event.right_type for event in events))
        for name, events in by_name.items()
    ]


def format_percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}".replace("%", " %")
