"""How well a provider sees what is worth keeping: the labelled set through generation's own prompt and parser, no database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec

from cmserver.access.model import GenerationPolicy
from cmserver.generation.answers.files import changed_files
from cmserver.generation.answers.model import Parsed
from cmserver.generation.answers.parse import parse
from cmserver.generation.evaluate.cases import cases, payload
from cmserver.generation.evaluate.model import Case, Judged, Report
from cmserver.generation.model import HeldJob
from cmserver.generation.prompt import Session, build
from cmserver.providers.failures import in_prose
from cmserver.providers.model import Completion, FailureKind, Prompt, Provider, ProviderError, Recorded, Verbosity
from cmserver.providers.prices import charged
from cmserver.providers.rules.text import relative
from cmserver.sessions.model import SessionPrompt

_BEGAN = datetime(2026, 11, 20, 9, tzinfo=UTC)
_EVENT_TOKENS = 16_000


class _Asked(msgspec.Struct, kw_only=True):
    """One call and what came of it."""

    case: Case
    jobs: list[HeldJob]
    completion: Completion | None = None
    parsed: Parsed | None = None
    error: str = ""


async def evaluate(
    provider: Provider,
    *,
    given: Sequence[Case] | None = None,
    verbosity: Verbosity = "normal",
    language: str = "English",
    event_tokens: int = _EVENT_TOKENS,
    timeout_seconds: float = 120.0,
) -> Report:
    """One call for each session, one after the other. What a call fails with is in the report: no ProviderError leaves this."""
    policy = GenerationPolicy(verbosity=verbosity, language=language)
    asked: list[_Asked] = []
    for case in cases() if given is None else given:
        one = _Asked(case=case, jobs=_jobs(case, policy))
        await _ask(provider, one, language, event_tokens, timeout_seconds)
        asked.append(one)
    judged = [event for one in asked for event in _judged(one)]
    return _report(provider, verbosity, language, asked, judged)


async def _ask(provider: Provider, one: _Asked, language: str, event_tokens: int, timeout_seconds: float) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            one.completion = await provider.complete(_prompt(one.case, one.jobs, language, event_tokens))
        changed = {job.id: changed_files(job.payload, one.case.cwd) for job in one.jobs}
        try:
            one.parsed = parse(one.completion.text, [job.id for job in one.jobs], changed)
        except ProviderError as error:
            raise in_prose(provider.name, one.completion.text) or error from None
    except TimeoutError:
        one.error = f"{FailureKind.TRANSIENT.value}: {provider.name} did not answer within {timeout_seconds:g} seconds."
    except ProviderError as error:
        one.completion = one.completion or error.completion
        one.error = f"{error.kind.value}: {error}"


def _prompt(case: Case, jobs: list[HeldJob], language: str, event_tokens: int) -> Prompt:
    prompts = [
        SessionPrompt(prompt_number=number, text=text, created_at=_BEGAN) for number, text in enumerate(case.requests, start=1)
    ]
    built = build(jobs, Session(prompts=prompts), language=language, event_tokens=event_tokens)
    recorded = [Recorded(number=one.number, type=one.type, title=one.title) for one in case.recorded]
    return msgspec.structs.replace(built, recorded=recorded)


def _jobs(case: Case, policy: GenerationPolicy) -> list[HeldJob]:
    """The jobs that a worker would hold. Their ids are their places: nothing is stored."""
    return [
        HeldJob(
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
            unreached_times=0,
        )
        for place, event in enumerate(case.events, start=1)
    ]


def _judged(one: _Asked) -> list[Judged]:
    found = one.parsed.observations if one.parsed else []
    judged: list[Judged] = []
    for job, event in zip(one.jobs, one.case.events, strict=True):
        drafts = [worded.draft for worded in found if job.id in worded.job_ids]
        named = [relative(path, one.case.cwd) for draft in drafts for path in [*draft.files_modified, *draft.files_read]]
        judged.append(
            Judged(
                session=one.case.name,
                event=" ".join(event.shown.split())[:80],
                label=event.label,
                types=event.types,
                files=event.files,
                asked=one.parsed is not None,
                kept=bool(drafts),
                types_given=[draft.type for draft in drafts],
                files_given=list(dict.fromkeys(named)),
                reason=one.parsed.reasons.get(job.id) if one.parsed else None,
            )
        )
    return judged


def _report(provider: Provider, verbosity: str, language: str, asked: list[_Asked], judged: list[Judged]) -> Report:
    right = [one for one in judged if one.label == "keep" and one.kept]
    missed = sum(one.label == "keep" and not one.kept for one in judged)
    wrong = sum(one.label == "skip" and one.kept for one in judged)
    precision, recall = _ratio(len(right), len(right) + wrong), _ratio(len(right), len(right) + missed)
    completions = [one.completion for one in asked if one.completion is not None]
    cached = sum(one.cache_read_tokens for one in completions)
    return Report(
        provider=provider.name,
        model=completions[0].model if completions else provider.model,
        verbosity=verbosity,
        language=language,
        events=sum(one.label != "either" for one in judged),
        right_kept=len(right),
        wrong_kept=wrong,
        right_skipped=sum(one.label == "skip" and not one.kept for one in judged),
        missed=missed,
        precision=precision,
        recall=recall,
        f1=_ratio(2 * len(right), 2 * len(right) + wrong + missed),
        type_accuracy=_ratio(sum(one.right_type for one in right), len(right)),
        file_recall=_ratio(sum(one.files_named for one in right), sum(len(one.files) for one in right)),
        observations=sum(len(one.parsed.observations) for one in asked if one.parsed),
        calls=len(asked),
        failed_calls=sum(one.parsed is None for one in asked),
        cut_calls=sum(one.truncated for one in completions),
        input_tokens=sum(one.input_tokens + one.cache_read_tokens + one.cache_write_tokens for one in completions),
        cached_tokens=cached,
        output_tokens=sum(one.output_tokens for one in completions),
        cost_usd=_cost(provider, completions),
        failures={one.case.name: one.error for one in asked if one.parsed is None},
        judged=judged,
    )


def _cost(provider: Provider, completions: list[Completion]) -> Decimal | None:
    if provider.name == "offline":
        return Decimal(0)
    prices = [charged(provider.name, one) for one in completions]
    known = [price for price in prices if price is not None]
    return sum(known, Decimal(0)) if len(known) == len(prices) else None


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None
