"""What keeps the server from starting."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cmserver.base.configuration import BadSetting, load
from cmserver.base.db import Db
from cmserver.base.server_start import ServerStart
from cmserver.base.settings import Settings
from cmserver.cli import run
from cmserver.cli.exit_codes import ResourceInUse
from cmserver.cli.run import load_providers, refuse_trusted_loopback_in_container, reload_settings, serve_status


@pytest.mark.parametrize(
    ("file", "environ", "named"),
    [
        ("run/.containerenv", {}, "/run/.containerenv"),
        (None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "KUBERNETES_SERVICE_HOST"),
        (None, {"container": "podman"}, "container"),
    ],
)
def test_there_are_no_guests_in_a_container(tmp_path: Path, file: str | None, environ: dict[str, str], named: str):
    if file:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()

    refuse_trusted_loopback_in_container(Settings(data_dir=tmp_path), environ, tmp_path)
    with pytest.raises(BadSetting, match="CMSERVER_TRUST_LOOPBACK") as told:
        refuse_trusted_loopback_in_container(Settings(data_dir=tmp_path, trust_loopback="default"), environ, tmp_path)

    assert f"({named})" in str(told.value)


def test_elsewhere_there_may_be_guests(tmp_path: Path):
    (tmp_path / ".dockerenv").touch()  # Docker's published ports do not reach a server that listens on loopback
    refuse_trusted_loopback_in_container(Settings(data_dir=tmp_path, trust_loopback="default"), {"container": ""}, tmp_path)


async def test_a_worker_whose_port_another_process_took_meanwhile_does_not_start(db: Db, settings: Settings):
    with socket.socket() as other, socket.socket() as ours:
        for bound in (other, ours):
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", other.getsockname()[1]))
        other.listen()

        with pytest.raises(ResourceInUse):
            async with serve_status(settings, db, ours):
                pass


@pytest.mark.parametrize(("sign", "is_quiet"), [(None, True), ("/.dockerenv", False)])
def test_the_first_start_leaves_out_its_log_on_a_terminal_but_not_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str | None, is_quiet: bool
):
    def find_sign(_: object) -> str | None:
        return sign

    monkeypatch.setattr(run, "container_sign", find_sign, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    loaded = load({"CMSERVER_DATA_DIR": str(tmp_path)})

    assert run.is_first_on_terminal(loaded) is is_quiet


# -- settings that are read anew while the server runs


@pytest.mark.parametrize(
    "text",
    [
        'provider = "os:system"\n',
        'provider = "ollama"\nmodel = "x"\nbase_url = "http://xn--/v1"\n',
        'provider = "anthropic,oflfine"\n',
        "port = ",
    ],
)
def test_a_server_goes_on_with_what_it_had_where_what_it_reads_cannot_be_used(tmp_path: Path, text: str):
    (tmp_path / "config.toml").write_text(text)
    settings = Settings(data_dir=tmp_path)
    start = ServerStart(environ={"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)})

    with capture_logs() as logged:
        kept, refused = reload_settings(settings, "all", start)
        (tmp_path / "config.toml").write_text('provider = "claude-cli"\n')
        taken, again = reload_settings(kept, "all", refused)

    assert kept == settings
    assert (bool(refused.not_reloaded), again.not_reloaded, taken.provider) == (True, None, "claude-cli")
    assert [entry["event"] for entry in logged] == ["settings.not_reloaded", "settings.reloaded"]


# -- a provider whose key is missing


@pytest.mark.parametrize("others", ["", 'model = "a,b"\nbase_url = ",https://example.com"\n'])
def test_a_provider_of_the_data_folder_s_file_without_its_key_gives_way_to_rules(tmp_path: Path, others: str):
    file = tmp_path / "config.toml"
    file.write_text(f'provider = "anthropic,openai"\n{others}')
    environ = {"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)}

    with capture_logs() as logged:
        settings, providers = load_providers(load(environ), "worker")

    assert [provider.name for provider in providers] == ["offline"]
    assert settings == load({**environ, "CMSERVER_CONFIG": "/dev/null"}).settings
    assert [(entry["event"], entry["log_level"]) for entry in logged] == [("provider.key_missing", "warning")]
    assert (logged[0]["file"], logged[0]["setting"]) == (str(file), "ANTHROPIC_API_KEY")


def test_with_its_key_it_is_used(tmp_path: Path):
    (tmp_path / "config.toml").write_text('provider = "anthropic"')
    loaded = load({"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-0123456789"})

    settings, providers = load_providers(loaded, "worker")

    assert load_providers(loaded, "all") == (settings, [])  # there the worker's own process calls them
    assert settings == loaded.settings
    assert [provider.name for provider in providers] == ["anthropic"]


def test_a_provider_from_elsewhere_needs_its_key_and_the_error_says_where_it_is_set(tmp_path: Path):
    named = tmp_path / "named.toml"
    named.write_text('provider = "anthropic"')
    (tmp_path / "config.toml").write_text('provider = "anthropic"\n')
    environ = {"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)}

    with pytest.raises(BadSetting, match=f"^provider in {named}: .* ANTHROPIC_API_KEY"):
        load_providers(load(environ, config_file=named), "all")
    with pytest.raises(BadSetting, match=r"^CMSERVER_PROVIDER: .* ANTHROPIC_API_KEY"):
        load_providers(load({**environ, "CMSERVER_PROVIDER": "anthropic"}), "all")


def test_a_name_that_is_no_provider_stops_the_start_from_everywhere(tmp_path: Path):
    (tmp_path / "config.toml").write_text('provider = "antropic"')

    with pytest.raises(BadSetting, match="Did you mean 'anthropic'"):
        load_providers(load({"HOME": "/home/alice", "CMSERVER_DATA_DIR": str(tmp_path)}), "all")
