"""All SQL on entities, their mentions and relations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import LiteralString
from uuid import UUID

from cmserver.access.model import IN_REACH, IN_REACH_O
from cmserver.base.sql import Conn, Jsonb, Query, RowCount, query, unprepared_query
from cmserver.embeddings.model import QueryVector
from cmserver.graph.model import (
    ENTITY_COLUMNS,
    Entity,
    EntityLink,
    EntityMention,
    EntityRelation,
    EntityType,
    FoundBy,
    Neighbour,
    NewEntity,
    NewMention,
    ReadableText,
    TypeCount,
)
from cmserver.observations.model import LIVE_O, TEAMS_BEHIND

OWNS = {"entities", "entity_mentions", "entity_relations", "entity_relation_evidence", "entity_rereads"}

# Those of a joined project wait there until it is separated.
_IS_SEEN: LiteralString = "project_id NOT IN (SELECT id FROM projects WHERE joined_to IS NOT NULL)"
_E_COLUMNS: LiteralString = "e." + ENTITY_COLUMNS.replace(", ", ", e.")
MAX_LINKS = 120
NEIGHBOUR_MENTIONS = 300
"""How many of an entity's latest mentions are read to find what is mentioned with it."""

# -- reading observations for entities

READ_LAST_NUMBER = Query(int, "SELECT last_number FROM observation_counters WHERE team_id = %(team_id)s")
_READABLE: LiteralString = f"""
    SELECT o.id, o.number, o.project_id, {LIVE_O} AS is_live, o.kind, o.title,
           o.subtitle, left(o.narrative, 20000) AS narrative, o.facts,
           CASE WHEN o.title IS NULL AND o.narrative IS NULL THEN left(o.content, 20000) ELSE '' END AS content,
           o.files_read, o.files_modified, o.anchors,
           CASE WHEN o.origin IN ('model', 'git') AND jsonb_typeof(o.metadata -> 'entities') = 'array' THEN o.metadata -> 'entities'
                ELSE '[]'::jsonb END AS entities
      FROM observations o
"""

# In one order, so that two writers do not wait for each other. Only people change what was noted.
ADD_ENTITIES = Query(
    UUID,
    """
    INSERT INTO entities AS e (id, team_id, project_id, type, name, folded_name, notes, found_by)
    SELECT n.id, %(team_id)s, %(project_id)s, n.type, n.name, n.folded_name, n.notes, %(found_by)s
      FROM jsonb_to_recordset(%(rows)s) AS n (id uuid, type text, name text, folded_name text, notes text)
     ORDER BY n.folded_name, n.type
    ON CONFLICT (project_id, folded_name, type) DO UPDATE SET notes = excluded.notes
     WHERE excluded.notes IS DISTINCT FROM e.notes AND excluded.notes IS NOT NULL
       AND (excluded.found_by = 'people' OR e.notes IS NULL)
    RETURNING id
    """,
)
ADD_MENTIONS = Query(
    int,
    f"""
    INSERT INTO entity_mentions (observation_id, turn_id, named_id, entity_id, team_id, project_id, found_by, seen_at)
    SELECT p.observation_id, p.turn_id, e.id, coalesce(e.merged_into, e.id), %(team_id)s, %(project_id)s, %(found_by)s, p.created_at
      FROM jsonb_to_recordset(%(rows)s) AS n (place_id uuid, type text, folded_name text)
     CROSS JOIN LATERAL (
           SELECT o.id AS observation_id, NULL::uuid AS turn_id, o.created_at FROM observations o
            WHERE o.id = n.place_id AND o.team_id = %(team_id)s AND o.project_id = %(project_id)s AND {LIVE_O}
            UNION ALL
           SELECT NULL, t.id, t.created_at FROM turns t
            WHERE t.id = n.place_id AND t.team_id = %(team_id)s AND t.project_id = %(project_id)s) p
      JOIN entities e ON e.project_id = %(project_id)s AND e.folded_name = n.folded_name COLLATE "C" AND e.type = n.type
                     AND e.team_id = %(team_id)s
     ORDER BY e.id
    ON CONFLICT DO NOTHING
    """,
)
# What a changed text no longer names; what a model or people found stays while the observation or turn is shown.
DROP_STALE = Query(
    int,
    f"""
    DELETE FROM entity_mentions m
     WHERE m.place_id = ANY(%(ids)s) AND m.team_id = %(team_id)s
       AND ((m.turn_id IS NULL
             AND NOT EXISTS (SELECT FROM observations o WHERE o.id = m.observation_id AND o.team_id = m.team_id AND {LIVE_O}))
            OR (m.found_by = 'rules'
                AND NOT EXISTS (SELECT FROM jsonb_to_recordset(%(rows)s) AS n (place_id uuid, type text, folded_name text)
                                  JOIN entities e ON e.project_id = m.project_id AND e.folded_name = n.folded_name COLLATE "C"
                                                 AND e.type = n.type AND e.team_id = m.team_id
                                 WHERE e.id = m.named_id AND n.place_id = m.place_id)))
    """,
)

# -- entities

_HAS_NAME: LiteralString = """(strpos(e.folded_name, %(search)s::text) > 0
            OR EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id AND a.team_id = e.team_id
                                                AND strpos(a.folded_name, %(search)s::text) > 0))"""
# Most mentioned first; `after_count` and `after_id` are the place of the last one on the page before.
LIST_ENTITIES = Query(
    Entity,
    f"""
    SELECT {ENTITY_COLUMNS}
      FROM entities e
     WHERE team_id = %(team_id)s AND merged_into IS NULL
       AND {IN_REACH} AND {_IS_SEEN}
       AND (%(type)s::text IS NULL OR type = %(type)s::text)
       AND (%(search)s::text IS NULL OR {_HAS_NAME})
       AND (%(after_count)s::integer IS NULL OR mention_count < %(after_count)s::integer
            OR (mention_count = %(after_count)s::integer AND id > %(after_id)s::uuid))
     ORDER BY mention_count DESC, id LIMIT %(limit)s
    """,
    prepare=False,
)
# What stands out among the entities of the scope; two more of cosine 0 keep a few from hiding each other. Only this many of the
# newest vectors are compared: a model may name some for each turn.
FIND_NEAR = Query(
    Entity,
    f"""
    WITH near AS MATERIALIZED (
        SELECT o.entity_id, 1 - (o.embedding <=> %(vector)s::halfvec) AS cosine FROM observation_embeddings o
         WHERE o.team_id = %(team_id)s AND o.model_id = %(model_id)s AND o.embedding IS NOT NULL AND o.entity_id IS NOT NULL
           AND {IN_REACH_O}
         ORDER BY o.entity_id DESC LIMIT 20000
    ), best AS (
        SELECT coalesce(n.merged_into, n.id) AS id, max(near.cosine) AS cosine
          FROM near JOIN entities n ON n.id = near.entity_id AND n.team_id = %(team_id)s
         WHERE near.cosine > (SELECT sum(cosine) / (count(*) + 2) + stddev_pop(cosine) FROM near)
         GROUP BY coalesce(n.merged_into, n.id)
    )
    SELECT {_E_COLUMNS} FROM best JOIN entities e ON e.id = best.id AND e.team_id = %(team_id)s
     WHERE (%(type)s::text IS NULL OR e.type = %(type)s::text) AND e.{_IS_SEEN} AND NOT {_HAS_NAME}
     ORDER BY best.cosine DESC, e.id LIMIT %(limit)s
    """,
    prepare=False,
)
DELETE = Query(int, "DELETE FROM entities WHERE id = %(id)s AND team_id = %(team_id)s")
# Of two that were already merged into the source, each is another name of the target now.
MERGE = Query(
    int,
    """
    WITH aliases AS (
        UPDATE entities SET merged_into = %(into)s, mention_count = 0, found_by = 'people'
         WHERE (id = %(id)s OR merged_into = %(id)s) AND team_id = %(team_id)s RETURNING id
    ), moved AS (
        UPDATE entity_mentions SET entity_id = %(into)s WHERE entity_id = %(id)s AND team_id = %(team_id)s
    )
    SELECT count(*) FROM aliases
    """,
)
SEPARATE = Query(
    int,
    """
    WITH own AS (
        UPDATE entities SET merged_into = NULL WHERE id = %(id)s AND team_id = %(team_id)s RETURNING id
    ), moved AS (
        UPDATE entity_mentions SET entity_id = %(id)s WHERE named_id = %(id)s AND team_id = %(team_id)s
    )
    SELECT count(*) FROM own
    """,
)
COUNT_ANEW = Query(UUID, "SELECT id FROM unnest(%(ids)s::uuid[]) AS id, count_entity_mentions(%(ids)s)")

# Only the latest mentions are looked at: an entity that everything mentions must not cost a second. It is planned for the entity,
# since one that is mentioned often is read from the end of its index, and any other as a whole.
LIST_NEIGHBOURS = Query(
    Neighbour,
    """
    SELECT %(id)s::uuid AS from_id, e.id, e.type, e.name, e.mention_count, near.together
      FROM (SELECT other.entity_id, count(DISTINCT other.place_id) AS together
              FROM (SELECT DISTINCT place_id
                      FROM (SELECT place_id FROM entity_mentions
                             WHERE entity_id = %(id)s::uuid AND team_id = %(team_id)s
                             ORDER BY seen_at DESC, place_id DESC LIMIT %(mentions)s) latest) own
              JOIN entity_mentions other ON other.place_id = own.place_id AND other.team_id = %(team_id)s
             WHERE other.entity_id <> %(id)s::uuid
             GROUP BY other.entity_id ORDER BY together DESC, other.entity_id LIMIT %(limit)s) near
      JOIN entities e ON e.id = near.entity_id AND e.team_id = %(team_id)s
     ORDER BY near.together DESC, e.id
    """,
    prepare=False,
)

# -- relations

# Those of an alias are those of the entity that it stands for. What two of its names have alike is one relation.
_RELATIONS: LiteralString = """
    WITH near AS (
        SELECT array_agg(r.id ORDER BY r.created_at, r.id) AS ids, coalesce(f.merged_into, f.id) AS from_id,
               coalesce(t.merged_into, t.id) AS to_id, r.label, min(r.created_at) AS created_at
          FROM entity_relations r
          JOIN entities f ON f.id = r.from_id AND f.team_id = r.team_id
          JOIN entities t ON t.id = r.to_id AND t.team_id = r.team_id
         WHERE r.team_id = %(team_id)s AND coalesce(f.merged_into, f.id) <> coalesce(t.merged_into, t.id)
"""
_SHOW_RELATIONS: LiteralString = f"""
         GROUP BY coalesce(f.merged_into, f.id), coalesce(t.merged_into, t.id), r.label
    )
    SELECT near.ids[1] AS id, f.project_id, near.from_id, f.type AS from_type, f.name AS from_name, near.to_id, t.type AS to_type,
           t.name AS to_name, near.label, near.created_at,
           ARRAY(SELECT DISTINCT o.number FROM entity_relation_evidence v
                   JOIN observations o ON o.id = v.observation_id AND o.team_id = v.team_id
                  WHERE v.relation_id = ANY(near.ids) AND v.team_id = %(team_id)s AND {LIVE_O}
                  ORDER BY o.number) AS evidence
      FROM near
      JOIN entities f ON f.id = near.from_id AND f.team_id = %(team_id)s
      JOIN entities t ON t.id = near.to_id AND t.team_id = %(team_id)s
"""
UNRELATE = Query(
    int,
    """
    DELETE FROM entity_relations
     WHERE team_id = %(team_id)s AND label = %(label)s
       AND from_id IN (SELECT id FROM entities WHERE (id = %(from_id)s OR merged_into = %(from_id)s) AND team_id = %(team_id)s)
       AND to_id IN (SELECT id FROM entities WHERE (id = %(to_id)s OR merged_into = %(to_id)s) AND team_id = %(team_id)s)
    """,
)

COUNT = Query(
    int,
    """
    SELECT count(*) FROM entities
     WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)
ERASE_MENTIONS = Query(
    int,
    """
    DELETE FROM entity_mentions WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)
ERASE = Query(
    int,
    """
    DELETE FROM entities WHERE team_id = %(team_id)s AND (%(project_id)s::uuid IS NULL OR project_id = %(project_id)s::uuid)
    """,
    prepare=False,
)


@query(f"{TEAMS_BEHIND} UNION SELECT team_id FROM entity_rereads ORDER BY 1")
async def list_unread_teams(conn: Conn, reader: str) -> list[UUID]:
    """The teams with observations or turns that are not read yet. `reader` is the name of the position."""
    ...


async def read_last_number(conn: Conn, team_id: UUID) -> int:
    """The last number that was given to an observation of the team."""
    return await READ_LAST_NUMBER.first(conn, team_id=team_id) or 0


@query(f"{_READABLE} WHERE o.team_id = %(team_id)s AND o.number > %(after)s ORDER BY o.number LIMIT %(limit)s")
async def list_new_observations(conn: Conn, team_id: UUID, *, after: int, limit: int) -> list[ReadableText]:
    """The next observations of the team by number, whether they are shown or not."""
    ...


@query("""
    DELETE FROM entity_rereads
     WHERE place_id IN (SELECT place_id FROM entity_rereads WHERE team_id = %(team_id)s LIMIT %(limit)s)
    RETURNING place_id
    """)
async def take_rereads(conn: Conn, team_id: UUID, limit: int) -> list[UUID]:
    """The ids of turns that have ended and observations that have changed, which are taken off the list."""
    ...


@query(f"""
    {_READABLE} WHERE o.team_id = %(team_id)s AND o.id = ANY(%(ids)s)
     UNION ALL
    SELECT t.id, t.number, t.project_id, true, 'turn', NULL, NULL, NULL, NULL,
           concat_ws(E'\\n\\n', left(t.prompt, 10000), left(t.reply, 10000)), NULL, NULL, NULL, '[]'
      FROM turns t WHERE t.team_id = %(team_id)s AND t.id = ANY(%(ids)s)
     ORDER BY number
    """)
async def list_changed(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> list[ReadableText]:
    """Those of these observations and turns that are still there."""
    ...


async def add_entities(conn: Conn, team_id: UUID, project_id: UUID, rows: Sequence[NewEntity], found_by: FoundBy) -> list[UUID]:
    """Store those that the project does not have; the ids of those that are new or have new notes. No notes change none."""
    return await ADD_ENTITIES.all(conn, team_id=team_id, project_id=project_id, rows=Jsonb(list(rows)), found_by=found_by)


async def add_mentions(conn: Conn, team_id: UUID, project_id: UUID, rows: Sequence[NewMention], found_by: FoundBy) -> None:
    """Store what live observations and turns of the project name; entities that are not there are left out."""
    await ADD_MENTIONS.run(conn, team_id=team_id, project_id=project_id, rows=Jsonb(list(rows)), found_by=found_by)


@query(f"""
    SELECT {ENTITY_COLUMNS} FROM entities
     WHERE project_id = %(project_id)s AND team_id = %(team_id)s AND merged_into IS NULL
     ORDER BY last_seen_at DESC, id DESC LIMIT %(limit)s
    """)
async def list_latest(conn: Conn, team_id: UUID, project_id: UUID, limit: int) -> list[Entity]:
    """The entities of the project that were mentioned last."""
    ...


@query("""
    DELETE FROM entities e
     WHERE e.id = ANY(%(ids)s) AND e.team_id = %(team_id)s AND e.mention_count = 0 AND e.found_by <> 'people'
       AND e.merged_into IS NULL
    """)
async def drop_unmentioned(conn: Conn, team_id: UUID, ids: Sequence[UUID]) -> None:
    """Delete those of these entities that were found and are mentioned by nothing."""
    ...


async def drop_stale(conn: Conn, team_id: UUID, ids: Sequence[UUID], rows: Sequence[NewMention]) -> None:
    """Delete the mentions by these observations and turns that are not among `rows` any more."""
    await DROP_STALE.run(conn, team_id=team_id, ids=list(ids), rows=Jsonb(list(rows)))


@query(f"SELECT {ENTITY_COLUMNS} FROM entities WHERE id = %(entity_id)s AND team_id = %(team_id)s AND {_IS_SEEN}")
async def by_id(conn: Conn, team_id: UUID, entity_id: UUID) -> Entity | None: ...


@query(f"SELECT {ENTITY_COLUMNS} FROM entities WHERE id = ANY(%(ids)s) AND team_id = %(team_id)s ORDER BY id FOR UPDATE")
async def lock(conn: Conn, team_id: UUID, ids: Collection[UUID]) -> list[Entity]:
    """Those of these entities that are still there, locked."""
    ...


async def list_entities(
    conn: Conn,
    team_id: UUID,
    *,
    project_id: UUID | None,
    type_: EntityType | None,
    search: str | None,
    after: tuple[int, UUID] | None,
    limit: int,
) -> list[Entity]:
    """Entities that are no aliases, most mentioned first. `search` is a part of a folded name."""
    after_count, after_id = after or (None, None)
    return await LIST_ENTITIES.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        type=type_,
        search=search,
        after_count=after_count,
        after_id=after_id,
        limit=limit,
    )


async def find_near(
    conn: Conn,
    team_id: UUID,
    vector: QueryVector,
    *,
    project_id: UUID | None,
    type_: EntityType | None,
    search: str,
    limit: int,
) -> list[Entity]:
    """Entities whose name, type and notes are near in meaning, the nearest first, but for those that have `search` in a name."""
    return await FIND_NEAR.all(
        conn,
        team_id=team_id,
        project_id=project_id,
        type=type_,
        search=search,
        model_id=vector.model_id,
        vector=vector.vector,
        limit=limit,
    )


@unprepared_query(f"""
    SELECT {ENTITY_COLUMNS} FROM entities
     WHERE team_id = %(team_id)s AND merged_into IS NULL AND type = %(type_)s
       AND {IN_REACH} AND {_IS_SEEN}
     ORDER BY created_at DESC, id DESC LIMIT %(limit)s OFFSET %(offset)s
    """)
async def list_by_type(
    conn: Conn, team_id: UUID, project_id: UUID | None, type_: EntityType, *, limit: int, offset: int
) -> list[Entity]:
    """The entities of a type, the newest first."""
    ...


@unprepared_query(f"""
    SELECT type, count(*) AS entities FROM entities
     WHERE team_id = %(team_id)s AND merged_into IS NULL
       AND {IN_REACH} AND {_IS_SEEN}
     GROUP BY type ORDER BY type
    """)
async def count_types(conn: Conn, team_id: UUID, project_id: UUID | None) -> list[TypeCount]:
    """How many entities there are of each type."""
    ...


@unprepared_query(f"""
    SELECT coalesce(merged_into, id) FROM entities
     WHERE team_id = %(team_id)s AND folded_name = %(folded_name)s AND (%(type_)s::text IS NULL OR type = %(type_)s::text)
       AND {IN_REACH} AND {_IS_SEEN}
    """)
async def find_named(conn: Conn, team_id: UUID, project_id: UUID | None, folded_name: str, type_: str | None) -> list[UUID]:
    """The entities with that name or alias."""
    ...


@query(f"SELECT {ENTITY_COLUMNS} FROM entities WHERE merged_into = %(entity_id)s AND team_id = %(team_id)s ORDER BY name, id")
async def list_aliases(conn: Conn, team_id: UUID, entity_id: UUID) -> list[Entity]:
    """The entities that were merged into it, by name."""
    ...


@query(f"""
    UPDATE entities SET found_by = 'people', name = coalesce(%(name)s, name),
           notes = CASE WHEN %(sets_notes)s THEN %(notes)s ELSE notes END
     WHERE id = %(entity_id)s AND team_id = %(team_id)s
    RETURNING {ENTITY_COLUMNS}
    """)
async def make_lasting(
    conn: Conn, team_id: UUID, entity_id: UUID, *, name: str | None = None, notes: str | None = None, sets_notes: bool = False
) -> Entity | None:
    """Mark it as made by people, with another spelling of its name or other notes; None when it is not there any more."""
    ...


async def delete(conn: Conn, team_id: UUID, entity_id: UUID) -> bool:
    """Delete the entity with its aliases, mentions and relations; returns whether it was there."""
    return await DELETE.run(conn, team_id=team_id, id=entity_id) > 0


async def merge(conn: Conn, team_id: UUID, entity_id: UUID, into: UUID) -> None:
    """Make the entity an alias of another one, which gets its aliases and mentions."""
    await MERGE.one(conn, team_id=team_id, id=entity_id, into=into)
    await COUNT_ANEW.all(conn, ids=[entity_id, into])


async def separate(conn: Conn, team_id: UUID, alias_id: UUID, former: UUID) -> None:
    """Make an alias an entity of its own again, with the mentions of its name."""
    await SEPARATE.one(conn, team_id=team_id, id=alias_id)
    await COUNT_ANEW.all(conn, ids=[alias_id, former])


@unprepared_query(f"""
    SELECT DISTINCT ON (m.seen_at, m.place_id)
           m.place_id AS id, coalesce(o.number, t.number) AS number, m.project_id, coalesce(o.type, 'turn') AS type,
           coalesce(o.kind, 'turn') AS kind, o.title, left(coalesce(o.content, t.prompt), 200) AS beginning, m.seen_at
      FROM entity_mentions m
      LEFT JOIN observations o ON o.id = m.observation_id AND o.team_id = m.team_id AND {LIVE_O}
      LEFT JOIN turns t ON t.id = m.turn_id AND t.team_id = m.team_id
     WHERE m.entity_id = %(entity_id)s AND m.team_id = %(team_id)s AND coalesce(o.number, t.number) IS NOT NULL
       AND (%(before)s::timestamptz IS NULL OR (m.seen_at, m.place_id) < (%(before)s::timestamptz, %(before_id)s::uuid))
     ORDER BY m.seen_at DESC, m.place_id DESC LIMIT %(limit)s
    """)
async def list_mentions(
    conn: Conn, team_id: UUID, entity_id: UUID, *, before: object = None, before_id: UUID | None = None, limit: int
) -> list[EntityMention]:
    """The observations and turns that mention it, newest first."""
    ...


@unprepared_query("""
    WITH near AS MATERIALIZED (
        SELECT wanted.id, latest.place_id
          FROM unnest(%(ids)s::uuid[]) AS wanted(id)
         CROSS JOIN LATERAL (SELECT DISTINCT place_id
                               FROM (SELECT place_id FROM entity_mentions
                                      WHERE entity_id = wanted.id AND team_id = %(team_id)s
                                      ORDER BY seen_at DESC, place_id DESC LIMIT %(mentions)s) newest) latest
    )
    SELECT a.id AS from_id, b.id AS to_id, count(*) AS together
      FROM near a JOIN near b ON b.place_id = a.place_id AND b.id > a.id
     GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT %(limit)s
    """)
async def _links(conn: Conn, team_id: UUID, ids: Sequence[UUID], mentions: int, limit: int) -> list[EntityLink]: ...


async def list_links(conn: Conn, team_id: UUID, entity_ids: Sequence[UUID]) -> list[EntityLink]:
    """Which of these entities are mentioned together, the most often first."""
    return await _links(conn, team_id, entity_ids, NEIGHBOUR_MENTIONS, MAX_LINKS)


async def list_neighbours(conn: Conn, team_id: UUID, entity_id: UUID, limit: int) -> list[Neighbour]:
    """What is mentioned together with the entity, at most `limit`, the most often first."""
    return await LIST_NEIGHBOURS.all(conn, team_id=team_id, id=entity_id, mentions=NEIGHBOUR_MENTIONS, limit=limit)


@query(f"""
    {_RELATIONS}
           AND (r.from_id IN (SELECT id FROM entities
                               WHERE (id = %(entity_id)s OR merged_into = %(entity_id)s) AND team_id = %(team_id)s)
                OR (NOT %(outbound)s::boolean
                    AND r.to_id IN (SELECT id FROM entities
                                     WHERE (id = %(entity_id)s OR merged_into = %(entity_id)s) AND team_id = %(team_id)s)))
    {_SHOW_RELATIONS}
     ORDER BY near.created_at, near.ids[1] LIMIT %(limit)s
    """)
async def list_relations(conn: Conn, team_id: UUID, entity_id: UUID, limit: int, *, outbound: bool = False) -> list[EntityRelation]:
    """The relations from or to the entity by any of its names, or from it only; oldest first."""
    ...


@query(f"""
    {_RELATIONS}
           AND r.label = (SELECT label FROM entity_relations WHERE id = %(relation_id)s AND team_id = %(team_id)s)
           AND (coalesce(f.merged_into, f.id), coalesce(t.merged_into, t.id)) = (
               SELECT coalesce(a.merged_into, a.id), coalesce(b.merged_into, b.id)
                 FROM entity_relations o
                 JOIN entities a ON a.id = o.from_id AND a.team_id = o.team_id
                 JOIN entities b ON b.id = o.to_id AND b.team_id = o.team_id
                WHERE o.id = %(relation_id)s AND o.team_id = %(team_id)s)
    {_SHOW_RELATIONS}
    """)
async def find_relation(conn: Conn, team_id: UUID, relation_id: UUID) -> EntityRelation | None: ...


@query("""
    SELECT r.id FROM entity_relations r
      JOIN entities f ON f.id = r.from_id AND f.team_id = r.team_id
      JOIN entities t ON t.id = r.to_id AND t.team_id = r.team_id
     WHERE r.team_id = %(team_id)s AND r.label = %(label)s
       AND coalesce(f.merged_into, f.id) = %(from_id)s AND coalesce(t.merged_into, t.id) = %(to_id)s
     LIMIT 1
    """)
async def find_relation_between(conn: Conn, team_id: UUID, from_id: UUID, to_id: UUID, label: str) -> UUID | None:
    """The relation of that label from one entity to the other, by any of their names."""
    ...


@query("""
    INSERT INTO entity_relations AS r (id, team_id, project_id, from_id, to_id, label)
    VALUES (gen_random_uuid(), %(team_id)s, %(project_id)s, %(from_id)s, %(to_id)s, %(label)s)
    ON CONFLICT (from_id, to_id, label) DO UPDATE SET label = excluded.label
    RETURNING id
    """)
async def relate(conn: Conn, team_id: UUID, project_id: UUID, from_id: UUID, to_id: UUID, label: str) -> UUID:
    """Relate two entities of a project; the id of the relation, also when it was there."""
    ...


@query(f"""
    INSERT INTO entity_relation_evidence (relation_id, observation_id, project_id, team_id)
    SELECT %(relation_id)s, o.id, o.project_id, o.team_id FROM observations o
     WHERE o.team_id = %(team_id)s AND o.project_id = %(project_id)s AND o.number = ANY(%(numbers)s::bigint[]) AND {LIVE_O}
    ON CONFLICT DO NOTHING
    """)
async def add_evidence(conn: Conn, team_id: UUID, project_id: UUID, relation_id: UUID, numbers: Sequence[int]) -> RowCount:
    """Add the observations of the project with these numbers; returns how many there were."""
    ...


async def unrelate(conn: Conn, team_id: UUID, relation: EntityRelation) -> None:
    """Delete the relation, whichever of their names it was said of."""
    await UNRELATE.run(conn, team_id=team_id, from_id=relation.from_id, to_id=relation.to_id, label=relation.label)


async def erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> int:
    """Delete the entities of the project, or of the whole team for None, with all that is about them; how many there were."""
    count = await COUNT.one(conn, team_id=team_id, project_id=project_id)
    await ERASE_MENTIONS.run(conn, team_id=team_id, project_id=project_id)
    await ERASE.run(conn, team_id=team_id, project_id=project_id)
    return count
