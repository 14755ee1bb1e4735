"""Commands look in the project of the current folder, at the server that is known on this machine."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from cmserver.base import credentials
from cmserver.base.credentials import Credentials
from cmserver.base.settings import Settings
from cmserver.cli.exit_codes import ExitCode
from cmserver.client.client_folder import ClientFolder, Connection, clients_folder
from cmserver.client.connections import describe_other_servers, find_server
from cmserver.client.server_api import normalize_address
from tests.cli.conftest import URL, Cms
from tests.conftest import Cast
from tests.make import Make
from tests.table import try_rows

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


async def test_a_project_is_called_by_its_name_and_not_by_the_address_of_its_remote(cms: Cms, cast: Cast, filled: None, here: Path):
    (here / ".git").mkdir()
    (here / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (here / ".git" / "config").write_text('[remote "origin"]\n\turl = https://ann:hidden@GitHub.com/acme/orders.git\n')

    said = await cms("list", key=cast.alice.key)

    assert "of orders" in said.out
    assert said.err.startswith(f"In the project {ORDERS}. ")


@pytest.mark.parametrize("words", COMMANDS)
async def test_outside_of_any_known_project_it_is_all_projects(
    cms: Cms, cast: Cast, filled: None, here: Path, words: tuple[str, ...]
):
    said = await cms(*words, key=cast.alice.key)
    as_json = await cms(*words, "--json", key=cast.alice.key)

    assert ("of orders" in said.out, "of slugline" in said.out) == (True, True)
    assert str(here) in said.err
    assert as_json.err == ""


@pytest.mark.parametrize("words", COMMANDS)
async def test_programs_that_read_json_get_all_projects_unless_they_name_one(
    cms: Cms, cast: Cast, filled: None, here: Path, words: tuple[str, ...]
):
    (here / ".cmserver.toml").write_text(f'project = "{ORDERS}"\n')

    said = await cms(*words, "--json", key=cast.alice.key)
    named = await cms(*words, "--json", "--project", ORDERS, key=cast.alice.key)

    assert ("of orders" in said.out, "of slugline" in said.out) == (True, True)
    assert ("of orders" in named.out, "of slugline" in named.out) == (True, False)


@pytest.mark.parametrize("words", COMMANDS)
async def test_a_folder_whose_name_the_server_refuses_is_all_projects(
    cms: Cms, cast: Cast, filled: None, here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
):
    deep = here
    for _ in range(12):
        deep /= "d" * 200
        deep.mkdir()
        monkeypatch.chdir(deep)

    said = await cms(*words, key=cast.alice.key)
    named = await cms(*words, "--project", "p" * 3000, key=cast.alice.key)

    assert (said.code, "of orders" in said.out, "of slugline" in said.out) == (0, True, True)
    assert said.err.startswith("In all projects: ")
    assert named.code not in {0, ExitCode.USAGE}


async def test_a_folder_of_a_blank_name_is_all_projects(cms: Cms, cast: Cast, filled: None, here: Path):
    (here / ".cmserver.toml").write_text('project = "  "\n')

    said = await cms("search", "pool", key=cast.alice.key)

    assert (said.code, "of orders" in said.out, "of slugline" in said.out) == (0, True, True), said


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


@try_rows(
    "given",
    [{"CMSERVER_KEY": "cms_mine"}, {"CMSERVER_KEY_FILE": "key"}],
)
def test_a_key_goes_to_no_server_that_was_not_named_for_it(here: Path, given: dict[str, str]):
    connect("claude-code", "https://memory.example", "cms_agent")
    (here / "key").write_text("cms_mine\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CMSERVER_CLIENT_DIR", str(here.parent / "clients"))
        patch.delenv("CMSERVER_KEY_FILE", raising=False)
        for name, value in given.items():
            patch.setenv(name, value)
        settings = Settings(data_dir=here)

        found = find_server(settings, None, given.get("CMSERVER_KEY"))

    assert found == (f"http://127.0.0.1:{settings.port}", "cms_mine")


async def test_a_connection_that_cannot_be_read_is_told(cms: Cms, cast: Cast, filled: None, here: Path):
    clients = here.parent / "clients"
    connect("claude-code", URL, cast.alice.key)
    connect("codex", "http://other", "cms_other")
    damaged = clients / "codex" / "connection.json"
    damaged.write_text("{")

    unnamed = await cms("list", CMSERVER_URL=None, CMSERVER_CLIENT_DIR=str(clients))
    named = await cms("list", "--url", URL, CMSERVER_CLIENT_DIR=str(clients))

    assert (unnamed.code, str(damaged) in unnamed.err) == (ExitCode.USAGE, True)
    assert (named.code, "of orders" in named.out, str(damaged) in named.err) == (0, True, True)


@try_rows(
    "one, other, is_same",
    [
        ("http://127.0.0.1:37877", "http://localhost:37877/", True),
        ("http://[::1]:37877", "http://localhost:37877", True),
        ("https://Memory.Example", "https://memory.example:443", True),
        ("https://memory.example/tools/", "https://memory.example/tools", True),
        ("http://127.0.0.1:37877", "http://127.0.0.1:37878", False),
        ("http://memory.example", "https://memory.example", False),
        ("https://memory.example/Tools", "https://memory.example/tools", False),
        ("http://[", "http://127.0.0.1", False),
    ],
)
def test_one_server_has_one_address(one: str, other: str, is_same: bool):
    assert (normalize_address(one) == normalize_address(other)) is is_same


def test_agents_with_two_spellings_of_an_address_have_one_server(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CMSERVER_CLIENT_DIR", str(here.parent / "clients"))
    connect("claude-code", "http://127.0.0.1:37877", "cms_reads")
    connect("codex", "http://localhost:37877", "cms_writes", allow_writing=True)

    assert find_server(Settings(data_dir=here), None, None) == ("http://localhost:37877", "cms_writes")
    assert find_server(Settings(data_dir=here), "http://LOCALHOST:37877/", None) == ("http://localhost:37877", "cms_writes")
    assert describe_other_servers("http://127.0.0.1:37877") == ""


async def test_an_agent_s_key_that_is_refused_is_made_anew_by_connecting(cms: Cms, cast: Cast, here: Path):
    connect("claude-code", URL, f"{cast.alice.key[:-4]}AAAA")

    said = await cms("list", CMSERVER_URL=None, CMSERVER_CLIENT_DIR=str(here.parent / "clients"))

    assert said.code != 0
    assert "cmserver connect claude-code" in said.err


async def test_a_server_of_this_machine_comes_first_and_the_others_are_named(cms: Cms, cast: Cast, filled: None, here: Path):
    connect("claude-code", "https://memory.example", "cms_other")
    credentials.write(here.parent, Credentials(url=URL, key=cast.alice.key, team="Alice's"))

    said = await cms("list", CMSERVER_URL=None, CMSERVER_CLIENT_DIR=str(here.parent / "clients"))

    assert "of orders" in said.out
    assert "https://memory.example" in said.err
