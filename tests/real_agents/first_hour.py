"""A stranger's first hour, played on a bare account, as root: `python -m tests.real_agents.first_hour [WAY]...`

The account is that of a fresh user on a copy of this machine that is thrown away (an overlay): it has none of our settings, and no
mark of a container. The user types what the README says, into a terminal, and has the real Claude Code, whose model is played. The
first value is had when the agent's second session is told something that was said in the first.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from cmserver.base.columns import render_table
from tests.models.providers.fake.server import FakeProvider, fake_in_a_thread
from tests.process.conftest import passable_folder
from tests.process.podman import Podman
from tests.process.program import ROOT, Program, wait_for
from tests.process.terminal import Terminal
from tests.process.test_container import wait_until_ready
from tests.real_agents import install
from tests.real_agents.coder import Model, words
from tests.real_agents.messages_api import is_for_the_model
from tests.timeouts import scaled

_USER = "newcomer"
_PATH = "/usr/local/bin:/usr/bin:/bin"
_REPOSITORY = "/srv/cmserver"
_STEP_SECONDS = 600.0
_NETWORK = re.compile(
    r"(SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS|PIP_CERT|\w+_proxy|\w+_PROXY)"
)
"""Variables by which this machine reaches the package registries."""

FACT = "make deploy-eu"
FIRST, SECOND = f"We always deploy with `{FACT}`, never with the GitHub action.", "How do we deploy?"

ANSWERS = {"Connect Claude Code? [y/N]: ": "y\n", "or Enter: ": "\r"}
"""What is asked on the way, and what the stranger answers."""

READY = re.compile(r"^cmserver( \S+)? is ready at ", re.MULTILINE)
PROGRESS = re.compile(
    r"cmserver: (installing|package|unpacking|making) .*"  # bin/setup
    r"|Which provider words the memory\?.*(\n(?!Kept in).*)*\nKept in .*"  # the question, and what became of the answer
    r"|(Resolved|Prepared|Installed|Downloading|Downloaded|Building|Built|Updating|Uninstalled) .*"  # uv
    r"|Using (CPython|Python) .*"
)
"""All that may stand above the lines of a start."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command: what was typed, what was answered on the way, how long it took, and what the terminal showed."""

    typed: str
    seconds: float
    answers: int = 0
    shown: str = ""

    @property
    def lines(self) -> list[str]:
        return [line for line in self.shown.splitlines() if line.strip()]

    def find_above_ready(self) -> list[str]:
        """The lines above those of the start that are no progress."""
        ready = READY.search(self.shown)
        above = PROGRESS.sub("", self.shown[: ready.start()]) if ready else ""
        return [line for line in above.splitlines() if line.strip()]


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """One way in, played to the first value. What the second session was told stands in `told`."""

    way: str
    steps: list[Step]
    told: str

    @property
    def commands(self) -> list[Step]:
        return [step for step in self.steps if step.typed[:1] != "("]

    @property
    def answers(self) -> int:
        return sum(step.answers for step in self.steps)

    def render(self) -> str:
        rows = [
            (str(number), step.typed, f"{step.seconds:.1f}", str(step.answers), str(len(step.lines)))
            for number, step in enumerate(self.steps, 1)
        ]
        total = sum(step.seconds for step in self.steps)
        rows.append(("", f"{len(self.commands)} commands to the first value", f"{total:.1f}", str(self.answers), ""))
        table = render_table(("", f"by {self.way}", "seconds", "answers", "lines"), rows, empty="")
        screens = [f"$ {step.typed}\n{step.shown.strip()}" for step in self.commands]
        return "\n\n".join([table, *screens, f"The second session was told:\n{self.told}"])


class Newcomer:
    """A user on a throw-away copy of this machine, with Claude Code on the path."""

    def __init__(self, machine: Path, api: FakeProvider) -> None:
        self._machine, self._api = machine, api
        self.folder = Path("/home") / _USER
        self.where = self.folder
        """Where the terminal stands."""
        self.dist = machine / "home" / _USER / "dist"

    def environ(self) -> dict[str, str]:
        network = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
        return {
            **network,
            "PIP_CONFIG_FILE": os.devnull,  # that of this workplace, whose warnings would stand among pip's lines
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_PROXY": "127.0.0.1",
            "HOME": str(self.folder),
            "USER": _USER,
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",
            "PATH": _PATH,
            "ANTHROPIC_API_KEY": "sk-ant-api03-" + "d" * 80,
            "ANTHROPIC_BASE_URL": self._api.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def own_words(self, typed: str, where: Path) -> list[str]:
        """The command line that runs what is typed as the user, on his machine."""
        variables = [f"{name}={value}" for name, value in self.environ().items()]
        shell = f"cd {shlex.quote(str(where))} && {typed}"
        return ["chroot", str(self._machine), "runuser", "-u", _USER, "--", "env", "-i", *variables, "sh", "-c", shell]

    @contextmanager
    def types(self, steps: list[Step], typed: str, *, until: str = "") -> Generator[None]:
        """Types a command and answers what it asks. With `until` it goes on in its terminal until the end of the block."""
        began = time.monotonic()
        terminal = Terminal(self.own_words(typed, self.where), ROOT, dict(os.environ))
        answered: set[str] = set()

        def look() -> bool:
            for question, keys in ANSWERS.items():
                if question in terminal.shown and question not in answered:
                    answered.add(question)
                    terminal.press(keys)
            is_over = terminal.process.poll() is not None
            return is_over or bool(until and until in terminal.shown)

        try:
            wait_for(f"the end of {typed}", look, _STEP_SECONDS)
            seconds = time.monotonic() - began
            code = None if until and terminal.process.poll() is None else terminal.wait()
            shown = render_screen(terminal.raw)
            assert code is None if until else code == 0, f"{typed}: {code}\n{shown}"
            steps.append(Step(typed=typed, seconds=seconds, answers=len(answered), shown=shown))
            yield
        finally:
            if until and terminal.process.poll() is None:
                terminal.press("\x03")
                terminal.wait()
            terminal.end()

    def run(self, steps: list[Step], typed: str) -> None:
        with self.types(steps, typed):
            pass

    def session(self, prompt: str) -> str:
        """A session of the agent in a project of his; all that its model was sent first."""
        before = len(self._api.asked)
        agent = "claude -p --output-format json --model haiku < prompt"
        typed = f"mkdir -p ~/orders && cd ~/orders && git init --quiet && printf %s {shlex.quote(prompt)} > prompt && {agent}"
        done = subprocess.run(
            self.own_words(typed, self.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(180),
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return next(words(asked) for asked in self._api.asked[before:] if is_for_the_model(asked))

    def tries_it(self, steps: list[Step]) -> str:
        """Two sessions, the second anew until it is told something of the first; what it was told."""
        began = time.monotonic()
        assert not find_told(self.session(FIRST))
        steps.append(Step(typed="(the agent's first session)", seconds=time.monotonic() - began))
        began = time.monotonic()

        def look() -> str:
            return find_told(self.session(SECOND))

        told = wait_for("a session that is told what was said", look, 120)
        steps.append(Step(typed="(its second session)", seconds=time.monotonic() - began))
        return told


def find_told(said: str) -> str:
    """What cmserver told the model of the fact; empty where it told nothing of it."""
    told = re.findall(r"<cmserver-context>.*?</cmserver-context>", said, re.DOTALL)
    return next((part for part in told if FACT in part), "")


# -- the ways in


def play_clone(newcomer: Newcomer) -> Hour:
    steps: list[Step] = []
    newcomer.run(steps, f"git clone {_REPOSITORY} cmserver && cd cmserver")
    newcomer.where = newcomer.folder / "cmserver"
    newcomer.run(steps, "bin/cmserver start")
    try:
        newcomer.run(steps, "bin/cmserver connect claude-code")
        return Hour(way="clone", steps=steps, told=newcomer.tries_it(steps))
    finally:
        newcomer.run([], "bin/cmserver stop")


def play_wheel(newcomer: Newcomer) -> Hour:
    steps: list[Step] = []
    build_wheel(newcomer.dist)
    with newcomer.types(steps, "uvx --find-links dist cmserver run", until="Next: "):
        newcomer.run(steps, "uvx --find-links dist cmserver connect claude-code")
        return Hour(way="wheel", steps=steps, told=newcomer.tries_it(steps))


def play_image(newcomer: Newcomer) -> Hour:
    """Docker's commands are run by root, as whom Docker runs. The image was built before, from a Debian of our own."""
    steps: list[Step] = []
    build_wheel(newcomer.dist)
    with passable_folder() as folder:
        podman = Podman(folder)
        podman.build_image()
        try:
            typed = "docker run -d --name memory --stop-timeout 30 -v cmserver:/var/lib/cmserver -p 127.0.0.1:37877:37877 cmserver"
            _run_docker(podman, steps, typed, f"--network={podman.network}")
            wait_until_ready("http://127.0.0.1:37877")
            target = newcomer.dist.parent / ".local" / "share" / "cmserver"
            began = time.monotonic()
            target.mkdir(parents=True)
            podman.run("cp", "memory:/var/lib/cmserver/credentials", str(target))
            _give(newcomer.dist.parent)
            typed = "mkdir -p ~/.local/share/cmserver && docker cp memory:/var/lib/cmserver/credentials ~/.local/share/cmserver/"
            steps.append(Step(typed=typed, seconds=time.monotonic() - began))
            newcomer.run(steps, "uvx --find-links dist cmserver connect claude-code")
            return Hour(way="image", steps=steps, told=newcomer.tries_it(steps))
        finally:
            podman.run("rm", "-af", "-t", "0")


def play_plugin(newcomer: Newcomer) -> Hour:
    """The server is the team's, and runs elsewhere; the newcomer was sent a key, and has no cmserver."""
    steps: list[Step] = []
    with passable_folder() as folder:
        server = Program(folder, "server", settings={})
        try:
            server.wait_until_ready()
            newcomer.run(steps, f"claude plugin marketplace add {_REPOSITORY}")
            typed = "claude plugin install cmserver@cmserver --config server={} --config key={}"
            newcomer.run(steps, typed.format(server.url, server.key))
            steps[-1] = msgspec.structs.replace(steps[-1], typed=typed.format(server.url, "KEY"))
            return Hour(way="plugin", steps=steps, told=newcomer.tries_it(steps))
        finally:
            server.end()


WAYS: Mapping[str, Callable[[Newcomer], Hour]] = {
    "clone": play_clone,
    "wheel": play_wheel,
    "image": play_image,
    "plugin": play_plugin,
}


def build_wheel(dist: Path) -> None:
    """The folder that is an index by itself, as bin/build makes it, of this work tree."""
    options = ["-q", "--no-deps", "--no-build-isolation", "-w", str(dist)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True, capture_output=True)


def _run_docker(podman: Podman, steps: list[Step], typed: str, *more: str) -> None:
    _, verb, *rest = shlex.split(typed)
    began = time.monotonic()
    shown = podman.run(verb, *more, *rest)
    steps.append(Step(typed=typed, seconds=time.monotonic() - began, shown=shown))


def _give(folder: Path) -> None:
    """The folder and all in it belong to its owner."""
    owner = folder.stat()
    for path in folder.rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


# -- the machine


def find_missing(way: str) -> str:
    """What this machine lacks on which the hour cannot be played; empty when it can."""
    from tests.process.podman import find_missing as find_missing_for_containers  # noqa: PLC0415

    missing = [] if os.geteuid() == 0 else ["root"]
    missing += [program for program in ("chroot", "runuser", "useradd", "mount", "git") if shutil.which(program) is None]
    return ", ".join([*missing, *(find_missing_for_containers() if way == "image" else [])])


@contextmanager
def bare_machine() -> Generator[Newcomer]:
    """A copy of this machine that is thrown away, with a user who has Claude Code and uv, and nothing of cmserver."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="cms-"))
        folder.chmod(0o711)
        stack.callback(folder.rmdir)  # nothing is deleted but empty folders: what is mounted there is this machine's
        layer, machine = folder / "layer", folder / "machine"
        _mount(stack, layer, "-t", "tmpfs", "tmpfs")
        for name in ("changed", "work"):
            (layer / name).mkdir()
        _mount(
            stack, machine, "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={layer / 'changed'},workdir={layer / 'work'}"
        )
        _mount(stack, machine / "proc", "-t", "proc", "proc")
        _make_devices(stack, machine / "dev")
        for mark in (".dockerenv", "run/.containerenv"):
            (machine / mark).unlink(missing_ok=True)
        _execute("chroot", machine, "useradd", "--create-home", _USER)
        repository = machine / _REPOSITORY[1:]
        _execute("git", "clone", "-q", ROOT, repository)
        _execute("chroot", machine, "chown", "-R", _USER, _REPOSITORY)  # git clones of nobody else's folder
        tools = machine / "usr" / "local"
        shutil.copy(install.claude(), tools / "bin" / "claude")
        _execute(sys.executable, "-m", "venv", machine / "opt" / "uv")
        _execute(machine / "opt" / "uv" / "bin" / "python", "-m", "pip", "install", "-q", "uv")
        for name in ("uv", "uvx"):
            shutil.copy(machine / "opt" / "uv" / "bin" / name, tools / "bin" / name)
        with fake_in_a_thread(Model()) as api:
            newcomer = Newcomer(machine, api)
            newcomer.dist.mkdir()
            _give(newcomer.dist.parent)
            yield newcomer


def _make_devices(stack: ExitStack, folder: Path) -> None:
    """The devices that programs need; the copy has none of this machine's."""
    _mount(stack, folder, "-t", "tmpfs", "tmpfs", "-o", "mode=755")
    for number, name in ((3, "null"), (5, "zero"), (7, "full"), (8, "random"), (9, "urandom")):
        _execute("mknod", "-m", "666", folder / name, "c", "1", str(number))
    _execute("mknod", "-m", "666", folder / "tty", "c", "5", "0")
    _mount(stack, folder / "pts", "-t", "devpts", "devpts", "-o", "newinstance,ptmxmode=0666")
    (folder / "ptmx").symlink_to("pts/ptmx")
    (folder / "shm").mkdir()
    (folder / "shm").chmod(0o1777)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (folder / name).symlink_to(f"/proc/self/fd/{number}")
    (folder / "fd").symlink_to("/proc/self/fd")


def _mount(stack: ExitStack, place: Path, *words: str) -> None:
    """Mount it on that folder, which is made where it is missing and removed in the end, if it is empty then."""
    if not place.exists():
        place.mkdir()
        stack.callback(place.rmdir)
    _execute("mount", *words, place)
    stack.callback(_execute, "umount", "-l", place)


def _execute(*words: str | Path) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}"


def play(way: str) -> Hour:
    """The first hour by that way, on a machine of its own."""
    with bare_machine() as newcomer:
        return WAYS[way](newcomer)


def render_screen(raw: str) -> str:
    """What a terminal shows in the end of what was written: lines that were written over are gone, colours too."""
    rows, at = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r\n|\n|\r|[^\x1b\r\n]+|\x1b", raw):
        if part in {"\n", "\r\n"}:
            at += 1
            rows += [""] * (at + 1 - len(rows))
        elif part == "\r" or part.endswith("K"):
            rows[at] = ""
        elif part.endswith("A") and part[0] == "\x1b":
            at = max(0, at - int(part[2:-1] or 1))
        elif part[0] != "\x1b":
            rows[at] += part
    return "\n".join(rows)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or WAYS:
        if missing := find_missing(chosen):
            print(f"by {chosen}: not tried, this machine lacks {missing}")  # noqa: T201
        else:
            print(play(chosen).render(), end="\n\n", flush=True)  # noqa: T201
