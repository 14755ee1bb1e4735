"""The page about Patroni, walked by its own commands on one machine, by somebody who is not root."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from cmserver.embedded.files import system_user
from tests.house.examples import blocks
from tests.house.house import ROOT
from tests.process.conftest import passable_folder

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "howto" / "try-a-failover-with-patroni.md"
MINUTES = 10


def end_programs_in(folder: Path) -> None:
    """What the page starts, and does not end itself where it fails: programs whose working folder or data is there."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = (entry / "cwd").resolve().is_relative_to(folder) or str(folder).encode() in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if is_ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


def test_the_page_leads_to_a_failover():
    if shutil.which("etcd") is None or not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        pytest.skip("needs etcd and Debian's PostgreSQL: as root, apt-get install etcd-server postgresql")
    script = "\n".join(block.text for block in blocks(PAGE.read_text("utf-8")) if block.language == "sh")
    user = system_user() if os.geteuid() == 0 else None
    with passable_folder() as folder:
        clone, file = folder / "clone", folder / "walk.sh"
        file.write_text(script, "utf-8")
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        path = f"/usr/lib/postgresql/bin:{os.defpath}:/usr/bin:/usr/sbin:/usr/local/bin"
        if user is not None:
            subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", folder], check=True)
        try:
            done = subprocess.run(
                ["sh", "-eu", file],
                cwd=clone,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                env={"PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=MINUTES * 60,
                check=False,
            )
        finally:
            end_programs_in(clone)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Written before the failure" in done.stdout.split("Taken again after")[1]
    assert "Written after the failure" in done.stdout.split("Taken again after")[1]
