"""Commands look in the project of the current folder, at the server that is known on this machine."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cmserver.base import credentials
from cmserver.base.credentials import Credentials
from cmserver.cli.exit_codes import ExitCode
from cmserver.client.client_folder import ClientFolder, Connection, clients_folder
from tests.cli.conftest import URL, Cms
from tests.conftest import Cast
from tests.make import Make

ORDERS = "github.com/acme/orders"
OTHER = "github.com/acme/slugline"
COMMANDS = [("list",), ("search", "pool")]


@pytest.fixture
async def filled(client: httpx.AsyncClient, cast: Cast, make: Make) -> None:
    """One observation in the project of orders, one in another."""
    assert (await client.post("/v1/projects", headers=cast.alice.headers, json={"canonicalId": OTHER})).status_code == 201
    note = {"projectId": OTHER, "type": "change", "title": "The pool of slugline", "narrative": "The pool of slugline"}
    assert (await client.post("/v1/observations", headers=cast.alice.headers, json=note)).status_code == 201
    await make.observation(project=cast.alice.project, title="The pool of orders")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which nothing says which project it is."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def connect(agent: str, url: str, key: str, *, allow_writing: bool = False) -> None:
    """An agent of this user is connected to the server, with that key."""
    folder = ClientFolder(clients_folder({"CMSERVER_CLIENT_DIR": str(Path.cwd().parent / "clients")}), agent)
    folder.install({"URL": url}, key)
    folder.save(Connection(agent=agent, url=url, settings=[], allow_writing=allow_writing))


@pytest.mark.parametrize("words", COMMANDS)
async def test_the_project_of_the_folder_is_looked_in_and_named(
    cms: Cms, cast: Cast, filled: None, here: Path, words: tuple[str, ...]
):
    (here / ".cmserver.toml").write_text(f'project = "{ORDERS}"\n')

    said = await cms(*words, key=cast.alice.key)
    everywhere = await cms(*words, "--all-projects", key=cast.alice.key)
    named = await cms(*words, "--project", OTHER, key=cast.alice.key)

    assert ("of orders" in said.out, "of slugline" in said.out) == (True, False)
    assert ORDERS in said.err
    assert ("of orders" in everywhere.out, "of slugline" in everywhere.out) == (True, True)
    assert ("of orders" in named.out, "of slugline" in named.out) == (False, True)
    assert (await cms(*words, "--all-projects", "--project", ORDERS, key=cast.alice.key)).code == ExitCode.USAGE


@pytest.mark.parametrize("words", COMMANDS)
async def test_outside_of_any_known_project_it_is_all_projects(
    cms: Cms, cast: Cast, filled: None, here: Path, words: tuple[str, ...]
):
    said = await cms(*words, key=cast.alice.key)
    as_json = await cms(*words, "--json", key=cast.alice.key)

    assert ("of orders" in said.out, "of slugline" in said.out) == (True, True)
    assert str(here) in said.err
    assert as_json.err == ""


async def test_commands_go_where_the_agents_are_connected(cms: Cms, cast: Cast, filled: None, here: Path):
    clients = str(here.parent / "clients")
    connect("claude-code", URL, cast.alice.key)

    said = await cms("list", CMSERVER_URL=None, CMSERVER_CLIENT_DIR=clients)
    elsewhere = await cms("list", CMSERVER_URL="http://other", CMSERVER_CLIENT_DIR=clients)
    connect("codex", "http://other", cast.alice.key)
    undecided = await cms("list", CMSERVER_URL=None, CMSERVER_CLIENT_DIR=clients)
    chosen = await cms("list", "--url", URL, CMSERVER_CLIENT_DIR=clients)

    assert (said.code, "of orders" in said.out) == (0, True)
    assert elsewhere.code == ExitCode.USAGE  # the agent's key is not for that server
    assert undecided.code == ExitCode.USAGE
    assert (URL in undecided.err, "http://other" in undecided.err) == (True, True)
    assert chosen.code == 0


async def test_a_server_of_this_machine_comes_first_and_the_others_are_named(cms: Cms, cast: Cast, filled: None, here: Path):
    connect("claude-code", "https://memory.example", "cms_other")
    credentials.write(here.parent, Credentials(url=URL, key=cast.alice.key, team="Alice's"))

    said = await cms("list", CMSERVER_URL=None, CMSERVER_CLIENT_DIR=str(here.parent / "clients"))

    assert "of orders" in said.out
    assert "https://memory.example" in said.err
