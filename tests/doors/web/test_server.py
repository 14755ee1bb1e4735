"""The page of the server: what an operator sees of it, its backups, and what they do with accounts."""

from __future__ import annotations

import getpass
import re
import socket
from datetime import UTC, datetime

import httpx

from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.settings import Settings
from cmserver.ops.backup.catalog import DrillReport, keep_drill
from tests.conftest import Cast
from tests.doors.web.visitor import visit_as


async def test_an_operator_sees_versions_sizes_backups_and_the_last_drill(
    app: AsgiFrame, db: Db, client: httpx.AsyncClient, cast: Cast, settings: Settings
):
    operator = await visit_as(app, db, cast.alice.team_id, "viewer", is_operator=True)
    before = await operator.get("/ui/server")
    async with db.system() as conn:
        for month in ("2026-01-01", "2026-03-01"):
            await conn.execute(
                "INSERT INTO usage_counters (team_id, kind, month, amount, api_key_id) VALUES (%s, 'requests', %s, 7, %s)",
                [cast.alice.team_id, month, cast.alice.team_id],
            )
    settings.backup_folder.mkdir(parents=True)
    (settings.backup_folder / "damaged.backup").write_bytes(b"no zip")
    now = datetime.now(UTC)
    drill = DrillReport(
        at=now, backup="cmserver-1.backup", backup_created_at=now, passed=False, problem="No room.", rows=0, seconds=1
    )
    keep_drill(settings.backup_folder, drill)

    page = await operator.get("/ui/server")
    backups = (await client.get("/v1/server", headers=cast.alice.headers)).json()["backups"]

    assert re.search("<dt>Last drill</dt><dd><span[^>]*>never", before.text)
    assert "1, 6 B, 1 damaged" in page.text
    assert '<p class="warning" role="status">There is no backup of this server.</p>' in page.text
    assert f"as the account <strong>{getpass.getuser()}</strong>:" in page.text
    assert f"its name is <strong>{socket.gethostname()}</strong>" in page.text
    assert "<title>2026-02: 0</title>" in page.text
    assert "<title>2026-03: 7</title>" in page.text
    for command in ("cmserver backup", "cmserver backups verify", "cmserver backup drill", "cmserver verify"):
        assert re.search(rf"<li><code>{command}</code> [^<]+\.</li>", page.text), command
    assert "The drill of cmserver-1.backup failed. No room." in page.text
    assert (backups["backups"], backups["damaged"], backups["newestAtEpoch"]) == (1, 1, None)
    assert backups["lastDrill"]["passed"] is False


async def test_an_operator_makes_an_operator_and_a_link_for_a_new_password(app: AsgiFrame, db: Db, cast: Cast):
    operator = await visit_as(app, db, cast.alice.team_id, "viewer", is_operator=True)
    bob = await visit_as(app, db, cast.charlie.team_id, "viewer", name="Bob")

    link = await operator.post("/ui/server/accounts/Bob/reset")
    made = await operator.post("/ui/server/accounts/Bob/operator", operator="true")
    seen = await bob.get("/ui/server")
    unmade = await operator.post("/ui/server/accounts/Bob/operator")

    assert re.search(r"/ui/reset/\S+", link.text)
    assert "Bob is an operator now." in made.text
    assert seen.status_code == 200
    assert "Bob is no operator now." in unmade.text
    assert (await bob.get("/ui/server")).status_code == 403
