"""All commands but `run`, which needs none of them and would keep them in memory."""

from __future__ import annotations

import click

from cmserver.cli.backup import backup, backups
from cmserver.cli.config import config
from cmserver.cli.connect import connect_group, connections, disconnect_group
from cmserver.cli.context import context
from cmserver.cli.corrections import close, edit, list_observations
from cmserver.cli.doctor import doctor
from cmserver.cli.embeddings import embeddings
from cmserver.cli.handoff import handoff
from cmserver.cli.history import history, merge, review, undo
from cmserver.cli.jobs import jobs
from cmserver.cli.licenses import licenses
from cmserver.cli.mcp import mcp
from cmserver.cli.observations import expire, forget, promote, remember, show
from cmserver.cli.projects import projects
from cmserver.cli.prove import prove
from cmserver.cli.psql import psql
from cmserver.cli.reindex import reindex
from cmserver.cli.replay import replay
from cmserver.cli.request import api
from cmserver.cli.restore import restore
from cmserver.cli.retention import retention
from cmserver.cli.rules import rules_group
from cmserver.cli.search import search
from cmserver.cli.service import restart, start, status, stop
from cmserver.cli.service_unit import logs, service_group
from cmserver.cli.sessions import sessions
from cmserver.cli.steward import steward
from cmserver.cli.teams import teams
from cmserver.cli.transfer import export, import_group
from cmserver.cli.upgrade import upgrade
from cmserver.cli.usage import usage
from cmserver.cli.verbs import add_commands
from cmserver.cli.verify import verify
from cmserver.cli.why import why

_OF_THE_SERVER: list[click.Command] = [
    start,
    stop,
    restart,
    status,
    logs,
    service_group,
    config,
    backup,
    backups,
    restore,
    upgrade,
    export,
    import_group,
    verify,
    psql,
    retention,
    doctor,
    licenses,
]

_OF_AGENTS: list[click.Command] = [
    connect_group,
    disconnect_group,
    connections,
    mcp,
]
"""The agents on this machine."""

_CLIENTS: list[click.Command] = [
    teams,
    projects,
    sessions,
    search,
    why,
    list_observations,
    show,
    remember,
    edit,
    close,
    promote,
    expire,
    forget,
    merge,
    history,
    undo,
    review,
    rules_group,
    context,
    handoff,
    jobs,
    steward,
    reindex,
    prove,
    replay,
    usage,
    embeddings,
    api,
]
"""Clients of the API."""


def add_all(cli: click.Group) -> None:
    """Add them to the group."""
    for command in [*_OF_THE_SERVER, *_OF_AGENTS, *_CLIENTS]:
        cli.add_command(command)
    add_commands(cli)
