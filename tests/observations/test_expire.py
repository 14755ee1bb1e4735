"""Ending the time of an observation by hand, and bringing it back."""

from __future__ import annotations

import httpx

from tests.conftest import Cast
from tests.make import Make


async def test_what_is_expired_by_hand_is_gone_and_undo_brings_it_back_for_good(client: httpx.AsyncClient, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    path = f"/v1/observations/{observation.number}"

    expired = await client.post(f"{path}/expire", headers=cast.alice.headers)
    gone = await client.get(path, headers=cast.alice.headers)
    undone = await client.post(f"{path}/undo", headers=cast.alice.headers)
    back = await client.get(path, headers=cast.alice.headers)

    assert expired.status_code == 200, expired.text
    assert expired.json()["observation"]["expiresAtEpoch"] is not None
    assert gone.status_code == 410
    assert undone.json()["restored"] == [observation.number]
    assert back.json()["observation"]["expiresAtEpoch"] is None


async def test_what_has_expired_cannot_be_expired_again(client: httpx.AsyncClient, cast: Cast, make: Make):
    observation = await make.observation(project=cast.alice.project)
    path = f"/v1/observations/{observation.number}/expire"

    first = await client.post(path, headers=cast.alice.headers)
    second = await client.post(path, headers=cast.alice.headers)

    assert (first.status_code, second.status_code) == (200, 410)
