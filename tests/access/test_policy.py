"""What is stored as a policy is one, whoever writes it: a mistyped one would break every later reading of the project."""

from __future__ import annotations

from typing import LiteralString

import msgspec
import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cmserver.access.model import GenerationPolicy, RetentionPolicy
from cmserver.base.ids import new_id
from tests.conftest import Server
from tests.table import try_rows

GOOD_GENERATION: list[object] = [
    {},
    {"mode": "at_end"},
    {"mode": None},
    {"debounceSeconds": 0.5, "skipTools": ["Read"], "skipEventTypes": []},
    {"verbosity": "minimal", "language": "German", "skipRules": ["path:**/*.lock", "What only moves files."]},
    {"verbosity": None, "language": None, "skipRules": []},
    {"skipTools": ["x" * 100] * 100, "skipEventTypes": ["x"], "skipRules": ["x" * 200] * 50},
]
BAD_GENERATION: list[object] = [
    [],
    "burst",
    {"mode": "sometimes"},
    {"mod": "burst"},
    {"debounceSeconds": "2"},
    {"debounceSeconds": -1},
    {"debounceSeconds": 3601},
    {"skipTools": "Read"},
    {"skipEventTypes": [1]},
    {"verbosity": "chatty"},
    {"verbosity": 1},
    {"language": 1},
    {"language": "x"},
    {"language": "x" * 41},
    {"skipRules": "path:x"},
    {"skipRules": [1]},
    {"skipRules": ["ab"]},
    {"skipRules": ["x" * 201]},
    {"skipRules": ["abc"] * 51},
    {"skipTools": [""]},
    {"skipEventTypes": ["x" * 101]},
    {"skipTools": ["x"] * 101},
]
GOOD_RETENTION: list[object] = [
    {},
    {"observationsDays": 90, "minImportance": 0.75, "promoteAccesses": 3},
    {"eventsDays": 0, "jobLogDays": 36_500, "receiptsDays": None, "auditDays": 400},
    {"minImportance": 1},
    {"defaultTtlSeconds": 3600, "extendFactor": 0.25, "promoteImportance": 0.9, "cleanupSeconds": 300},
    {"suggestAbove": 0.75, "autoMergeAbove": 0.92, "mergeStrategy": "append"},
    {"autoMergeAbove": None, "mergeStrategy": None},
]
BAD_RETENTION: list[object] = [
    [],
    90,
    {"days": 90},
    {"eventsDays": -1},
    {"eventsDays": 36_501},
    {"eventsDays": 1.5},
    {"eventsDays": "90"},
    {"minImportance": 1.1},
    {"promoteAccesses": 0},
    {"auditDays": []},
    {"defaultTtlSeconds": 0},
    {"defaultTtlSeconds": 0.5},
    {"extendFactor": -1},
    {"cleanupSeconds": "300"},
    {"suggestAbove": 1.5},
    {"autoMergeAbove": 92},
    {"mergeStrategy": "mine"},
    {"mergeStrategy": 1},
]
GOOD = [(GenerationPolicy, policy) for policy in GOOD_GENERATION] + [(RetentionPolicy, policy) for policy in GOOD_RETENTION]
BAD = [(GenerationPolicy, policy) for policy in BAD_GENERATION] + [(RetentionPolicy, policy) for policy in BAD_RETENTION]
COLUMNS: dict[type[msgspec.Struct], LiteralString] = {GenerationPolicy: "generation_policy", RetentionPolicy: "retention"}


@pytest.fixture
def conn(server: Server, template: str):
    with psycopg.connect(server.url(template)) as opened:
        yield opened


def write(conn: psycopg.Connection, type_: type[msgspec.Struct], policy: object) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute(f"INSERT INTO teams (id, name, {COLUMNS[type_]}) VALUES (%s, 'green', %s)", [new_id(), Jsonb(policy)])


@try_rows(("type_", "policy"), GOOD)
def test_what_psql_may_write_the_program_can_read(conn: psycopg.Connection, type_: type[msgspec.Struct], policy: object):
    write(conn, type_, policy)

    msgspec.convert(policy, type_)


@try_rows(("type_", "policy"), BAD)
def test_what_the_program_could_not_read_is_refused(conn: psycopg.Connection, type_: type[msgspec.Struct], policy: object):
    with pytest.raises(errors.CheckViolation):
        write(conn, type_, policy)

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(policy, type_)
