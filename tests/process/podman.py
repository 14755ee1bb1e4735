"""Builds and runs containers without a registry: podman with runc, over a Debian that debootstrap makes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.process.program import ROOT

NEEDED = ("podman", "runc", "debootstrap", "podman-compose", "iptables", "netavark", "aardvark-dns")
_BASE = "localhost/cmserver-base"
_IMAGE = "localhost/cmserver"
_POSTGRES = "docker.io/pgvector/pgvector:pg17"
_PACKAGES = "python3,python3-venv,ca-certificates"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin:/usr/lib/podman"

_STORE = """
[storage]
driver = "{driver}"
graphroot = "{folder}/store"
runroot = "{folder}/run"
"""
_ENGINE = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
tmp_dir = "{folder}/tmp"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""


def find_missing() -> list[str]:
    """What a machine lacks on which containers cannot be tried."""
    missing = [program for program in NEEDED if shutil.which(program, path=_PATH) is None]
    return missing if os.geteuid() == 0 else ["root", *missing]


class Podman:
    """A podman with a store and networks of its own in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # What runs in the networks of any store is known by their names to the one server of names that the machine has.
        self.network = folder.name
        store, engine = folder / "storage.conf", folder / "containers.conf"
        self._environ = {**os.environ, "PATH": _PATH, "CONTAINERS_STORAGE_CONF": str(store), "CONTAINERS_CONF": str(engine)}
        # Overlays do not stand on overlays; vfs works everywhere, and copies the image for each container.
        driver = "vfs" if self._run(["stat", "-f", "-c", "%T", "."], folder).strip() == "overlayfs" else "overlay"
        store.write_text(_STORE.format(driver=driver, folder=folder), encoding="utf-8")
        engine.write_text(_ENGINE.format(folder=folder), encoding="utf-8")

    def run(self, *words: str) -> str:
        return self._run(["podman", *words], self._folder)

    def compose(self, file: Path, *words: str) -> None:
        self._run(["podman-compose", "-p", f"{self.network}-{file.stem.split('.')[-1]}", "-f", file.name, *words], file.parent)

    def build_images(self) -> None:
        """That of the Containerfile, and one that stands for PostgreSQL's."""
        self.build_image()
        self._build(_POSTGRES, Path(__file__).parent / "pgvector")

    def build_image(self) -> None:
        """That of the Containerfile. It has this machine's certificates, for its proxy."""
        root = self._folder / "root"
        self._run(["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(root)], self._folder)
        (root / "usr" / "bin" / "python").symlink_to("python3")
        shutil.copy(_CERTIFICATES, root / _CERTIFICATES.relative_to("/"))
        if (pip := Path("/etc/pip.conf")).exists():
            shutil.copy(pip, root / "etc" / "pip.conf")
        archive = self._folder / "base.tar"
        self._run(["tar", "-C", str(root), "--exclude=./var/cache/apt/archives/*.deb", "-cf", str(archive), "."], self._folder)
        shutil.rmtree(root)
        self.run("network", "create", self.network)
        self.run("import", str(archive), _BASE)
        archive.unlink()
        self._build(_IMAGE, ROOT, "--network", "host", "--build-arg", f"BASE={_BASE}")

    def _build(self, image: str, folder: Path, *words: str) -> None:
        # A layer of each instruction would be a copy of all of it, where the store has no overlays.
        self.run(
            "build", "--format", "docker", "--isolation", "chroot", "--layers=false", *words,
            "-f", str(folder / "Containerfile"), "-t", image, str(folder),
        )  # fmt: skip

    def _run(self, words: Sequence[str], folder: Path) -> str:
        done = subprocess.run(words, cwd=folder, env=self._environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout
