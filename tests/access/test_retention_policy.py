"""How long a team and a project keep what: as it is sent, stored and shown, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Cast
from tests.table import try_rows

PATHS = ["/v1/projects/orders", "/v1/teams/blue"]


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
