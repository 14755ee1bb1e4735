"""The whole way of a session, from its hooks to the context of the next one, through the real program."""

from __future__ import annotations

import stat
from collections.abc import Generator
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.conftest import Server
from tests.process.conftest import Run
from tests.process.hook_payloads import PROJECT, SESSION_START, WHOLE_SESSION
from tests.process.program import ROOT, Program, User, measured, number, observations, rows, seen, wait_for

pytestmark = pytest.mark.slow


def replay(client: httpx.Client) -> None:
    for payload in WHOLE_SESSION:
        answer = client.post("/v1/hooks/claude-code", json=payload)
        assert answer.status_code == 200, answer.text


def is_idle(client: httpx.Client) -> bool:
    queue = client.get("/v1/info").raise_for_status().json()["queue"]
    return sum(queue[state] for state in ("waiting", "active", "delayed", "held")) == 0


def assert_the_session_is_remembered(program: Program) -> None:
    with program.http() as client:
        replay(client)
        wait_for(
            "the session's summary",
            lambda: [observation for observation in observations(client, PROJECT) if observation.observation_kind == "summary"],
        )
        replay(client)  # a hook client that was cut off sends again
        wait_for("nothing to be left to do", lambda: is_idle(client))

        listed = observations(client, PROJECT)
        hits = seen(client.post("/v1/search", json={"projectId": PROJECT, "query": "what happened to big.txt?"}))
        shown = client.get("/v1/context", params={"project": PROJECT, "format": "text"}).raise_for_status().text
        context = client.post("/v1/hooks/claude-code", json={**SESSION_START, "session_id": str(uuid4())}).raise_for_status().json()

    (summary,) = [observation for observation in listed if observation.observation_kind == "summary"]
    assert sorted(file for observation in listed for file in observation.files_modified) == ["big.txt", "note.txt"]
    assert "rename line 5 of big.txt" in str(summary.summary)
    assert any(observation.type == "discovery" and "exit 3" in observation.content for observation in listed), "the failed command"
    assert "big.txt" in hits[0].files_modified
    for observation in listed:
        assert any(f"#{number}" in shown for number in (observation.number, observation.turn_number))
    context = context["hookSpecificOutput"]["additionalContext"]
    assert context.startswith("<cmserver-context>\nMemory of orders, as of ")
    assert "note.txt" in context


@pytest.mark.smoke
def test_a_first_start_stores_a_key_that_works_and_the_session_of_a_hook_is_remembered(run: Run):
    first = run("first")
    cold = first.wait_until_ready()
    file = first.data_dir / "credentials"
    first_key = first.key

    assert str(file) in first.output
    assert first_key not in first.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert first_key not in first.errors
    assert_the_session_is_remembered(first)

    first.stop()
    second = run("second")
    warm = second.wait_until_ready()

    assert "First start" not in second.output
    assert "cms_" not in second.output
    assert second.key == first_key
    with second.http() as client:
        assert "note.txt" in client.get("/v1/context", params={"project": PROJECT}).raise_for_status().json()["context"]
    measured(f"cold start {cold:.2f} s, warm start {warm:.2f} s")


HOOKS = {
    "claude-code": "claude_code/PostToolUse-Edit",
    "codex": "codex/PostToolUse-apply_patch",
    "gemini": "gemini/AfterTool-replace",
    "cursor": "cursor/postToolUse-Write",
    "opencode": "opencode/PostToolUse-bash",
    "kilo": "kilo/PostToolUse-bash",
    "copilot": "copilot/PostToolUse-Bash",
}


@pytest.mark.smoke
def test_a_recorded_hook_of_each_agent_is_stored(run: Run, database: str):
    program = run("server", settings={"CMSERVER_DATABASE_URL": database})
    program.wait_until_ready()

    with program.http() as client:
        for agent, sample in HOOKS.items():
            payload = (ROOT / "tests" / "doors" / "hooks" / "samples" / f"{sample}.json").read_bytes()
            assert client.post(f"/v1/hooks/{agent}", content=payload).status_code == 200, agent

    assert [
        row["platform_source"] for row in rows(database, "SELECT DISTINCT platform_source FROM server_sessions ORDER BY 1")
    ] == sorted(HOOKS)


def test_the_same_as_an_ordinary_user(run: Run, ordinary_user: User):
    program = run("server", user=ordinary_user)
    program.wait_until_ready()

    assert program.data_dir.stat().st_uid == ordinary_user.uid
    assert stat.S_IMODE(program.data_dir.stat().st_mode) == 0o700
    assert Path(f"/proc/{program.postgres_pid}").stat().st_uid == ordinary_user.uid
    assert_the_session_is_remembered(program)


def test_a_key_that_the_operator_brought_along_works_and_is_never_shown(run: Run, database: str):
    key = "brought-along-by-the-operator"
    program = run("server", settings={"CMSERVER_DATABASE_URL": database, "CMSERVER_BOOTSTRAP_KEY": key})
    program.wait_until_ready()

    assert "CMSERVER_BOOTSTRAP_KEY" in program.output
    assert key not in program.output + program.errors
    assert program.key == key
    with program.http() as client:
        assert client.get("/v1/info").status_code == 200


@pytest.fixture
def plain_owner_database(server: Server, template: str) -> Generator[str]:
    """An empty database of a role that may do nothing but own it; whoever runs PostgreSQL has given it the tenant role."""
    name = f"cmserver_test_{uuid4().hex[:12]}"
    with psycopg.connect(server.embedded.superuser_url if server.embedded else server.url(template), autocommit=True) as conn:
        major = conn.info.server_version // 10_000
        grant = "GRANT cmserver_tenant TO {} WITH SET TRUE" if major >= 16 else "GRANT cmserver_tenant TO {}"
        password = uuid4().hex
        try:
            conn.execute(
                sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB PASSWORD {}").format(
                    sql.Identifier(name), sql.Literal(password)
                )
            )
            conn.execute(sql.SQL(grant).format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege:
            pytest.skip("the database of CMSERVER_TEST_DATABASE_URL is of a user who may not make roles")
        conn.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(name)))
    yield make_conninfo(server.url(name), user=name, password=password)
    server.drop(name)
    with psycopg.connect(server.embedded.superuser_url if server.embedded else server.url(template), autocommit=True) as conn:
        conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_the_same_on_a_database_of_a_plain_owner(run: Run, plain_owner_database: str):
    program = run("server", settings={"CMSERVER_DATABASE_URL": plain_owner_database})
    program.wait_until_ready()

    assert_the_session_is_remembered(program)
    assert not (program.data_dir / "lock").exists(), "no embedded PostgreSQL was prepared"
    assert (
        number(plain_owner_database, "SELECT count(*) FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolcreaterole)")
        == 0
    )
