"""Measures the rules that find entities on the labelled observations."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.graph.find_names import find_names
from cmserver.graph.model import ReadableText, fold_name

Half = Literal["dev", "held_back"]
HALVES: tuple[Half, ...] = ("dev", "held_back")
FOLDER = Path(__file__).parent


class LabelledObservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts of an observation, and what they name, as `type:name`."""

    id: str
    title: str
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []
    anchors: list[str] = []
    entities: list[str]


class EntityFigures(msgspec.Struct, kw_only=True):
    """How many mentions were found, how many of them are right, and which are not."""

    labelled: int = 0
    found: int = 0
    right: int = 0
    wrong: list[str] = []
    missed: list[str] = []

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0


class _LabelFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    observations: list[LabelledObservation]


def read_labels(half: Half) -> list[LabelledObservation]:
    """All labelled observations of a half, in the order of its file."""
    return msgspec.convert(tomllib.loads((FOLDER / f"{half}.toml").read_text(encoding="utf-8")), _LabelFile).observations


def measure(half: Half) -> EntityFigures:
    """What the rules find in a half."""
    figures = EntityFigures()
    for labelled in read_labels(half):
        observation = ReadableText(
            id=UUID(int=0),
            number=1,
            project_id=UUID(int=0),
            is_live=True,
            title=labelled.title,
            subtitle=labelled.subtitle,
            narrative=labelled.narrative,
            facts=labelled.facts,
            files_read=labelled.files_read,
            files_modified=labelled.files_modified,
            anchors=labelled.anchors,
        )
        wanted = {_fold(label) for label in labelled.entities}
        found = {f"{name.type}:{fold_name(name.name)}" for name in find_names(observation)}
        figures.labelled += len(wanted)
        figures.found += len(found)
        figures.right += len(found & wanted)
        figures.wrong += [f"{labelled.id} {name}" for name in sorted(found - wanted)]
        figures.missed += [f"{labelled.id} {name}" for name in sorted(wanted - found)]
    return figures


def _fold(label: str) -> str:
    type_, _, name = label.partition(":")
    return f"{type_}:{fold_name(name)}"
