"""Builds and runs containers without a registry: podman with runc, over a Debian that debootstrap makes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.process.program import ROOT

BASE = "localhost/cmserver-base"
IMAGE = "localhost/cmserver"
_PACKAGES = "python3,python3-venv,ca-certificates"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")


class Podman:
    """A podman with a store of its own in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            ["podman", "--root", self._folder / "store", "--runroot", self._folder / "run", "--storage-driver", "vfs",
             "--runtime", "runc", "--cgroup-manager", "cgroupfs", *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"podman {' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def build_image(self) -> None:
        """The image of the Containerfile. Its base has this machine's certificates, as a proxy may be in the way to PyPI."""
        root = self._folder / "root"
        words = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(root)]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-4000:]
        (root / "usr" / "bin" / "python").symlink_to("python3")
        shutil.copy(_CERTIFICATES, root / _CERTIFICATES.relative_to("/"))
        if (pip := Path("/etc/pip.conf")).exists():
            shutil.copy(pip, root / "etc" / "pip.conf")
        archive = self._folder / "base.tar"
        subprocess.run(["tar", "-C", root, "--exclude=./var/cache/apt/archives/*.deb", "-cf", archive, "."], check=True)
        shutil.rmtree(root)
        self.run("import", str(archive), BASE)
        archive.unlink()
        self.run(
            "build", "--format", "docker", "--network", "host", "--isolation", "chroot", "--build-arg", f"BASE={BASE}",
            "-f", str(ROOT / "Containerfile"), "-t", IMAGE, str(ROOT),
        )  # fmt: skip

    def start(self, name: str, port: int, *words: str) -> None:
        """Run the image as the how-to does, with the port on this machine's loopback, and a read-only root."""
        self.run(
            "run", "-d", "--name", name, "--read-only", "--tmpfs", "/tmp", *_LIMITS, "--stop-timeout", "30",
            "-v", "cmserver:/var/lib/cmserver", "-p", f"127.0.0.1:{port}:37877", IMAGE, *words,
        )  # fmt: skip
