"""Git repositories for tests, with an author and times of their own."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path


class Repository:
    """A repository in a folder. Commits are by Ann, a minute apart, from 2026-01-01 on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._minute = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    @classmethod
    def at(cls, folder: Path) -> Repository:
        """One that is there."""
        made = cls.__new__(cls)
        made.folder, made._minute = folder, 0
        return made

    @property
    def now(self) -> int:
        """The time of the last commit, in seconds since 1970."""
        return int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) + self._minute * 60

    def tick(self) -> str:
        """The next minute."""
        self._minute += 1
        return f"2026-01-01T{self._minute // 60:02}:{self._minute % 60:02}:00+00:00"

    def pull(self) -> None:
        """Have what the origin has checked out."""
        self.git("fetch", "-q", "origin", "HEAD")
        self.git("reset", "-q", "--hard", "FETCH_HEAD")

    def git(
        self, *words: str, author: str = "Ann", address: str = "ann@example.com", at: str = "", stdin: bytes | None = None
    ) -> str:
        """What git prints."""
        who = {"GIT_AUTHOR_NAME": author, "GIT_AUTHOR_EMAIL": address, "GIT_COMMITTER_NAME": author, "GIT_COMMITTER_EMAIL": address}
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at} if at else {}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1", **who, **dates}
        done = subprocess.run(["git", *words], cwd=self.folder, env=env, check=True, capture_output=True, input=stdin)
        return done.stdout.decode(errors="replace").strip()

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def commit(
        self, message: str | bytes = "Change", *, author: str = "Ann", address: str = "ann@example.com", at: str = ""
    ) -> str:
        """Commit all there is, by its hash."""
        next_minute = self.tick()
        self.git("add", "-A")
        content = message.encode() if isinstance(message, str) else message
        words = ("commit", "-q", "--allow-empty", "--no-verify", "--cleanup=verbatim", "-F", "-")
        self.git(*words, author=author, address=address, at=at or next_minute, stdin=content)
        return self.git("rev-parse", "HEAD")
