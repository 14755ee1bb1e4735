"""The storms find what they are for: faults, each planted into a copy of the program, are seen within a few storms each."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.faults.base import Base, temporary_folder
from tests.faults.plan import draw
from tests.faults.plants import PLANTS, plant
from tests.faults.storm import run_storm
from tests.process.program import measured


class Hunt(msgspec.Struct, frozen=True, kw_only=True):
    """Storms that meet a planted fault, and words of the sentence that tells of it."""

    kinds: list[str]
    seeds: list[int]
    words: tuple[str, ...]


HUNTS = {
    "fence": Hunt(kinds=["freeze-worker", "provider-slow"], seeds=[12, 2, 7, 12, 3], words=("which it no longer held",)),
    "reaper": Hunt(kinds=["kill-worker"], seeds=[1, 2, 3], words=("held by dead workers",)),
    "group-commit": Hunt(kinds=["kill-api", "net-cut", "net-slow"], seeds=[11, 5, 3], words=("lost: ", "out of order: ")),
    "spool": Hunt(kinds=["kill-api", "net-refuse"], seeds=[1, 2, 3], words=("hook payloads",)),
    "heartbeat": Hunt(kinds=["freeze-worker"], seeds=[1, 2, 3], words=("after its lease was over",)),
    "shadow": Hunt(kinds=["kill-worker"], seeds=[1, 2], words=("what only a replay said", "told although no replay")),
    "undo": Hunt(kinds=["kill-worker"], seeds=[1, 2, 3], words=("what only a replay said", "told although no replay")),
    "pins": Hunt(kinds=["kill-steward"], seeds=[1, 2], words=("which pin",)),
}


def test_each_planted_fault_is_hunted():
    assert HUNTS.keys() == PLANTS.keys()


@pytest.mark.parametrize("name", PLANTS)
def test_the_program_still_has_what_is_planted_upon(tmp_path: Path, name: str):
    assert plant(name, tmp_path) == tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_storms_find_the_planted_fault(base: Base, tmp_path: Path, name: str):
    hunt = HUNTS[name]
    program = plant(name, tmp_path)

    for seed in hunt.seeds:
        with temporary_folder() as folder:
            report = run_storm(draw(seed, hunt.kinds, ["split"]), base, folder, program)
        measured(str(report))
        if any(word in violation for violation in report.violations for word in hunt.words):
            return
    raise AssertionError(f"{len(hunt.seeds)} storms did not find the planted fault {name}")
