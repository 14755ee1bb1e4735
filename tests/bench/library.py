"""A database as large teams have it after years: observations of many projects, made in turns, each with its own subjects.

What an observation says is drawn as texts are: few words are in many, most words are in few, and those of one subject are met
together. Rows are copied past the triggers, with what these would have made of them (test_library.py compares), since a million of
them would take the triggers ten minutes. Each vector is the mean of those that the local embedder gives to the words.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast
from uuid import UUID, uuid4

import msgspec
import numpy as np
import psycopg
from psycopg import sql

from cmserver.base.db import Db
from cmserver.embeddings import repository as embeddings
from cmserver.embeddings.indexes import lists_for
from cmserver.models.providers.embedding import local
from tests.bench.recall.corpora.history import HERE
from tests.bench.world import Place, World

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float32]

DIMENSIONS = 256
_WORDS = 40_000
_PATHS = 20_000
_SUBJECTS = 1_000
_SUBJECT_WORDS = 60
_TITLE, _FACTS, _NARRATIVE = 7, 24, 34
_TEXT = _TITLE + _FACTS + _NARRATIVE
_CHUNK = 10_000
_SESSION = 10
"""Observations of one project that follow each other; then comes one of another."""
_YEARS_MS = 2 * 365 * 86_400_000
_OF_THE_OTHER_TEAM = 10
"""The other team has a tenth of what the first one has."""
_SHARED_EVERY = 5_000
"""Every so many is shared with the team."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """The place, its projects by size, and how long it took to fill."""

    place: Place
    documents: int
    projects: dict[int, UUID]
    other_team: UUID
    model_id: int | None
    """None where nothing is embedded."""
    seconds: dict[str, float]


class _Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say, the commonest first. `lexemes` are how the search index writes each of them."""

    words: list[str]
    lexemes: list[list[str]]
    paths: list[str]
    path_lexemes: list[list[str]]
    vectors: Floats | None


class _Projects(msgspec.Struct, frozen=True, kw_only=True):
    """Whose the documents are: by document in the order of time the place of its project, and by project what it is about."""

    ids: list[UUID]
    teams: list[UUID]
    of: list[int]
    sessions: list[UUID]
    subjects: list[Numbers]


def library(world: World, documents: int, *, sizes: Sequence[int] = (100, 10_000, 50_000, 100_000, 200_000)) -> Library:
    """A fresh place whose team has so many documents: a project of each of the sizes that are less than all, and many others.

    Another team has a tenth as many. Vacuumed and analysed as autovacuum would have; the team has an index of its vectors,
    whether or not they are so many that it would have been given one. The same documents every time.
    """
    place = world.place()
    rng = np.random.default_rng(11)
    seconds: dict[str, float] = {}
    with psycopg.connect(place.superuser_url, autocommit=True) as conn:
        began = time.monotonic()
        words = _vocabulary(conn, rng)
        other_team = uuid4()
        wanted = [size for size in sizes if size < documents]
        whose = _projects(place, other_team, documents, wanted, rng)
        _register(conn, place, other_team, whose)
        model_id = _model(conn) if words.vectors is not None else None
        later = _without_indexes(conn)
        for first in range(0, len(whose.of), _CHUNK):
            _copy(conn, words, whose, first, rng, model_id)
        seconds["copy"] = time.monotonic() - began
        began = time.monotonic()
        conn.execute("SET maintenance_work_mem = '1GB'")
        for statement in later:
            conn.execute(statement.encode())
        conn.execute(_REST)
        conn.execute("VACUUM (ANALYZE, FREEZE)")
        seconds["index"] = time.monotonic() - began
    if model_id is not None:
        began = time.monotonic()
        asyncio.run(_index(place, model_id, documents))
        seconds["approximate index"] = time.monotonic() - began
    return Library(
        place=place,
        documents=documents,
        projects=dict(zip(wanted, whose.ids, strict=False)),
        other_team=other_team,
        model_id=model_id,
        seconds=seconds,
    )


# -- what there is to say


def _vocabulary(conn: psycopg.Connection, rng: np.random.Generator) -> _Vocabulary:
    """The words of the history of coding agents by how often they are there, then names and rare words made of two of them."""
    said = Counter[str]()
    for file in sorted((HERE / "sessions").glob("*.json")):
        for one in json.loads(file.read_text(encoding="utf-8"))["observations"]:
            said.update(re.findall(r"[a-z]{3,}", " ".join([one["title"], one["narrative"], *one["facts"]]).lower()))
    known = [word for word, _ in said.most_common()]
    lexemes = dict(zip(known, _lexemes(conn, known), strict=True))
    words = [word for word in known if lexemes[word]]
    seen = set(words)
    while len(words) < _WORDS:
        one, other = (known[int(place)] for place in rng.integers(50, len(known), 2))
        kind = int(rng.integers(0, 10))
        made = f"{one}{other}" if kind < 7 else f"{one}{other.title()}" if kind < 9 else f"{one}_{other}"
        if made not in seen:
            seen.add(made)
            words.append(made)
    folders = [f"{known[int(a)]}/{known[int(b)]}" for a, b in rng.integers(50, len(known), (_PATHS // 20, 2))]
    paths = [f"src/{folders[place // 20]}/{words[int(rng.integers(50, _WORDS))]}.ts" for place in range(_PATHS)]
    return _Vocabulary(
        words=words,
        lexemes=_lexemes(conn, words),
        paths=paths,
        path_lexemes=_lexemes(conn, [f"{path} {path.replace('/', ' ')}" for path in paths]),
        vectors=_vectors(words),
    )


def _lexemes(conn: psycopg.Connection, texts: list[str]) -> list[list[str]]:
    rows = conn.execute(
        """SELECT ARRAY(SELECT u.lexeme FROM unnest(search_words('english', t.said)) u, unnest(u.positions) ORDER BY u.lexeme)
             FROM unnest(%s::text[]) WITH ORDINALITY AS t (said, place) ORDER BY place""",
        [texts],
    )
    return [row[0] for row in rows]


def _vectors(words: Sequence[str]) -> Floats | None:
    if not local.is_installed():
        return None
    embedder = local.LocalEmbedder(DIMENSIONS)
    found: list[list[float]] = []
    for first in range(0, len(words), embedder.max_texts):
        found += asyncio.run(embedder.embed(words[first : first + embedder.max_texts], "document"))
    return np.array(found, dtype=np.float32)


def vector_text(vector: Sequence[float]) -> str:
    """As pgvector reads it."""
    return "[" + ",".join(map(repr, vector)) + "]"


# -- whose it is


def _projects(place: Place, other_team: UUID, documents: int, sizes: Sequence[int], rng: np.random.Generator) -> _Projects:
    """Projects of these sizes and then of sizes as they come, with which sessions take turns."""
    many = list(sizes)
    while sum(many) < documents:
        many.append(min(int(20 * (1 + rng.pareto(0.9))), 40_000, documents - sum(many)))
    mine = len(many)
    while sum(many[mine:]) < documents // _OF_THE_OTHER_TEAM:
        many.append(min(int(20 * (1 + rng.pareto(0.9))), documents // _OF_THE_OTHER_TEAM - sum(many[mine:])))
    turns = np.concatenate([np.full(-(-size // _SESSION), number) for number, size in enumerate(many)])
    rng.shuffle(turns)
    left = list(many)
    of: list[int] = []
    sessions: list[UUID] = []
    for number in _list(turns):
        taken = min(_SESSION, left[number])
        left[number] -= taken
        of += [number] * taken
        sessions += [_uuid(rng)] * taken
    return _Projects(
        ids=[_uuid(rng) for _ in many],
        teams=[place.team_id if number < mine else other_team for number in range(len(many))],
        of=of,
        sessions=sessions,
        subjects=[rng.choice(_SUBJECTS, min(3 + int(size**0.4), _SUBJECTS), replace=False) for size in many],
    )


def _register(conn: psycopg.Connection, place: Place, other_team: UUID, whose: _Projects) -> None:
    conn.execute("INSERT INTO teams (id, name) VALUES (%s, 'other')", [other_team])
    names = [f"p{number}" for number in range(len(whose.ids))]
    conn.execute(
        """INSERT INTO projects (id, team_id, canonical_id, name)
           SELECT i, t, n, n FROM unnest(%s::uuid[], %s::uuid[], %s::text[]) u (i, t, n)""",
        [whose.ids, whose.teams, names],
    )
    last_numbers = {whose.teams[project]: number for number, project in enumerate(whose.of, start=1)}
    for team, last in last_numbers.items():
        conn.execute("INSERT INTO observation_counters (team_id, last_number) VALUES (%s, %s)", [team, last])
    assert place.team_id in last_numbers


def _model(conn: psycopg.Connection) -> int | None:
    """The local model as the one in use; None without pgvector."""
    if conn.execute("SELECT FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
        return None
    row = conn.execute(
        """INSERT INTO embedding_models (provider, model, dimensions, state, is_backfilled, switched_at)
           VALUES ('local', %s, %s, 'current', true, now()) RETURNING id""",
        [local.LocalEmbedder(DIMENSIONS).model, DIMENSIONS],
    ).fetchone()
    assert row
    return int(row[0])


# -- rows

_COPY = """
    COPY observations (id, number, project_id, team_id, server_session_id, scope, kind, type, origin, title, narrative, facts,
                       concepts, files_modified, content, content_search, content_words, read_tokens, discovery_tokens, created_at,
                       updated_at)
    FROM STDIN
"""
_COPY_VECTORS = """
    COPY observation_embeddings (observation_id, model_id, team_id, project_id, embedding, embedded_at) FROM STDIN (FORMAT binary)
"""
_REST = """
    INSERT INTO server_sessions (id, project_id, team_id, external_session_id, content_session_id, started_at, created_at)
    SELECT server_session_id, project_id, team_id, server_session_id::text, server_session_id::text, min(created_at),
           min(created_at)
      FROM observations GROUP BY server_session_id, project_id, team_id
"""
_TYPES = ("bugfix", "feature", "refactor", "change", "discovery", "decision")


def _without_indexes(conn: psycopg.Connection) -> list[str]:
    """Fill past triggers and indexes, undisturbed; the statements that put everything right again."""
    conn.execute("SET session_replication_role = replica")
    conn.execute("ALTER TABLE observations SET (autovacuum_enabled = false)")
    conn.execute("ALTER TABLE observation_embeddings SET (autovacuum_enabled = false)")
    rows = conn.execute(
        """SELECT i.relname, pg_get_indexdef(i.oid) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
            WHERE x.indrelid IN ('observations'::regclass, 'observation_embeddings'::regclass)
              AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.oid)"""
    ).fetchall()
    for name, _ in rows:
        conn.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
    usual = [f"ALTER TABLE {table} RESET (autovacuum_enabled)" for table in ("observations", "observation_embeddings")]
    return [*(made for _, made in rows), *usual]


def _copy(
    conn: psycopg.Connection, words: _Vocabulary, whose: _Projects, first: int, rng: np.random.Generator, model_id: int | None
) -> None:
    of = whose.of[first : first + _CHUNK]
    drawn = _drawn(whose, of, rng)
    files = _files(whose, of, rng)
    step = _YEARS_MS / len(whose.of)
    now = int(time.time() * 1000) - _YEARS_MS
    stamps = [now + int((first + place) * step) for place in range(len(of))]
    ids = [_uuid7(stamp, rng) for stamp in stamps]
    with conn.cursor().copy(_COPY) as copy:
        for row in _rows(words, whose, first, drawn, files, stamps, ids):
            copy.write(row)
    if model_id is not None and words.vectors is not None:
        vectors = np.zeros((len(of), DIMENSIONS), dtype=np.float32)
        for place in range(_TEXT):
            vectors += words.vectors[drawn[:, place]]
        with conn.cursor().copy(_COPY_VECTORS) as copy:
            copy.write(_binary(vectors, ids, model_id, whose, of))


def _drawn(whose: _Projects, of: Sequence[int], rng: np.random.Generator) -> Numbers:
    """A quarter of the words is anybody's, the others are of the subject, of which a project has some.

    So the vectors stand to each other as those of the history do: a mean cosine of 0.17 (there 0.15), with a deviation of 0.08
    (0.09). With less in common within a subject they would all be equally far from each other, which nothing real is.
    """
    ranks = np.arange(_WORDS)
    weights = np.cumsum(1 / (ranks + 40.0) ** 1.05)
    anyones = cast("Numbers", np.searchsorted(weights, rng.random((len(of), _TEXT)) * weights[-1]))
    subject: Numbers = np.array([whose.subjects[number][int(rng.random() ** 2 * len(whose.subjects[number]))] for number in of])
    own = (rng.random((len(of), _TEXT)) ** 3 * _SUBJECT_WORDS).astype(np.int64)
    return np.where(rng.random((len(of), _TEXT)) < 0.25, anyones, _subject_words()[subject[:, None], own])


def _subject_words() -> Numbers:
    """Of each subject, from rather common ones to rare ones."""
    rng = np.random.default_rng(5)
    return np.exp(rng.uniform(np.log(40), np.log(_WORDS), (_SUBJECTS, _SUBJECT_WORDS))).astype(np.int64)


def _files(whose: _Projects, of: Sequence[int], rng: np.random.Generator) -> Numbers:
    """Two files each, from the part of all that is the project's."""
    start: Numbers = (np.array(of) * 7919) % _PATHS
    return (start[:, None] + (rng.random((len(of), 2)) ** 2 * 300).astype(np.int64)) % _PATHS


def _rows(
    words: _Vocabulary, whose: _Projects, first: int, drawn: Numbers, files: Numbers, stamps: Sequence[int], ids: Sequence[UUID]
) -> Iterator[str]:
    for place, (said, paths) in enumerate(zip(_lists(drawn), _lists(files), strict=True)):
        number = first + place
        project = whose.of[number]
        text = [words.words[word] for word in said]
        title, narrative = " ".join(text[:_TITLE]), " ".join(text[_TITLE + _FACTS :])
        facts = [" ".join(text[at : at + 8]) for at in range(_TITLE, _TITLE + _FACTS, 8)]
        concepts = (f"area{number % 100}", "gotcha")
        vector, length = _vector(words, said, paths, concepts)
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(stamps[place] / 1000)) + f".{stamps[place] % 1000:03d}+00"
        scope = "team" if number % _SHARED_EVERY == 7 else "project"
        content = f"{title}\\n\\n{narrative}\\n\\n" + "\\n".join(facts)
        yield (
            "\t".join(
                [
                    str(ids[place]),
                    str(number + 1),
                    str(whose.ids[project]),
                    str(whose.teams[project]),
                    str(whose.sessions[number]),
                    scope,
                    "summary" if number % 25 == 0 else "observation",
                    _TYPES[number % len(_TYPES)],
                    "model",
                    title,
                    narrative,
                    "{" + ",".join(f'"{fact}"' for fact in facts) + "}",
                    "{" + ",".join(concepts) + "}",
                    "{" + ",".join(words.paths[path] for path in paths) + "}",
                    content,
                    vector,
                    str(length),
                    "160",
                    "1600",
                    at,
                    at,
                ]
            )
            + "\n"
        )


def _vector(words: _Vocabulary, said: Sequence[int], paths: Sequence[int], concepts: Sequence[str]) -> tuple[str, int]:
    """The tsvector as text, and how many words it has: of the title, the facts, the narrative, and of concepts and files."""
    parts: list[str] = []
    place = 0
    for number, word in enumerate(said):
        letter = "A" if number < _TITLE else "B" if number < _TITLE + _FACTS else "C"
        for lexeme in words.lexemes[word]:
            place += 1
            parts.append(f"'{lexeme}':{place}{letter}")
    for lexeme in (*concepts, *(lexeme for path in paths for lexeme in words.path_lexemes[path])):
        place += 1
        parts.append(f"'{lexeme}':{place}")
    return " ".join(parts), place


def _binary(vectors: Floats, ids: Sequence[UUID], model_id: int, whose: _Projects, of: Sequence[int]) -> bytes:
    """Rows as COPY reads them in binary: for each column its length and value, and a halfvec is its length, 0, and its numbers."""
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(">f2")
    row = np.dtype(
        [("fields", ">i2"), ("n1", ">i4"), ("id", "V16"), ("n2", ">i4"), ("model", ">i2"), ("n3", ">i4"), ("team", "V16"),
         ("n4", ">i4"), ("project", "V16"), ("n5", ">i4"), ("dim", ">i2"), ("unused", ">i2"), ("vector", ">f2", (DIMENSIONS,)),
         ("n6", ">i4"), ("at", ">i8")]
    )  # fmt: skip
    rows = np.zeros(len(ids), dtype=row)
    for name, value in {
        "fields": 6,
        "n1": 16,
        "n2": 2,
        "n3": 16,
        "n4": 16,
        "n5": 4 + 2 * DIMENSIONS,
        "n6": 8,
        "model": model_id,
        "dim": DIMENSIONS,
    }.items():
        rows[name] = value
    rows["id"] = np.array([np.void(one.bytes) for one in ids])
    rows["team"] = np.array([np.void(whose.teams[number].bytes) for number in of])
    rows["project"] = np.array([np.void(whose.ids[number].bytes) for number in of])
    rows["vector"] = unit
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"


def _list(numbers: Numbers) -> list[int]:
    return cast("list[int]", numbers.tolist())


def _lists(numbers: Numbers) -> list[list[int]]:
    return cast("list[list[int]]", numbers.tolist())


def _uuid(rng: np.random.Generator) -> UUID:
    return UUID(bytes=rng.bytes(16), version=4)


def _uuid7(stamp: int, rng: np.random.Generator) -> UUID:
    return UUID(bytes=stamp.to_bytes(6) + bytes([0x70 | (stamp % 16)]) + rng.bytes(9))


async def _index(place: Place, model_id: int, documents: int) -> None:
    """The index that the program makes of a large team's vectors."""
    async with Db(place.url) as db, db.system_statement() as conn:
        assert await embeddings.try_to_index(conn)
        await embeddings.create_index(conn, place.team_id, model_id, DIMENSIONS, lists_for(documents))
        await embeddings.end_indexing(conn)
