"""Moves one threshold a day by what people accepted and dismissed, inside its bounds, and keeps the evidence."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.base.ids import new_id
from cmserver.base.metrics import metrics
from cmserver.base.sql import Conn
from cmserver.steward import model, repository
from cmserver.steward.derivations import repository as derivations
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds
from cmserver.steward.runs import repository as runs

MIN_SAMPLE = 100
_DAYS = 90
_TOO_FEW, _MANY = 0.35, 0.80
"""Shares of accepted suggestions below and above which the threshold moves."""
_TOO_FEW_KEPT, _MANY_KEPT = 0.50, 0.75
"""The same for what was derived and kept."""


async def tune_policies(conn: Conn, team_id: UUID, *, is_asked_for: bool = False) -> None:
    """Move one threshold, if enough speaks for it, and write a run; once a day (UTC) and mode, unless somebody asked."""
    permission = await repository.permission(conn, team_id, None, "policy_tune")
    if permission.stops or not permission.is_allowed:
        return
    await policies.lock(conn, team_id)
    if not is_asked_for and await runs.is_tuned_today(conn, team_id, permission.mode):
        return
    since = await policies.evidence_since(conn, team_id, _DAYS)
    merges = await policies.suggestion_counts(conn, team_id, since, model.POLICIES["auto_merge.threshold"].least)
    derived = await derivations.counts(conn, team_id, since)
    change = choose_change(await thresholds.read_values(conn, team_id), merges, derived)
    enough = max(merges.accepted + merges.dismissed, derived.kept + derived.rejected) >= MIN_SAMPLE
    run_id, is_written = new_id(), change is not None and permission.refusal is None
    effects: list[model.Effect] = []
    if change is not None and is_written:
        await policies.add(conn, team_id, msgspec.structs.replace(change, run_id=run_id))
        effects = [model.Effect(kind="policy_changed", policy_key=change.policy_key, policy_change_id=change.id)]
    reason = change.reason if change else "no_reason" if enough else "sample_too_small"
    counts = {**msgspec.structs.asdict(merges), **msgspec.structs.asdict(derived)}
    proposals = [{"policyKey": one.policy_key, "priorValue": one.prior_value, "newValue": one.new_value} for one in [change] if one]
    status: model.RunStatus = "succeeded" if is_written else "skipped"
    metrics().steward_runs.labels("policy_tune", status).inc()
    await runs.add(
        conn,
        run_id,
        team_id,
        status,
        input_snapshot={"mode": permission.mode, **counts, "minSample": MIN_SAMPLE},
        output_snapshot={
            "decision": "tune" if change else "nothing",
            "reasons": [reason],
            "effects": effects,
            "skipped": [permission.refusal] if change and permission.refusal else [],
            "proposals": [] if is_written else proposals,
        },
    )


def choose_change(
    values: dict[str, float], merges: model.SuggestionCounts, derived: model.DerivationCounts
) -> model.PolicyChange | None:
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
) -> model.PolicyChange | None:
    bounds = model.POLICIES[key]
    new = round(min(bounds.most, max(bounds.least, values[key] + step)), 4)
    if new == values[key]:
        return None
    return model.PolicyChange(
        id=new_id(),
        policy_key=key,
        prior_value=values[key],
        new_value=new,
        reason=reason,
        sample_size=sample,
        evidence=dict(evidence),
        changed_by=model.STEWARD,
    )
