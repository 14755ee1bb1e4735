"""`cmserver show`, `remember` and `forget`."""

from __future__ import annotations

from pathlib import Path

import httpx
import msgspec
import pytest

from cmserver.base.db import Db
from cmserver.cli import api_client
from cmserver.cli.exit_codes import ExitCode
from cmserver.observations.model import Observation
from cmserver.observations.wire import OneObservationOut
from tests.cli.conftest import Cms, Said
from tests.conftest import Cast, bound_to, mint
from tests.make import Make
from tests.rows import rows

ORDERS = "github.com/acme/orders"


@pytest.fixture
async def pool(cast: Cast, make: Make) -> Observation:
    """An observation of Alice's with everything in it."""
    return await make.observation(
        project=cast.alice.project,
        title="The pool waits",
        subtitle="For a free connection",
        narrative="It waited for ever.\nNow it waits\x1b[31m for 5 s.",
        facts=["The limit is 20."],
        concepts=["how-it-works"],
        files_modified=["src/pool.py"],
        files_read=["src/db.py"],
        type="decision",
    )


def fields(said: Said) -> dict[str, str]:
    head = said.out.split("\n\n")[0].splitlines()[1:]
    return {name: value.strip() for name, _, value in (line.partition(" ") for line in head)}


async def test_an_observation_is_shown_whole(cms: Cms, cast: Cast, pool: Observation):
    said = await cms("show", "1", key=cast.alice.key)

    head, *texts = said.out.rstrip().split("\n\n")
    assert head.splitlines()[0] == "#1 The pool waits"
    assert texts == ["For a free connection", "It waited for ever.\nNow it waits for 5 s.", "- The limit is 20."]
    shown = fields(said)
    assert shown.pop("time").startswith("20")
    assert shown == {
        "type": "decision",
        "project": ORDERS,
        "origin": "model",
        "concepts": "how-it-works",
        "modified": "src/pool.py",
        "read": "src/db.py",
    }


async def test_what_closed_it_and_what_it_rests_on_is_shown(cms: Cms, cast: Cast, db: Db, make: Make, pool: Observation):
    done = await make.observation(project=cast.alice.project)
    async with db.tenant(cast.alice.team_id) as conn:
        await conn.execute(
            "UPDATE observations SET state = 'done', closed_by = %s, closed_at = now(), quote = 'It must end.',"
            " anchors = '{pool.py}' WHERE id = %s",
            [done.number, pool.id],
        )

    said = await cms("show", f"#{pool.number}", key=cast.alice.key)

    assert fields(said)["state"].startswith(f"done with #{done.number}, 20")
    assert fields(said)["anchors"] == "pool.py"
    assert '\n\n"It must end."\n\n' in said.out


async def test_a_summary_is_shown_by_its_parts(cms: Cms, cast: Cast, make: Make):
    summary: dict[str, str | None] = {"request": "Retry the upload", "next_steps": "Measure it"}
    await make.observation(project=cast.alice.project, kind="summary", title=None, content="x", summary=summary)

    said = await cms("show", "S1", key=cast.alice.key)

    assert said.out.endswith("\n\nRequest: Retry the upload\n\nNext steps: Measure it\n")


async def test_several_are_shown_and_what_is_missing_is_named(cms: Cms, cast: Cast, make: Make, pool: Observation):
    await make.observation(project=cast.alice.project, title="The pool is drained")

    said = await cms("show", "9", "1", "2", "1", "nonsense", key=cast.alice.key)

    assert [line for line in said.out.splitlines() if line.startswith("#")] == ["#1 The pool waits", "#2 The pool is drained"]
    assert said.code == ExitCode.FAILURE
    assert ("#9, nonsense" in said.err, "#1" in said.err) == (True, False)


async def test_as_json_each_one_is_the_answer_of_the_server(cms: Cms, cast: Cast, pool: Observation):
    said = await cms("show", "1", "--json", key=cast.alice.key)

    assert said.read(OneObservationOut).observation.id == pool.id


async def test_what_another_project_shares_is_shown_to_a_key_of_one_project(
    cms: Cms, cast: Cast, client: httpx.AsyncClient, db: Db
):
    shared = {"projectId": ORDERS, "title": "Never on a Friday", "scope": "team"}
    assert (await client.post("/v1/observations", json=shared, headers=cast.alice.headers)).status_code == 201
    bound = await bound_to(db, cast.alice, "github.com/acme/bills")

    said = await cms("show", "1", key=bound.key)

    assert said.code == ExitCode.OK
    assert fields(said)["project"] == f"{cast.alice.project.id} (shared with the team)"


async def test_what_is_remembered_stands_with_what_users_laid_down_unless_it_is_said_to_be_something_else(
    cms: Cms, client: httpx.AsyncClient, cast: Cast
):
    async def remember(text: str, *options: str) -> str:
        return (await cms("remember", text, *options, "--project", ORDERS, key=cast.alice.key)).out

    said = await remember("Because of the lock.", "--title", "No Fridays")
    stored = (await cms("show", "1", "--json", key=cast.alice.key)).read(OneObservationOut).observation
    await remember("It is slow.", "--importance", "0.4")
    await remember("The cache is per process.", "--type", "discovery")
    await remember("The staging database moves.", "--expires-after", "1")
    shown = await client.get("/v1/context", params={"project": ORDERS}, headers=cast.alice.headers)
    laid_down, _, others = shown.json()["context"].partition("Laid down by users")[2].partition("\n\n")

    assert said == "#1 No Fridays\n"
    assert (stored.kind, stored.type, stored.narrative) == ("manual", "decision", "Because of the lock.")
    assert "No Fridays" in laid_down
    for text in ("It is slow", "The cache is per process", "The staging database moves"):
        assert (text in laid_down, text in others) == (False, True)


async def test_a_text_is_read_from_standard_input(cms: Cms, cast: Cast):
    said = await cms(
        "remember", "-", "--project", ORDERS, "--json", key=cast.alice.key, stdin="The cache is per process.\nSo flush it.\n"
    )
    empty = await cms("remember", "-", "--project", ORDERS, key=cast.alice.key, stdin=" \n")

    observation = said.read(OneObservationOut).observation
    assert (observation.narrative, observation.type) == ("The cache is per process.\nSo flush it.", "decision")
    assert empty.code == ExitCode.USAGE


async def test_in_a_checkout_the_project_need_not_be_named(cms: Cms, cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text('[remote "origin"]\n\turl = git@github.com:acme/orders.git\n')
    monkeypatch.chdir(tmp_path)

    said = await cms("remember", "The cache is per process.", "--json", key=cast.alice.key)

    assert said.read(OneObservationOut).observation.project_id == cast.alice.project.id


async def test_a_text_that_begins_with_a_dash_is_hinted(cms: Cms, cast: Cast):
    refused = await cms("remember", "-D is for debug builds", "--project", ORDERS, key=cast.alice.key)
    stored = await cms("remember", "--project", ORDERS, "--", "-D is for debug builds", key=cast.alice.key)

    assert refused.code == ExitCode.USAGE
    assert "comes after --: `" in refused.err
    assert "remember -- '-…'`" in refused.err
    assert stored.out == "#1 -D is for debug builds\n"


async def test_remembering_in_a_project_that_does_not_exist_makes_it(
    cms: Cms, cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)

    named = await cms("remember", "The demo runs on Fridays.", "--project", "demo", key=cast.alice.key)
    here = await cms("remember", "The clone is fresh.", key=cast.alice.key)

    assert (named.code, here.code) == (0, 0), named.err + here.err
    assert "Made the project demo." in named.err
    assert tmp_path.name in here.err


async def test_what_has_expired_is_listed_and_brought_back(cms: Cms, cast: Cast, pool: Observation):
    await cms("expire", "1", key=cast.alice.key)

    left = await cms("list", key=cast.alice.key)
    expired = await cms("list", "--state", "expired", "--json", key=cast.alice.key)
    await cms("undo", "1", key=cast.alice.key)
    again = await cms("list", "--state", "expired", key=cast.alice.key)

    assert left.out == again.out == "There are no such observations.\n"
    assert [row["number"] for row in msgspec.json.decode(expired.out)["observations"]] == [pool.number]


async def test_what_is_listed_can_be_edited_closed_and_undone(cms: Cms, cast: Cast, make: Make, db: Db, pool: Observation):
    await make.observation(project=cast.alice.project, title="Still to do: the index")
    key = cast.alice.key
    await cms("close", "2", "--open", key=key)

    edited = await cms("edit", "#1", "--title", "The pool waits 5 s", "--type", "discovery", key=key)
    nothing = await cms("edit", "1", key=key)
    turn = await make.turn(project=cast.alice.project, prompt="We deploy on Fridays.")
    lines = [await cms("edit", f"#{turn.number}", "--line", line, key=key) for line in ("We deploy on Mondays.", "", "-")]
    both = await cms("edit", f"{turn.number}", "--line", "", "--title", "No", key=key)
    open_ones = await cms("list", "--state", "open", key=key)
    closed = await cms("close", "2", key=key)
    dropped = await cms("close", "1", "--dropped", key=key)
    left = await cms("list", "--state", "open", key=key)
    undone = await cms("undo", "2", key=key)
    again = await cms("list", "--state", "open", "--project", ORDERS, key=key)

    assert (closed.out[:8], dropped.out[:11], undone.out[:10]) == ("Done: #2", "Dropped: #1", "Undone: #2")
    assert edited.out == "#1 The pool waits 5 s\n"
    assert (nothing.code, "Nothing to change" in nothing.err) == (2, True)
    assert ["line" in it.out and "Mondays" in it.out for it in lines] == [True, False, False]
    assert ["left it out" in it.out for it in lines] == [False, True, False]
    assert (both.code, "--line is of turns" in both.err) == (2, True)
    assert "Still to do: the index" in open_ones.out
    assert "The pool" not in open_ones.out
    assert (closed.code, dropped.code, undone.code) == (0, 0, 0)
    assert "Still to do" not in left.out
    assert "Still to do" in again.out
    assert fields(await cms("show", "1", key=key))["state"].startswith("dropped")
    audited = await rows(
        db, "SELECT action, actor_id AS actor, resource_id FROM audit_log WHERE action LIKE 'observation.%%' ORDER BY id"
    )
    assert [row["action"] for row in audited] == [*["observation.corrected"] * 4, "observation.undone"]
    assert {row["actor"] for row in audited} == {cast.alice.principal.actor_id}


async def test_without_the_scope_it_is_said_how_to_get_a_key_that_has_it(cms: Cms, cast: Cast, db: Db, pool: Observation):
    _, key = await mint(db, cast.alice.team_id, "reader", scopes=["memories:read"])

    remembered = await cms("remember", "Anything.", "--project", ORDERS, key=key)
    forgotten = await cms("forget", "1", "--yes", key=key)

    for said in (remembered, forgotten):
        assert (said.code, said.out) == (ExitCode.FAILURE, "")
        assert "keys create --scope observations:write" in said.err
        assert "--allow-writing" in said.err


async def test_what_is_forgotten_is_no_longer_there(cms: Cms, cast: Cast, make: Make, pool: Observation):
    await make.observation(project=cast.alice.project, title="The pool is drained")

    said = await cms("forget", "1", "9", "#2", "--yes", key=cast.alice.key)

    assert said.out == "Deleted #1.\nDeleted #2.\n"
    assert (said.code, "#9" in said.err) == (ExitCode.FAILURE, True)
    assert (await cms("show", "1", key=cast.alice.key)).code == ExitCode.FAILURE


async def test_without_a_terminal_nothing_is_forgotten_unless_it_is_confirmed(cms: Cms, cast: Cast, pool: Observation):
    said = await cms("forget", "1", key=cast.alice.key)

    assert (said.code, "--yes" in said.err) == (ExitCode.USAGE, True)
    assert (await cms("show", "1", key=cast.alice.key)).code == ExitCode.OK


async def test_on_a_terminal_the_title_is_shown_before_it_is_forgotten(
    cms: Cms, cast: Cast, pool: Observation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(api_client, "is_interactive", lambda: True)

    missing = await cms("forget", "1", "9", key=cast.alice.key, stdin="y\n")
    refused = await cms("forget", "1", key=cast.alice.key, stdin="n\n")
    confirmed = await cms("forget", "1", "--json", key=cast.alice.key, stdin="y\n")

    assert (missing.code, missing.out) == (ExitCode.FAILURE, "")
    assert (refused.code, refused.out, "#1 The pool waits" in refused.err) == (ExitCode.FAILURE, "", True)
    assert msgspec.json.decode(confirmed.out)["deleted"] is True
