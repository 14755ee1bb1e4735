"""What a team has used and spent, as an answer or as a table for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC

from msgspec import UNSET

from cmserver.access.limits import repository as limits
from cmserver.access.model import Principal
from cmserver.base.money import usd
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.models.calls import repository as calls
from cmserver.models.calls.model import SpendingRow
from cmserver.ops.spending.wire import AmountsOut, LimitsOut, UsageOut, UsageRowOut, budget_out

_MAX_ROWS = 5_000
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


async def read_usage(
    conn: Conn, principal: Principal, *, columns: Sequence[str] = (), days: int | None = None, with_rows: bool = False
) -> UsageOut:
    """Usage of this month. With rows: provider calls of the last `days`, or of the month, split by project, model, day."""
    counted_key_id = (principal.counts_as or principal.key_id) if principal.project_id is not None else None
    used = await limits.used(conn, principal.team_id, api_key_id=counted_key_id)
    since = used.since.astimezone(UTC)
    spent = await calls.spending_totals(conn, principal.team_id, since=since.date(), project_id=principal.project_id)
    statuses = await calls.budget_statuses(conn, principal.team_id, project_id=principal.project_id)
    rows: list[SpendingRow] = []
    if with_rows:
        rows = await calls.spending_rows(
            conn,
            principal.team_id,
            project_id=principal.project_id,
            days=days,
            by_project="project" in columns,
            by_model="model" in columns,
            by_day="day" in columns,
            limit=_MAX_ROWS + 1,
        )
    usage = reshape(
        spent,
        AmountsOut,
        requests=used.requests,
        events=used.events,
        provider_calls=spent.calls,
        cost_usd=usd(spent.cost_usd),
        steward_tokens=await calls.steward_tokens(conn, principal.team_id, principal.project_id, "month"),
    )
    return UsageOut(
        since=since,
        usage=usage,
        limits=reshape(principal.limits, LimitsOut),
        budgets=[budget_out(status, principal) for status in statuses if status.state != "open"],
        rows=[_row_out(row) for row in rows[:_MAX_ROWS]] if with_rows else UNSET,
        rows_are_capped=len(rows) > _MAX_ROWS if with_rows else UNSET,
    )


def _row_out(row: SpendingRow) -> UsageRowOut:
    """Return the row on the wire, without the columns that rows are not split by."""
    return reshape(
        row,
        UsageRowOut,
        day=row.day or UNSET,
        project_id=row.project_id or UNSET,
        project=row.project if row.project_id else UNSET,
        provider=UNSET if row.provider is None else row.provider,
        model=UNSET if row.model is None else row.model,
        cost_usd=usd(row.cost_usd),
    )


_COUNTS = (
    "calls",
    "failed_calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_usd",
    "unpriced_calls",
)


def usage_csv(usage: UsageOut, columns: Sequence[str]) -> str:
    """The rows of the usage with a line of names (RFC 4180). Text that a spreadsheet would compute gets an apostrophe before it."""
    names = [name for column in ("day", "project", "model") if column in columns for name in _CSV_NAMES[column]]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*names, *_COUNTS])
    for row in [] if usage.rows is UNSET else usage.rows:
        texts = [_cell(getattr(row, name)) for name in names]
        writer.writerow([*texts, *(getattr(row, name) for name in _COUNTS)])
    return out.getvalue()


_CSV_NAMES = {"day": ["day"], "project": ["project"], "model": ["provider", "model"]}


def _cell(value: object) -> str:
    text = "deleted" if value is None else "" if value is UNSET else str(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
