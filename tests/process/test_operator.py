"""Commands against the running server, and for it when its only key is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from cmserver.base import credentials
from tests.process.conftest import Run
from tests.process.program import command
from tests.timeouts import scaled

pytestmark = pytest.mark.slow


def id_of(key: str) -> str:
    return str(UUID(hex=key.split("_")[1]))


def accepted(url: str, key: str) -> int:
    return httpx.get(f"{url}/v1/info", headers={"Authorization": f"Bearer {key}"}, timeout=scaled(20), trust_env=False).status_code


def test_a_lost_key_is_replaced_while_the_server_runs(folder: Path, run: Run):
    program = run("server")
    program.wait_until_ready()
    url = program.url
    (program.data_dir / credentials.FILE_NAME).unlink()

    helpless = command(folder, "keys", "list")
    made = command(folder, "keys", "create", "--operator", "--team", "default", "--scope", "*", "--name", "found again", "--quiet")
    key = made.stdout.strip()

    assert helpless.returncode == 2
    assert "--operator --team NAME" in helpless.stderr
    assert (made.returncode, made.stderr) == (0, "")
    assert accepted(url, key) == 200

    with_it = {"CMSERVER_URL": url, "CMSERVER_KEY": key}
    listed = command(folder, "jobs", "list", settings=with_it)
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "There are no such jobs.\n", "")

    revoked = command(folder, "keys", "revoke", id_of(key), "--yes", settings=with_it)
    assert revoked.returncode == 0, revoked.stderr
    assert accepted(url, key) == 403
    refused = command(folder, "keys", "list", settings=with_it)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert key not in program.errors + program.output
    assert key not in refused.stderr


def test_the_operator_revokes_for_the_running_server_and_acts_when_none_runs(folder: Path, run: Run):
    program = run("server")
    program.wait_until_ready()
    url, key = program.url, program.key
    assert accepted(url, key) == 200

    revoked = command(folder, "keys", "revoke", id_of(key), "--yes", "--operator", "--team", "default")

    assert revoked.returncode == 0, revoked.stderr
    assert accepted(url, key) == 403
    assert program.stop() == 0

    made = command(folder, "teams", "create", "green", "--operator", "--quiet")
    assert (made.returncode, made.stderr) == (0, "")
    unreachable = command(folder, "keys", "list", settings={"CMSERVER_URL": url, "CMSERVER_KEY": made.stdout.strip()})
    assert unreachable.returncode == 3

    again = run("again")
    again.wait_until_ready()
    assert accepted(again.url, made.stdout.strip()) == 200


def test_an_operator_of_no_database_is_told(folder: Path):
    output = command(folder, "teams", "list", "--operator")

    assert output.returncode == 4
    assert "cmserver run" in output.stderr
    shutil.rmtree(folder / "data")
