"""What happens in a storm: drawn from its seed, so that a storm can be repeated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

LEASE_SECONDS = 2.0
"""On a machine that is not slow; with a longer lease a freeze lasts longer by as much."""
LOAD_SECONDS = 5.0
"""How long the writers and hooks of a storm work; its faults begin meanwhile."""
LAYOUTS = ("embedded", "whole", "split")
"""`cmserver run` with its embedded PostgreSQL; `cmserver run` on a PostgreSQL of its own; an API process and two workers on one."""
_OWN = ("whole", "split")
_FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault, and how long one lasts."""

    at_least: float
    at_most: float
    layouts: Sequence[str] = LAYOUTS
    needs_faketime: bool = False


KINDS = {
    "kill-api": Kind(at_least=0, at_most=0),
    "kill-worker": Kind(at_least=0, at_most=0),
    "kill-postgres": Kind(at_least=0.1, at_most=1.5),
    "kill-backend": Kind(at_least=0, at_most=0),
    "freeze-api": Kind(at_least=LEASE_SECONDS + 2, at_most=LEASE_SECONDS + 3.5),
    "freeze-worker": Kind(at_least=LEASE_SECONDS + 2, at_most=LEASE_SECONDS + 3.5),
    "kill-steward": Kind(at_least=0, at_most=0),
    "freeze-steward": Kind(at_least=LEASE_SECONDS + 2, at_most=LEASE_SECONDS + 3.5),
    "net-cut": Kind(at_least=0, at_most=0, layouts=_OWN),
    "net-refuse": Kind(at_least=0.3, at_most=2.5, layouts=_OWN),
    "net-pause": Kind(at_least=0.3, at_most=LEASE_SECONDS + 2, layouts=_OWN),
    "net-slow": Kind(at_least=1, at_most=3, layouts=_OWN),
    "net-half": Kind(at_least=0.3, at_most=LEASE_SECONDS + 1, layouts=_OWN),
    "net-silent": Kind(at_least=0, at_most=0, layouts=_OWN),
    "disk-postgres": Kind(at_least=1, at_most=3),
    "disk-spool": Kind(at_least=1, at_most=3),
    "memory-worker": Kind(at_least=1, at_most=3),
    "provider-slow": Kind(at_least=6, at_most=9),
    "provider-hang": Kind(at_least=1, at_most=3),
    "provider-cut": Kind(at_least=1, at_most=3),
    "provider-lie": Kind(at_least=1, at_most=3),
    "provider-garbage": Kind(at_least=1, at_most=3),
    "provider-429": Kind(at_least=1, at_most=3),
    "provider-500": Kind(at_least=1, at_most=3),
    "clock-api": Kind(at_least=1, at_most=3, needs_faketime=True),
    "clock-worker": Kind(at_least=1, at_most=3, needs_faketime=True),
    "clock-postgres": Kind(at_least=1, at_most=3, layouts=_OWN, needs_faketime=True),
}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that begins so many seconds into the load and lasts for some."""

    kind: str
    at: float
    seconds: float
    dice: float
    """From 0 to 1, for what the kind has to choose: the victim, the size of a step."""

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f}" if self.seconds else ""
        return f"{self.kind} at {self.at:.1f}{lasts}"


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """A layout, and the faults in the order of their beginnings."""

    seed: int
    layout: str
    faults: list[Fault]

    def has(self, kind: str) -> bool:
        return any(fault.kind == kind for fault in self.faults)

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.layout}: {', '.join(map(str, self.faults))}"


def find_faketime() -> Path | None:
    """Debian's libfaketime, which gives single processes another clock."""
    return next(Path("/").glob(_FAKETIME[1:]), None)


def can_mount() -> bool:
    """Whether small disks can be made here. Where not, a limit of the size of files takes the place of a full disk."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def available_kinds() -> list[str]:
    """The kinds that this machine can play."""
    return [name for name, kind in KINDS.items() if not kind.needs_faketime or find_faketime() is not None]


def draw(seed: int, kinds: Sequence[str], layouts: Sequence[str] = LAYOUTS) -> Storm:
    """Two to four faults of these kinds, in a layout that has some of them."""
    random = Random(seed)
    layout = random.choice([layout for layout in layouts if any(layout in KINDS[kind].layouts for kind in kinds)])
    possible = [kind for kind in kinds if layout in KINDS[kind].layouts]
    chosen = [random.choice(possible) for _ in range(random.randint(2, 4))]
    faults = [
        Fault(
            kind=kind,
            at=random.uniform(0.5, LOAD_SECONDS - 1.5),
            seconds=random.uniform(KINDS[kind].at_least, KINDS[kind].at_most),
            dice=random.random(),
        )
        for kind in chosen
    ]
    return Storm(seed=seed, layout=layout, faults=sorted(faults, key=lambda fault: fault.at))
