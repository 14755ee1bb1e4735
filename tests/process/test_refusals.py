"""When the program cannot start it says one sentence and which kind of trouble it is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cmserver.embedded.files import lock_data_dir
from tests.process.program import command

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

NOWHERE = "postgresql://nobody:secret@127.0.0.1:1/nothing"


def refusal(folder: Path, code: int, *options: str, **settings: str) -> str:
    """The one sentence on standard error of a start that ends with that exit code."""
    ended = command(folder, "run", *options, settings=settings)

    output = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert len(output) == 1
    assert output[0].startswith("cmserver: ")
    return output[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CMSERVER_PORT", "banana"),
        ("CMSERVER_LEASE_SECONDS", "3"),
        ("CMSERVER_PROVIDER", "oflfine"),
        ("CMSERVER_EMBEDDED", "never"),
    ],
)
def test_a_bad_setting_is_one_sentence_that_names_it(folder: Path, name: str, value: str):
    assert name in refusal(folder, 2, **{name: value})


def test_there_are_no_guests_in_a_container(folder: Path):
    assert "container" in refusal(folder, 2, CMSERVER_TRUST_LOOPBACK="default", container="podman")


def test_a_worker_of_its_own_needs_a_database_that_others_reach_too(folder: Path):
    assert "CMSERVER_DATABASE_URL" in refusal(folder, 2, "--role", "worker")


def test_a_port_in_use_is_named(folder: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])

        assert f"127.0.0.1 port {port}" in refusal(folder, 5, CMSERVER_PORT=port)


def test_a_data_folder_in_use_is_named(folder: Path):
    lock = lock_data_dir(folder / "data")
    try:
        assert str(folder / "data") in refusal(folder, 5)
    finally:
        lock.release()


def test_a_database_out_of_reach_is_named_without_its_password(folder: Path):
    output = refusal(folder, 3, CMSERVER_DATABASE_URL=NOWHERE, CMSERVER_DATABASE_WAIT_SECONDS="1")

    assert "127.0.0.1" in output
    assert "CMSERVER_DATABASE_URL" in output
    assert "secret" not in output
