"""What is generated from the code, and kept in the repository so that a diff shows what changes: the reference, and parts of
the plugin.

`python -m tests.house.pages` says what is stale; with `--fix` it is written anew. bin/check does both.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import structlog

from cmserver import __version__
from cmserver.app import ROUTES
from cmserver.base.http.operation import Operation
from cmserver.base.migrate import migrate
from cmserver.cli.exit_codes import MEANINGS
from cmserver.cli.main import cli
from cmserver.client.agents import AGENTS
from cmserver.client.plugin import generate_files
from cmserver.embedded.postgres import EmbeddedPostgres
from tests.bench.recall import page as recall_page
from tests.bench.recall.results import read_saved
from tests.house.doctor_page import doctor_page
from tests.house.evaluation_page import evaluation_page
from tests.house.hooks_page import hooks_page
from tests.house.house import ROOT, declared, owner_of
from tests.house.logs_page import logs_page
from tests.house.mcp_page import mcp_page
from tests.house.metrics_page import metrics_page
from tests.house.provider_errors_page import provider_errors_page
from tests.house.settings_page import settings_page
from tests.house.web_page import web_page

REFERENCE = ROOT / "docs" / "reference"
OPS = sorted((ROOT / "sql" / "ops").glob("*.sql"))


def generated(url: str) -> dict[Path, str]:
    """Every generated file, given a migrated database."""
    return {REFERENCE / "tables.md": tables_page(url), **pages()}


def pages() -> dict[Path, str]:
    """Those that need no database."""
    made = {
        "settings": settings_page(),
        "logs": logs_page(),
        "metrics": metrics_page(),
        "exit-codes": exit_codes_page(),
        "cli": cli_page(),
        "http": http_page(),
        "mcp": mcp_page(),
        "sql": sql_page(),
        "doctor": doctor_page(),
        "provider-errors": provider_errors_page(),
        "evaluation": evaluation_page(),
        "web": web_page(),
        "hooks": hooks_page(),
        "recall": recall_page.render(read_saved()),
    }
    plugin_files = generate_files(AGENTS["claude-code"].hooks, __version__)
    return {
        **{REFERENCE / f"{name}.md": text for name, text in made.items()},
        **{ROOT / name: text for name, text in plugin_files.items()},
    }


# ---- docs/reference


def tables_page(url: str) -> str:
    """docs/reference/tables.md."""
    with psycopg.connect(url) as conn:
        found = conn.execute(
            """
            SELECT c.relname, c.relkind = 'v', coalesce(obj_description(c.oid, 'pg_class'), ''),
                   ARRAY(SELECT a.attname || ': ' || col_description(c.oid, a.attnum) FROM pg_attribute a
                          WHERE a.attrelid = c.oid AND col_description(c.oid, a.attnum) IS NOT NULL ORDER BY a.attnum),
                   coalesce((SELECT string_agg(lower(g.privilege_type), ', ' ORDER BY g.privilege_type)
                               FROM aclexplode(c.relacl) g WHERE g.grantee = 'cmserver_tenant'::regrole), '')
              FROM pg_class c
             WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND c.relname NOT LIKE 'procrastinate%'
               AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
             ORDER BY c.relname
            """
        ).fetchall()
        functions = conn.execute(
            """
            SELECT p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')', obj_description(p.oid, 'pg_proc')
              FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NOT NULL
               AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
             ORDER BY 1
            """
        ).fetchall()
    tables = [f"| `{name}` | {owner_of(name)} | {may} | {comment} |" for name, is_view, comment, _, may in found if not is_view]
    views = [f"| `{name}` | {may} | {comment} |" for name, is_view, comment, _, may in found if is_view]
    columns = [f"- `{name}.{_code(column)}" for name, _, _, columns, _ in found for column in columns]
    borrowed = [
        f"- `{room}`: {', '.join(f'`{one}`' for one in sorted(taken))}" for room, taken in sorted(declared("BORROWS").items())
    ]
    return _TABLES.format(
        tables="\n".join(tables),
        views="\n".join(views),
        columns="\n".join(columns),
        functions="\n".join(f"- `{signature}`: {comment}" for signature, comment in functions),
        borrowed="\n".join(borrowed),
    )


def _code(column: str) -> str:
    name, _, comment = column.partition(": ")
    return f"{name}`: {comment}"


_TABLES = """\
# Tables

<!-- Generated from the OWNS of every repository and the comments in the migrations. -->

Each table belongs to one room, a folder of `cmserver/`, whose `repository.py` holds all SQL that writes it. Requests run as the
role `cmserver_tenant`, which sees the rows of one team and may do what is listed here; where nothing is listed only the owner
may. All of it is in `sql/migrations/`. The tables `procrastinate_*` are those of the procrastinate package.

These rooms also write tables of others:

{borrowed}

| table | room | the tenant may | |
|---|---|---|---|
{tables}

## Views

They show every team and are the operator's, but for those whose names end in `_in_team`, which show the team of the transaction.

| view | the tenant may | |
|---|---|---|
{views}

## Columns worth a word

{columns}

## Functions for operators

{functions}
"""


def exit_codes_page() -> str:
    """docs/reference/exit-codes.md."""
    rows = "\n".join(f"| {code.value} | {sentence} |" for code, sentence in MEANINGS.items())
    return f"# Exit codes\n\n<!-- Generated from cmserver/cli/exit_codes.py. -->\n\n| code | meaning |\n|---|---|\n{rows}\n"


def cli_page() -> str:
    """docs/reference/cli.md."""
    return _CLI.format(rows="\n".join(f"| `{path}` | {sentence} |" for path, sentence in commands(cli, "cmserver")))


_CLI = """\
# Commands

<!-- Generated from cmserver/cli/. -->

Each in a sentence. Its arguments, options and examples are in its help: `cmserver jobs list --help`.

| command | |
|---|---|
{rows}
"""


def commands(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Each command as it is typed, without the groups, and the first sentence of its help."""
    context = click.Context(command, info_name=name, parent=parent)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield context.command_path, command.get_short_help_str(10_000)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            if inner is not None and not inner.hidden:
                yield from commands(inner, each, context)


def http_page() -> str:
    """docs/reference/http.md."""
    return _HTTP.format(rows="\n".join(map(_operation, sorted(ROUTES, key=lambda one: (one.path, one.method)))))


def _operation(one: Operation) -> str:
    sentence = " ".join((inspect.getdoc(one.endpoint) or "").partition("\n\n")[0].split())
    needs = "no key" if one.scope is None else f"`{one.scope}`" if one.scope else "any key"
    return f"| `{one.method} {one.path}` | {needs} | {sentence} |"


_HTTP = """\
# HTTP

<!-- Generated from the routes and their handlers' docstrings. -->

A key goes with each request: `Authorization: Bearer <key>` or `X-Api-Key: <key>`. It needs the scope that is named here. Bodies and
answers are JSON. An error is `{{"error": name, "message": sentence, "requestId": id}}`, with `issues` where fields are wrong.
A field that is not known is refused, or, where clients of claude-mem may send more, named in the answer: `"ignored": ["projct"]`.

Every field of every body and answer is in the OpenAPI 3.1 document that each server has at `/openapi.json`. It is shown as a page,
with an example of each request, at `/docs`.

| route | scope | |
|---|---|---|
{rows}
"""


def sql_page() -> str:
    """docs/reference/sql.md."""
    rows = "\n".join(f"| `{file.name}` | {_comment(file)} |" for file in OPS)
    return _SQL.format(rows=rows)


def _comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return " ".join(
        line.removeprefix("-- ") for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("--"))]
    )


_SQL = """\
# SQL for operators

<!-- Generated from the comments in sql/ops/. -->

Questions and acts for psql, as the database's owner. A value goes in with `-v`:

    psql "$CMSERVER_DATABASE_URL" -f sql/ops/queue_overview.sql
    psql "$CMSERVER_DATABASE_URL" -v job=<id> -f sql/ops/retry_job.sql

| file | |
|---|---|
{rows}
"""


# ---- python -m tests.house.pages


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    folder = Path(tempfile.mkdtemp(prefix="cmserver-pages-"))
    folder.chmod(0o755)  # as root, PostgreSQL runs as another user, who must get through
    embedded = EmbeddedPostgres(folder / "data", durable=False)
    try:
        embedded.start()
        asyncio.run(migrate(embedded.url))
        wanted = generated(embedded.url)
    finally:
        embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(_write(wanted) if "--fix" in sys.argv else _compare(wanted))


def _write(wanted: dict[Path, str]) -> int:
    for file, text in wanted.items():
        if present(file) != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            click.echo(f"written: {file.relative_to(ROOT)}")
    return 0


def _compare(wanted: dict[Path, str]) -> int:
    stale = {file: text for file, text in wanted.items() if present(file) != text}
    for file, text in stale.items():
        name = str(file.relative_to(ROOT))
        sys.stdout.writelines(
            difflib.unified_diff(
                present(file).splitlines(keepends=True), text.splitlines(keepends=True), name, f"{name} as it must be"
            )
        )
    if stale:
        click.echo("Generated files are stale: bin/check --fix writes them.")
    return 1 if stale else 0


def present(file: Path) -> str:
    """What the file holds now; nothing when it is not there."""
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    main()
