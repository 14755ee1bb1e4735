"""PostgreSQL's programs: what a forged dump may make psql do."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import msgspec
import psycopg
import pytest

from cmserver.embedded import tools as tools_module
from cmserver.embedded.tools import ToolError, Tools, find_tools, load


@pytest.fixture
def tools(empty_database: str) -> Tools:
    with psycopg.connect(empty_database) as conn:
        return find_tools(conn.info.server_version // 10_000)


@pytest.fixture
def dump(tools: Tools, empty_database: str, tmp_path: Path) -> Path:
    file = tmp_path / "dump"
    subprocess.run([tools.bin / "pg_dump", "--format=custom", f"--file={file}", f"--dbname={empty_database}"], check=True)
    return file


def older_pg_restore(tools: Tools, folder: Path, line: str) -> Tools:
    """One that does not restrict psql, and brings the line of a forged dump."""
    folder.mkdir()
    script = folder / "pg_restore"
    real = shlex.quote(str(tools.bin / "pg_restore"))
    script.write_text(
        f"#!/bin/sh\nset -e\n{real} \"$@\" | grep -v '^.\\(un\\)\\?restrict '\ncase $* in *--file=-*) cat {folder}/line ;; esac\n"
    )
    (folder / "line").write_text(f"{line}\n")
    script.chmod(0o755)
    return Tools(bin=folder, major=tools.major, can_restrict=False)


@pytest.mark.parametrize(
    "line", ["\\! touch {}", "SELECT 1 \\! touch {}", "\\o {}\nSELECT 1;", "SELECT 1 \\g {}", "\\copy (SELECT 1) TO {}"]
)
def test_psql_runs_no_command_of_a_forged_dump(tools: Tools, dump: Path, empty_database: str, tmp_path: Path, line: str):
    made = tmp_path / "made"

    with pytest.raises(ToolError, match="psql has failed"):
        load(older_pg_restore(tools, tmp_path / "older", line.format(made)), tools, dump, empty_database)

    assert not made.exists()


def test_an_older_pg_restore_loads_an_honest_dump(tools: Tools, dump: Path, empty_database: str, tmp_path: Path):
    load(older_pg_restore(tools, tmp_path / "older", "CREATE TABLE IF NOT EXISTS public.honest ();"), tools, dump, empty_database)

    with psycopg.connect(empty_database) as conn:
        assert conn.execute("SELECT count(*) FROM honest").fetchone() == (0,)


def test_a_psql_that_cannot_be_restricted_loads_nothing(tools: Tools, dump: Path, empty_database: str):
    with pytest.raises(ToolError, match="Update PostgreSQL's client programs"):
        load(tools, msgspec.structs.replace(tools, can_restrict=False), dump, empty_database)


def test_the_server_s_own_version_comes_before_newer_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A newer pg_dump writes what an older psql cannot load; only a dump is read by newer ones, where those can restrict psql."""
    own = Tools(bin=tmp_path / "16", major=16, can_restrict=False)
    newer = Tools(bin=tmp_path / "18", major=18)
    older = Tools(bin=tmp_path / "15", major=15)
    mended = msgspec.structs.replace(own, bin=tmp_path / "16-mended", can_restrict=True)
    for installed, restricted, expected in [
        ([newer, older, own], False, own),
        ([newer, older, own], True, newer),
        ([newer, own, mended], False, mended),
        ([newer, own, mended], True, mended),
        ([newer, older], False, newer),
    ]:
        monkeypatch.setattr(tools_module, "_installed", installed.__iter__)
        assert find_tools(16, restricted=restricted) == expected


def test_what_psql_says_is_told_though_it_has_ended_in_the_middle(tools: Tools, dump: Path, empty_database: str, tmp_path: Path):
    wrong = older_pg_restore(tools, tmp_path / "older", "SELECT nothing_there;\n" + "SELECT 1;\n" * 100_000)

    with pytest.raises(ToolError, match="nothing_there"):
        load(wrong, tools, dump, empty_database)
