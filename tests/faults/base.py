"""What each storm starts from: a data folder with a migrated cluster and a key, and a hook client that is connected."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from cmserver.embedded.postgres import EmbeddedPostgres
from tests.process.program import ROOT, Program, command

HOOK_CLIENT = Path(".config/cmserver/clients/claude-code")
_CLIENT_FILES = {"hook": "hook.sh", "drain.sh": "drain.sh"}

# The database itself notices what must never happen, and notes it.
_WITNESS = """
    CREATE TABLE storm_witness (note text NOT NULL);
    CREATE FUNCTION storm_witness_run() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.status = 'answered' AND NOT EXISTS (SELECT FROM generation_lanes l WHERE l.lane = NEW.lane AND l.claim = NEW.claim)
        THEN
            INSERT INTO storm_witness VALUES (format('claim %s stored an answer for lane %s, which it no longer held',
                                                     NEW.claim, NEW.lane));
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER storm_witness AFTER UPDATE OF status ON generation_runs
        FOR EACH ROW EXECUTE FUNCTION storm_witness_run();
    CREATE FUNCTION storm_witness_lane() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO storm_witness VALUES (format('claim %s took lane %s from claim %s, which held it',
                                                 NEW.claim, NEW.lane, OLD.claim));
        RETURN NULL;
    END $$;
    CREATE TRIGGER storm_witness AFTER UPDATE ON generation_lanes FOR EACH ROW
        WHEN (OLD.claim IS NOT NULL AND NEW.claim IS NOT NULL AND OLD.claim <> NEW.claim)
        EXECUTE FUNCTION storm_witness_lane();
"""


class Base:
    """A folder that is copied for each storm. Made by `make_base`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.cluster = EmbeddedPostgres(folder / "data").cluster.name

    def copy_data(self, data: Path) -> None:
        data.mkdir(mode=0o711, exist_ok=True)
        subprocess.run(["cp", "-a", f"{self._folder / 'data'}/.", data], check=True)

    def copy_client(self, client: Path, program: Path, url: str) -> None:
        """The hook client of that program, connected to the URL."""
        subprocess.run(["cp", "-a", f"{self._folder / 'home' / HOOK_CLIENT}/.", client], check=True)
        for name, source in _CLIENT_FILES.items():
            shutil.copyfile(program / "cmserver/client/hook" / source, client / name)
        config = (client / "config").read_text().splitlines()
        (client / "config").write_text("".join(f"URL='{url}'\n" if line.startswith("URL=") else f"{line}\n" for line in config))


@contextmanager
def temporary_folder() -> Generator[Path]:
    """A folder in memory, where there is such a place, that PostgreSQL's user can pass through."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2 << 30 else None
    folder = Path(tempfile.mkdtemp(prefix="storm-", dir=memory))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def make_base(folder: Path) -> Base:
    """Run the program once, connect an agent, and let the database watch."""
    home = folder / "home"
    (home / ".claude").mkdir(parents=True)
    settings = {"CMSERVER_EMBEDDER": "none"}
    server = Program(folder, "base", settings=settings)
    try:
        server.wait_until_ready()
        own = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "CLAUDE_CONFIG_DIR": str(home / ".claude")}
        connected = command(folder, "connect", "claude-code", "--yes", settings={**settings, **own})
        assert connected.returncode == 0, connected.stdout + connected.stderr
        with psycopg.connect(EmbeddedPostgres(folder / "data").url, autocommit=True) as conn:
            conn.execute(_WITNESS)
            conn.execute("UPDATE api_keys SET requests_per_minute = 1000000")
        assert server.stop(signal.SIGTERM) == 0
    finally:
        server.end()
    return Base(folder)


PROGRAM = ROOT
"""The program as it is; a planted fault is in a copy of it."""
