"""`cmserver doctor`: looks for what is wrong, and tries out the configured provider and embedder."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec
import psycopg

from cmserver.base import logs
from cmserver.base.columns import render_fields
from cmserver.base.configuration import BadSetting, LoadedSettings
from cmserver.base.db import DatabaseUrls, Db
from cmserver.base.errors import Invalid, Unavailable
from cmserver.base.lookalikes import sanitize_line
from cmserver.base.settings import Settings
from cmserver.base.tenant_role import UnsafeConnection
from cmserver.cli.config import loaded_option, settings_option
from cmserver.cli.database import database_urls
from cmserver.cli.exit_codes import ExitCode
from cmserver.cli.output import as_called, render_json
from cmserver.cli.service_unit import find_left_behind
from cmserver.client.client_folder import clients_folder
from cmserver.client.connections import check_connections
from cmserver.embedded.files import SetupError, list_clusters
from cmserver.models.providers import registry
from cmserver.models.providers.embedding import registry as embedders
from cmserver.models.providers.embedding.model import Embedder
from cmserver.models.providers.failures import FAILURE_HELP, mask_key
from cmserver.models.providers.model import FailureKind, ProviderError, ProviderSettings, Rules
from cmserver.ops.doctor.database import check_credentials, check_database
from cmserver.ops.doctor.diagnose import read_answers
from cmserver.ops.doctor.machine import check_agents, check_port
from cmserver.ops.doctor.model import DoctorFinding, find
from cmserver.ops.doctor.server import check_server
from cmserver.ops.doctor.wire import DiagnosisOut, diagnosis_out
from cmserver.ops.provider_choice.trial import PROMPT, explain_failure, try_provider, try_rules
from cmserver.ops.wire import AnswersOut

_DATABASE_SECONDS = 8.0
_EMBEDDER_REMEDIES = {
    FailureKind.TRANSIENT: "time; if it persists, check that it runs and that CMSERVER_EMBEDDER_BASE_URL is right",
    FailureKind.AUTH_INVALID: "check its key; that of a server at CMSERVER_EMBEDDER_BASE_URL is CMSERVER_EMBEDDER_KEY",
    FailureKind.SETUP_REQUIRED: "check CMSERVER_EMBEDDER_MODEL and CMSERVER_EMBEDDER_BASE_URL, and that it offers this model",
    FailureKind.CONTEXT_TOO_LONG: "a model with a larger context",
    FailureKind.REFUSED: "another model or embedder",
    FailureKind.UNUSABLE_ANSWER: "check that CMSERVER_EMBEDDER_MODEL is a model for embeddings",
}
"""Remedies that differ from a provider's, because an embedder has settings of its own."""


@click.group(invoke_without_command=True)
@loaded_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(context: click.Context, loaded: LoadedSettings, *, as_json: bool) -> None:
    """Look for what is wrong with the server, its database and the agents on this machine, and say what mends it.

    Needs no server and no key, only access to the database. Calls no provider: `doctor provider` and `doctor embedder` do. Exits 0
    without a finding, 6 when all are warnings, 1 with an error.
    """
    if context.invoked_subcommand is not None:
        return
    logs.configure(loaded.settings.log_format, "error")
    diagnosis = examine(loaded)
    click.echo(render_json(msgspec.json.encode(diagnosis)) if as_json else as_called(_render(diagnosis)))
    severities = {finding.severity for finding in diagnosis.findings}
    sys.exit(ExitCode.FAILURE if "error" in severities else ExitCode.WARNING if severities else ExitCode.OK)


def examine(loaded: LoadedSettings) -> DiagnosisOut:
    """All checks. The database has eight seconds, and the machine is looked at meanwhile."""
    settings = loaded.settings
    with ThreadPoolExecutor(1) as pool:
        machine = pool.submit(_examine_machine, settings)
        findings, places, answers = check_server(settings, loaded.warnings), {"server", "machine"}, None
        if settings.database_url is not None or list_clusters(settings.data_dir):  # else no server was ever started here
            places.add("database")
            try:
                with database_urls(settings) as urls:
                    found, answers = asyncio.run(_examine_database(settings, urls))
                    findings += found
            except (SetupError, Unavailable, UnsafeConnection, psycopg.Error) as error:
                findings.append(find("database.unreachable", f"The database does not answer: {error}"))
        return diagnosis_out([*findings, *machine.result()], places, answers)


def _examine_machine(settings: Settings) -> list[DoctorFinding]:
    return [
        *check_port(settings.host, settings.port),
        *map(_left_service, find_left_behind()),
        *check_agents(check_connections(clients_folder(os.environ))),
    ]


def _left_service(left: tuple[Path, str, bool]) -> DoctorFinding:
    file, gone, is_system = left
    found = find("service.left", f"The service of {file} is left behind: {gone} does not exist.")
    return msgspec.structs.replace(found, command=f"{found.command} {'--system' if is_system else '--user'}")


async def _examine_database(settings: Settings, urls: DatabaseUrls) -> tuple[list[DoctorFinding], AnswersOut | None]:
    try:
        async with asyncio.timeout(_DATABASE_SECONDS), Db(urls, size=2) as db:
            findings = [*await check_database(db, settings, urls), *await check_credentials(db, settings.data_dir)]
            return findings, await read_answers(db, settings)
    except TimeoutError:
        return [find("database.unreachable", f"The database did not answer within {_DATABASE_SECONDS:g} s.")], None


def _render(diagnosis: DiagnosisOut) -> str:
    """Each finding with its mending command below it, and how the models do."""
    answers = [render_fields(*diagnosis.answers.fields())] if diagnosis.answers else []
    if not diagnosis.findings:
        return "\n\n".join([f"Looked for {diagnosis.checks} faults and found none.", *answers])
    lines = [
        f"{finding.severity}: {sanitize_line(finding.message)}  [{finding.code}]\n    {sanitize_line(finding.command)}"
        for finding in diagnosis.findings
    ]
    return "\n\n".join(["\n".join(lines), *answers])


@doctor.command()
@click.argument("name", required=False)
@settings_option
def provider(name: str | None, settings: Settings) -> None:
    """Call each provider of CMSERVER_PROVIDER once, or the one called NAME, and print the result.

    This is a real call with two made-up events; it costs what it prints. Needs no server. Exits 0 when every answer was usable,
    1 when one was not, and 2 when a setting is missing or wrong.
    """
    sys.exit(max([_try_provider(provider, settings) for provider in _find_providers(settings, name)]))


@doctor.command()
@settings_option
def embedder(settings: Settings) -> None:
    """Call the embedder of CMSERVER_EMBEDDER once, with two short texts, and print the result.

    Needs no server. Exits 0 when the vectors are usable or there is no embedder, 1 when they are not, and 2 when a setting is
    missing or wrong.
    """
    configured = embedders.embedder_settings(settings)
    if configured is None:
        why = "CMSERVER_EMBEDDER is none" if settings.embedder == "none" else "none is set, and local is not installed"
        click.echo(f"No embedder ({why}): search uses words only.")
        return
    try:
        embedder = embedders.make(configured)
    except Invalid as error:
        raise BadSetting(str(error)) from error
    result, exit_code = asyncio.run(_call_embedder(embedder))
    click.echo(sanitize_line(mask_key(result, configured.api_key)))
    sys.exit(exit_code)


async def _call_embedder(embedder: Embedder) -> tuple[str, ExitCode]:
    started = time.monotonic()
    name = f"{embedder.provider} ({embedder.model})"
    try:
        vectors = await embedder.embed([event.event_type for event in PROMPT.events], "document")
    except ProviderError as error:
        return f"{name} {describe_embedder_failure(embedder.provider, error)}", ExitCode.FAILURE
    finally:
        await embedder.close()
    return f"{name} answered in {time.monotonic() - started:.2f} s: vectors of {len(vectors[0])} dimensions.", ExitCode.OK


def _find_providers(settings: Settings, name: str | None) -> list[ProviderSettings]:
    """The providers of CMSERVER_PROVIDER, or the one of that name, which need not be among them."""
    try:
        if name is None:
            return registry.provider_settings(settings)
        configured = [provider for provider in _configured_providers(settings) if provider.name == name]
        return configured or registry.provider_settings(msgspec.structs.replace(settings, provider=name, model=None, base_url=None))
    except Invalid as error:
        raise BadSetting(str(error)) from error


def _configured_providers(settings: Settings) -> list[ProviderSettings]:
    try:
        return registry.provider_settings(settings)
    except Invalid:
        return []  # the wrong setting may be another provider's


def _try_provider(configured: ProviderSettings, settings: Settings) -> ExitCode:
    """Call the provider, print the result, and return its exit code."""
    if configured.name == Rules().name:
        trial = try_rules()
    else:
        try:
            provider = registry.load(configured)
        except Invalid as error:
            click.echo(sanitize_line(f"{configured.name} cannot be called: {error}"))
            return ExitCode.USAGE
        limit = f"{settings.provider_timeout_seconds:g} s (CMSERVER_PROVIDER_TIMEOUT_SECONDS)"
        click.echo(f"Asking {provider.name} ({provider.model}); this may take {limit}.", err=True)
        trial = asyncio.run(try_provider(provider, settings.provider_timeout_seconds, configured.api_key))
    click.echo(trial.message)
    return ExitCode.OK if trial.usable else ExitCode.FAILURE


def describe_embedder_failure(name: str, error: ProviderError) -> str:
    """What is wrong with an embedder, for its operator, with what to do."""
    if error.kind in _EMBEDDER_REMEDIES:
        return f"{FAILURE_HELP[error.kind].predicate} ({str(error).rstrip('.')}). What helps: {_EMBEDDER_REMEDIES[error.kind]}."
    return explain_failure(name, error)
