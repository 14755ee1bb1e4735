"""Commits a version and makes in dist/ what is published of it, see bin/release. Nothing is sent."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from cmserver.cli.licenses import InstalledPart
from cmserver.client.agents import AGENTS
from cmserver.client.plugin import generate_files
from tests.house.house import ROOT

DIST = ROOT / "dist"
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_UNRELEASED = re.compile(r"^## \S+ \(unreleased\)\n(?P<changes>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_MCP_NAME = re.compile(r"\n*<!-- mcp-name: \S+ -->\n")
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_ABOUT = "Memory for coding agents of a small team: what earlier sessions did, decided and found out."
"""At most 100 characters, as the registry wants it."""


@click.command()
@click.argument("version")
@click.argument("repository")
def release(version: str, repository: str) -> None:
    """Commit VERSION, whose source will be read at REPOSITORY, and make in dist/ what is published of it."""
    if _VERSION.fullmatch(version) is None:
        raise click.UsageError(f"{version!r} is no version: write three numbers, as in 1.2.3.")
    mcp_name = name_in_registry(repository)
    if git("status", "--porcelain"):
        raise click.ClickException("Something is not committed. Commit it first: what is published is a commit.")
    if git("tag", "--list", f"v{version}"):
        raise click.ClickException(f"v{version} is a tag already.")
    changelog = ROOT / "CHANGELOG.md"
    texts = {
        changelog: date_changes(changelog.read_text(encoding="utf-8"), version, datetime.now(UTC).date()),
        ROOT / "README.md": name_readme((ROOT / "README.md").read_text(encoding="utf-8"), mcp_name),
        ROOT / "cmserver" / "__init__.py": set_version((ROOT / "cmserver" / "__init__.py").read_text(encoding="utf-8"), version),
        **{ROOT / name: text for name, text in generate_files(AGENTS["claude-code"].hooks, version).items()},
    }
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    git("commit", "--quiet", "--allow-empty", "--all", "-m", f"Release {version}")
    subprocess.run([ROOT / "bin" / "build"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run(
        [sys.executable, "-m", "cmserver", "licenses", "--json"], cwd=ROOT, check=True, capture_output=True
    ).stdout
    write_json(
        DIST / f"cmserver-{version}.cdx.json", bill_of_materials(msgspec.json.decode(listed, type=list[InstalledPart]), version)
    )
    write_json(DIST / "server.json", server_entry(version, repository, mcp_name))
    write_checksums()
    click.echo(_NEXT.format(version=version, repository=repository, revision=git("rev-parse", "HEAD")))


_NEXT = """\
Version {version} is committed, and dist/ has its wheel, source archive, clients, bill of materials, server.json and SHA256SUMS.
Nothing is published. To publish it:

  git tag v{version} && git push origin HEAD v{version}
  uv publish dist/cmserver-{version}*.whl dist/cmserver-{version}.tar.gz dist/cmserver_client-{version}*
  npm publish dist/cmserver-client-{version}.tgz
  docker build . -f Containerfile --build-arg VERSION={version} --build-arg REVISION={revision} --build-arg SOURCE={repository} \\
    -t IMAGE:{version}
  (cd dist && mcp-publisher publish)

The image holds the weights of an embedder: docs/why/embeddings.md says what to look at before it is pushed."""


def name_in_registry(repository: str) -> str:
    """The server's name in the MCP registry, which owns a namespace by an account at GitHub or by a domain."""
    parts = urlsplit(repository)
    match = re.fullmatch(
        r"/([A-Za-z0-9-]+)(?:/[A-Za-z0-9._-]+)*/([A-Za-z0-9._-]+)", parts.path.removesuffix("/").removesuffix(".git")
    )
    if parts.scheme != "https" or parts.hostname is None or match is None or parts.username or parts.query or parts.fragment:
        raise click.UsageError(f"{repository!r} is no address of a repository: write https://HOST/OWNER/NAME.")
    if parts.hostname == "github.com":
        return f"io.github.{match[1]}/{match[2]}"
    return f"{'.'.join(reversed(parts.hostname.split('.')))}/{match[2]}"


def date_changes(text: str, version: str, day: date) -> str:
    """The changelog, its unreleased changes as those of the version."""
    match = _UNRELEASED.search(text)
    if match is None or not match["changes"].strip():
        raise click.ClickException('CHANGELOG.md has no section "## VERSION (unreleased)" with changes in it.')
    head = f"## {version} ({day.isoformat()})\n"
    return f"{text[: match.start()]}{head}{match['changes']}{text[match.end() :]}"


def name_readme(text: str, mcp_name: str) -> str:
    """The README with the line by which the registry knows that who publishes the package owns the name."""
    return f"{_MCP_NAME.sub('', text).rstrip()}\n\n<!-- mcp-name: {mcp_name} -->\n"


def set_version(text: str, version: str) -> str:
    """The package's source with its version."""
    changed, count = re.subn(r'^__version__ = ".*"$', f'__version__ = "{version}"', text, flags=re.MULTILINE)
    assert count == 1, "cmserver/__init__.py has no line with the version."
    return changed


def server_entry(version: str, repository: str, mcp_name: str) -> dict[str, object]:
    """server.json of the MCP registry: `uvx cmserver mcp`, which finds the server of this machine or of a connected agent."""
    package = {
        "registryType": "pypi",
        "identifier": "cmserver",
        "version": version,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "mcp"}],
    }
    entry: dict[str, object] = {
        "$schema": _SCHEMA,
        "name": mcp_name,
        "title": "cmserver",
        "description": _ABOUT,
        "version": version,
        "packages": [package],
    }
    if urlsplit(repository).hostname == "github.com":
        entry["repository"] = {"url": repository, "source": "github"}
    return entry


def bill_of_materials(parts: list[InstalledPart], version: str) -> dict[str, object]:
    """What an installation consists of, as CycloneDX 1.6; the versions are those of this machine, which are those of the lock."""
    components = [
        {
            "type": "library",
            "bom-ref": reference(part),
            "name": part.name,
            **({"version": part.version} if part.version else {}),
            "licenses": [{"license": {"name": part.license}}],
            **({} if part.comes_in else {"purl": reference(part)}),
            **({"properties": [{"name": "cmserver:comes-in", "value": part.comes_in}]} if part.comes_in else {}),
        }
        for part in parts
        if part.name != "cmserver"
    ]
    own = InstalledPart(name="cmserver", version=version, license="Apache-2.0")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": reference(own),
                "name": "cmserver",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": reference(own),
            }
        },
        "components": components,
        "dependencies": [{"ref": reference(own), "dependsOn": [component["bom-ref"] for component in components]}],
    }


def reference(part: InstalledPart) -> str:
    """A package's purl, or what names a part within a package."""
    if part.comes_in:
        return f"{part.comes_in}#{part.name}"
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', part.name).lower()}@{part.version}"


def write_checksums() -> None:
    """SHA256SUMS of all that lies in dist/, as `sha256sum --check` reads it."""
    sums = DIST / "SHA256SUMS"
    sums.unlink(missing_ok=True)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir()) if path.is_file()]
    sums.write_text("".join(lines), encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    release()
