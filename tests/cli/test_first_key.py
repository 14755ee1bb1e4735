"""The first key is on the disk before it is valid, and a start that was cut off anywhere is made good by the next one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest

from cmserver.access import bootstrap as bootstrap_module
from cmserver.access.authenticate import Authenticator
from cmserver.access.bootstrap import bootstrap, is_key
from cmserver.base import credentials
from cmserver.base.credentials import PENDING_NAME, Credentials
from cmserver.base.db import Db
from cmserver.base.errors import Forbidden
from cmserver.base.settings import Settings
from cmserver.cli import first_key
from cmserver.cli.first_key import FirstKey, ensure_first_key, first_key_lines, shows_key, update_address
from cmserver.embedded.files import SetupError

URL = "http://127.0.0.1:37877"


class Killed(BaseException):
    """Stands for kill -9: nothing tidies up after it."""


async def ensure(db: Db, folder: Path, *, embedded: bool = False, key: str | None = None) -> FirstKey | None:
    return await ensure_first_key(db, Settings(data_dir=folder, bootstrap_key=key), URL, embedded=embedded)


async def is_known(db: Db, text: str) -> bool:
    async with db.system() as conn:
        return await is_key(conn, text)


def stored_key(folder: Path) -> str:
    found = credentials.read(folder)
    assert found is not None
    return found.key


async def test_the_key_is_on_the_disk_when_it_becomes_valid(db: Db, tmp_path: Path):
    seen: list[str] = []

    async def look(text: str) -> None:
        await asyncio.to_thread(credentials.write, tmp_path, Credentials(url=URL, key=text, team="default"), PENDING_NAME)
        seen.append(text)
        assert not await is_known(db, text), "another connection sees it only after the commit"

    made = await bootstrap(db, "default", None, look)

    assert made is not None
    assert seen == [made.text]
    assert await is_known(db, made.text)


async def test_a_start_killed_before_the_commit_leaves_no_wrong_credentials(db: Db, tmp_path: Path, authenticate: Authenticator):
    async def killed(text: str) -> None:
        credentials.write(tmp_path, Credentials(url=URL, key=text, team="default"), PENDING_NAME)
        raise Killed

    with pytest.raises(Killed):
        await bootstrap(db, "default", None, killed)
    assert credentials.read(tmp_path) is None

    first = await ensure(db, tmp_path)

    assert first is not None
    assert first.text == stored_key(tmp_path)
    assert (await authenticate(first.text, "")).may("admin")
    assert not (tmp_path / PENDING_NAME).exists()


@pytest.mark.parametrize("key", [None, "brought-along-by-the-operator"])
async def test_a_start_killed_right_after_the_commit_is_made_good_by_the_next(
    db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authenticate: Authenticator, key: str | None
):
    def killed(_folder: Path) -> Path | None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(credentials, "confirm_pending", killed)
        with pytest.raises(Killed):
            await ensure(db, tmp_path, key=key)
    assert credentials.read(tmp_path) is None

    first = await ensure(db, tmp_path, key=key)

    assert first is not None
    assert first.text == stored_key(tmp_path)
    assert (await authenticate(first.text, "")).may("admin")
    assert await ensure(db, tmp_path, key=key) is None


async def test_of_several_first_starts_only_the_one_that_made_the_key_has_it(db: Db, tmp_path: Path, authenticate: Authenticator):
    folders = [tmp_path / name for name in "abcd"]

    made = await asyncio.gather(*(ensure(db, folder) for folder in folders))

    (first,) = [one for one in made if one is not None]
    have = [folder for folder in folders if credentials.read(folder) is not None]
    assert len(have) == 1
    assert stored_key(have[0]) == first.text
    assert (await authenticate(first.text, "")).may("admin")
    assert [folder for folder in folders if (folder / PENDING_NAME).exists()] == []


async def test_several_first_starts_in_one_folder_end_with_one_key(db: Db, tmp_path: Path, authenticate: Authenticator):
    await asyncio.gather(*(ensure(db, tmp_path) for _ in range(4)))

    assert (await authenticate(stored_key(tmp_path), "")).may("admin")
    assert not (tmp_path / PENDING_NAME).exists()


async def test_a_persons_file_is_not_touched_where_there_is_a_team_already(db: Db, tmp_path: Path):
    await bootstrap(db, "default", None)
    theirs = Credentials(url="https://elsewhere.example", key="cms_of_another_server", team="other")
    credentials.write(tmp_path, theirs)

    assert await ensure(db, tmp_path, embedded=True) is None
    await update_address(db, Settings(data_dir=tmp_path), URL)

    assert credentials.read(tmp_path) == theirs


async def test_the_only_copy_of_another_databases_key_is_kept(db: Db, tmp_path: Path):
    before = Credentials(url="http://127.0.0.1:1", key="cms_of_the_embedded_database", team="default")
    credentials.write(tmp_path, before)

    first = await ensure(db, tmp_path)

    assert first is not None
    assert first.text == stored_key(tmp_path)
    assert first.earlier == tmp_path / "credentials.1"
    assert credentials.read(tmp_path, "credentials.1") == before


async def test_a_pending_key_of_another_database_stays(db: Db, tmp_path: Path):
    await bootstrap(db, "default", None)
    pending = Credentials(url=URL, key="cms_of_another_database", team="default")
    credentials.write(tmp_path, pending, PENDING_NAME)

    assert await ensure(db, tmp_path) is None

    assert credentials.read(tmp_path) is None
    assert credentials.read(tmp_path, PENDING_NAME) == pending


async def test_no_team_is_made_whose_key_nobody_would_have(db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "file" / "data"
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(first_key, "shows_key", lambda: False)

    with pytest.raises(SetupError) as refused:
        await ensure(db, folder)

    assert "CMSERVER_DATA_DIR" in str(refused.value)
    assert "cms_" not in str(refused.value)
    first = await ensure(db, tmp_path)
    assert first is not None
    assert first.text == stored_key(tmp_path)


@pytest.mark.parametrize(("key", "terminal"), [(None, True), ("brought-along-by-the-operator", False)])
async def test_without_a_folder_the_key_goes_to_a_terminal_or_is_the_operators(
    db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None, terminal: bool
):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(first_key, "shows_key", lambda: terminal)

    first = await ensure(db, tmp_path / "file" / "data", key=key)

    assert first is not None
    assert first.file is None
    lines = first_key_lines(Settings(data_dir=tmp_path, bootstrap_key=key), first, shown=terminal)  # pyright: ignore[reportArgumentType]
    assert (first.text in lines) == terminal


async def test_an_embedded_first_key_that_was_lost_unused_is_replaced_again_and_again(
    db: Db, tmp_path: Path, authenticate: Authenticator
):
    lost = await bootstrap(db, "default", None)
    assert lost is not None
    texts = [lost.text]
    for _ in range(3):
        (tmp_path / "credentials").unlink(missing_ok=True)
        first = await ensure(db, tmp_path, embedded=True)

        assert first is not None
        assert first.origin == "replaced"
        assert first.text == stored_key(tmp_path)
        assert (await authenticate(first.text, "")).may("admin")
        with pytest.raises(Forbidden):
            await authenticate(texts[-1], "")
        texts.append(first.text)
    assert len(set(texts)) == 4
    assert await ensure(db, tmp_path, embedded=True) is None


@pytest.mark.parametrize("why", ["used", "own database", "another key", "brought along"])
async def test_a_first_key_that_somebody_may_have_is_never_replaced(db: Db, tmp_path: Path, authenticate: Authenticator, why: str):
    key = await bootstrap(db, "default", None)
    assert key is not None
    principal = await authenticate(key.text, "")
    async with db.system() as conn:
        if why == "used":
            await conn.execute("UPDATE api_keys SET last_used_at = now()")
        if why == "another key":
            await bootstrap_module.manage_keys.mint(conn, principal.team_id, scopes=["observations:read"], actor_id="somebody")

    embedded = why != "own database"
    given = key.text if why == "brought along" else None

    assert await ensure(db, tmp_path, embedded=embedded, key=given) is None
    assert credentials.read(tmp_path) is None
    assert (await authenticate(key.text, "")).key_id == key.id


def test_the_key_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    first = FirstKey(text="cms_secret", file=tmp_path / "credentials")
    settings = Settings(data_dir=tmp_path)

    assert "cms_secret" in first_key_lines(settings, first, shown=True)
    assert "cms_secret" not in first_key_lines(settings, first, shown=False)
    assert str(first.file) in first_key_lines(settings, first, shown=False)
    for terminal, sign, shown in [(True, None, True), (False, None, False), (True, "/.dockerenv", False)]:
        monkeypatch.setattr("sys.stdout.isatty", Mock(return_value=terminal), raising=False)
        monkeypatch.setattr(first_key, "container_sign", Mock(return_value=sign))
        assert shows_key() is shown
