"""`cmserver connect` and `disconnect`, with the real API and a home folder of their own."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cmserver.access.api.keys import key_state
from cmserver.base import credentials
from cmserver.base.credentials import Credentials
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.cli.exit_codes import ExitCode
from cmserver.client import server_api
from cmserver.client.agents import AGENTS
from cmserver.client.client_folder import SOURCE, build_agent_config
from cmserver.client.hook_key import CALLS_PER_MINUTE, SCOPES, WRITING_SCOPE
from cmserver.generation.job_notifier import JobNotifier
from tests.cli.attaching import FILES, OTHERS, everything, folder, hook_keys, mode
from tests.cli.conftest import URL, Cms, Run
from tests.conftest import Cast, mint
from tests.doors.mcp.tools import connected
from tests.generation.tools import Outbox, Scripted
from tests.rows import rows


def config(agent: str = "claude-code") -> dict[str, str]:
    """The lines of an agent that is connected without options."""
    return {"URL": URL, **{name: value for name, value in build_agent_config(AGENTS[agent]).items() if value}}


# -- connect


@pytest.mark.parametrize("agent", FILES)
async def test_an_agent_gets_hooks_and_a_key_with_the_least_scopes(run: Run, cms: Cms, cast: Cast, home: Path, agent: str):
    said = await run("connect", agent, "--yes")

    assert (said.code, "is connected" in said.out) == (0, True), said
    (key,) = await hook_keys(cms, cast)
    there = folder(home, agent)
    connection = there.connection()
    assert connection is not None
    assert (sorted(key.scopes), key.project_id) == (sorted(SCOPES), None)
    assert key.requests_per_minute == CALLS_PER_MINUTE
    assert connection.key_id == str(key.id)
    assert connection.key_is_ours
    hooks = json.loads((home / FILES[agent]).read_text())["hooks"]
    commands = [handler["command"] for groups in hooks.values() for group in groups for handler in group["hooks"]]
    assert commands == [f'"{there.hook}" {event}' for event in hooks]
    assert there.hook.read_bytes() == (SOURCE / "hook.sh").read_bytes()
    assert (mode(there.path), mode(there.hook), mode(there.path / "authorization"), mode(there.path / "config")) == (
        0o700,
        0o755,
        0o600,
        0o600,
    )
    assert there.config() == config(agent)
    assert (await run("keys", "list", key=there.key())).code == ExitCode.FAILURE  # it may not look after keys


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_key_stands_in_one_file_only(run: Run, home: Path, agent: str):
    said = await run("connect", agent, "--yes")

    key = folder(home, agent).key()
    assert key is not None
    holding = [path for path, (content, _) in everything(home).items() if key.encode() in content]
    assert holding == [str(folder(home, agent).path / "authorization")]
    assert key not in said.out + said.err


async def test_a_second_time_changes_nothing_and_makes_no_second_key(run: Run, cms: Cms, cast: Cast, home: Path):
    await run("connect", "claude-code", "--yes")
    before = everything(home)

    said = await run("connect", "claude-code")

    assert "Nothing to change" in said.out
    assert everything(home) == before
    assert len(await hook_keys(cms, cast)) == 1


async def test_a_dry_run_shows_the_change_and_makes_nothing(run: Run, cms: Cms, cast: Cast, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(OTHERS)
    before = everything(home)

    said = await run("connect", "claude-code", "--dry-run", "--plugin", str(home / "market"))
    said_of_hooks = await run("connect", "claude-code", "--dry-run", "--start-with-machine")

    assert (said.code, said_of_hooks.code) == (0, 0)
    assert '+    "SessionStart": [' in said_of_hooks.out
    assert "Hooks of claude-code on " in said_of_hooks.out
    assert everything(home) == before
    assert await hook_keys(cms, cast) == []


async def test_nobody_who_can_answer_is_a_no(run: Run, cms: Cms, cast: Cast, home: Path):
    said = await run("connect", "claude-code")

    assert said.code == ExitCode.USAGE
    assert everything(home) == {}
    assert await hook_keys(cms, cast) == []


async def test_what_others_configured_stays_and_is_kept_beside(run: Run, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(OTHERS)
    file.chmod(0o640)

    await run("connect", "claude-code", "--yes")

    (backup,) = file.parent.glob("settings.json.cmserver-backup-*")
    assert backup.read_text() == OTHERS
    assert mode(file) == 0o640
    found = json.loads(file.read_text())
    assert found["theme"] == "dark"
    assert found["hooks"]["Stop"][0]["hooks"][0]["command"] == "say done"


async def test_a_damaged_settings_file_is_refused_before_anything_is_made(run: Run, cms: Cms, cast: Cast, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  // mine\n  "a": 1\n}')

    said = await run("connect", "claude-code", "--yes")

    assert said.code == ExitCode.FAILURE
    assert "line 2, column 3" in said.err
    assert file.read_text().startswith("{\n  // mine")
    assert list(everything(home)) == [str(file)]
    assert await hook_keys(cms, cast) == []


async def test_another_settings_file_is_the_one_that_is_changed(run: Run, home: Path, tmp_path: Path):
    file = tmp_path / "orders" / ".claude" / "settings.local.json"

    await run("connect", "claude-code", "--yes", "--settings", str(file))

    assert "SessionStart" in file.read_text()
    assert not (home / ".claude").exists()


async def test_the_hook_before_a_file_is_read_is_only_there_when_asked_for(run: Run, home: Path):
    def hooks() -> dict[str, list[dict[str, object]]]:
        return json.loads((home / ".claude" / "settings.json").read_text())["hooks"]

    await run("connect", "claude-code", "--yes")
    assert "PreToolUse" not in hooks()
    await run("connect", "claude-code", "--yes", "--on-file")
    assert hooks()["PreToolUse"][0]["matcher"] == "Read"
    await run("connect", "claude-code", "--yes")  # it stays as it was said
    assert "PreToolUse" in hooks()
    await run("connect", "claude-code", "--yes", "--no-on-file")
    assert "PreToolUse" not in hooks()


async def test_patterns_are_kept_until_others_are_said(run: Run, home: Path):
    await run("connect", "claude-code", "--yes", "--exclude", "~/private/*", "--exclude", "/srv")
    with (folder(home).path / "config").open("a") as file:
        file.write("SPOOL_MAX_BYTES='1000'\n")

    await run("connect", "claude-code", "--yes")
    assert folder(home).config() == {**config(), "EXCLUDE": "~/private/*:/srv", "SPOOL_MAX_BYTES": "1000"}

    await run("connect", "claude-code", "--yes", "--exclude", "/other")
    assert folder(home).config() == {**config(), "EXCLUDE": "/other", "SPOOL_MAX_BYTES": "1000"}


@pytest.mark.parametrize("pattern", ["a'b", "a\nb", "a:b"])
async def test_a_pattern_that_could_be_something_else_is_refused(run: Run, home: Path, pattern: str):
    assert (await run("connect", "claude-code", "--yes", "--exclude", pattern)).code == ExitCode.USAGE
    assert everything(home) == {}


async def test_the_clients_may_be_elsewhere(run: Run, home: Path, tmp_path: Path):
    await run("connect", "codex", "--yes", CMSERVER_CLIENT_DIR=str(tmp_path / "my clients"))

    assert (tmp_path / "my clients" / "codex" / "hook").exists()
    assert not (home / ".config").exists()
    assert (await run("connect", "codex", "--yes", CMSERVER_CLIENT_DIR="clients")).code == ExitCode.USAGE


async def test_an_older_hook_client_is_told_and_renewed(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")
    folder(home).hook.write_text("#!/bin/sh\n")
    assert "`cmserver connect claude-code` renews it" in (await run("connections")).err

    await run("connect", "claude-code", "--yes")

    assert folder(home).is_current()
    assert "renews" not in (await run("connections")).err


async def test_codex_says_that_hooks_must_be_trusted_and_what_keeps_them_from_running(run: Run, home: Path):
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text("[features]\nhooks = false\n[[hooks.Stop]]\n")

    said = await run("connect", "codex", "--yes")

    assert "/hooks in Codex" in said.out
    assert "config.toml turns hooks off" in said.out
    assert "config.toml has hooks as well" in said.out


async def test_hooks_that_send_by_themselves_are_pointed_out(run: Run, home: Path):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(
        '{"disableAllHooks": true, "hooks": {"Stop": [{"hooks": [{"type": "http", "url": "http://h/v1/hooks/claude-code"}]}]}}'
    )

    said = await run("connect", "claude-code", "--yes")

    assert "1 more hooks that send to cmserver" in said.out
    assert "disableAllHooks" in said.out


# -- keys


async def test_a_key_that_may_make_none_is_the_hooks_own_if_it_may_do_what_they_do(
    run: Run, cms: Cms, cast: Cast, home: Path, db: Db
):
    made, text = await mint(db, cast.alice.team_id, "alice", scopes=list(SCOPES))

    said = await run("connect", "claude-code", "--yes", key=text)

    assert "uses the given key" in said.out
    assert folder(home).key() == text
    assert await hook_keys(cms, cast) == []
    await run("disconnect", "claude-code", "--yes")
    assert (await run("keys", "show", str(made.key_id))).out.count("active") == 1  # it was not ours to end


@pytest.mark.parametrize("lacking", SCOPES)
async def test_a_key_that_may_do_too_little_is_refused_with_what_it_lacks(run: Run, cast: Cast, home: Path, db: Db, lacking: str):
    _, text = await mint(db, cast.alice.team_id, "alice", scopes=[scope for scope in SCOPES if scope != lacking])

    said = await run("connect", "claude-code", "--yes", key=text)

    assert said.code == ExitCode.FAILURE
    assert f"does not have {lacking}." in said.err
    assert everything(home) == {}


async def test_to_look_what_a_key_may_do_does_nothing(run: Run, cast: Cast, home: Path, db: Db):
    _, text = await mint(db, cast.alice.team_id, "alice", scopes=list(SCOPES), project_id=cast.alice.project.id)

    assert (await run("connect", "claude-code", "--yes", key=text)).code == 0

    assert await rows(db, "SELECT id FROM server_sessions UNION ALL SELECT id FROM agent_events") == []


async def test_a_key_that_opens_nothing_is_refused(run: Run, home: Path):
    said = await run("connect", "claude-code", "--yes", key="cms_nothing")

    assert said.code == ExitCode.FAILURE
    assert everything(home) == {}


async def test_a_key_that_was_revoked_is_replaced(run: Run, cms: Cms, cast: Cast, home: Path):
    await run("connect", "claude-code", "--yes")
    (first,) = await hook_keys(cms, cast)
    await run("keys", "revoke", str(first.id), "--yes")

    await run("connect", "claude-code", "--yes")

    connection = folder(home).connection()
    assert connection is not None
    assert connection.key_id not in {None, str(first.id)}
    assert {key_state(key) for key in await hook_keys(cms, cast)} == {"active", "revoked"}


async def test_where_no_server_was_started_it_says_how_one_is(cms: Cms, home: Path):
    said = await cms("connect", "claude-code", "--yes", CMSERVER_URL=None)

    assert (said.code, "`cmserver start`" in said.err, "--operator" in said.err) == (ExitCode.USAGE, True, False)
    assert everything(home) == {}


async def test_a_server_that_does_not_answer_is_a_sentence_and_nothing_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, cms: Cms
):
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))

    said = await cms("connect", "claude-code", "--yes", "--server", "http://127.0.0.1:1", key="cms_x")

    assert said.code == ExitCode.DATABASE
    assert everything(home) == {}


async def test_a_server_elsewhere_stays_the_one_until_another_is_said(run: Run, home: Path, tmp_path: Path, cast: Cast):
    await run("connect", "claude-code", "--yes")
    credentials.write(tmp_path, Credentials(url="http://127.0.0.1:1", key="cms_local", team="x"))

    said = await run("connect", "claude-code", "--yes", CMSERVER_URL=None, key="")

    assert f"connected to {URL}" in said.out
    assert "not encrypted" in said.out


# -- disconnect


@pytest.mark.parametrize("agent", FILES)
async def test_disconnect_takes_all_of_it_away_and_nothing_else(run: Run, cms: Cms, cast: Cast, home: Path, agent: str):
    file = home / FILES[agent]
    file.parent.mkdir()
    file.write_text(OTHERS)
    await run("connect", agent, "--yes")

    said = await run("disconnect", agent, "--yes")

    assert "is disconnected" in said.out
    assert json.loads(file.read_text()) == json.loads(OTHERS)
    assert not folder(home, agent).path.exists()
    assert {key_state(key) for key in await hook_keys(cms, cast)} == {"expired", "revoked"}
    assert "is not connected" in (await run("disconnect", agent, "--yes")).out


async def test_what_an_agent_has_sent_is_worked_after_it_is_disconnected(
    run: Run, cast: Cast, home: Path, db: Db, notifier: JobNotifier
):
    await run("connect", "claude-code", "--yes")
    connection, key = folder(home).connection(), folder(home).key()
    assert connection is not None
    assert connection.key_id is not None
    principal = msgspec.structs.replace(cast.alice.principal, key_id=UUID(connection.key_id))
    outbox = Outbox(db, notifier, principal, cast.alice.project)
    await outbox.put(2)

    said = await run("disconnect", "claude-code", "--yes")
    await (await outbox.hand(Scripted())).work()

    assert (said.code, said.err) == (0, "")
    assert await outbox.statuses() == {"completed": 2}
    assert (await run("keys", "current", key=key)).code == ExitCode.FAILURE
    assert (await run("keys", "list", "--active")).out.count("Hooks of") == 0


async def test_what_was_sent_with_a_key_that_its_owner_revokes_later_still_fails(
    run: Run, cast: Cast, home: Path, db: Db, notifier: JobNotifier
):
    await run("connect", "claude-code", "--yes")
    connection = folder(home).connection()
    assert connection is not None
    assert connection.key_id is not None
    principal = msgspec.structs.replace(cast.alice.principal, key_id=UUID(connection.key_id))
    outbox = Outbox(db, notifier, principal, cast.alice.project)
    await outbox.put(2)
    await run("disconnect", "claude-code", "--yes")

    said = await run("keys", "revoke", connection.key_id, "--yes")
    await (await outbox.hand(Scripted())).work()

    assert said.code == 0
    assert await outbox.statuses() == {"failed": 2}


async def test_a_settings_file_that_connect_has_made_goes_and_one_that_somebody_has_written_into_stays(run: Run, home: Path):
    for words in ([], ["--settings", str(home / "project.json")]):
        await run("connect", "claude-code", "--yes", *words)
    (home / "project.json").write_text((home / "project.json").read_text().replace("{", '{"model": "opus",', 1))

    await run("disconnect", "claude-code", "--yes")

    assert not (home / FILES["claude-code"]).exists()
    assert json.loads((home / "project.json").read_text()) == {"model": "opus"}


async def test_who_connects_to_a_server_elsewhere_learns_who_reads_what_is_recorded(run: Run, cast: Cast):
    said = await run("connect", "claude-code", "--dry-run")
    here = await run("connect", "claude-code", "--dry-run", "--server", "http://127.0.0.1:37877")

    assert "Everybody in the team blue can read what you ask Claude Code" in said.out
    assert "can read what you ask" not in here.out


@pytest.mark.parametrize(
    ("words", "said_first"),
    [("owners", "The owners of the team blue can read"), ("nobody", "Nobody else in the team blue can read")],
)
async def test_who_connects_learns_what_the_team_says_of_others_words(run: Run, cast: Cast, db: Db, words: str, said_first: str):
    async with db.system() as conn:
        await conn.execute("UPDATE teams SET words = %s WHERE id = %s", [words, cast.alice.team_id])

    said = await run("connect", "claude-code", "--dry-run")

    assert said_first in said.out
    assert "Everybody in the team blue can read what you ask" not in said.out


async def test_what_waits_to_be_sent_stays_unless_it_is_thrown_away(run: Run, home: Path):
    await run("connect", "claude-code", "--yes")
    waiting = folder(home).path / "spool" / "1"
    waiting.parent.mkdir()
    waiting.write_text("{}")

    said = await run("disconnect", "claude-code", "--yes")
    assert "could not be sent stay in" in said.out
    assert waiting.exists()
    assert folder(home).key() is None

    await run("disconnect", "claude-code", "--yes", "--purge")
    assert not folder(home).path.exists()


async def test_a_server_that_is_gone_does_not_hold_anybody(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch):
    await run("connect", "claude-code", "--yes")
    connection = folder(home).connection()
    assert connection is not None
    open_http_client = server_api.open_http_client
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))
    folder(home).save(msgspec.structs.replace(connection, url="http://127.0.0.1:1"))
    assert server_api.open_http_client is not open_http_client

    said = await run("disconnect", "claude-code", "--yes")

    assert (said.code, f"cmserver keys revoke {connection.key_id}" in said.err) == (0, True)
    assert not folder(home).path.exists()


async def test_one_of_two_settings_files_can_be_let_go(run: Run, cms: Cms, cast: Cast, home: Path, tmp_path: Path):
    project = tmp_path / "settings.local.json"
    await run("connect", "claude-code", "--yes")
    await run("connect", "claude-code", "--yes", "--settings", str(project))

    said = await run("disconnect", "claude-code", "--yes", "--settings", str(project))

    assert "stays connected" in said.out
    assert not project.exists()
    assert [key_state(key) for key in await hook_keys(cms, cast)] == ["active"]
    assert "Nothing to change" in (await run("connect", "claude-code", "--yes")).out


async def test_a_dry_run_of_disconnect_does_nothing(run: Run, cms: Cms, cast: Cast, home: Path):
    await run("connect", "claude-code", "--yes")
    before = everything(home)

    said = await run("disconnect", "claude-code", "--dry-run")

    assert '-    "SessionStart": [' in said.out
    assert everything(home) == before
    assert [key_state(key) for key in await hook_keys(cms, cast)] == ["active"]


# -- writing


async def test_a_key_may_write_observations_only_where_that_is_allowed(run: Run, cms: Cms, cast: Cast, home: Path):
    async def active_scopes() -> list[list[str]]:
        return [sorted(key.scopes) for key in await hook_keys(cms, cast) if key_state(key) == "active"]

    await run("connect", "claude-code", "--yes", "--allow-writing")
    assert await active_scopes() == [sorted([*SCOPES, WRITING_SCOPE])]

    assert "Nothing to change" in (await run("connect", "claude-code", "--yes")).out  # it stays as it was chosen

    await run("connect", "claude-code", "--yes", "--no-allow-writing")
    assert await active_scopes() == [sorted(SCOPES)]

    await run("connect", "claude-code", "--yes", "--allow-writing")
    assert await active_scopes() == [sorted([*SCOPES, WRITING_SCOPE])]


async def test_a_given_key_that_cannot_write_is_refused_where_writing_is_allowed(run: Run, cast: Cast, home: Path, db: Db):
    _, text = await mint(db, cast.alice.team_id, "alice", scopes=list(SCOPES))

    said = await run("connect", "claude-code", "--yes", "--allow-writing", key=text)

    assert said.code == ExitCode.FAILURE
    assert f"does not have {WRITING_SCOPE}." in said.err
    assert everything(home) == {}


async def test_a_connected_agent_has_the_tool_for_remembering_where_writing_is_allowed(run: Run, home: Path, app: AsgiFrame):
    async def tools() -> set[str]:
        async with connected(app, None, headers={"Authorization": f"Bearer {folder(home).key()}"}) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    await run("connect", "claude-code", "--yes")
    assert "observation_add" not in await tools()

    await run("connect", "claude-code", "--yes", "--allow-writing")
    assert "observation_add" in await tools()


async def test_looking_for_the_right_to_write_stores_nothing(run: Run, cast: Cast, home: Path, db: Db):
    _, text = await mint(db, cast.alice.team_id, "alice", scopes=[*SCOPES, WRITING_SCOPE], project_id=cast.alice.project.id)

    assert (await run("connect", "claude-code", "--yes", "--allow-writing", key=text)).code == 0

    assert await rows(db, "SELECT id FROM observations") == []
