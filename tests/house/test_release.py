"""bin/release in a clone: what it makes is of one version, and says so everywhere."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import click
import pytest

from tests.house import release
from tests.house.house import ROOT

REPOSITORY = "https://github.com/ann/cmserver"


def run(*words: str | Path, folder: Path, code: int = 0) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of what is here, also of what is not committed, whose tools are those of the tests."""
    made = tmp_path / "clone"
    run("git", "clone", "-q", "--no-checkout", ROOT, made, folder=tmp_path)
    run("git", "sparse-checkout", "set", "--no-cone", "/*", "!/tests/*", "/tests/house/", folder=made)
    run("git", "checkout", "-q", folder=made)
    changed = run("git", "ls-files", "-z", "--modified", "--others", "--exclude-standard", folder=ROOT).split("\0")
    for name in filter(None, changed):
        (made / name).unlink(missing_ok=True)
        if (ROOT / name).exists() and (not name.startswith("tests/") or name.startswith("tests/house/")):
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, made / name)
    (made / "bin" / "setup").write_text("#!/bin/sh\n")
    python = made / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for words in (("config", "user.name", "Ann"), ("config", "user.email", "ann@example.com"), ("add", "--all")):
        run("git", *words, folder=made)
    run("git", "commit", "--quiet", "--allow-empty", "-m", "What is here", folder=made)
    return made


def test_what_is_published_is_of_one_version_and_has_its_checksums(clone: Path):
    said = run(clone / "bin" / "release", "3.1.4", REPOSITORY, folder=clone)

    dist = clone / "dist"
    wheel, archive = dist / "cmserver-3.1.4-py3-none-any.whl", dist / "cmserver-3.1.4.tar.gz"
    sums = {line[66:]: line[:64] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dist.iterdir() if path.name != "SHA256SUMS"
    }
    clients = {"cmserver_client-3.1.4-py3-none-any.whl", "cmserver_client-3.1.4.tar.gz", "cmserver-client-3.1.4.tgz"}
    assert set(sums) == {wheel.name, archive.name, *clients, "cmserver-3.1.4.cdx.json", "server.json"}

    entry = json.loads((dist / "server.json").read_text())
    metadata = zipfile.ZipFile(wheel).read("cmserver-3.1.4.dist-info/METADATA").decode()
    assert entry["name"] == "io.github.ann/cmserver"
    assert (entry["version"], entry["packages"][0]["version"], entry["repository"]["url"]) == ("3.1.4", "3.1.4", REPOSITORY)
    assert len(entry["description"]) <= 100
    assert metadata.count("mcp-name: io.github.ann/cmserver") == 1
    assert re.search(r"^Version: 3\.1\.4$", metadata, re.MULTILINE)

    bill = json.loads((dist / "cmserver-3.1.4.cdx.json").read_text())
    assert bill["metadata"]["component"]["version"] == "3.1.4"
    listed = {
        component["purl"].removeprefix("pkg:pypi/").partition("@")[0] for component in bill["components"] if "purl" in component
    }
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert locked - listed == set()

    assert re.search(r"^## 3\.1\.4 \(\d{4}-\d\d-\d\d\)$", (clone / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert run("git", "log", "-1", "--format=%s", folder=clone).strip() == "Release 3.1.4"
    assert run("git", "status", "--porcelain", folder=clone) == run("git", "tag", folder=clone) == ""
    assert f"REVISION={run('git', 'rev-parse', 'HEAD', folder=clone).strip()}" in said

    # A second time nothing is unreleased.
    assert "unreleased" in run(clone / "bin" / "release", "3.1.5", REPOSITORY, folder=clone, code=1)


def test_the_source_archive_makes_the_same_wheel(clone: Path, tmp_path: Path):
    run(clone / "bin" / "build", folder=clone)
    (built,) = (clone / "dist").glob("cmserver-*.whl")
    (archive,) = (clone / "dist").glob("cmserver-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "source")
    (source,) = (tmp_path / "source").iterdir()

    run(sys.executable, "-I", "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", folder=source)

    (again,) = (tmp_path / "again").glob("*.whl")
    first, second = zipfile.ZipFile(built), zipfile.ZipFile(again)
    assert sorted(second.namelist()) == sorted(first.namelist())
    assert [name for name in first.namelist() if first.read(name) != second.read(name)] == []


def test_what_cannot_be_released_is_refused_and_changes_nothing(clone: Path):
    head = run("git", "rev-parse", "HEAD", folder=clone)
    rows = [
        (("3.1", REPOSITORY), "is no version"),
        (("3.1.4", "http://github.com/ann/cmserver"), "is no address"),
        (("3.1.4", "https://github.com/cmserver"), "is no address"),
    ]
    for words, sentence in rows:
        assert sentence in run(clone / "bin" / "release", *words, folder=clone, code=2)
    (clone / "new.txt").write_text("")
    assert "not committed" in run(clone / "bin" / "release", "3.1.4", REPOSITORY, folder=clone, code=1)
    (clone / "new.txt").unlink()
    run("git", "tag", "v3.1.4", folder=clone)
    assert "a tag already" in run(clone / "bin" / "release", "3.1.4", REPOSITORY, folder=clone, code=1)

    assert run("git", "rev-parse", "HEAD", folder=clone) == head
    assert run("git", "status", "--porcelain", folder=clone) == ""


def test_the_name_in_the_registry_is_of_who_owns_the_repository():
    assert release.name_in_registry("https://github.com/Ann/cmserver.git") == "io.github.Ann/cmserver"
    assert release.name_in_registry("https://git.example.com/team/memory/cmserver") == "com.example.git/cmserver"


def test_a_readme_has_the_line_once_and_a_changelog_needs_changes():
    named = release.name_readme(release.name_readme("# cmserver\n", "io.github.ann/cmserver"), "io.github.bob/cmserver")

    assert named == "# cmserver\n\n<!-- mcp-name: io.github.bob/cmserver -->\n"
    assert release.date_changes("## 1.0.0 (unreleased)\n\n- a\n\n## 0.9.0 (2026-01-01)\n", "1.0.1", date(2026, 2, 3)).startswith(
        "## 1.0.1 (2026-02-03)\n\n- a\n\n## 0.9.0"
    )
    with pytest.raises(click.ClickException):
        release.date_changes("## 1.0.0 (unreleased)\n\n## 0.9.0 (2026-01-01)\n", "1.0.0", date(2026, 2, 3))
