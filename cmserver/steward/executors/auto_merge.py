"""Merges a suggested pair: equal texts; where the model is sure, one that only says more, or is as near as the team wants it."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.base.db import Db
from cmserver.base.errors import CmserverError
from cmserver.base.sql import Conn
from cmserver.consolidation import repository as consolidation
from cmserver.consolidation.comparison import repository as comparison
from cmserver.consolidation.difference import differs_in_form, find_difference, only_adds
from cmserver.consolidation.marks import compared_text, read_marks
from cmserver.consolidation.model import Suggestion
from cmserver.consolidation.review import resolve_suggestion
from cmserver.models.providers.model import Prompt
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.model import Observation
from cmserver.pins.guard import guard_change
from cmserver.steward.ask import GuardAnswer, ModelAsker
from cmserver.steward.executors.executor import Executor, JobPayload
from cmserver.steward.model import GUARD_CONFIDENCE, Effect, JobContext, ModelCall, Plan, PlanResult


class AutoMergePayload(JobPayload, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which suggestion, the versions of both texts when it was planned, and who was to judge: `rules`, or a provider."""

    suggestion_id: UUID
    versions: list[int]
    asked: str


class MergeProposal(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The pair to merge, with the versions that were judged."""

    suggestion_id: UUID
    target: int
    source: int
    versions: dict[str, int]


class AutoMerge(Executor[AutoMergePayload]):
    """The executor `auto_merge`."""

    async def prepare(self, db: Db, asker: ModelAsker, context: JobContext, payload: AutoMergePayload) -> Plan:
        """Merge, or keep for a person with the reason."""
        job = context.job
        async with db.tenant(job.team_id) as conn:
            suggestion = await consolidation.suggestion(conn, job.team_id, payload.suggestion_id)
            pair = [] if suggestion is None else await _find_pair(conn, job.team_id, suggestion)
            project = None if suggestion is None else await access.project(conn, job.team_id, suggestion.project_id)
            policy = None if project is None else await access.retention_of(conn, job.team_id, project.id)
            is_equal = len(pair) == 2 and await comparison.are_equal(conn, job.team_id, pair[0].id, pair[1].id)
        if suggestion is None or project is None or policy is None:
            return Plan(decision="nothing", reasons=["suggestion_missing"])
        if suggestion.status != "open":
            return Plan(decision="nothing", reasons=["not_open"])
        if suggestion.project_id != job.project_id:
            return Plan(decision="keep", reasons=["other_project"], tries_again=True)
        if len(pair) != 2:
            return Plan(decision="nothing", reasons=["pair_gone"])
        facts: dict[str, object] = {
            "suggestionId": suggestion.id,
            "numbers": [row.number for row in pair],
            "versions": [row.version for row in pair],
            "similarity": round(suggestion.similarity, 4),
            "threshold": context.policies["auto_merge.threshold"],
        }
        above = policy.auto_merge_above
        is_near = above is not None and suggestion.similarity >= above and not differs_in_form(*map(compared_text, pair))
        reasons, confidence, call = await self._judge(
            asker, context, project.canonical_id, suggestion, pair, is_equal=is_equal, is_near=is_near
        )
        if reasons not in (["same_text"], ["model_sure"]):
            tries_again = reasons[0] in {"model_paused", "breaker_open", "budget_spent", "daily_tokens_spent", "model_failed"}
            return Plan(decision="keep", reasons=reasons, confidence=confidence, input=facts, call=call, tries_again=tries_again)
        target, source = suggestion.merge_order()
        proposal = MergeProposal(
            suggestion_id=suggestion.id,
            target=target,
            source=source,
            versions={str(row.number): row.version for row in pair},
        )
        return Plan(decision="merge", reasons=reasons, confidence=confidence, proposals=[proposal], input=facts, call=call)

    async def _judge(  # noqa: PLR0911 - each is a reason
        self,
        asker: ModelAsker,
        context: JobContext,
        project: str,
        suggestion: Suggestion,
        pair: list[Observation],
        *,
        is_equal: bool,
        is_near: bool,
    ) -> tuple[list[str], float | None, ModelCall | None]:
        """The reasons, how sure it is, and the call of the model, if one was made."""
        if suggestion.reason != "same":
            return [suggestion.reason], None, None
        if is_equal and _may_be_same(*pair):
            return ["same_text"], 1.0, None
        texts = [compared_text(row) for row in pair]
        if (difference := find_difference(*map(read_marks, texts))) is not None:
            return ["differs", difference], None, None
        if not is_near and not only_adds(*texts):
            return ["differs", "word"], None, None
        if not is_near and suggestion.similarity < context.policies["auto_merge.threshold"]:
            return ["below_threshold"], None, None
        prompt = Prompt(kind="guard", project=project, stored=[compared_text(row) for row in pair])
        answered = await asker.ask(context.job.team_id, suggestion.project_id, prompt, GuardAnswer)
        call, answer = answered.call, answered.answer
        if answer is None:
            return [answered.refusal or "model_failed"], None, call
        if answer.conflict:
            return ["model_sees_conflict"], answer.confidence, call
        if not answer.same:
            return ["model_says_different"], answer.confidence, call
        if answer.confidence < GUARD_CONFIDENCE:
            return ["model_unsure"], answer.confidence, call
        return ["model_sure"], answer.confidence, call

    async def apply(self, conn: Conn, context: JobContext, plan: Plan) -> PlanResult:
        """Merge the pair if both still say what was judged."""
        job = context.job
        effects: list[Effect] = []
        for proposal in plan.proposals:
            assert isinstance(proposal, MergeProposal)
            suggestion = await consolidation.suggestion(conn, job.team_id, proposal.suggestion_id)
            if suggestion is None:
                return PlanResult(effects=[], skipped=["suggestion_missing"])
            await history.lock_project(conn, suggestion.project_id)
            rows = {str(row.number): row.version for row in await _find_pair(conn, job.team_id, suggestion)}
            if rows != proposal.versions:
                return PlanResult(effects=[], skipped=["changed_meanwhile"])
            try:
                accept = partial(resolve_suggestion, conn, job.principal, suggestion.id, "accepted", into=proposal.target)
                _, merge = await guard_change(conn, job.principal, "steward", accept)
            except CmserverError as error:
                return PlanResult(effects=[], skipped=[f"refused: {error}"])
            if merge is None:
                return PlanResult(effects=[], skipped=["not_open"])
            effects.append(
                Effect(
                    kind="merged",
                    observation_id=merge.observation.id,
                    number=merge.observation.number,
                    version=merge.observation.version,
                    source_numbers=[row.number for row in merge.merged],
                )
            )
        return PlanResult(effects=effects)


def _may_be_same(left: Observation, right: Observation) -> bool:
    """Whether both are of one type and state, and not about different files."""
    mine, others = ({*(row.files_read or ()), *(row.files_modified or ())} for row in (left, right))
    return (left.state, left.type) == (right.state, right.type) and not (mine and others and mine.isdisjoint(others))


async def _find_pair(conn: Conn, team_id: UUID, suggestion: Suggestion) -> list[Observation]:
    """Those of the pair that are shown, the older first."""
    rows = await observations.by_numbers(conn, team_id, {suggestion.left_number, suggestion.right_number})
    return sorted(rows, key=lambda row: row.number)
