"""What is stored as a policy is one, whoever writes it: a mistyped one would break every later reading of the project."""

from __future__ import annotations

import msgspec
import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cmserver.access.model import GenerationPolicy
from cmserver.base.ids import new_id
from tests.conftest import Server

GOOD: list[object] = [
    {},
    {"mode": "at_end"},
    {"mode": None},
    {"debounceSeconds": 0.5, "skipTools": ["Read"], "skipEventTypes": []},
    {"verbosity": "minimal", "language": "German", "skipRules": ["path:**/*.lock", "What only moves files."]},
    {"verbosity": None, "language": None, "skipRules": []},
    {"skipTools": ["x" * 100] * 100, "skipEventTypes": ["x"], "skipRules": ["x" * 200] * 50},
]
BAD: list[object] = [
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


@pytest.fixture
def conn(server: Server, template: str):
    with psycopg.connect(server.url(template)) as opened:
        yield opened
        opened.rollback()


def write(conn: psycopg.Connection, policy: object) -> None:
    conn.execute("INSERT INTO teams (id, name, generation_policy) VALUES (%s, 'green', %s)", [new_id(), Jsonb(policy)])


@pytest.mark.parametrize("policy", GOOD)
def test_what_psql_may_write_the_program_can_read(conn: psycopg.Connection, policy: object):
    write(conn, policy)

    msgspec.convert(policy, GenerationPolicy)


@pytest.mark.parametrize("policy", BAD)
def test_what_the_program_could_not_read_is_refused(conn: psycopg.Connection, policy: object):
    with pytest.raises(errors.CheckViolation):
        write(conn, policy)

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(policy, GenerationPolicy)
