"""Checks of the machine on which the command runs: its port, and the agents that are connected on it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from cmserver.client.connections import DISTRUSTED, AgentStatus
from cmserver.client.server_api import DISTRUSTED_HELP
from cmserver.ops.doctor.model import DoctorFinding, find

_SPOOL_SECONDS = 900
_TIMEOUT_SECONDS = 2.0


def check_port(host: str, port: int) -> list[DoctorFinding]:
    """Whether something else than cmserver answers at the address of the server."""
    address = "127.0.0.1" if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 - compared, not bound
    name = f"[{address}]" if ":" in address else address
    try:
        response = httpx.get(f"http://{name}:{port}/healthz", timeout=_TIMEOUT_SECONDS, trust_env=False)
        is_ours = b'"cmserver"' in response.content[:1000]
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return []  # nobody is there
    except httpx.HTTPError:
        is_ours = False
    return [] if is_ours else [find("port.taken", f"Another program answers at {name}:{port}.", port=port + 1)]


def check_agents(agents: Sequence[AgentStatus]) -> list[DoctorFinding]:
    """The connections of the agents of this user."""
    return [finding for agent in agents for finding in _check_agent(agent)]


def _check_agent(agent: AgentStatus) -> Iterator[DoctorFinding]:
    name = f"{agent.agent}{'' if agent.plugin is None else ' --plugin'}"
    for file in agent.settings:
        if not Path(file).exists():
            yield find("hooks.entry", f"{agent.agent}: the settings file {file} is gone, and with it the hooks.", agent=name)
    if not agent.current:
        yield find("hooks.client", f"{agent.agent}: its hook client is from another version.", agent=name)
    if agent.server in {"lacks its key", "refuses the key", "refuses guests"}:
        yield find(
            "hooks.key",
            f"{agent.agent}: it {agent.server}."
            if agent.server == "lacks its key"
            else f"{agent.agent}: the server at {agent.url} {agent.server}.",
            agent=name,
        )
    if agent.server == DISTRUSTED:
        yield find("hooks.certificate", f"{agent.agent}: the certificate of {agent.url} is not trusted here. {DISTRUSTED_HELP}")
    if agent.trouble == "tools":
        yield find("hooks.tools", f"{agent.agent}: its hooks found neither curl nor python3, so nothing can be sent.")
    if agent.oldest_epoch is not None and time.time() - agent.oldest_epoch / 1000 > _SPOOL_SECONDS:
        minutes = (time.time() - agent.oldest_epoch / 1000) / 60
        calls = f"{agent.waiting} call{'' if agent.waiting == 1 else 's'}"
        yield find("hooks.spool", f"{agent.agent}: {calls} wait, the oldest for {minutes:.0f} minutes; {agent.url} {agent.server}.")
    if agent.dropped or agent.refused:
        yield find("hooks.lost", f"{agent.agent}: {agent.dropped} calls were lost, and {agent.refused} were refused by the server.")
