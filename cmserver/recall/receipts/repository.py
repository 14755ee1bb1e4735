"""The SQL of receipts: what of the memory was shown, to which session, why, and at what cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from cmserver.base.db import READS_ALL_WORDS
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.recall.model import KeptText, NewReceipt, Receipt, ShownReceipt, ToldMark

OWNS = {"context_injections"}

INSERT = Query(
    int,
    """
    INSERT INTO context_injections (id, team_id, project_id, server_session_id, reason, platform_source, numbers, summary_numbers,
                                    left_out, left_out_count, tokens, budget_tokens, chars, details, text, text_hash, told)
    VALUES (%(id)s, %(team_id)s, %(project_id)s, %(server_session_id)s, %(reason)s, %(platform_source)s, %(numbers)s::bigint[],
            %(summary_numbers)s::bigint[], %(left_out)s::bigint[], %(left_out_count)s, %(tokens)s, %(budget_tokens)s, %(chars)s,
            %(details)s, %(text)s, sha256(convert_to(%(text)s, 'UTF8')), %(told)s::bigint[])
    """,
)


LOCK = Query(str, "SELECT lock_receipts(%(team_id)s)::text")


# An index that starts a session anew, or after its context was compacted, has all that went before out of the model's sight.
SHOWN_NUMBERS = Query(
    int,
    """
    SELECT DISTINCT unnest(numbers) FROM context_injections
     WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s AND created_at > '-infinity'
       AND created_at >= coalesce((SELECT max(created_at) FROM context_injections
                                    WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s
                                      AND created_at > '-infinity' AND reason IN ('startup', 'clear', 'compact', 'fork')),
                                  '-infinity')
       AND (NOT %(inline)s OR reason IN ('prompt', 'file'))
    """,
)


_NAMED = re.compile(r"#(\d{1,18})(?: to #(\d{1,18}):)?")
_MOST_NUMBERS = 10_000


def find_told(receipt: NewReceipt) -> list[int]:
    """All observations and turns of which the text may say something: those that it names, and those between two ends."""
    told = {*receipt.numbers, *receipt.made_of}
    for first, last in _NAMED.findall(receipt.text):
        told.add(int(first))
        if last:
            told.update(range(int(first), min(int(last), int(first) + _MOST_NUMBERS) + 1))
    return sorted(told)


async def insert(conn: Conn, team_id: UUID, project_id: UUID, receipt: NewReceipt) -> None:
    values = msgspec.structs.asdict(receipt) | {"details": Jsonb(receipt.details), "told": find_told(receipt)}
    await INSERT.run(conn, id=new_id(), team_id=team_id, project_id=project_id, **values)


# Newest first; `before` and `before_id` are the keyset of the last one on the page before.
@unprepared_query("""
    SELECT id, team_id, project_id, server_session_id, reason, platform_source, numbers, summary_numbers, left_out, left_out_count,
           tokens, budget_tokens, chars, details, coalesce(text, '') AS text, created_at
      FROM context_injections
     WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s
       AND created_at > '-infinity' -- all are: see rule 3 of migration 0001
       AND (%(before)s::timestamptz IS NULL OR (created_at, id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY created_at DESC, id DESC
     LIMIT %(limit)s
    """)
async def of_session(
    conn: Conn, team_id: UUID, session_id: UUID, *, before: datetime | None, before_id: UUID | None, limit: int
) -> list[Receipt]:
    """What the session was shown, newest first."""
    ...


# The wire has milliseconds. What is in another project by now is cut out, unless it is shared, and so is what ran in a session that
# moved since. From who does not read all words of the team the lines of rows that they do not see today are cut out, too, and what
# stands in no row of its own.
@unprepared_query(f"""
    SELECT ARRAY(SELECT n FROM unnest(c.numbers) WITH ORDINALITY AS shown (n, place)
                  WHERE n <> ALL(u.hidden) ORDER BY place) AS numbers,
           CASE WHEN u.hidden = '{{}}' AND NOT u.has_moved AND r.all_words THEN c.text ELSE cut_out(c.text, u.hidden) END AS text,
           c.tokens, c.created_at
      FROM context_injections c
     CROSS JOIN (SELECT {READS_ALL_WORDS} AS all_words) r
     CROSS JOIN LATERAL (
           SELECT ARRAY(SELECT n FROM unnest(c.told || c.numbers) AS n
                         WHERE NOT r.all_words
                           AND NOT EXISTS (SELECT FROM observations o WHERE o.team_id = c.team_id AND o.number = n)
                           AND NOT EXISTS (SELECT FROM turns t WHERE t.team_id = c.team_id AND t.number = n)
                         UNION ALL
                        SELECT o.number FROM observations o
                         WHERE o.team_id = c.team_id AND o.number = ANY(c.told || c.numbers) AND o.project_id <> c.project_id
                           AND (o.scope <> 'team' OR EXISTS (SELECT FROM projects p WHERE p.id = c.project_id AND p.isolated))
                         UNION ALL
                        SELECT t.number FROM turns t
                         WHERE t.team_id = c.team_id AND t.number = ANY(c.told || c.numbers) AND t.project_id <> c.project_id)
                  AS hidden,
                  EXISTS (SELECT FROM server_sessions s
                           WHERE s.team_id = c.team_id AND s.project_id <> c.project_id AND s.moved_at >= c.created_at)
                  AS has_moved) u
     WHERE c.team_id = %(team_id)s AND c.project_id = %(project_id)s
       AND c.created_at >= %(at)s AND c.created_at < %(at)s + interval '1 millisecond'
       AND (%(session_id)s::uuid IS NULL OR c.server_session_id = %(session_id)s::uuid)
     ORDER BY c.created_at, c.id LIMIT 1
    """)
async def of_moment(conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID | None, at: datetime) -> KeptText | None:
    """The first receipt of that millisecond, without what its project is not told today."""
    ...


async def shown_numbers(conn: Conn, team_id: UUID, session_id: UUID, *, inline: bool = False) -> set[int]:
    """The numbers of all that the session can still see: since it last started anew or was compacted.

    With `inline` only what was shown on a prompt or a file, not what an index listed.
    """
    return set(await SHOWN_NUMBERS.all(conn, team_id=team_id, session_id=session_id, inline=inline))


# Of each line the newest receipt counts: a mark may come and go with a branch.
TOLD_MARKS = Query(
    ToldMark,
    """
    SELECT DISTINCT ON (line.number) line.number, line.mark
      FROM context_injections c
     CROSS JOIN LATERAL jsonb_to_recordset(c.details -> 'lines') AS line (number bigint, mark text)
     WHERE c.server_session_id = %(session_id)s AND c.team_id = %(team_id)s AND c.created_at > '-infinity'
       AND c.reason IN ('prompt', 'file') AND line.number = ANY(%(numbers)s::bigint[])
     ORDER BY line.number, c.created_at DESC, c.id DESC
    """,
)


async def told_marks(conn: Conn, team_id: UUID, session_id: UUID, numbers: Sequence[int]) -> dict[int, str | None]:
    """What the marks said with which a prompt or a file told these lines last."""
    told = await TOLD_MARKS.all(conn, team_id=team_id, session_id=session_id, numbers=list(numbers))
    return {line.number: line.mark for line in told}


@query("""
    SELECT created_at FROM context_injections
     WHERE server_session_id = %(session_id)s AND team_id = %(team_id)s AND created_at > '-infinity'
       AND reason IN ('startup', 'resume', 'clear', 'compact', 'fork')
     ORDER BY created_at DESC, id DESC LIMIT 1
    """)
async def last_index_at(conn: Conn, team_id: UUID, session_id: UUID) -> datetime | None:
    """When the session was last shown an index."""
    ...


async def lock(conn: Conn, team_id: UUID) -> None:
    """Whoever deletes receipts of the team, or cuts them, does it alone until the transaction ends."""
    await LOCK.run(conn, team_id=team_id)


@unprepared_query("""
    DELETE FROM context_injections
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """)
async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> RowCount:
    """Delete those of the project, or of the whole team; returns how many."""
    ...


@query("""
    SELECT EXISTS (SELECT FROM context_injections
                    WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND created_at > '-infinity')
    """)
async def has_any(conn: Conn, team_id: UUID, project_id: UUID) -> bool:
    """Whether anything was ever shown of the project."""
    ...


# Of each project the newest receipts only: none of it grows with what was ever shown.
@unprepared_query("""
    SELECT receipt.server_session_id, receipt.project_id, receipt.reason, receipt.platform_source, receipt.created_at
      FROM projects p
     CROSS JOIN LATERAL (
           SELECT c.server_session_id, c.project_id, c.reason, c.platform_source, c.created_at, c.id, c.numbers
             FROM context_injections c
            WHERE c.project_id = p.id AND c.team_id = %(team_id)s AND c.created_at > '-infinity'
            ORDER BY c.created_at DESC, c.id DESC LIMIT %(looked_at)s) receipt
     WHERE p.team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR p.id = %(project_id)s::uuid)
       AND %(number)s = ANY(receipt.numbers)
     ORDER BY receipt.created_at DESC, receipt.id DESC LIMIT %(limit)s
    """)
async def that_show(
    conn: Conn, team_id: UUID, number: int, *, project_id: UUID | None, looked_at: int, limit: int
) -> list[ShownReceipt]:
    """The newest receipts that show the observation, among the newest `looked_at` of the project, or of each without one."""
    ...
