"""A coding agent that calls its hooks: the folder of a hook client, and processes of its script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cmserver.client import connections
from cmserver.client.agents import AGENTS
from cmserver.client.client_folder import PROGRAMS, SOURCE, build_agent_config
from tests.timeouts import ENOUGH_SECONDS

KEY = "Authorization: Bearer cms_abc_verysecret"
_LIMITS = re.compile(
    rb"\b(READ_SECONDS|CODE_SECONDS|CODE_PROMPT_SECONDS|BRANCH_SECONDS|seconds)=(0\.1|0\.3|0\.4|0\.8|0\.9|1\.9|2\.5)\b"
)
"""How long a hook lets a folder and the server take, as its scripts say it."""
_LONG = b"30.25"


def command_lines() -> list[bytes]:
    """Of all processes."""
    lines: list[bytes] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_bytes())
    return lines


class Agent:
    """`folder` is its client's, `home` its user's, `work` where it is started. Its shell is the `sh` of its PATH.

    Its hook waits half a minute where the product's waits a second, for a busy machine, unless a test is about that: `keep_limits`.
    """

    def __init__(self, place: Path, shell: Path, url: str, name: str = "claude-code") -> None:
        self.home = place / "home"
        self.folder = self.home / "clients" / name
        self.work = self.home / "work"
        self.bin = place / "bin"
        for folder in (self.folder, self.work, self.bin):
            folder.mkdir(parents=True)
        (self.bin / "sh").symlink_to(shell)
        self._install(lambda source: _LIMITS.sub(rb"\1=" + _LONG, source))
        (self.folder / "authorization").write_text(KEY + "\n")
        self.path = f"{self.bin}:{os.environ['PATH']}"
        self.session = "session-1"
        self.config = {"URL": url}
        if name in AGENTS:
            self.config |= build_agent_config(AGENTS[name])
        self.configure()

    def keep_limits(self) -> None:
        """From now on its hook waits as long as the product does."""
        self._install(lambda source: source)

    def limit(self, seconds: int) -> None:
        """From now on its hook waits so long."""
        self._install(lambda source: _LIMITS.sub(rb"\1=%d" % seconds, source))

    def _install(self, change: Callable[[bytes], bytes]) -> None:
        """A guard's `sleep` is a program: ksh has a builtin, which would wait in a process that looks like the hook."""
        sleep = os.fsencode(shutil.which("sleep") or "sleep")
        for program, source in PROGRAMS.items():
            text = change((SOURCE / source).read_bytes())
            (self.folder / program).write_bytes(text.replace(b'sleep "$limit"', sleep + b' "$limit"'))

    def configure(self, **values: str) -> None:
        config = {**self.config, **values}
        (self.folder / "config").write_text("".join(f"{name}='{value}'\n" for name, value in config.items()))

    def start(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.bin / "sh", self.folder / "hook", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self.work,
            env={"PATH": self.path, "HOME": str(self.home), "CLAUDE_CODE_SESSION_ID": self.session, **(env or {})},
        )

    def finish(self, process: subprocess.Popen[bytes], payload: object = None) -> dict[str, object]:
        """What it says; it exits with 0 and says it in JSON, whatever happens."""
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        out, err = process.communicate(data, timeout=ENOUGH_SECONDS)
        assert (process.returncode, err) == (0, b"")
        return json.loads(out)

    def hook(
        self, event: str, payload: object = None, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> dict[str, object]:
        return self.finish(self.start(event, cwd=cwd, env=env), {"number": 0} if payload is None else payload)

    def use(self, *numbers: int) -> list[dict[str, object]]:
        """Tool uses, one after the other."""
        return [self.hook("PostToolUse", {"number": number}) for number in numbers]

    @property
    def left(self) -> connections.SpoolState:
        return connections.read_spool(self.folder)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Waits, and for all processes of its hooks to be done as well."""
        end = time.monotonic() + ENOUGH_SECONDS
        while not holds() or self._is_running():
            assert time.monotonic() < end, f"{what}: {self.left}"
            time.sleep(0.01)

    def _is_running(self) -> bool:
        """They all work in its folder, and so do the programs that they start, but for a guard's `sleep`, which may be left."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink() == self.folder and _LONG not in (process / "cmdline").read_bytes():
                    return True
        return False

    def until_drained(self) -> None:
        self.until("all is sent", lambda: self.left.waiting == 0)

    def until_idle(self) -> None:
        self.until("nobody drains", lambda: True)

    def end_pause(self) -> None:
        """As if the time of the open breaker were over."""
        self._set_pause(0)

    def hold_pause(self) -> None:
        """As if the breaker had opened just now for its longest time: on a busy machine the shortest is over too soon."""
        self._set_pause(int(time.time()) + 55)

    def _set_pause(self, until: int) -> None:
        file = self.folder / "state" / "breaker"
        words = file.read_text().split() if file.exists() else []
        if len(words) == 4:
            file.write_text(" ".join([words[0], str(until), *words[2:]]) + "\n")

    def tools(self, *names: str) -> None:
        """From now on it finds no programs but these."""
        for name in names:
            if not (self.bin / name).exists():
                found = sys.executable if name == "python3" else shutil.which(name)
                (self.bin / name).symlink_to(Path(found or "/missing").resolve())
        self.path = str(self.bin)
