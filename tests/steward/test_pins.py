"""A merge that breaks what is pinned is undone, or told."""

from __future__ import annotations

import httpx
import pytest

from tests.conftest import Cast
from tests.pins.tools import audited, send
from tests.steward.corpus import Case, Note
from tests.steward.tools import Keeper, Model, plant

PAIR = Case(
    name="pinned",
    kind="paraphrase",
    notes=(
        Note(title="Deploys of orders run the migrations first"),
        Note(title="Deploys of orders run the migrations first, while the operator watches the log", session=2, day=2),
    ),
    same=True,
)
PAIR_PROJECT = "github.com/corpus/pinned"
SURE = '{"same": true, "conflict": false, "confidence": 0.97, "reason": "same fact"}'


@pytest.mark.parametrize("on_break", ["refuse", "report"])
async def test_a_merge_of_the_steward_that_breaks_a_pin_is_undone_or_told(
    client: httpx.AsyncClient,
    cast: Cast,
    asking: Keeper,
    model: Model,
    on_break: str,
):
    planted = await plant(asking.db, asking.principal, PAIR)
    await send(
        client, cast, "POST", "/v1/observations", {"projectId": PAIR_PROJECT, "title": "Migrations of payroll are run by hand"}, 201
    )
    body = {"projectId": PAIR_PROJECT, "question": "deploys of orders run the migrations", "mustNot": ["payroll"], "lines": 2}
    assert (await send(client, cast, "POST", "/v1/pins", {**body, "onBreak": on_break}, 201))["holds"]
    never = {**body, "question": "lunch", "mustNot": [], "must": ["x"], "onBreak": "refuse"}
    assert not (await send(client, cast, "POST", "/v1/pins", never, 201))["holds"]
    await asking.switch("write")
    model.reply = SURE

    (run,) = await asking.work("auto_merge")

    left = [row.number for row in await asking.observations(planted.project) if "orders" in (row.title or "")]
    refused = on_break == "refuse"
    assert (run.status, len(left)) == (("skipped", 2) if refused else ("succeeded", 1))
    action = "pins.kept" if refused else "pins.lost"
    assert await audited(asking.db) == [{"action": action, "actor_id": "steward", "cause": "steward", "numbers": [1]}]
    listed = await send(client, cast, "GET", "/v1/pins")
    assert {it["number"]: it["holds"] for it in listed["pins"]} == {1: refused, 2: False}
    assert await asking.plan("auto_merge") == [], "it is left to a person"
