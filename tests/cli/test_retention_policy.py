"""`cmserver projects retention` and `cmserver teams retention`, and `cmserver promote`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cmserver.access.model import RetentionPolicy
from cmserver.access.wire import OneProjectOut, OneTeamOut
from cmserver.base.db import Db
from tests.cli.conftest import Cms
from tests.conftest import Cast
from tests.make import Make

ORDERS = "github.com/acme/orders"


async def test_what_is_not_said_stays_until_it_is_cleared(cms: Cms, cast: Cast):
    await cms("projects", "retention", ORDERS, "--events-days", "30", key=cast.alice.key)

    both = await cms("projects", "retention", ORDERS, "--audit-days", "0", "--json", key=cast.alice.key)
    none = await cms("projects", "retention", ORDERS, "--clear", "--json", key=cast.alice.key)

    assert both.read(OneProjectOut).project.retention == RetentionPolicy(events_days=30, audit_days=0)
    assert none.read(OneProjectOut).project.retention == RetentionPolicy()


async def test_a_team_says_it_for_all_its_projects(cms: Cms, cast: Cast):
    said = await cms("teams", "retention", "blue", "--events-days", "30", "--audit-days", "0", key=cast.alice.key)

    assert said.code == 0, said.err
    assert ["payloads", "of", "events", "30", "days"] in [line.split() for line in said.out.splitlines()]
    assert ["audit", "log", "for", "good"] in [line.split() for line in said.out.splitlines()]


async def test_settings_of_contextify_go_into_the_policy_of_a_team(cms: Cms, cast: Cast, tmp_path: Path):
    await cms("teams", "retention", "blue", "--events-days", "30", "--extend-factor", "2", key=cast.alice.key)
    file = tmp_path / "config.yaml"
    file.write_text("memory: {default_ttl: 1h, ttl_extend_factor: 0.25}\nconsolidation: {auto_merge_threshold: 0.92}\n")

    done = await cms("config", "import", "contextify", str(file), "--team", "blue")
    nobody = await cms("config", "import", "contextify", str(file), "--team", "gold")

    assert (done.code, done.out, nobody.code) == (0, "", 1), done.err
    shown = await cms("teams", "show", "blue", "--json", key=cast.alice.key)
    assert shown.read(OneTeamOut).team.retention == RetentionPolicy(
        events_days=30, extend_factor=0.25, default_ttl_seconds=3600, auto_merge_above=0.92
    )


@pytest.mark.parametrize("words", [["--events-days", "-1"], ["--min-importance", "2"], ["--promote-accesses", "0"]], ids=str)
async def test_a_wrong_value_is_refused(cms: Cms, cast: Cast, words: list[str]):
    assert (await cms("projects", "retention", ORDERS, *words, key=cast.alice.key)).code == 2


async def test_promote_makes_permanent_and_names_what_is_missing(cms: Cms, cast: Cast, db: Db, make: Make):
    observation = await make.observation(project=cast.alice.project)
    async with db.system() as conn:
        await conn.execute("UPDATE observations SET ttl_seconds = 60, expires_at = now() + interval '1 minute'")

    done = await cms("promote", str(observation.number), "99", key=cast.alice.key)

    assert done.code != 0
    assert f"#{observation.number}" in done.out
    assert "#99" in done.err
    async with db.system() as conn:
        cursor = await conn.execute("SELECT ttl_seconds, expires_at FROM observations")
        assert await cursor.fetchall() == [(None, None)]
