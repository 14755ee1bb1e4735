"""How long a team and a project keep what: as it is sent, stored and shown, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from cmserver.access.model import RetentionPolicy
from cmserver.base.ids import new_id
from tests.conftest import Cast, Server
from tests.table import try_rows

GOOD: list[object] = [
    {},
    {"observationsDays": 90, "minImportance": 0.75, "promoteAccesses": 3},
    {"eventsDays": 0, "jobLogDays": 36_500, "receiptsDays": None, "auditDays": 400},
    {"minImportance": 1},
]
BAD: list[object] = [
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
]
PATHS = ["/v1/projects/orders", "/v1/teams/blue"]


@pytest.fixture
def conn(server: Server, template: str):
    with psycopg.connect(server.url(template)) as opened:
        yield opened
        opened.rollback()


def write(conn: psycopg.Connection, policy: object) -> None:
    conn.execute("INSERT INTO teams (id, name, retention) VALUES (%s, 'green', %s)", [new_id(), Jsonb(policy)])


@pytest.mark.parametrize("policy", GOOD)
def test_what_psql_may_write_the_program_can_read(conn: psycopg.Connection, policy: object):
    write(conn, policy)

    msgspec.convert(policy, RetentionPolicy)


@pytest.mark.parametrize("policy", BAD)
def test_what_the_program_could_not_read_is_refused(conn: psycopg.Connection, policy: object):
    with pytest.raises(errors.CheckViolation):
        write(conn, policy)

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(policy, RetentionPolicy)


def shown(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    (thing,) = response.json().values()
    return thing["retention"]


@pytest.mark.parametrize("path", PATHS)
async def test_it_is_set_shown_and_cleared_and_the_other_policy_stays(client: httpx.AsyncClient, cast: Cast, path: str):
    wanted = {"observationsDays": 365, "minImportance": 0.5, "eventsDays": 30}
    await client.patch(path, json={"generationPolicy": {"mode": "at_end"}}, headers=cast.alice.headers)

    answer = await client.patch(path, json={"retention": wanted}, headers=cast.alice.headers)
    read = await client.get(path, headers=cast.alice.headers)
    cleared = await client.patch(path, json={"retention": None}, headers=cast.alice.headers)

    assert shown(answer) == shown(read) == wanted
    (thing,) = cleared.json().values()
    assert (thing["retention"], thing["generationPolicy"]) == ({}, {"mode": "at_end"})


@try_rows(
    ("policy", "at"),
    [
        ({"eventsDays": -1}, "$.retention.eventsDays"),
        ({"eventsDays": 0.5}, "$.retention.eventsDays"),
        ({"minImportance": 2}, "$.retention.minImportance"),
        ({"promoteAccesses": 0}, "$.retention.promoteAccesses"),
        ({"telemetryDays": 1}, "$.retention.telemetryDays"),
    ],
)
@try_rows("path", PATHS)
async def test_a_wrong_field_is_named_and_nothing_is_changed(
    client: httpx.AsyncClient, cast: Cast, path: str, policy: object, at: str
):
    refused = await client.patch(path, json={"retention": policy}, headers=cast.alice.headers)

    assert refused.status_code == 400, refused.text
    assert [issue["path"] for issue in refused.json()["issues"]] == [at]
    assert shown(await client.get(path, headers=cast.alice.headers)) == {}
