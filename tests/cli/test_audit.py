"""`cmserver audit`."""

from __future__ import annotations

from cmserver.access.wire import AuditOut
from tests.cli.conftest import Cms
from tests.conftest import Cast


async def test_the_audit_log_is_filtered(cms: Cms, cast: Cast):
    await cms("projects", "rename", "github.com/acme/orders", "Orders", key=cast.alice.key)
    await cms("keys", "create", key=cast.bob.key)

    renamed = await cms("audit", "list", "--action", "project.updated", key=cast.alice.key)
    of_bob = await cms("audit", "list", "--key-id", str(cast.bob.principal.key_id), "--actor", "bob", key=cast.alice.key)
    of_kind = await cms(
        "audit", "list", "--resource-type", "project", "--resource-id", str(cast.alice.project.id), key=cast.alice.key
    )

    assert renamed.column("id") == [str(cast.alice.project.id)]
    assert of_bob.column("action") == ["key.created"]
    assert set(of_kind.column("of")) == {"project"}
    assert set(of_kind.column("action")) >= {"project.created", "project.updated"}


async def test_the_audit_log_of_another_team_is_not_shown(cms: Cms, cast: Cast):
    await cms("keys", "create", key=cast.bob.key)

    assert (await cms("audit", "list", "--action", "key.created", "--json", key=cast.charlie.key)).read(AuditOut).entries == []
