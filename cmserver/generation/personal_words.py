"""Draws what is about a person from what they typed: for them alone, and no more for their team."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.base.sql import Conn
from cmserver.generation.batch import Batch
from cmserver.generation.model import ClaimedJob
from cmserver.generation.record import CitedObservation
from cmserver.observations.model import BY_USER
from cmserver.personal import repository as personal
from cmserver.personal.keep import keep_personal
from cmserver.personal.model import SourceTurn, WordsOwner
from cmserver.reading.about_person import find_personal_sentences, says_only


async def draw_personal(
    conn: Conn, team_id: UUID, batches: Sequence[Batch], held: set[UUID], cited: Mapping[UUID, Sequence[CitedObservation]]
) -> dict[UUID, list[CitedObservation]]:
    """Keep what those who typed it want of their agents, and return what is left for the team, by lane.

    It is theirs who typed it, by the key that it came with: neither a nobody's words, nor those of a job that another one has
    retried with a key of theirs, are anybody's. Such words stay what they were. Persons are written for in the order of their ids.
    """
    prompts = {
        job.id: batch.readings[job.id].prompt
        for batch in batches
        for call in batch.answered
        for job in call.jobs
        if job.id in held and job.id in batch.readings and batch.readings[job.id].prompt
    }
    sentences = {job_id: found for job_id, prompt in prompts.items() if (found := find_personal_sentences(prompt))}
    if not sentences:
        return {lane: list(of_lane) for lane, of_lane in cited.items()}
    owners = {owner.job_id: owner for owner in await personal.owners(conn, team_id, list(sentences))}
    for owner in sorted(owners.values(), key=lambda owner: (owner.user_id, owner.said_at)):
        drawn_from = msgspec.convert(msgspec.structs.asdict(owner), SourceTurn)
        for sentence in sentences[owner.job_id]:
            await keep_personal(conn, team_id, owner.user_id, owner.actor_id, "rule", sentence, drawn_from=drawn_from)
    return {
        batch.claim.lane: [
            left
            for observation in cited.get(batch.claim.lane, ())
            if (left := _leave_to_team(observation, batch.jobs, prompts, sentences, owners)) is not None
        ]
        for batch in batches
    }


def _leave_to_team(
    observation: CitedObservation,
    jobs: Sequence[ClaimedJob],
    prompts: Mapping[UUID, str],
    sentences: Mapping[UUID, Sequence[str]],
    owners: Mapping[UUID, WordsOwner],
) -> CitedObservation | None:
    """The observation, unless it only says what is its person's alone: then that of who is nobody and said the same, or None."""
    if any(job.id not in owners for job in observation.jobs):
        return observation
    quote = observation.row.quote or ""
    kept = [sentence for job in observation.jobs for sentence in sentences[job.id]]
    says_rule = observation.row.metadata.get(BY_USER) is True and says_only(quote, kept)
    if not says_rule and not all(says_only(prompts[job.id], sentences[job.id]) for job in observation.jobs):
        return observation
    said = {prompts[job.id] for job in observation.jobs}
    nobodys = [job for job in jobs if job.id in prompts and job.id not in owners and _says_the_same(prompts[job.id], quote, said)]
    if not nobodys:
        return None
    job = nobodys[0]
    row = msgspec.structs.replace(
        observation.row,
        actor_id=job.actor_id,
        created_by_job_id=job.id,
        server_session_id=job.server_session_id,
        prompt_number=job.prompt_number,
        quote_event_id=job.agent_event_id if observation.row.quote else None,
    )
    return msgspec.structs.replace(observation, row=row, jobs=nobodys)


def _says_the_same(prompt: str, quote: str, said: set[str]) -> bool:
    return prompt in said or (bool(quote) and quote in prompt)
