"""Whom the commands ask, with which key, and what they make of a refusal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from uuid import uuid4

import click
import httpx
import msgspec
import pytest
from click.testing import CliRunner, Result

from cmserver.access.wire import ProjectsOut
from cmserver.base import credentials
from cmserver.base.configuration import BadSetting, load
from cmserver.base.credentials import Credentials
from cmserver.base.errors import CmserverError, Forbidden, Invalid, NotFound, Unavailable
from cmserver.base.http.wire import STATUS
from cmserver.cli import api_client
from cmserver.cli.api_client import ApiClient
from cmserver.cli.exit_codes import ExitCode, exit_code
from cmserver.cli.main import cli
from cmserver.client import server_api
from cmserver.client.server_api import Api, ApiAnswer, MissingKey, ServerUnreachable, refusal
from tests.cli.conftest import Cms, every_command
from tests.client.hook.recorder import Recorder, Reply
from tests.conftest import Cast
from tests.repositories import Repository

NOBODY_LISTENS = "http://127.0.0.1:1"


# -- which server, which key


class Asked(Exception):
    """Instead of asking."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_http_client(url: str, key: str) -> None:
        raise Asked(url, key)

    monkeypatch.setattr(server_api, "open_http_client", open_http_client)


def keys_list(data_dir: Path, *words: str, **environ: str) -> Result:
    names = ("CMSERVER_URL", "CMSERVER_KEY", "CMSERVER_KEY_FILE", "CMSERVER_CONFIG", "CMSERVER_DATABASE_URL", "CMSERVER_PORT")
    nothing: dict[str, str | None] = dict.fromkeys(names)
    return CliRunner().invoke(cli, ["keys", "list", *words], env={**nothing, "CMSERVER_DATA_DIR": str(data_dir), **environ})


def whom(result: Result) -> tuple[str, str]:
    assert isinstance(result.exception, Asked), result.output
    return result.exception.args


@pytest.mark.usefixtures("asked")
def test_the_credentials_of_the_data_folder_are_used_when_nothing_else_is_said(tmp_path: Path):
    credentials.write(tmp_path, Credentials(url="http://127.0.0.1:4711", key="cms_file", team="blue"))

    assert whom(keys_list(tmp_path)) == ("http://127.0.0.1:4711", "cms_file")


@pytest.mark.usefixtures("asked")
def test_an_option_comes_before_a_variable_and_a_variable_before_the_file(tmp_path: Path):
    credentials.write(tmp_path, Credentials(url="http://127.0.0.1:4711", key="cms_file", team="blue"))
    there = {"CMSERVER_URL": "https://there.example/", "CMSERVER_KEY": "cms_variable"}

    assert whom(keys_list(tmp_path, **there)) == ("https://there.example", "cms_variable")
    assert whom(keys_list(tmp_path, "--url", "https://here.example", "--key", "cms_option", **there)) == (
        "https://here.example",
        "cms_option",
    )


@pytest.mark.usefixtures("asked")
def test_the_key_may_be_in_a_file_of_its_own(tmp_path: Path):
    (tmp_path / "key").write_text("cms_own_file\n")

    assert whom(keys_list(tmp_path, CMSERVER_KEY_FILE=str(tmp_path / "key")))[1] == "cms_own_file"


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("content", [None, " \n", "\xff"])
def test_a_key_file_that_holds_no_key_is_told(tmp_path: Path, content: str | None):
    if content is not None:
        (tmp_path / "key").write_text(content, encoding="latin-1")

    result = keys_list(tmp_path, CMSERVER_KEY_FILE=str(tmp_path / "key"))

    assert isinstance(result.exception, BadSetting)
    assert "CMSERVER_KEY_FILE" in str(result.exception)


@pytest.mark.usefixtures("asked")
def test_the_key_of_this_machine_is_not_sent_to_another_server(tmp_path: Path):
    credentials.write(tmp_path, Credentials(url="http://127.0.0.1:4711", key="cms_file", team="blue"))

    result = keys_list(tmp_path, "--url", "https://elsewhere.example")

    assert isinstance(result.exception, BadSetting)
    assert isinstance(result.exception, MissingKey)
    assert exit_code(result.exception) is ExitCode.USAGE


def test_a_key_of_the_data_folder_that_is_wrong_may_be_of_another_database(tmp_path: Path):
    server = Recorder()
    body = {"error": "Forbidden", "message": "This API key is wrong, expired or revoked."}
    server.reply = lambda _: Reply(status=403, body=json.dumps(body).encode())
    server.start()
    credentials.write(tmp_path, Credentials(url=server.url, key="cms_file", team="blue"))
    try:
        of_file, named = keys_list(tmp_path), keys_list(tmp_path, "--key", "cms_option")
    finally:
        server.stop()

    assert isinstance(of_file.exception, Forbidden)
    assert str(tmp_path / "credentials") in str(of_file.exception)
    assert "restored" in str(of_file.exception)
    assert "cms_" not in str(of_file.exception)
    assert "restored" not in str(named.exception)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("url", ["127.0.0.1:37877", "file:///etc/passwd"])
def test_an_address_that_is_none_is_told(tmp_path: Path, url: str):
    result = keys_list(tmp_path, "--url", url, "--key", "cms_x")

    assert isinstance(result.exception, BadSetting)


@pytest.mark.parametrize("key", ["cms_\u00e9", "cms_x\nX-Other: y"])
def test_a_key_that_no_header_can_hold_is_told_without_showing_it(tmp_path: Path, key: str):
    result = keys_list(tmp_path, "--url", NOBODY_LISTENS, "--key", key)

    assert isinstance(result.exception, CmserverError)
    assert "cms_" not in str(result.exception)


def test_a_server_that_does_not_answer_is_told_with_what_to_do(tmp_path: Path):
    result = keys_list(tmp_path, "--url", NOBODY_LISTENS, "--key", "cms_x")

    assert isinstance(result.exception, ServerUnreachable)
    assert NOBODY_LISTENS in str(result.exception)
    assert "--operator" in str(result.exception)
    assert exit_code(result.exception) is ExitCode.DATABASE


def test_where_the_server_is_and_the_key_are_no_settings_of_the_server():
    environ = {"HOME": "/home/alice", "CMSERVER_URL": "x", "CMSERVER_KEY": "y", "CMSERVER_KEY_FILE": "z", "CMSERVER_KEYS": "?"}

    assert [warning.split()[0] for warning in load(environ).warnings] == ["CMSERVER_KEYS"]


# -- refusals


def said(status: int, body: object) -> CmserverError:
    request = httpx.Request("GET", "http://cmserver/v1/keys?cursor=1")
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return refusal(httpx.Response(status, content=content, request=request))


def test_every_refusal_of_the_api_is_one_of_the_command_too():
    for status, name in STATUS.values():
        error = said(status, {"error": name, "message": "A sentence.", "issues": []})

        assert str(error) == "A sentence."
        assert exit_code(error) is (ExitCode.DATABASE if isinstance(error, Unavailable) else ExitCode.FAILURE)


def test_refusals_keep_their_kind():
    assert isinstance(said(404, {"error": "NotFound", "message": "x"}), NotFound)
    assert isinstance(said(403, {"error": "Forbidden", "message": "x"}), Forbidden)


def test_each_wrong_field_has_its_line():
    issues = [{"path": "$.name", "message": "Too long"}, {"path": "$.scopes[1]", "message": "Unknown"}]

    error = said(400, {"error": "ValidationError", "message": "Two things are wrong.", "issues": issues})

    assert isinstance(error, Invalid)
    assert str(error) == "Two things are wrong.\n  $.name: Too long\n  $.scopes[1]: Unknown"


def test_a_field_that_the_sentence_names_is_not_repeated():
    issues = [{"path": "$.name", "message": "Unknown field"}]

    assert str(said(400, {"error": "ValidationError", "message": "Unknown field at $.name.", "issues": issues})).count("\n") == 0


def test_an_error_that_nobody_expected_names_its_request():
    error = said(500, {"error": "InternalError", "message": "Internal error.", "requestId": "r-1"})

    assert "r-1" in str(error)
    assert exit_code(error) is ExitCode.FAILURE


def test_another_program_at_the_address_is_told():
    error = said(502, b"<html>Bad gateway</html>")

    assert str(error) == "http://cmserver/v1/keys answered with status 502, but not as cmserver does: is CMSERVER_URL right?"


def test_a_message_cannot_steer_the_terminal():
    assert "\x1b" not in str(said(404, {"error": "NotFound", "message": "\x1b[2Jx"}))


def test_an_answer_of_another_version_is_told():
    with pytest.raises(CmserverError, match="another version"):
        ApiAnswer(b'{"keys": 1}').read(dict[str, str])


def answered(raw: bytes, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What a command prints of that list of projects, on standard output and standard error."""
    client = ApiClient(httpx.AsyncClient(), Path(), as_json=False)
    client.show(ApiAnswer(raw), ProjectsOut, lambda page: f"{len(page.projects)} projects")
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_a_newer_server_may_say_more(capsys: pytest.CaptureFixture[str]):
    assert answered(b'{"projects": [], "nextCursor": null, "invented": [1]}', capsys) == ("0 projects\n", "")


@pytest.mark.parametrize("raw", [b'{"projects": []}', b'{"projects": [{"id": "7"}], "nextCursor": null}'])
def test_an_answer_that_lacks_a_field_is_shown_as_json(raw: bytes, capsys: pytest.CaptureFixture[str]):
    out, err = answered(raw, capsys)

    assert json.loads(out) == json.loads(raw)
    assert "another version" in err


# -- pages


def paged(*, rows: int, page: int, asked: list[int]) -> Api:
    def answer(request: httpx.Request) -> httpx.Response:
        start = int(request.url.params.get("cursor", "0"))
        limit = min(int(request.url.params["limit"]), page)
        asked.append(limit)
        found = [{"id": at} for at in range(start, min(start + limit, rows))]
        following = start + limit if start + limit < rows else None
        return httpx.Response(200, json={"keys": found, "nextCursor": following and str(following), "total": rows})

    return Api(httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://cmserver"))


@pytest.mark.parametrize(("limit", "found", "goes_on"), [(1000, 250, False), (250, 250, False), (120, 120, True), (3, 3, True)])
async def test_a_list_is_read_page_after_page(limit: int, found: int, goes_on: bool):
    asked: list[int] = []

    answer = await paged(rows=250, page=100, asked=asked).pages("/v1/keys", "keys", limit=limit)

    whole = msgspec.json.decode(answer.raw)
    assert [one["id"] for one in whole["keys"]] == list(range(found))
    assert (whole["nextCursor"] is not None) == goes_on
    assert whole["total"] == 250
    assert sum(asked) <= limit


async def test_a_server_that_gives_nothing_but_a_cursor_is_not_asked_for_ever():
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"keys": [], "nextCursor": "again"})

    api = Api(httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://cmserver"))

    assert msgspec.json.decode((await api.pages("/v1/keys", "keys", limit=10)).raw)["keys"] == []


# -- the operator


async def test_the_operator_says_for_which_team(cms: Cms, cast: Cast):
    said = await cms("keys", "list", "--operator")

    assert (said.code, "--operator --team NAME" in said.err) == (2, True)


async def test_a_team_is_named_to_an_operator_only(cms: Cms, cast: Cast):
    said = await cms("keys", "list", "--team", "blue", key=cast.alice.key)

    assert said.code == 2
    assert "a key has its own team" in said.err


async def test_a_team_that_there_is_not_is_told(cms: Cms, cast: Cast):
    said = await cms("keys", "list", "--operator", "--team", "green")

    assert said.code == 1
    assert "no team 'green'" in said.err


async def test_the_operator_needs_no_key_and_acts_for_one_team_only(cms: Cms, cast: Cast):
    by_name = await cms("projects", "list", "--operator", "--team", "blue")
    by_id = await cms("projects", "list", "--operator", "--team", str(cast.alice.team_id))

    assert by_name.out == by_id.out
    assert str(cast.alice.project.id) in by_name.out
    assert str(cast.charlie.project.id) not in by_name.out


async def test_a_database_without_a_schema_is_told(cms: Cms, empty_database: str):
    said = await cms("teams", "list", "--operator", CMSERVER_DATABASE_URL=empty_database)

    assert said.code == ExitCode.SCHEMA
    assert "cmserver run" in said.err


# -- all commands


def placeholders(command: click.Command) -> list[str]:
    """Words with which the command can be run: an id that nobody has for each argument, and a yes."""
    if command.name == "api":
        return ["GET", "/v1/teams"]
    words = [
        one.type.choices[0] if isinstance(one.type, click.Choice) else "." if isinstance(one.type, click.Path) else str(uuid4())
        for one in command.params
        if isinstance(one, click.Argument)
    ]
    return [*words, *(["--yes"] if any(one.name == "yes" for one in command.params) else [])]


async def test_every_command_is_refused_without_a_good_key(cms: Cms, cast: Cast, tmp_path: Path):
    repository = Repository(tmp_path / "clone")
    repository.write("a.py", "a = 1\n")
    repository.write("pins.toml", "")
    files = {"why": f"{repository.folder}/a.py:1", "pins load": f"{repository.folder}/pins.toml"}
    more = {
        "reindex": ["--project", "x"],
        "teams limits": ["--clear"],
        "review": ["--dismiss"],
        "edit": ["--title", "x"],
        "import git": ["--project", "x", "--undo"],
        "why": ["--project", "x"],
        "pins load": ["--project", "x"],
        "rules write": ["--project", "x"],
        "rules read": ["--project", "x"],
    }

    for path, command in every_command().items():
        words = [files[path]] if path in files else placeholders(command)
        said = await cms(*path.split(), *words, *more.get(path, []), key="cms_nobody")

        assert (path, said.code, said.out) == (path, 1, "")
        assert "key is wrong, expired or revoked" in said.err


async def test_what_cannot_be_undone_is_not_done_when_nobody_can_be_asked(cms: Cms, cast: Cast):
    final = {path: one for path, one in every_command().items() if any(param.name == "yes" for param in one.params)}
    # These ask only where many are chosen (tests/cli/test_jobs.py), where there is something to take (tests/cli/test_rules.py), or
    # where a model costs (tests/cli/test_replay.py).
    for path in ("jobs retry", "jobs cancel", "rules read", "replay"):
        del final[path]

    for path, command in final.items():
        words = [word for word in placeholders(command) if word != "--yes"]
        said = await cms(*path.split(), *words, key=cast.alice.key)

        assert (path, said.code, "--yes" in said.err) == (path, 2, True)
    assert {
        "teams archive",
        "teams delete",
        "teams members remove",
        "users remove",
        "users erase-private",
        "projects join",
        "projects purge",
        "projects delete",
        "keys revoke",
        "forget",
        "sessions delete",
        "sessions move",
        "steward undo",
        "replays remove",
    } == set(final)


async def test_a_person_at_a_terminal_is_asked(cms: Cms, cast: Cast, monkeypatch: pytest.MonkeyPatch):
    questions: list[str] = []

    def confirm(question: str, *, abort: bool, err: bool) -> None:
        questions.append(question)
        raise click.Abort

    monkeypatch.setattr(api_client, "is_interactive", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)

    said = await cms("projects", "delete", "orders", key=cast.alice.key)

    assert said.code == 1
    assert ["the project orders" in question for question in questions] == [True]
    assert str(cast.alice.project.id) in (await cms("projects", "list", key=cast.alice.key)).out


def test_nobody_is_at_a_pipe(monkeypatch: pytest.MonkeyPatch):
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)

        assert not api_client.is_interactive()
