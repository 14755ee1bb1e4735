"""The labelled pairs of observations by which the duplicate test is judged. The README of this folder explains the labels."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from cmserver.observations.model import ObservationType, compose

Half = Literal["dev", "held_back"]
HALVES: tuple[Half, ...] = ("dev", "held_back")
FOLDER = Path(__file__).parent

PairLabel = Literal["same", "contradicts", "newer", "related", "unrelated"]


class PairSide(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts of one observation. `title` has at most 80 characters."""

    type: ObservationType
    title: str
    narrative: str = ""
    facts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All of its texts as one."""
        return compose(self.title, None, self.narrative, self.facts)


class Pair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two observations of one project, and how the second relates to the first."""

    label: PairLabel
    left: PairSide
    right: PairSide


class _PairFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pair: list[Pair]


def read_pairs(half: Half) -> list[Pair]:
    """All pairs of a half, in the order of its file."""
    return msgspec.convert(tomllib.loads((FOLDER / f"{half}.toml").read_text(encoding="utf-8")), _PairFile).pair
