"""Hosts on one machine: network namespaces on a bridge, each with an address of its own, which can be cut off and joined again."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

NET = "10.77.0"
BRIDGE = "cms-net"


class Host:
    """A network namespace. What is started with `prefix` before its words runs there."""

    def __init__(self, name: str, place: int) -> None:
        self.name = name
        self.address = f"{NET}.{place}"
        self._lost: Sequence[Host] = ()
        self.prefix = ["ip", "netns", "exec", self._space]
        _ip("netns", "add", self._space)
        _ip("link", "add", self._end, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        _ip("link", "set", self._end, "master", BRIDGE, "up")
        for words in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            _ip("-n", self._space, *words)

    @property
    def _space(self) -> str:
        return f"cms-{self.name}"

    @property
    def _end(self) -> str:
        return f"cms-{self.name}-end"[:15]

    def cut(self) -> None:
        """Nothing reaches it, and nothing leaves it: packets vanish without a word."""
        _ip("link", "set", self._end, "down")

    def cut_from(self, others: Sequence[Host]) -> None:
        """It and these others do not reach each other; everybody else reaches all of them."""
        self._lost = others
        for other in others:
            _ip("-n", self._space, "route", "add", "blackhole", other.address)
            _ip("-n", other._space, "route", "add", "blackhole", self.address)

    def join(self) -> None:
        _ip("link", "set", self._end, "up")
        for other in self._lost:
            _ip("-n", self._space, "route", "delete", "blackhole", other.address)
            _ip("-n", other._space, "route", "delete", "blackhole", self.address)
        self._lost = ()


class Network:
    """The bridge, on which this process has an address too, and its hosts."""

    def __init__(self) -> None:
        self._names: list[str] = []
        remove()
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{NET}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")

    def add(self, name: str) -> Host:
        self._names.append(name)
        return Host(name, 10 + len(self._names))


@contextmanager
def alone() -> Generator[None]:
    """Nobody else on this machine has these hosts meanwhile: another test process waits."""
    with (Path(tempfile.gettempdir()) / "cms-net.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_possible() -> bool:
    """Whether this process may make networks: as root, with the program `ip`."""
    try:
        made = _ip("link", "add", BRIDGE, "type", "bridge", check=False)
    except FileNotFoundError:
        return False
    if made.returncode == 0:
        remove()
    return made.returncode == 0 or b"exists" in made.stderr


def remove() -> None:
    """Remove the bridge and all hosts, of an earlier run as well."""
    for line in _ip("-o", "link", "show", "type", "veth", check=False).stdout.decode().splitlines():
        name = line.split(": ")[1].partition("@")[0]
        if name.startswith("cms-"):
            _ip("link", "delete", name, check=False)  # it outlives its namespace, as long as a process is in there
    for line in _ip("netns", "list", check=False).stdout.decode().splitlines():
        if line.startswith("cms-"):
            _ip("netns", "delete", line.split()[0], check=False)
    _ip("link", "delete", BRIDGE, check=False)


def _ip(*words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *words], capture_output=True, check=check)
