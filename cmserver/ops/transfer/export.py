"""Exports the memory of a team, or of some of its projects, as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec
from psycopg import AsyncConnection, IsolationLevel

from cmserver.ops.transfer import repository
from cmserver.ops.transfer.model import FORMAT, LINE_TYPES, HeaderLine, record_name


async def export_team(
    url: str, team_id: UUID, project_ids: Sequence[UUID] | None, write: Callable[[bytes], object]
) -> dict[str, int]:
    """Write everything that is remembered in the projects, None for all, as of now; returns the lines by record.

    Keys, members, the audit log, jobs, receipts and vectors are no memory, and are not written. Two exports of the same memory are
    equal, byte for byte.
    """
    encoder = msgspec.json.Encoder(order="deterministic")
    counts: dict[str, int] = {}
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        await conn.set_read_only(True)
        async with conn.transaction():
            await repository.show_times_in_utc(conn)
            write(encoder.encode(HeaderLine(format=FORMAT)) + b"\n")
            for line_type in LINE_TYPES:
                record = record_name(line_type)
                async for line in repository.lines(conn, team_id, project_ids, line_type):
                    write(encoder.encode(line) + b"\n")
                    counts[record] = counts.get(record, 0) + 1
    return counts
