"""Runs programs on a pseudo-terminal, as somebody who sits before it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread

from tests.process.program import PATIENCE_SECONDS, environment, wait_for
from tests.timeouts import scaled

_TAKE_TERMINAL = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal that of the new session and heeds Ctrl-C, as a shell does, and becomes the program."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        self._screen = b""
        self._terminal, inside = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *words],
            env=environ,
            cwd=folder,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while part := os.read(self._terminal, 4096):
                self._screen += part
        except OSError:
            pass  # how Linux says that the other side is closed

    @property
    def raw(self) -> str:
        """What it has written so far."""
        return self._screen.decode(errors="replace")

    @property
    def shown(self) -> str:
        """What it has written so far, without colours."""
        return _ESCAPES.sub("", self.raw)

    def wait_for_text(self, text: str) -> None:
        def look() -> bool:
            assert text in self.shown or self.process.poll() is None, f"it ended before it showed {text!r}:\n{self.shown}"
            return text in self.shown

        wait_for(f"{text!r} on the terminal", look)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait(self) -> int:
        """Its exit code, once it has ended and all that it wrote is read."""
        code = self.process.wait(scaled(PATIENCE_SECONDS))
        self._reader.join(scaled(5))
        return code

    def end(self) -> None:
        """It is gone afterwards."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(scaled(20))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._terminal)


class TerminalProgram(Terminal):
    """`cmserver <words>` on a terminal of its own."""

    def __init__(self, folder: Path, *words: str, settings: Mapping[str, str]) -> None:
        super().__init__([sys.executable, "-m", "cmserver", *words], folder, environment(folder, settings))
