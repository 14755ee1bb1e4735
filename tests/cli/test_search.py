"""`cmserver search`."""

from __future__ import annotations

import re

import httpx
import msgspec
import pytest

from cmserver.cli.exit_codes import ExitCode
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make

ORDERS = "github.com/acme/orders"


@pytest.fixture
async def filled(cast: Cast, make: Make) -> None:
    await make.observation(project=cast.alice.project, title="The pool waits", type="decision", files_modified=["src/pool.py"])
    await make.observation(project=cast.alice.project, title="The pool is drained", type="change", files_modified=["lib/drain.py"])
    await make.observation(project=cast.alice.project, title="Made it \x1b[31mred", type="change")


async def test_what_fits_is_told_the_best_first(cms: Cms, cast: Cast, filled: None):
    said = await cms("search", "is the pool drained?", key=cast.alice.key)

    first, second = [line for line in said.out.splitlines() if "pool" in line]
    assert "The pool is drained" in first
    assert "The pool waits" in second
    assert "2 found" in said.out


async def test_filters_leave_out(cms: Cms, cast: Cast, filled: None):
    of_type = await cms("search", "pool", "--project", ORDERS, "--type", "decision", key=cast.alice.key)
    of_file = await cms("search", "pool", "--file", "lib/", key=cast.alice.key)

    assert ("waits" in of_type.out, "drained" in of_type.out) == (True, False)
    assert ("waits" in of_file.out, "drained" in of_file.out) == (False, True)


async def test_only_hits_of_a_kind_are_shown_and_prompts_when_asked_for(
    client: httpx.AsyncClient, cms: Cms, cast: Cast, make: Make, filled: None
):
    await make.observation(project=cast.alice.project, title="The pool by hand", kind="manual")
    prompt = {
        "projectId": ORDERS,
        "contentSessionId": "s-1",
        "sourceType": "hook",
        "eventType": "user_prompt",
        "occurredAtEpoch": 1_750_000_000_000,
        "payload": {"prompt": "why does the pool wait?"},
    }
    assert (await client.post("/v1/events", headers=cast.alice.headers, json=prompt)).status_code == 201

    by_hand = await cms("search", "pool", "--kind", "manual", key=cast.alice.key)
    both = await cms("search", "pool", "--kind", "manual", "--kind", "prompt", key=cast.alice.key)
    unknown = await cms("search", "pool", "--kind", "poem", key=cast.alice.key)

    assert ("by hand" in by_hand.out, "waits" in by_hand.out) == (True, False)
    assert ("by hand" in both.out, "why does the pool wait?" in both.out) == (True, True)
    assert (unknown.code, "summary" in unknown.err) == (ExitCode.USAGE, True)


async def test_what_a_sub_agent_was_asked_is_not_told_as_a_turn_of_the_user(client: httpx.AsyncClient, cms: Cms, cast: Cast):
    asked = {
        "projectId": ORDERS,
        "contentSessionId": "s-1",
        "eventType": "machine_prompt",
        "metadata": {"agent_id": "a1"},
        "payload": {"prompt": "Measure the wombat"},
    }
    assert (await client.post("/v1/events", headers=cast.alice.headers, json=asked)).status_code == 201

    told = await cms("search", "wombat", "--kind", "turn", key=cast.alice.key)

    (line,) = [line for line in told.out.splitlines() if "wombat" in line]
    assert "sub-agent" in line


async def test_a_longer_list_says_that_it_goes_on(cms: Cms, cast: Cast, filled: None):
    said = await cms("search", "pool", "--limit", "1", key=cast.alice.key)

    assert "There are more" in said.err


async def test_it_explains_its_scores(cms: Cms, cast: Cast, filled: None):
    said = await cms("search", "pool", "--explain", key=cast.alice.key)

    assert re.search(r"words \d\.\d\d, bm25 \d\.\d\d", said.out)


async def test_as_json_it_is_the_answer_of_the_server(cms: Cms, cast: Cast, filled: None):
    said = await cms("search", "pool", "--json", key=cast.alice.key)

    assert len(msgspec.json.decode(said.out)["observations"]) == 2


async def test_no_title_reaches_the_terminal_as_a_control_sequence(cms: Cms, cast: Cast, filled: None):
    said = await cms("search", "red made", key=cast.alice.key)

    assert "Made it" in said.out
    assert "\x1b" not in said.out


async def test_nothing_is_said_to_fit(cms: Cms, cast: Cast, filled: None):
    said = await cms("search", "kubernetes ingress", key=cast.alice.key)

    assert (said.code, said.out.count("\n"), "number" in said.out) == (0, 1, False)


async def test_a_project_that_is_not_there_is_not_found(cms: Cms, cast: Cast):
    said = await cms("search", "pool", "--project", "github.com/acme/none", key=cast.alice.key)
    near = await cms("search", "pool", "--project", "gitlab.com/acme/ordres", key=cast.alice.key)

    assert (said.code, ORDERS in said.err) == (ExitCode.FAILURE, False)
    assert (near.code, ORDERS in near.err) == (ExitCode.FAILURE, True)
