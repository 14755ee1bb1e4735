"""What a hook costs an agent: the whole process of the hook client, with a server and without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from cmserver.client import connections
from cmserver.client.agents import AGENTS
from cmserver.client.client_folder import ClientFolder, build_config
from tests.bench.crowd import crowded
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.session import tool_use
from tests.bench.world import World, free_port, role

HOW = (
    "The hook client as an agent calls it: a process that reads the payload of a hook (2 kB, a tool use) in a checkout with a git "
    "remote, posts it to `cmserver run --role api`, and prints the answer; the time is of the whole process, from its start to its "
    "end. Calls alternate with their yardstick: `curl` alone, which posts the same to the same server and knows nothing of spool, "
    "deadline or project; or a shell that reads its input and ends. At a session's start the server has 10,000 observations in the "
    "project and answers with its index. A server that is down refuses connections at once: the first calls find that out, and the "
    "payload goes to the spool; then the breaker opens, and nothing is asked any more."
)
_AIM_UP = Aim(of="ratio", at_least=False, bound=1.3)
_STARTED: dict[str, object] = {"hook_event_name": "SessionStart", "source": "startup"}
_numbers = count(1)

Call = Callable[[], float]
"""Runs something once; the milliseconds that it took."""


def run(world: World, scale: Scale) -> list[Figure]:
    """The figures alternate with a yardstick, call by call."""
    crowd = crowded(world, max(1000, scale.crowd // 20))
    checkout = make_checkout(world.free_folder())
    shell = ["sh", "-c", "cat > /dev/null"]
    with role(world, crowd.place, "api") as port:
        up = install_client(world.free_folder(), port, crowd.place.key)
        curl = curl_command(up, port)
        figures = [
            _figure("hook, the server is up", scale, lambda: _used(up, checkout), _alone(curl, checkout), "curl alone", _AIM_UP),
            _figure(
                "hook at a session's start, with its context",
                scale,
                lambda: _run([up / "hook", "SessionStart"], checkout, {**_STARTED, "session_id": _new("session")}),
                _alone(curl, checkout),
                "curl alone, of a tool use",
                _under_ms(100),
            ),
        ]
    nobody = free_port()
    down = install_client(world.free_folder(), nobody, crowd.place.key)

    def refused() -> float:
        shutil.rmtree(down)
        return _used(install_client(down.parent, nobody, crowd.place.key), checkout)

    figures.append(_figure("hook, the server is down", scale, refused, _alone(shell, checkout), "a shell alone", _under_ms(40)))
    while connections.read_spool(down).breaker_open_until is None:
        _used(down, checkout)
    is_open = _figure(
        "hook, the breaker is open", scale, lambda: _used(down, checkout), _alone(shell, checkout), "a shell alone", _under_ms(15)
    )
    return [*figures, is_open]


def _under_ms(bound: float) -> Aim:
    return Aim(of="median", at_least=False, bound=bound)


def _figure(name: str, scale: Scale, call: Call, alone: Call, yardstick: str, aim: Aim) -> Figure:
    pairs: list[tuple[float, float]] = []
    milliseconds: list[float] = []
    _ = call(), alone()  # what is read from the disk is in memory now
    for _ in range(scale.rounds):
        taken = [(call(), alone()) for _ in range(scale.asked)]
        pairs.append((percentile([mine for mine, _ in taken], 50), percentile([other for _, other in taken], 50)))
        milliseconds += [mine for mine, _ in taken]
    return Figure(
        name=name,
        unit="ms",
        yardstick=yardstick,
        pairs=pairs,
        aim=aim,
        note=spread(milliseconds),
    )


def _used(client: Path, checkout: Path) -> float:
    return _run([client / "hook", "PostToolUse"], checkout, {**tool_use(3), "tool_use_id": _new("toolu")})


def _alone(command: Sequence[str | Path], checkout: Path) -> Call:
    return lambda: _run(command, checkout, {**tool_use(3), "tool_use_id": _new("toolu")})


def _run(command: Sequence[str | Path], checkout: Path, payload: dict[str, object]) -> float:
    given = json.dumps({**payload, "cwd": str(checkout)}).encode()
    env = {"PATH": os.environ["PATH"], "HOME": str(checkout.parent)}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=checkout, env=env, input=given, capture_output=True, check=False)
    milliseconds = (time.perf_counter() - began) * 1000
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return milliseconds


def curl_command(client: Path, port: int) -> list[str]:
    """Posts its input to the server, with the client's key."""
    head = ["-H", f"@{client}/authorization", "-H", "Content-Type: application/json"]
    return ["curl", "-sS", "--max-time", "1", *head, "--data-binary", "@-", f"http://127.0.0.1:{port}/v1/hooks/claude-code"]


def _new(kind: str) -> str:
    return f"{kind}_{next(_numbers):024d}"


def make_checkout(folder: Path) -> Path:
    """An empty repository with a remote."""
    folder.mkdir()
    for words in (["init", "--quiet"], ["remote", "add", "origin", "https://github.com/acme/orders.git"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


def install_client(folder: Path, port: int, key: str) -> Path:
    """The client's folder as `cmserver connect` installs it."""
    client = ClientFolder(folder, "claude-code")
    client.install(build_config(AGENTS["claude-code"], {}, f"http://127.0.0.1:{port}", [], has_tools=False), key)
    return client.path
