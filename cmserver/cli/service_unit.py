"""`cmserver service`: has systemd or launchd run the server from the start of the machine, or of the user's session, on."""

from __future__ import annotations

import os
import plistlib
import pwd
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import msgspec

from cmserver.base.atomic_file import write_file
from cmserver.base.configuration import CONFIG_NAME, BadSetting, LoadedSettings, find_data_dir, load
from cmserver.base.errors import CmserverError, NotFound
from cmserver.base.log_files import LOG_NAME
from cmserver.base.own_command import build_own_command
from cmserver.cli.config import config_file_option
from cmserver.cli.output import as_called
from cmserver.embedded.files import SYSTEM_USER, system_user

SYSTEMD_NAME = "cmserver.service"
LAUNCHD_LABEL = "cmserver"
ENVIRONMENT_NAME = "environment"
"""A file in the data folder, with a line `NAME=value` for each variable that the service shall have, such as a provider's key."""
_LEFT_PATHS = re.compile(
    r'^ExecStart="([^"%$\\]+)"|^Environment="CMSERVER_DATA_DIR=([^"%$\\]+)"'
    r"|<key>(?:ProgramArguments</key>\s*<array>|CMSERVER_DATA_DIR</key>)\s*<string>([^<&]+)</string>",
    re.MULTILINE,
)
"""The program and the data folder in a unit or property list; none where its path has signs that are written otherwise there."""
_LEFT_DATA = re.compile(
    r'^Environment="CMSERVER_DATA_DIR=([^"%$\\]+)"|<key>CMSERVER_DATA_DIR</key>\s*<string>([^<&]+)</string>', re.MULTILINE
)
_LEFT_USER = re.compile(rf"^User={SYSTEM_USER}$|<key>UserName</key>\s*<string>{SYSTEM_USER}</string>", re.MULTILINE)
_WATCHDOG_SECONDS = 60
_STOP_SECONDS_BEYOND_DRAIN = 30
_GLOB = re.compile(r"[\\*?\[]")
"""Systemd looks for the file of variables by a pattern."""


class ServiceUnit(msgspec.Struct, frozen=True, kw_only=True):
    """What the service manager needs to know. `user` is None for the user who installs it; `is_system` starts with the machine."""

    command: Sequence[str]
    folder: Path
    data_dir: Path
    environment: Mapping[str, str]
    stop_seconds: int
    is_system: bool
    user: str | None = None
    backup_folder: Path | None = None
    """Where backups and their journal are, when that is not in the data folder."""


def render_systemd_unit(unit: ServiceUnit) -> str:
    """The text of the unit. What it may do is what the embedded PostgreSQL needs, too."""
    command = _quote_command(unit.command)
    environment = "".join(f"Environment={_quote(f'{name}={value}')}\n" for name, value in unit.environment.items())
    user = f"User={unit.user}\n" if unit.user else ""
    # A manager of a user's own may not forbid what it could not do itself; it needs namespaces that some systems do not give.
    # A folder that is missing at the start is no error (`-`): it may be on a disk that is mounted later.
    writable = [str(unit.data_dir), *([f"-{unit.backup_folder}"] if unit.backup_folder else [])]
    protection = _SYSTEM_PROTECTION.format(writable=" ".join(map(_quote, writable))) if unit.is_system else ""
    if unit.is_system and unit.user != "root":  # root's server runs PostgreSQL as another user
        protection += "CapabilityBoundingSet=\n"
    return _SYSTEMD_UNIT.format(
        command=command,
        folder=_literal(str(unit.folder)),
        environment=environment,
        environment_file=_literal(_GLOB.sub(r"\\\g<0>", str(unit.data_dir / ENVIRONMENT_NAME))),
        user=user,
        stop_seconds=unit.stop_seconds,
        watchdog_seconds=_WATCHDOG_SECONDS,
        protection=protection,
        target="multi-user.target" if unit.is_system else "default.target",
    )


def render_launchd_plist(unit: ServiceUnit) -> bytes:
    """The property list for macOS; the output goes into the data folder."""
    log = str(unit.data_dir / LOG_NAME)
    return plistlib.dumps(
        {
            "Label": LAUNCHD_LABEL,
            "ProgramArguments": list(unit.command),
            "WorkingDirectory": str(unit.folder),
            "EnvironmentVariables": dict(unit.environment),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 5,
            "ExitTimeOut": unit.stop_seconds,
            "StandardOutPath": log,
            "StandardErrorPath": log,
            **({"UserName": unit.user} if unit.user else {}),
        }
    )


@click.group("service")
def service_group() -> None:
    """Run the server as a service of systemd (Linux) or launchd (macOS)."""


_system_option = click.option(
    "--system/--user",
    "is_system",
    default=lambda: os.geteuid() == 0,
    help="Of the machine, or of your user. [default: --system as root]",
)


@service_group.command()
@config_file_option
@_system_option
@click.option("--print", "only_prints", is_flag=True, help="Print the service's file, and change nothing.")
def install(config_file: Path | None, *, is_system: bool, only_prints: bool) -> None:
    """Install the service, start it now, and again whenever the machine or your session starts.

    Its settings are those of config.toml in the data folder (or --config), and the variables in the file `environment` there.
    """
    loaded = load(os.environ, config_file=config_file)
    if only_prints:
        unit = _make_unit(loaded, is_system=is_system, makes_user=False)
        click.echo(_find_manager(is_system=is_system).render(unit).decode(), nl=False)
    else:
        install_service(loaded, is_system=is_system)


def find_left_behind() -> list[tuple[Path, str, bool]]:
    """The services of this user and of the machine whose program or data folder is gone: file, what is gone, if of the machine."""
    left: list[tuple[Path, str, bool]] = []
    for is_system in (False, True):
        try:
            path = _find_manager(is_system=is_system).path
            words = _LEFT_PATHS.findall(path.read_text(encoding="utf-8", errors="replace"))
        except (CmserverError, OSError):
            continue
        gone = next((word for word in ("".join(word) for word in words) if not Path(word).exists()), None)
        if gone is not None:
            left.append((path, gone, is_system))
    return left


def lacks_service() -> bool:
    """Whether there is a service manager here, without a service that `cmserver service install` would make."""
    try:
        return not _find_manager(is_system=os.geteuid() == 0).path.exists()
    except CmserverError:
        return False


def install_service(loaded: LoadedSettings, *, is_system: bool, starts: bool = True) -> None:
    """Write the service's file and have it started with the machine or the session, and now if it `starts`."""
    settings = loaded.settings
    manager = _find_manager(is_system=is_system)
    text = manager.render(_make_unit(loaded, is_system=is_system, makes_user=True))
    manager.path.parent.mkdir(parents=True, exist_ok=True)
    before = manager.path.read_bytes() if manager.path.exists() else None
    write_file(manager.path, text, mode=0o644)
    try:
        manager.enable()
        if starts:
            manager.start()
    except CmserverError as error:
        left = _take_back(manager, before)
        raise CmserverError(as_called(f"{error} {left} `cmserver start` runs the server without a service manager.")) from error
    start = "and started it." if starts else "to start with the next session: a server runs already."
    click.echo(f"Installed {manager.path} {start} Data: {settings.data_dir}")
    forgotten = _find_forgotten_variables(loaded.sources, os.environ)
    if forgotten:
        click.echo(
            f"The service does not have this shell's {', '.join(forgotten)}: write NAME=value lines into "
            f"{settings.data_dir / ENVIRONMENT_NAME} (mode 600), and run the command again.",
            err=True,
        )
    if manager.hint:
        click.echo(manager.hint)
    click.echo(as_called("`cmserver service status` shows its state, `cmserver logs` its log."))


def _take_back(manager: _Manager, before: bytes | None) -> str:
    """Leave the service as it was before; says so."""
    if before is not None:
        write_file(manager.path, before, mode=0o644)
        return "The service's file is as it was before."
    _remove(manager)
    return "Nothing was installed."


def _remove(manager: _Manager) -> list[str]:
    """Stop the service and remove its file, whatever the manager says; what it refused."""
    refusals: list[str] = []
    for step in (manager.stop, partial(manager.path.unlink, missing_ok=True), manager.forget):
        try:
            step()
        except CmserverError as error:
            refusals.append(str(error))
    with suppress(OSError):  # one that is not empty, and those around it
        for folder in manager.made_folders:
            folder.rmdir()
    return refusals


@service_group.command("status")
@_system_option
def service_status(*, is_system: bool) -> None:
    """Show what the service manager says of the service. Exits with 1 when it does not run."""
    manager = _find_installed(is_system=is_system)
    sys.exit(1 if _run(*manager.status_command, check=False) else 0)


@click.command()
@config_file_option
@_system_option
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes.")
@click.option("--lines", "-n", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="How many lines.")
def logs(config_file: Path | None, *, is_system: bool, follow: bool, lines: int) -> None:
    """Show the last lines of the log: of the service if one is installed, else of the server in the background.

    A server in the foreground writes to its terminal, and in a container to the container's log.
    """
    try:
        command = _find_installed(is_system=is_system).log_command(lines, follow=follow)
    except CmserverError as error:
        file = find_data_dir(os.environ, config_file=config_file) / LOG_NAME
        if not file.exists():
            raise NotFound(f"There is no log: {file} does not exist, and no service is installed.") from error
        command = _build_tail_command(file, lines, follow=follow)
    sys.exit(1 if _run(*command, check=False) else 0)


@service_group.command()
@_system_option
def remove(*, is_system: bool) -> None:
    """Stop the service and remove its file, with the folders that were made for it; the data folder stays."""
    manager = _find_installed(is_system=is_system)
    kept = name_what_stays(manager.path.read_text(encoding="utf-8", errors="replace"))
    refusals = _remove(manager)
    stopped = "Removed" if refusals else "Stopped the service and removed"
    click.echo(f"{stopped} {manager.path}. {kept}")
    for refusal in refusals:
        click.echo(refusal, err=True)


def name_what_stays(text: str) -> str:
    """What removing the service with that unit or property list leaves: its data folder, and the user that was made for it."""
    folder = next(("".join(groups) for groups in _LEFT_DATA.findall(text)), "the data folder")
    user = f", and the user {SYSTEM_USER} who owns it" if _LEFT_USER.search(text) else ""
    return f"What is remembered stays in {folder}{user}."


class _Manager(ABC):
    """A service manager: where it looks for the service's file, and its commands."""

    path: Path
    made_folders: list[Path]
    """Those that were made for the file if they were missing, the innermost first: they go with it when they are empty."""
    status_command: list[str]
    hint: str | None = None

    @abstractmethod
    def render(self, unit: ServiceUnit) -> bytes: ...

    def enable(self) -> None:  # noqa: B027 - launchd has nothing to do
        """Let it start what the file names, from the next time on."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    def forget(self) -> None:  # noqa: B027 - launchd has nothing to do
        """Let it notice that the file is gone."""

    @abstractmethod
    def log_command(self, lines: int, *, follow: bool) -> list[str]: ...


def _run(*command: str, check: bool = True) -> int:
    """Run the command with our output; CmserverError when it fails."""
    try:
        code = subprocess.run(command, check=False).returncode  # noqa: S603 - our own commands
    except FileNotFoundError as error:
        raise CmserverError(f"{command[0]} is not installed here.") from error
    if check and code != 0:
        raise CmserverError(f"`{' '.join(command)}` failed (exit code {code}).")
    return code


def _build_tail_command(file: Path, lines: int, *, follow: bool) -> list[str]:
    return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(file)]


class _Systemd(_Manager):
    def __init__(self, *, is_system: bool) -> None:
        self._scope = [] if is_system else ["--user"]
        config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        self.path = (Path("/etc/systemd/system") if is_system else config_home / "systemd" / "user") / SYSTEMD_NAME
        self.made_folders = [] if is_system else [*self.path.parents][:3]
        self.status_command = ["systemctl", *self._scope, "status", "--no-pager", SYSTEMD_NAME]
        if not is_system:
            self.hint = "It runs while you are logged in; `loginctl enable-linger` lets it run always."

    def render(self, unit: ServiceUnit) -> bytes:
        return render_systemd_unit(unit).encode()

    def enable(self) -> None:
        _run("systemctl", *self._scope, "daemon-reload")
        _run("systemctl", *self._scope, "enable", SYSTEMD_NAME)

    def start(self) -> None:
        _run("systemctl", *self._scope, "restart", SYSTEMD_NAME)

    def stop(self) -> None:
        _run("systemctl", *self._scope, "disable", "--now", SYSTEMD_NAME)

    def forget(self) -> None:
        _run("systemctl", *self._scope, "daemon-reload")

    def log_command(self, lines: int, *, follow: bool) -> list[str]:
        return [
            "journalctl",
            *self._scope,
            "--unit",
            SYSTEMD_NAME,
            "--lines",
            str(lines),
            *(["--follow"] if follow else ["--no-pager"]),
        ]


class _Launchd(_Manager):
    """See launchd.plist(5) and launchctl(1) of macOS."""

    def __init__(self, *, is_system: bool) -> None:
        self._domain = "system" if is_system else f"gui/{os.getuid()}"
        folder = Path("/Library/LaunchDaemons") if is_system else Path.home() / "Library" / "LaunchAgents"
        self.path = folder / f"{LAUNCHD_LABEL}.plist"
        self.made_folders = [] if is_system else [folder]
        self.status_command = ["launchctl", "print", f"{self._domain}/{LAUNCHD_LABEL}"]

    def render(self, unit: ServiceUnit) -> bytes:
        return render_launchd_plist(unit)

    def start(self) -> None:
        _run("launchctl", "bootout", f"{self._domain}/{LAUNCHD_LABEL}", check=False)
        _run("launchctl", "bootstrap", self._domain, str(self.path))

    def stop(self) -> None:
        _run("launchctl", "bootout", f"{self._domain}/{LAUNCHD_LABEL}")

    def log_command(self, lines: int, *, follow: bool) -> list[str]:
        return _build_tail_command(Path(plistlib.loads(self.path.read_bytes())["StandardErrorPath"]), lines, follow=follow)


def _find_manager(*, is_system: bool) -> _Manager:
    if sys.platform == "darwin":
        return _Launchd(is_system=is_system)
    if shutil.which("systemctl") is None:
        raise CmserverError(
            "There is no systemd here (systemctl is missing). `cmserver start` runs the server in the background; "
            "another service manager needs the command `cmserver run`."
        )
    return _Systemd(is_system=is_system)


def _find_installed(*, is_system: bool) -> _Manager:
    manager = _find_manager(is_system=is_system)
    if not manager.path.exists():
        raise CmserverError(as_called(f"{manager.path} does not exist: `cmserver service install` makes it."))
    return manager


def _make_unit(loaded: LoadedSettings, *, is_system: bool, makes_user: bool) -> ServiceUnit:
    settings = loaded.settings
    if is_system and os.geteuid() != 0:
        raise BadSetting("A service of the machine is installed by root: use sudo, or --user.")
    folder = Path(__file__).parents[2]
    user = _find_user(settings.data_dir, makes_user=makes_user) if is_system else None
    if user not in (None, "root"):
        _check_others_can_run(Path(sys.executable).absolute(), folder, user)
    is_default = loaded.config_file == settings.data_dir / CONFIG_NAME
    backups = settings.backup_folder.absolute()
    unit = ServiceUnit(
        command=build_own_command("run", *([] if is_default else ["--config", str(loaded.config_file.resolve())])),
        folder=folder,
        data_dir=settings.data_dir.absolute(),
        environment={"CMSERVER_DATA_DIR": str(settings.data_dir.absolute())},
        stop_seconds=round(settings.drain_seconds) + _STOP_SECONDS_BEYOND_DRAIN,
        is_system=is_system,
        user=user,
        backup_folder=None if backups.is_relative_to(settings.data_dir.absolute()) else backups,
    )
    _check_values(unit)
    return unit


def _find_user(data_dir: Path, *, makes_user: bool) -> str:
    """Who runs a service of the machine: the owner of the data folder, else a user of its own, which is made if it is missing."""
    if data_dir.exists():
        return pwd.getpwuid(data_dir.stat().st_uid).pw_name
    if not makes_user:
        return SYSTEM_USER
    user = system_user()
    data_dir.mkdir(parents=True, mode=0o700)
    os.chown(data_dir, user.pw_uid, user.pw_gid)
    return SYSTEM_USER


def _check_others_can_run(python: Path, folder: Path, user: str) -> None:
    """BadSetting when the user cannot get through a folder above the program, as below /root."""
    for place in (python, folder):
        closed = next((parent for parent in [place, *place.parents] if not parent.stat().st_mode & 0o001), None)
        if closed is not None:
            raise BadSetting(
                f"The service runs as the user {user}, who cannot get through {closed} to the program. "
                "Install cmserver where every user can read it, such as in /opt (python3 -I -m venv /opt/cmserver)."
            )


def _find_forgotten_variables(sources: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """The variables of this shell that set something, without the data folder's, which the service has."""
    used = {source.removeprefix("environment ") for source in sources.values() if source.startswith("environment ")}
    used |= {name for name in ("CLAUDE_CODE_PATH", "VOYAGE_API_KEY") if environ.get(name)}  # they count without being settings
    return sorted(used - {"CMSERVER_DATA_DIR"})


def _quote(text: str) -> str:
    """A word of a unit file: in quotes, with systemd's own signs taken literally."""
    return '"' + _literal(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _quote_command(words: Sequence[str]) -> str:
    """A command: in its arguments, and nowhere else, systemd replaces variables."""
    program, *arguments = map(_quote, words)
    return " ".join([program, *(argument.replace("$", "$$") for argument in arguments)])


def _literal(text: str) -> str:
    """A value that is a whole line, or a part of a word, without specifiers."""
    return text.replace("%", "%%")


def _check_values(unit: ServiceUnit) -> None:
    """BadSetting for values that would end the line on which they stand, or go on in the next one."""
    values = [*unit.command, str(unit.folder), str(unit.data_dir), str(unit.backup_folder or ""), *unit.environment.values()]
    for value in values:
        if not value.isprintable() or value.endswith("\\"):
            raise BadSetting(
                f"No service can be made with {value!r}: use a path without line breaks, signs that print nothing, and \\."
            )


_SYSTEMD_UNIT = """\
[Unit]
Description=cmserver, memory for coding agents
After=network-online.target postgresql.service
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
WorkingDirectory={folder}
{environment}EnvironmentFile=-{environment_file}
{user}Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 4
TimeoutStartSec=300
TimeoutStopSec={stop_seconds}
WatchdogSec={watchdog_seconds}
# The server stops its worker and its PostgreSQL itself, in order.
KillMode=mixed
LimitNOFILE=65536
UMask=0077
{protection}
[Install]
WantedBy={target}
"""

_SYSTEM_PROTECTION = """\
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={writable}
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictNamespaces=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
LockPersonality=yes
SystemCallArchitectures=native
"""
