"""`cmserver mcp`: MCP over standard input and output, for clients that start a program instead of using HTTP."""

from __future__ import annotations

import os
import signal

import click

from cmserver.base.settings import Settings
from cmserver.cli.config import settings_option
from cmserver.client.agents import AGENTS
from cmserver.client.connections import find_server
from cmserver.client.stdio_bridge import find_connected_server, serve_stdio


@click.command()
@click.option("--url", envvar="CMSERVER_URL", show_envvar=True, help="The server's address. [default: from the credentials file]")
@click.option(
    "--agent", type=click.Choice(list(AGENTS)), help="Use the server and the key of this agent, as `cmserver connect` stored them."
)
@click.option("--project", metavar="NAME", help="The project to ask about. [default: that of the working folder]")
@click.option(
    "--folder",
    metavar="PATH",
    help="The folder whose project to ask about, where the program starts it elsewhere. Without such a folder it is all projects.",
)
@settings_option
def mcp(url: str | None, agent: str | None, project: str | None, folder: str | None, settings: Settings) -> None:
    """Speak MCP on standard input and output, for clients without HTTP.

    Clients start it themselves. It uses the key of the agent, of CMSERVER_KEY_FILE, of CMSERVER_KEY or of the credentials file. No
    option takes a key, because everybody on the machine can read a program's arguments.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # nothing has to be closed
    key = os.environ.get("CMSERVER_KEY")
    serve_stdio(*(find_connected_server(agent) if agent is not None else find_server(settings, url, key)), project, folder)
