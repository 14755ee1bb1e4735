"""Statistics of memories: what there is, what is read, and how much of what is looked for is found."""

from __future__ import annotations

from collections import Counter
from datetime import date

from msgspec import UNSET

from cmserver.base.errors import Invalid
from cmserver.base.structs import reshape
from cmserver.memories import repository, wire
from cmserver.memories.memories import Memories, MemoryCaller
from cmserver.memories.model import FunnelRange, label_of, memory_type
from cmserver.observations.model import Observation, estimate_tokens
from cmserver.observations.read import audit_read

_TOP = 10
_GROUPS = 20
_TIMELINE_DAYS = 30
_USUAL_DAYS = 30


async def count_memories(memories: Memories, caller: MemoryCaller) -> wire.MemoryStatisticsOut:
    """How many memories there are, by type, scope and author."""
    only = caller.principal.project_id
    async with memories.db.tenant(caller.team_id) as conn:
        groups = await repository.label_counts(conn, caller.team_id, only)
        pending = await repository.count_suggestions(conn, caller.team_id, project_id=only, status="open")
    by_type, by_scope, by_agent = Counter[str](), Counter[str](), Counter[str]()
    for group in groups:
        by_type[memory_type(group.label)] += group.memory_count
        by_scope["global" if group.scope == "team" else "project"] += group.memory_count
        by_agent[group.agent] += group.memory_count
    total, short = by_scope.total(), sum(group.short_term_count for group in groups)
    return wire.MemoryStatisticsOut(
        total_memories=total,
        by_type=dict(by_type),
        by_scope=dict(by_scope),
        by_agent=dict(by_agent),
        long_term_count=total - short,
        short_term_count=short,
        expiring_count=sum(group.expiring_count for group in groups),
        pending_suggestions=pending,
    )


async def analyse_usage(memories: Memories, caller: MemoryCaller) -> wire.MemoryAnalyticsOut:
    """What memories take, and what is read of them."""
    only = caller.principal.project_id
    async with memories.db.tenant(caller.team_id) as conn:
        totals = await repository.usage_totals(conn, caller.team_id, only)
        top = await repository.top_read(conn, caller.team_id, only, _TOP)
        await audit_read(conn, caller.principal, only, "list", top)
        agents = await repository.tokens_by_agent(conn, caller.team_id, only, _GROUPS)
        days = await repository.usage_days(conn, caller.team_id, only, _TIMELINE_DAYS)
    return wire.MemoryAnalyticsOut(
        total_tokens_stored=totals.tokens_stored,
        total_tokens_saved=totals.tokens_saved,
        total_hits=totals.hits,
        hit_rate=_share(totals.read_count, totals.memory_count),
        top_accessed_memories=[*map(_top_memory_out, top)],
        tokens_by_agent={row.agent: row.tokens for row in agents},
        timeline=[reshape(day, wire.UsageDayOut) for day in days],
    )


def _top_memory_out(observation: Observation) -> wire.TopMemoryOut:
    return wire.TopMemoryOut(
        id=observation.id,
        title=wire.title_of(observation),
        type=memory_type(label_of(observation)),
        access_count=observation.access_count,
        token_count=estimate_tokens(observation.content),
        agent_source=observation.agent or UNSET,
    )


async def read_funnel(memories: Memories, caller: MemoryCaller, query: wire.FunnelQuery) -> wire.FunnelOut:
    """How often something was looked for and found, offered and kept. Invalid for a range that is none."""
    first, last = _parse_range(query)
    within = FunnelRange(
        days=query.days or _USUAL_DAYS,
        first=first,
        last=last,
        agent=query.agent_source,
        project_id=await memories.project_to_count(caller.principal, query.project_id),
    )
    async with memories.db.tenant(caller.team_id) as conn:
        total = await repository.funnel(conn, caller.team_id, within)
        days = await repository.funnel_days(conn, caller.team_id, within)
        agents = await repository.funnel_agents(conn, caller.team_id, within, _GROUPS)
        projects = await repository.funnel_projects(conn, caller.team_id, within, _GROUPS)
    return reshape(
        total,
        wire.FunnelOut,
        recall_hit_rate=_share(total.recall_hits, total.recall_attempts),
        store_capture_rate=_share(total.store_actions, total.store_opportunities),
        timeline=[reshape(row, wire.FunnelDayOut) for row in days],
        by_agent=[reshape(row, wire.FunnelGroupOut) for row in agents],
        by_project=[reshape(row, wire.FunnelGroupOut) for row in projects],
    )


def _parse_range(query: wire.FunnelQuery) -> tuple[date | None, date | None]:
    """The days from and to; none when only a number of days is there."""
    if (query.first is None) != (query.last is None):
        raise Invalid.at("$.to" if query.last is None else "$.from", "Send both `from` and `to` (YYYY-MM-DD), or `days`.")
    if query.first is not None and query.last is not None and query.last < query.first:
        raise Invalid.at("$.to", "`to` must not be before `from`.")
    return query.first, query.last


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
