"""Every command that names something, walked with a stranger's key: what is Alice's cannot be told from what does not exist."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import click
import httpx
import msgspec
import pytest

from cmserver.access.projects import make_project
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.sessions.wire import OneSessionOut
from tests.cli.conftest import Cms, Said, every_command
from tests.cli.test_jobs import queued
from tests.conftest import Cast, mint
from tests.make import Make
from tests.repositories import Repository
from tests.steward.tools import insert_job

pytestmark = pytest.mark.slow

NAMING = {
    *("project", "team", "user", "key_id", "session_id", "job_id", "run_id", "resource_id"),
    *("observation_id", "number", "target", "source", "suggestion_id", "into", "invitation"),
}
"""Parameters that name something which is there."""
GIVING = {
    "name",
    "alias",
    "canonical_id",
    "language",
    "query",
    "title",
    "text",
    "fields",
    "folder",
    "place",
    "file",
    "source_url",
    "model",
}
"""Arguments that give something: a name, a word, a place on one's own machine or elsewhere."""
OF_THE_SERVER = {"provider", "choice", "role", "mode", "method", "path"}
"""Parameters that name something which is nobody's, and which everybody may know."""
BESIDE = {
    "teams limits": ["--clear"],
    "teams policy": ["--mode", "burst"],
    "projects policy": ["--mode", "burst"],
    "budgets set": ["--usd", "5"],
    "review": ["--dismiss"],
    "edit": ["--title", "x"],
}
"""What a command must be told besides, so that it does something."""
PRIVATE = "github.com/acme/secret-orders"


@pytest.fixture
async def alices(client: httpx.AsyncClient, cast: Cast, make: Make, db: Db, tmp_path: Path) -> dict[str, str]:
    """Parameter -> one of Alice's things, all in one project; and a clone of whoever asks."""
    clone = Repository(tmp_path / "clone")
    clone.write("a.py", "a = 1\n")
    async with db.tenant(cast.alice.team_id) as conn:
        project, _ = await make_project(conn, cast.alice.principal, PRIVATE)
    key, _ = await mint(db, cast.alice.team_id, "alice", scopes=["*"], project_id=project.id)
    job = await queued(client, cast.alice, PRIVATE)
    body = {"projectId": PRIVATE, "externalSessionId": "s-1"}
    started = await client.post("/v1/sessions/start", headers=cast.alice.headers, json=body)
    observation = await make.observation(project=project)
    other = await make.observation(project=project)
    suggestion = await make.suggestion(project=project, left=observation.id, right=other.id)
    invited = await client.post("/v1/users/invitations", headers=cast.alice.headers, json={"role": "viewer"})
    steward_run = new_id()
    async with db.system() as conn:
        job_id = await insert_job(conn, project.team_id, project.id)
        values = {"job": job_id, "run": steward_run, "team": project.team_id, "project": project.id}
        await conn.execute(
            "INSERT INTO steward_runs (id, team_id, project_id, job_id, job_type, attempt, status, completed_at)"
            " VALUES (%(run)s, %(team)s, %(project)s, %(job)s, 'recheck', 1, 'succeeded', now())",
            values,
        )
    return {
        "project": str(project.id),
        "resource_id": str(project.id),
        "team": str(cast.alice.team_id),
        "user": "alice",
        "key_id": str(key.key_id),
        "session_id": str(msgspec.json.decode(started.content, type=OneSessionOut).session.id),
        "job_id": job,
        "run_id": str(steward_run),
        "observation_id": str(observation.id),
        "number": str(observation.id),
        "target": str(observation.id),
        "source": str(observation.id),
        "into": str(project.id),
        "suggestion_id": str(suggestion),
        "invitation": invited.json()["invitation"]["id"],
        "folder": str(clone.folder),
        "place": f"{clone.folder}/a.py",
    }


def cases() -> list[tuple[str, click.Parameter]]:
    return [
        (path, one)
        for path, command in every_command().items()
        for one in command.params
        if one.name in NAMING and not isinstance(one.type, click.Choice)
    ]


def words(path: str, named: click.Parameter, value: str, places: dict[str, str]) -> list[str]:
    """The command with that value for that parameter, and something harmless for its other arguments."""
    command = every_command()[path]
    harmless = {"language": "english", "choice": "suggest", "role": "viewer", "mode": "off"}
    harmless |= {place: places[place] for place in ("folder", "place")}
    arguments = [
        value if one is named else harmless.get(str(one.name), "x") for one in command.params if isinstance(one, click.Argument)
    ]
    option = [named.opts[0], value] if isinstance(named, click.Option) else []
    yes = ["--yes"] if any(one.name == "yes" for one in command.params) else []
    if option and any(one.name == "all_jobs" for one in command.params):  # options that choose many, in place of the argument
        return [*path.split(), "--all", *option, *yes]
    return [*path.split(), *arguments, *option, *yes, *BESIDE.get(path, [])]


def test_the_walk_knows_every_argument():
    arguments = {one.name for command in every_command().values() for one in command.params if isinstance(one, click.Argument)}

    assert arguments <= NAMING | GIVING | OF_THE_SERVER, "say of a new argument whether it names something"
    assert {path for path, _ in cases()} >= {
        "projects delete",
        "keys revoke",
        "jobs cancel",
        "sessions end",
        "reindex",
        "audit list",
    }


async def as_alice_sees_it(cms: Cms, cast: Cast) -> list[str]:
    async def ask(*command: str) -> Said:
        return await cms(*command, key=cast.alice.key)

    keys = await ask("keys", "list")
    members = await ask("teams", "members", "list", "--json")
    lists = [await ask(*command, "--json") for command in (["teams", "show"], ["projects", "list"], ["sessions", "list"])]
    jobs = await ask("jobs", "list")
    return [*keys.column("id"), *keys.column("state"), members.out, *(said.out for said in lists), jobs.out]


async def nothing_can_be_told(cms: Cms, key: str, alices: dict[str, str], named: set[str]) -> None:
    for path, one in cases():
        if one.name not in named:
            continue
        real, invented = alices[str(one.name)], str(uuid4()) if one.name != "user" else "nobody"
        about_real = await cms(*words(path, one, real, alices), key=key)
        about_none = await cms(*words(path, one, invented, alices), key=key)

        assert about_real.code in {0, 1}, (path, about_real.err)
        assert without(about_real, real) == without(about_none, invented), (path, one.name)


def without(said: Said, name: str) -> tuple[int, str, str]:
    """What was said, but for what whoever asked has said himself."""
    return said.code, said.out.replace(name, "it"), said.err.replace(name, "it")


async def test_a_stranger_can_tell_nothing_of_alices_from_what_does_not_exist(cms: Cms, cast: Cast, alices: dict[str, str]):
    before = await as_alice_sees_it(cms, cast)

    await nothing_can_be_told(cms, cast.charlie.key, alices, NAMING - {"user"})

    assert await as_alice_sees_it(cms, cast) == before


async def test_a_key_of_another_project_can_tell_nothing_either(cms: Cms, cast: Cast, alices: dict[str, str], db: Db):
    _, bound = await mint(db, cast.alice.team_id, "alice", scopes=["*"], project_id=cast.alice.project.id)
    before = await as_alice_sees_it(cms, cast)

    await nothing_can_be_told(cms, bound, alices, NAMING - {"team", "user"})

    assert await as_alice_sees_it(cms, cast) == before


async def test_alice_herself_is_told_something(cms: Cms, cast: Cast, alices: dict[str, str]):
    """So that the walk above would see it."""
    for path in ("projects show", "keys show", "sessions show", "jobs show", "teams show"):
        (one,) = [named for at, named in cases() if at == path]
        value = alices[str(one.name)]

        assert value in (await cms(*words(path, one, value, alices), key=cast.alice.key)).out
        assert UUID(value)
