"""What keeps the server from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from cmserver.base.configuration import BadSetting
from cmserver.base.settings import Settings
from cmserver.cli.run import refuse_trusted_loopback_in_container


@pytest.mark.parametrize(
    ("file", "environ", "named"),
    [
        (".dockerenv", {}, "/.dockerenv"),
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
    refuse_trusted_loopback_in_container(Settings(data_dir=tmp_path, trust_loopback="default"), {"container": ""}, tmp_path)
