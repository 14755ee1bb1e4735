from __future__ import annotations

import re
from pathlib import Path

from cmserver.access.wire import NewKeyOut, OneKeyOut
from cmserver.base import credentials
from cmserver.base.credentials import Credentials
from cmserver.base.db import Db
from tests.cli.conftest import URL, Cms
from tests.conftest import Cast, mint

KEY = re.compile(r"cms_[0-9a-f]{32}_[0-9a-f]{48}")


async def test_a_quiet_key_is_all_that_is_printed_and_works(cms: Cms, cast: Cast):
    made = await cms("keys", "create", "--scope", "keys:write", "--quiet", key=cast.alice.key)

    assert KEY.fullmatch(made.out.removesuffix("\n"))
    assert made.err == ""
    assert (await cms("keys", "list", key=made.out.strip())).code == 0


async def test_a_new_key_is_shown_once_and_never_again(cms: Cms, cast: Cast):
    made = await cms("keys", "create", "--name", "for the CI", key=cast.alice.key)
    (text,) = KEY.findall(made.out)
    key_id = made.out.splitlines()[0].split()[1]

    later = [
        await cms("keys", "show", key_id, key=cast.alice.key),
        await cms("keys", "list", "--json", key=cast.alice.key),
        await cms("audit", "list", "--json", key=cast.alice.key),
    ]

    secret = text.rpartition("_")[2]
    assert made.out.count(secret) == 1
    assert [said.code for said in later] == [0, 0, 0]
    assert not any(secret in said.out + said.err for said in later)


async def test_the_key_in_use_is_shown_whatever_it_may(cms: Cms, cast: Cast, db: Db):
    principal, weak = await mint(db, cast.alice.team_id, "weak", scopes=["memories:read"])

    shown = await cms("keys", "current", "--json", key=weak)

    key = shown.read(OneKeyOut).key
    assert (key.id, key.scopes) == (principal.key_id, ["memories:read"])
    assert weak.rpartition("_")[2] not in shown.out


async def test_keys_are_listed_with_their_state(cms: Cms, cast: Cast):
    key_id = str((await cms("keys", "create", "--name", "old", "--json", key=cast.alice.key)).read(NewKeyOut).key.id)
    await cms("keys", "revoke", key_id, "--yes", key=cast.alice.key)

    everything = await cms("keys", "list", key=cast.alice.key)
    active = await cms("keys", "list", "--active", key=cast.alice.key)

    states = dict(zip(everything.column("id"), everything.column("state"), strict=True))
    assert states == {key_id: "revoked", str(cast.alice.principal.key_id): "active", str(cast.bob.principal.key_id): "active"}
    assert key_id not in active.out


async def test_a_rotated_key_has_a_successor_and_works_on_for_a_while(cms: Cms, cast: Cast):
    old = await cms("keys", "create", "--scope", "admin", "--json", key=cast.alice.key)
    key_id, old_text = str(old.read(NewKeyOut).key.id), old.read(NewKeyOut).api_key

    new_text = (await cms("keys", "rotate", key_id, "--overlap-seconds", "600", "--quiet", key=cast.alice.key)).out.strip()

    shown = await cms("keys", "show", key_id, key=new_text)
    assert "replaced by  " in shown.out
    assert "state         replaced" in shown.out
    assert (await cms("keys", "list", key=old_text)).code == 0


async def test_the_key_of_the_credentials_file_is_kept_there_when_it_is_rotated(cms: Cms, cast: Cast, tmp_path: Path):
    credentials.write(tmp_path, Credentials(url=URL, key=cast.alice.key, team="blue"))

    other = await cms("keys", "rotate", str(cast.bob.principal.key_id))
    before = credentials.read(tmp_path)
    own = await cms("keys", "rotate", str(cast.alice.principal.key_id), "--overlap-seconds", "0", "--quiet")

    kept = credentials.read(tmp_path)
    assert (other.code, own.code) == (0, 0)
    assert before is not None
    assert before.key == cast.alice.key
    assert kept == Credentials(url=URL, key=own.out.strip(), team="blue")
    assert (await cms("keys", "list")).code == 0


async def test_a_revoked_key_is_refused(cms: Cms, cast: Cast):
    made = (await cms("keys", "create", "--scope", "admin", "--name", "lost", "--json", key=cast.alice.key)).read(NewKeyOut)

    said = await cms("keys", "revoke", str(made.key.id), "--yes", key=cast.alice.key)

    assert said.out == f"The key {made.key.id} (lost) is revoked.\n"
    assert (await cms("keys", "list", key=made.api_key)).code == 1


async def test_the_operator_makes_a_key_when_the_only_one_is_lost(cms: Cms, cast: Cast):
    made = await cms("keys", "create", "--scope", "*", "--operator", "--team", "blue", "--quiet")

    assert (await cms("teams", "list", key=made.out.strip())).column("name") == ["blue"]
    listed = await cms("audit", "list", "--action", "key.created", "--actor", "operator", key=made.out.strip())
    assert listed.column("who") == ["operator"]
