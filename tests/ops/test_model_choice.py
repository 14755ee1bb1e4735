"""The model that words the memory: what is shown of it, one that is tried, and one that is kept while the server runs."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import httpx
import msgspec
import pytest

from cmserver.base.config_file import locked_folder
from cmserver.base.db import Db
from cmserver.base.http.frame import AsgiFrame
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from cmserver.generation.leases import repository as leases
from cmserver.generation.record import NOTHING_FOUND
from tests.conftest import Cast
from tests.models.providers.fake import openai as said
from tests.models.providers.fake.server import FakeProvider, fake_provider, json_reply
from tests.rows import rows
from tests.table import try_rows

KEY = "sk-of-nobody-0123456789"
ONE = json.dumps({"observations": [{"events": ["e1"], "type": "bugfix", "title": "Orders are charged once"}], "skipped": []})


@pytest.fixture
async def fake() -> AsyncGenerator[FakeProvider]:
    async with fake_provider() as fake:
        yield fake


def start(app: AsgiFrame, reloads: list[str] | None = None, environ: Mapping[str, str] | None = None) -> None:
    """Let the server be one that was started so."""
    reload = None if reloads is None else lambda: reloads.append("reload")
    app.dependencies.replace(ServerStart(environ=environ or {}, reload=reload))


async def test_a_model_is_tried_by_one_call_and_what_came_of_it_is_said(client: httpx.AsyncClient, cast: Cast, fake: FakeProvider):
    given = {"provider": "openai", "model": "tiny", "baseUrl": fake.url, "key": KEY}
    prose = json_reply(said.completion(said.message("I am happy to help with that.")))
    fake.replies = [json_reply(said.completion(said.message(ONE))), json_reply({}, status=401), prose, prose]

    tried = [(await client.post("/v1/model/trial", json=given, headers=cast.alice.headers)).json() for _ in range(3)]

    assert [trial["usable"] for trial in tried] == [True, False, False]
    assert (tried[0]["observations"], tried[0]["inputTokens"] > 0, tried[2]["inputTokens"] > 0) == (1, True, True)
    assert fake.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert all(KEY not in json.dumps(trial) for trial in tried)
    assert "OPENAI_API_KEY" in tried[1]["message"]


@try_rows(
    ("answer", "usable"),
    [
        ({"observations": [], "skipped": []}, False),
        ({"observations": [{"events": ["e1"], "type": "bugfix", "title": "", "narrative": "", "facts": [""]}]}, False),
        ({"observations": [], "skipped": [{"event": "all", "reason": "routine"}]}, False),
        ({"observations": [], "skipped": [{"event": "e1", "reason": ""}, {"event": "e2", "reason": ""}]}, False),
        ({"observations": [], "skipped": [{"event": "e1", "reason": "no"}, {"event": "e2", "reason": "routine"}]}, True),
    ],
)
async def test_an_answer_is_usable_in_a_trial_where_it_is_in_a_job(
    answer: object, usable: bool, client: httpx.AsyncClient, cast: Cast, fake: FakeProvider
):
    fake.replies = [json_reply(said.completion(said.message(json.dumps(answer))))]
    given = {"provider": "openai", "model": "tiny", "baseUrl": fake.url}

    tried = (await client.post("/v1/model/trial", json=given, headers=cast.alice.headers)).json()

    assert (tried["usable"], tried["observations"], NOTHING_FOUND[:-1] in tried["message"]) == (usable, 0, not usable)


async def test_a_choice_is_kept_for_the_servers_user_alone_and_begins_at_once(
    app: AsgiFrame, client: httpx.AsyncClient, db: Db, cast: Cast, settings: Settings
):
    reloads: list[str] = []
    start(app, reloads)
    given = {"provider": "openai", "model": "tiny", "baseUrl": "http://127.0.0.1:9/v1", "key": KEY}

    kept = await client.put("/v1/model", json=given, headers=cast.alice.headers)

    file = settings.data_dir / "config.toml"
    shown = (await client.get("/v1/model", headers=cast.alice.headers)).json()
    audit = await rows(db, "SELECT details FROM audit_log WHERE action = 'model.chosen'")
    assert (kept.status_code, kept.json(), reloads) == (200, {"provider": "openai", "file": str(file)}, ["reload"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert KEY in file.read_text()
    assert (shown["pending"], shown["provider"]) == (True, "offline")
    assert audit == [{"details": {"model": "tiny", "new_key": True}}]
    assert KEY not in kept.text + json.dumps(shown)


async def test_of_a_key_only_its_end_is_shown(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, settings: Settings):
    app.dependencies.replace(msgspec.structs.replace(settings, openai_api_key=KEY, gemini_api_key="short"))

    shown = await client.get("/v1/model", headers=cast.alice.headers)

    ends = {provider["name"]: provider["keyEnd"] for provider in shown.json()["providers"]}
    assert (ends["openai"], ends["gemini"], ends["anthropic"]) == ("6789", "set", None)
    assert KEY not in shown.text


@try_rows(
    ("given", "path"),
    [
        ({"provider": "os:system"}, "$.provider"),
        ({"provider": "opnai"}, "$.provider"),
        ({"provider": "offline", "model": "x"}, "$.model"),
        ({"provider": "offline", "key": "x"}, "$.key"),
        ({"provider": "claude-cli", "baseUrl": "http://localhost"}, "$.baseUrl"),
        ({"provider": "ollama"}, "$.model"),
        ({"provider": "ollama", "model": "a,b"}, "$.model"),
        ({"provider": "ollama", "model": "a\nb"}, "$.model"),
        ({"provider": "openai", "baseUrl": "http://127.0.0.1:9/v1", "key": KEY}, "$.model"),
        ({"provider": "openai"}, "$.key"),
        ({"provider": "openai", "key": "sk-1\nsk-2"}, "$.key"),
        ({"provider": "anthropic"}, "$.key"),
        ({"provider": "ollama", "model": "x", "baseUrl": "ftp://127.0.0.1/v1"}, "$.baseUrl"),
        ({"provider": "ollama", "model": "x", "baseUrl": "http://"}, "$.baseUrl"),
        ({"provider": "ollama", "model": "x", "baseUrl": "http://[::1"}, "$.baseUrl"),
        ({"provider": "ollama", "model": "x", "baseUrl": "http://xn--/v1"}, "$.baseUrl"),
        ({"provider": "ollama", "model": "x", "baseUrl": "http://a:b@127.0.0.1/v1"}, "$.baseUrl"),
        ({"provider": "ollama", "model": "x", "baseUrl": "http://a/v1,http://b/v1"}, "$.baseUrl"),
        ({"provider": "ollama", "model": "x", "baseUrl": "http://a/\nv1"}, "$.baseUrl"),
        ({"provider": "ollama", "model": "x", "url": "http://a"}, "$.url"),
    ],
)
async def test_what_cannot_be_called_is_refused_at_its_field_and_nothing_is_kept(
    given: dict[str, str], path: str, client: httpx.AsyncClient, cast: Cast, settings: Settings
):
    refused = [
        await client.post("/v1/model/trial", json=given, headers=cast.alice.headers),
        await client.put("/v1/model", json=given, headers=cast.alice.headers),
    ]

    assert [(answer.status_code, answer.json()["issues"][0]["path"]) for answer in refused] == [(400, path)] * 2
    assert not (settings.data_dir / "config.toml").exists()


X, Y = "http://127.0.0.1:9/v1", "http://127.0.0.1:8/v1"
AT_X = {"provider": "openai", "model": "tiny", "baseUrl": X}


@try_rows(
    ("environ", "text", "given", "path"),
    [
        # the stored key was set for an address: it goes there alone
        ({}, f'provider = "openai"\nmodel = "m"\nbase_url = "{X}"\nopenai_api_key = "k"', AT_X, None),
        ({}, f'provider = "openai"\nmodel = "m"\nbase_url = "{X}"\nopenai_api_key = "k"', AT_X | {"baseUrl": Y}, "$.key"),
        ({}, f'provider = "openai"\nmodel = "m"\nbase_url = "{X}"\nopenai_api_key = "k"', {"provider": "openai"}, "$.key"),
        ({}, 'provider = "openai"\nopenai_api_key = "k"', {"provider": "openai"}, None),
        ({}, 'provider = "openai"\nopenai_api_key = "k"', AT_X, "$.key"),
        (
            {},
            f'provider = "gemini,openai"\nmodel = "g,m"\nbase_url = ",{X}"\nopenai_api_key = "k"',
            {"provider": "openai"},
            "$.key",
        ),
        # nobody knows any more for which
        ({}, 'provider = "ollama"\nmodel = "m"\nopenai_api_key = "k"', {"provider": "openai"}, "$.key"),
        # a variable of the environment is that of the account
        ({"OPENAI_API_KEY": "k"}, "", {"provider": "openai"}, None),
        ({"OPENAI_API_KEY": "k"}, "", AT_X, "$.key"),
        ({"OPENAI_API_KEY": "k"}, "", AT_X | {"withoutKey": True}, "$.withoutKey"),
        ({"OPENAI_API_KEY": "k"}, f'provider = "openai"\nmodel = "m"\nbase_url = "{X}"', {"provider": "openai"}, "$.key"),
        # the embedder would send it to OpenAI
        ({}, 'embedder = "openai"\nopenai_api_key = "k"', AT_X | {"key": "x"}, "$.key"),
        ({}, 'embedder = "openai"\nopenai_api_key = "k"', AT_X | {"withoutKey": True}, "$.withoutKey"),
        ({}, f'embedder = "openai"\nembedder_base_url = "{Y}"\nembedder_model = "e"', AT_X | {"key": "x"}, None),
        # no key
        ({}, 'openai_api_key = "k"', AT_X | {"withoutKey": True}, None),
        ({}, "", AT_X, None),
        ({}, "", AT_X | {"key": "x", "withoutKey": True}, "$.withoutKey"),
        ({}, 'provider = "openai"\nopenai_api_key = "k"', {"provider": "openai", "key": " "}, "$.key"),
        ({}, 'provider = "openai"\nopenai_api_key = "k"', {"provider": "openai", "withoutKey": True}, "$.key"),
    ],
)
async def test_a_key_goes_only_to_the_address_for_which_it_was_set(
    environ: dict[str, str],
    text: str,
    given: dict[str, object],
    path: str | None,
    app: AsgiFrame,
    client: httpx.AsyncClient,
    cast: Cast,
    settings: Settings,
):
    file = settings.data_dir / "config.toml"
    file.write_text(text)
    start(app, [], environ)

    answer = await client.put("/v1/model", json=given, headers=cast.alice.headers)

    issues = answer.json().get("issues", [])
    assert ([issue["path"] for issue in issues], answer.status_code) == (([], 200) if path is None else ([path], 400))
    assert path is None or file.read_text() == text
    if given.get("withoutKey") and path is None:
        assert "openai_api_key" not in file.read_text()


async def test_what_is_tried_and_kept_is_judged_by_what_the_file_says_now(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, settings: Settings, fake: FakeProvider
):
    """The server still uses the model of before: the file's key was set for an address that it does not know yet."""
    start(app, [])
    fake.replies = [json_reply(said.completion(said.message(ONE)))]
    await client.put("/v1/model", json={"provider": "openai", "key": KEY}, headers=cast.alice.headers)
    await client.put("/v1/model", json=AT_X | {"key": "sk-of-x"}, headers=cast.alice.headers)
    at_fake = AT_X | {"baseUrl": fake.url}

    refused = [
        await client.post("/v1/model/trial", json=at_fake, headers=cast.alice.headers),
        await client.put("/v1/model", json={"provider": "openai"}, headers=cast.alice.headers),
    ]
    await client.put("/v1/model", json=at_fake | {"key": "sk-of-fake"}, headers=cast.alice.headers)
    tried = await client.post("/v1/model/trial", json=at_fake, headers=cast.alice.headers)

    assert [answer.json()["issues"][0]["path"] for answer in refused] == ["$.key"] * 2
    assert tried.json()["usable"]
    assert [asked.headers["authorization"] for asked in fake.asked] == ["Bearer sk-of-fake"]


async def test_of_choices_made_at_once_none_gets_the_key_of_another(
    app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, settings: Settings
):
    start(app, [])
    file = settings.data_dir / "config.toml"

    with locked_folder(settings.data_dir):
        choosing = asyncio.create_task(client.put("/v1/model", json=AT_X, headers=cast.alice.headers))
        await asyncio.wait([choosing], timeout=0.5)
        file.write_text(f'provider = "openai"\nmodel = "m"\nbase_url = "{Y}"\nopenai_api_key = "{KEY}"\n')
    answer = await choosing

    assert (answer.status_code, answer.json()["issues"][0]["path"]) == (400, "$.key")
    assert X not in file.read_text()


@try_rows(
    "environ",
    [{"CMSERVER_PROVIDER": "ollama"}, {"CMSERVER_MODEL": "x"}, {"CMSERVER_CONFIG": "<other file>"}, {"CMSERVER_PORT": "x"}],
)
async def test_what_is_set_elsewhere_wins_and_is_named(
    environ: dict[str, str], app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, settings: Settings, tmp_path: Path
):
    other = tmp_path / "other.toml"
    other.touch()
    start(app, [], environ={name: value.replace("<other file>", str(other)) for name, value in environ.items()})

    shown = (await client.get("/v1/model", headers=cast.alice.headers)).json()
    refused = await client.put("/v1/model", json={"provider": "anthropic", "key": KEY}, headers=cast.alice.headers)

    assert next(iter(environ)) in shown["fixedBecause"]
    assert refused.status_code == 409
    assert "CMSERVER_PROVIDER=anthropic ANTHROPIC_API_KEY=..." in refused.json()["message"]
    assert KEY not in refused.text
    assert not (settings.data_dir / "config.toml").exists()


async def test_a_key_of_the_environment_stays_there(app: AsgiFrame, client: httpx.AsyncClient, cast: Cast, settings: Settings):
    start(app, [], environ={"ANTHROPIC_API_KEY": KEY})

    refused = await client.put("/v1/model", json={"provider": "anthropic", "key": "sk-another"}, headers=cast.alice.headers)

    assert (refused.status_code, refused.json()["issues"][0]["path"]) == (400, "$.key")
    assert not (settings.data_dir / "config.toml").exists()


async def test_a_server_that_is_started_apart_or_on_several_machines_chooses_nothing(
    app: AsgiFrame, client: httpx.AsyncClient, db: Db, cast: Cast
):
    start(app)
    apart = (await client.get("/v1/model", headers=cast.alice.headers)).json()
    start(app, [])
    (worker,) = await rows(db, "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now()) RETURNING id")
    async with db.system() as conn:
        await leases.register(conn, worker["id"], "another-host:17", 60.0)

    shown = (await client.get("/v1/model", headers=cast.alice.headers)).json()

    assert "started apart" in apart["fixedBecause"]
    assert "another-host" in shown["fixedBecause"]


async def test_the_last_failure_is_shown(client: httpx.AsyncClient, db: Db, cast: Cast):
    async with db.system() as conn:
        for place, (status, message) in enumerate((("failed", "No credit."), ("applied", None))):
            await conn.execute(
                "INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status,"
                " error_class, error_message, created_at) VALUES (gen_random_uuid(), %s, %s, gen_random_uuid(), 0, 'observations',"
                " 'openai', 'tiny', '{}', %s, %s, %s, now() - make_interval(mins => %s))",
                (
                    cast.alice.team_id, cast.alice.project.id, status, message and "quota_exhausted", message, 9 - place,
                ),
            )  # fmt: skip

    shown = (await client.get("/v1/model", headers=cast.alice.headers)).json()

    answers = shown["answers"]
    assert (answers["lastError"]["message"], answers["lastError"]["reason"]) == ("No credit.", "quota_exhausted")
    assert (answers["usable"], answers["unusable"], answers["unanswered"]) == (1, 0, 1)


async def test_a_missing_key_names_both_ways_to_give_it(client: httpx.AsyncClient, cast: Cast):
    refused = await client.post("/v1/model/trial", json={"provider": "anthropic"}, headers=cast.alice.headers)

    assert refused.status_code == 400
    for way in (
        "anthropic needs a key: enter it below Key (commands take --key-file)",
        "set ANTHROPIC_API_KEY, or ANTHROPIC_API",
    ):
        assert way in refused.text
