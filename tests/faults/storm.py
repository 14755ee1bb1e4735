"""Runs a storm: load, faults at their times, an end to all of them, and then the judge."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import psycopg

from cmserver.embedded.files import SetupError
from tests.faults import faults
from tests.faults.base import PROGRAM, Base
from tests.faults.judge import Judge
from tests.faults.keeping import Figures, Keeping, KeepingJudge
from tests.faults.load import HookAgent, Writers
from tests.faults.pinning import PinFigures, PinJudge, Pinning
from tests.faults.plan import LEASE_SECONDS, LOAD_SECONDS, Storm
from tests.faults.provider import MoodyProvider
from tests.faults.replaying import ReplayFigures, Replaying, ReplayJudge
from tests.faults.system import System
from tests.models.providers.fake.server import fake_in_a_thread
from tests.process.program import measured, wait_for

_TICK_SECONDS = 0.01
_SOME_EVENTS = 30
_LONGEST_WAIT_SECONDS = 30.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a storm was, and what came of it."""

    storm: Storm
    violations: list[str]
    events: int = 0
    """Acknowledged."""
    repeated: int = 0
    hook_calls: int = 0
    failed_jobs: dict[str, int] = {}
    """Given up, by reason."""
    keeping: Figures = msgspec.field(default_factory=Figures)
    replaying: ReplayFigures = msgspec.field(default_factory=ReplayFigures)
    pinning: PinFigures = msgspec.field(default_factory=PinFigures)
    recovery_seconds: float = 0.0
    """From readiness until no dead worker held anything."""
    seconds: float = 0.0
    restarts: int = 0
    exits: list[str] = []
    """Processes that ended by themselves, with their codes."""

    def __str__(self) -> str:
        given_up = "".join(f"{jobs} given up ({reason}), " for reason, jobs in sorted(self.failed_jobs.items()))
        numbers = (
            f"{self.events} events, {self.repeated} repeated, {self.hook_calls} hooks, {given_up}{self.keeping}, "
            f"{self.replaying}, {self.pinning}, "
            f"{self.restarts} restarts{''.join(f', {exit_}' for exit_ in self.exits)}, recovered in {self.recovery_seconds:.1f} s, "
            f"{self.seconds:.0f} s"
        )
        return f"{self.storm}\n    {numbers}: {'; '.join(self.violations)[:2000] or 'all held'}"


def run_storm(storm: Storm, base: Base, folder: Path, program: Path = PROGRAM) -> Report:
    """Run it on a system of its own, in an empty folder."""
    return next(run_storms([storm], base, folder, program))


def run_storms(storms: Sequence[Storm], base: Base, folder: Path, program: Path = PROGRAM) -> Generator[Report]:
    """Run storms of one layout in a row on one system, until something does not hold.

    Call it from the main thread, as PostgreSQL ends with the thread that starts it.
    """
    began = time.monotonic()
    first = storms[0]
    provider = MoodyProvider(first.seed)
    kinds = {fault.kind for storm in storms for fault in storm.faults}
    with fake_in_a_thread(provider.play) as fake:
        system = System(first.layout, kinds, first.seed, base, program, folder, fake.url)
        try:
            for storm in storms:
                try:
                    report = _rage(storm, system, provider, began)
                except AssertionError as error:
                    report = Report(storm=storm, violations=[str(error)], seconds=time.monotonic() - began)
                yield report
                if report.violations:
                    return
                if system.proxy is not None:
                    system.proxy.cut_silent()
                began = time.monotonic()
        finally:
            system.stop()


def _rage(storm: Storm, system: System, provider: MoodyProvider, began: float) -> Report:
    measured(str(storm))
    system.wait_until_ready()
    _note("ready", began)
    starts, exits = system.count_starts(), len(system.list_exits())
    replaying, pinning, keeping = Replaying(system, storm.seed, provider), Pinning(system, storm.seed), Keeping(system, storm.seed)
    writers, agent = Writers(system, storm.seed), HookAgent(system, storm.seed)
    _play(storm, system, provider, writers, agent)
    _wait_for_postgres(system)
    system.wait_until_ready()
    _note("ready again", began)
    judge = Judge(storm, system, writers, agent)
    for actor in (replaying, pinning, keeping):
        actor.end()
    writers.end()
    agent.end()
    _note("load has ended", began)
    judge.wait_until_recovered()
    _note("recovered", began)
    agent.start_sessions_until_sent()
    _note("spool is sent", began)
    if not judge.violations:
        judge.wait_until_recovered()
    replay_judge = ReplayJudge(system, replaying)
    replay_judge.look()
    _note("replays are looked at", began)
    judge.look()
    keeping_judge, pin_judge = KeepingJudge(system, keeping), PinJudge(system, pinning)
    keeping_judge.look()
    pin_judge.look()
    _note("looked", began)
    return Report(
        storm=storm,
        violations=[*judge.violations, *replay_judge.violations, *keeping_judge.violations, *pin_judge.violations],
        keeping=keeping.figures,
        replaying=replaying.figures,
        pinning=pinning.figures,
        events=writers.count,
        repeated=writers.repeated,
        hook_calls=len(agent.calls),
        failed_jobs=judge.failed_jobs,
        recovery_seconds=judge.recovery_seconds,
        seconds=time.monotonic() - began,
        restarts=system.count_starts() - starts,
        exits=system.list_exits()[exits:],
    )


def _note(moment: str, began: float) -> None:
    measured(f"{time.monotonic() - began:5.1f} s: {moment}")


def _play(storm: Storm, system: System, provider: MoodyProvider, writers: Writers, agent: HookAgent) -> None:
    """Begin and end the faults at their times.

    After a kill, time stands still until work goes on for the next fault to meet, unless another fault is in the way of that.
    """
    began = time.monotonic()
    waiting = list(storm.faults)
    ends: list[tuple[float, faults.End]] = []
    while waiting or ends or time.monotonic() - began < LOAD_SECONDS:
        now = time.monotonic() - began
        for due in [end for end in ends if end[0] <= now]:
            ends.remove(due)
            due[1]()
        if waiting and waiting[0].at <= now:
            fault = waiting.pop(0)
            end = faults.begin(fault, system, provider, agent)
            if not fault.kind.startswith("kill-") or ends:
                longer_lease = system.lease_seconds - LEASE_SECONDS if fault.kind.startswith(("freeze-", "provider-slow")) else 0
                ends.append((time.monotonic() - began + fault.seconds + longer_lease, end))
                continue
            stood_still_at = time.monotonic()
            time.sleep(fault.seconds)
            end()
            _wait_for_work(writers)
            began += time.monotonic() - stood_still_at
        time.sleep(_TICK_SECONDS)
    _wait_for_work(writers)


def _wait_for_work(writers: Writers) -> None:
    """Until some more events are acknowledged; not for ever, as another fault may be in the way."""
    target, deadline = writers.count + _SOME_EVENTS, time.monotonic() + _LONGEST_WAIT_SECONDS
    while writers.count < target and time.monotonic() < deadline:
        time.sleep(_TICK_SECONDS)


def _wait_for_postgres(system: System) -> None:
    """It may have ended more than once."""

    def is_there() -> bool:
        try:
            system.keep_postgres()
            with psycopg.connect(system.database, connect_timeout=3):
                return True
        except (SetupError, OSError, psycopg.Error):
            return False

    wait_for("PostgreSQL", is_there)
