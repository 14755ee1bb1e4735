"""Pipes and links where a file of the data folder belongs: refused with a sentence, and never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cmserver.base import credentials
from cmserver.base.credentials import BadCredentials
from cmserver.embedded.files import SetupError
from cmserver.embedded.postgres import EmbeddedPostgres


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_log_that_is_no_file_is_refused(tmp_path: Path, kind: str):
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o711)
    log = data_dir / "postgres.log"
    if kind == "pipe":
        os.mkfifo(log)
    else:
        log.symlink_to(tmp_path / "elsewhere")
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)  # as root PostgreSQL is another user, who must get through

    with pytest.raises(SetupError, match=r"postgres\.log is not a file"):
        EmbeddedPostgres(data_dir).start()

    assert list(data_dir.glob("pg[0-9]*")) == []
    assert not (tmp_path / "elsewhere").exists()


def test_credentials_that_are_a_pipe_are_refused_and_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "credentials")

    with pytest.raises(BadCredentials):
        credentials.read(tmp_path)
