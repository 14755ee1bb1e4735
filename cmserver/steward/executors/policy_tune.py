"""Moves one threshold a day by what people accepted and dismissed, inside its bounds, and keeps the evidence."""

from __future__ import annotations

import msgspec

from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.steward import model
from cmserver.steward.ask import ModelAsker
from cmserver.steward.derivations import repository as derivations
from cmserver.steward.executors.executor import Executor, JobPayload
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds

MIN_SAMPLE = 100
_DAYS = 90
_TOO_FEW, _MANY = 0.35, 0.80
"""Shares of accepted suggestions below and above which the threshold moves."""
_TOO_FEW_KEPT, _MANY_KEPT = 0.50, 0.75
"""The same for what was derived and kept."""


class TunePayload(JobPayload, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing but the mode: policies are the team's."""


class PolicyProposal(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A change of one threshold."""

    policy_key: str
    prior_value: float
    new_value: float
    reason: str
    sample_size: int
    evidence: dict[str, int]


class PolicyTune(Executor[TunePayload]):
    """The executor `policy_tune`."""

    async def prepare(self, db: Db, asker: ModelAsker, context: model.JobContext, payload: TunePayload) -> model.Plan:  # noqa: ARG002
        """At most one change."""
        team_id, values = context.job.team_id, context.policies
        async with db.tenant(team_id) as conn:
            since = await policies.evidence_since(conn, team_id, _DAYS)
            merges = await policies.suggestion_counts(conn, team_id, since, model.POLICIES["auto_merge.threshold"].least)
            derived = await derivations.counts(conn, team_id, since)
        facts = {**msgspec.structs.asdict(merges), **msgspec.structs.asdict(derived), "minSample": MIN_SAMPLE}
        proposal = choose_change(values, merges, derived)
        if proposal is None:
            enough = max(merges.accepted + merges.dismissed, derived.kept + derived.rejected) >= MIN_SAMPLE
            return model.Plan(decision="nothing", reasons=["no_reason" if enough else "sample_too_small"], input=facts)
        return model.Plan(decision="tune", reasons=[proposal.reason], proposals=[proposal], input=facts)

    async def apply(self, conn: Conn, context: model.JobContext, plan: model.Plan) -> model.PlanResult:
        """Write the change if the value is still the one that was looked at."""
        team_id = context.job.team_id
        await policies.lock(conn, team_id)
        values = await thresholds.read_values(conn, team_id)
        effects: list[model.Effect] = []
        for proposal in plan.proposals:
            assert isinstance(proposal, PolicyProposal)
            if values[proposal.policy_key] != proposal.prior_value:
                return model.PlanResult(effects=[], skipped=["changed_meanwhile"])
            change_id = new_id()
            change = model.PolicyChange(
                id=change_id,
                policy_key=proposal.policy_key,
                prior_value=proposal.prior_value,
                new_value=proposal.new_value,
                reason=proposal.reason,
                changed_by=model.STEWARD,
                run_id=context.run_id,
                sample_size=proposal.sample_size,
                evidence=dict(proposal.evidence),
            )
            await policies.add(conn, team_id, change)
            effects.append(model.Effect(kind="policy_changed", policy_key=proposal.policy_key, policy_change_id=change_id))
        return model.PlanResult(effects=effects)


def choose_change(
    values: dict[str, float], merges: model.SuggestionCounts, derived: model.DerivationCounts
) -> PolicyProposal | None:
    """The first change that the counts speak for, inside the bounds."""
    total = merges.accepted + merges.dismissed
    if total >= MIN_SAMPLE:
        evidence = msgspec.structs.asdict(merges)
        share = merges.accepted / total
        if share < _TOO_FEW and (change := _move(values, "auto_merge.threshold", 0.01, "few_accepted", total, evidence)):
            return change
        if share > _MANY and (change := _move(values, "auto_merge.threshold", -0.005, "most_accepted", total, evidence)):
            return change
    total = derived.kept + derived.rejected
    if total >= MIN_SAMPLE:
        evidence = msgspec.structs.asdict(derived)
        share = derived.kept / total
        if share < _TOO_FEW_KEPT and (change := _move(values, "derive.confidence", 0.02, "few_kept", total, evidence)):
            return change
        if share > _MANY_KEPT and (change := _move(values, "derive.novelty", -0.01, "most_kept", total, evidence)):
            return change
    return None


def _move(
    values: dict[str, float], key: str, step: float, reason: str, sample: int, evidence: dict[str, int]
) -> PolicyProposal | None:
    bounds = model.POLICIES[key]
    new = round(min(bounds.most, max(bounds.least, values[key] + step)), 4)
    if new == values[key]:
        return None
    return PolicyProposal(
        policy_key=key, prior_value=values[key], new_value=new, reason=reason, sample_size=sample, evidence=evidence
    )
