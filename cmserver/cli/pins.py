"""`cmserver pins check` and `cmserver pins load`: what does more than its verb."""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import click

from cmserver.base.atomic_file import write_file
from cmserver.base.columns import Columns
from cmserver.base.errors import Invalid
from cmserver.base.text import UNSTORABLE
from cmserver.cli.api_client import ApiClient, api_command
from cmserver.cli.exit_codes import ExitCode
from cmserver.client.client_folder import read_project
from cmserver.client.git_history import find_repository
from cmserver.observations.plain import one_line
from cmserver.pins.wire import PinChecksOut, PinResultOut

PINS_FILE = Path(".cmserver/pins.toml")
"""In a repository; nothing reads it but `pins load`."""
_MAX_BYTES = 1 << 20
_NAMES = {"must_not": "mustNot", "on_break": "onBreak"}
_CHARS = 80
_TABLE = Columns(
    PinResultOut,
    "pin, answered, question, why",
    pin=lambda result: result.pin.number,
    answered=lambda result: "yes" if result.holds else "no",
    question=lambda result: one_line(result.pin.question, _CHARS),
    why=lambda result: one_line(result.reason, 4 * _CHARS),
)


def _render(checks: PinChecksOut) -> str:
    table = _TABLE.table(
        checks.results, empty="Nothing is pinned. `cmserver pins add QUESTION --must WORD` begins it.", shrink=("question",)
    )
    if not checks.results:
        return table
    count = len(checks.results)
    return f"{table}\n{count - checks.broken_count} of {count} pins hold."


@click.command("check")
@click.option("--project", metavar="PROJECT", help="Only those of this project.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Also write the results to this file, as JUnit XML.")
@api_command
async def check_pins(client: ApiClient, *, project: str | None, junit: Path | None) -> None:
    """Check whether the memory answers what is pinned. Exits 1 when a pin does not hold."""
    answer = await client.post("/v1/pins/check", {} if project is None else {"projectId": project})
    checks = answer.read(PinChecksOut)
    if junit is not None:
        try:
            write_file(junit, render_junit(checks), mode=0o644)
        except OSError as error:
            raise click.UsageError(f"{junit} cannot be written: {error.strerror}.") from error
    client.show(answer, PinChecksOut, _render)
    if checks.broken_count:
        sys.exit(ExitCode.FAILURE)


@click.command("load")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--project", metavar="PROJECT", help="The project that is asked. [default: what hooks call the folder]")
@api_command
async def load_pins(client: ApiClient, *, file: Path | None, project: str | None) -> None:
    """Make the project's pins those of FILE, by default .cmserver/pins.toml of the repository, and check them.

    Pins that were added by hand stay; those that the file had before and has no longer are removed. All of it is taken, or nothing.
    """
    folder = find_repository() or Path()
    body = {"pins": read_pins_file(file or folder / PINS_FILE), "projectId": project or read_project(folder.resolve())}
    client.show(await client.put("/v1/pins", body), PinChecksOut, _render)


def read_pins_file(file: Path) -> list[Any]:
    """The file's pins as the API takes them, which checks their fields. Invalid for a file that is none, without its contents."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}. It must be a file, not a link.") from error
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Invalid(f"{file} is not a file.")
        content = opened.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise Invalid(f"{file} is larger than {_MAX_BYTES:,} bytes.")
    try:
        read = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{file} is not TOML in UTF-8.") from error
    for name in read:
        if name != "pin":
            raise Invalid.at("$", f"{file} has a field that it may not have. It holds [[pin]] tables, and nothing else.")
    pins: object = read.get("pin", [])
    if not isinstance(pins, list):
        raise Invalid.at("$.pin", f"{file}: write [[pin]], with two brackets.")
    return [
        {_NAMES.get(name, name): value for name, value in cast("dict[str, object]", pin).items()} if isinstance(pin, dict) else pin
        for pin in cast("list[object]", pins)
    ]


def render_junit(checks: PinChecksOut) -> bytes:
    """A test case for each pin, as CI services read it."""
    suite = ET.Element("testsuite", name="cmserver pins", tests=str(len(checks.results)), failures=str(checks.broken_count))
    for result in checks.results:
        name = f"{result.pin.number}: {_plain(result.pin.question)}"
        case = ET.SubElement(suite, "testcase", classname="cmserver.pins", name=name)
        if not result.holds:
            ET.SubElement(case, "failure", message=_plain(result.reason))
    return ET.tostring(suite, encoding="utf-8", xml_declaration=True)


def _plain(text: str) -> str:
    """Without what XML cannot hold, which are all control characters."""
    return "".join(char if char.isprintable() else " " for char in UNSTORABLE.sub(" ", text))
