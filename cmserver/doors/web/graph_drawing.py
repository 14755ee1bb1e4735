"""Places entities on rings around the one that is mentioned most, for an SVG: the same entities are always drawn alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.graph.model import EntityLink
from cmserver.observations.plain import one_line

WIDTH, HEIGHT = 960, 560
_RINGS = ((0, 0, 1), (215, 125, 7), (395, 240, 14))
"""Half the width and height of each ring, and how many stand on it."""
MAX_DRAWN = sum(count for _, _, count in _RINGS)
_NAME_CHARS = 22
_LABEL_BELOW, _LABEL_ABOVE = 20, -12
_MARGIN = 36
"""Above and below the outermost entities, for their names."""


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """An entity that is drawn."""

    id: UUID
    name: str
    type: str
    mention_count: int


class DrawnNode(msgspec.Struct, frozen=True, kw_only=True):
    """An entity with its place, in units of the drawing; `label_y` is that of its name."""

    id: UUID
    label: str
    title: str
    x: float
    y: float
    radius: float
    label_y: float


class DrawnEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A line between two entities that are mentioned together."""

    title: str
    x1: float
    y1: float
    x2: float
    y2: float
    width: float


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn; the first node stands in the middle."""

    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    top: float
    height: float
    """What of the height is taken, from its top."""
    width: int = WIDTH


def draw_graph(entities: Sequence[GraphNode], links: Sequence[EntityLink]) -> GraphView:
    """The first `MAX_DRAWN` entities, from the middle outwards, and the links between them."""
    shown = list(entities[:MAX_DRAWN])
    most = max((entity.mention_count for entity in shown), default=1) or 1
    nodes: dict[UUID, DrawnNode] = {}
    first = 0
    for place, (radius_x, radius_y, count) in enumerate(_RINGS):
        ring = shown[first : first + count]
        for position, entity in enumerate(ring):
            angle = 2 * math.pi * (position + place / 2) / len(ring) - math.pi / 2
            x, y = WIDTH / 2 + radius_x * math.cos(angle), HEIGHT / 2 + radius_y * math.sin(angle)
            nodes[entity.id] = DrawnNode(
                id=entity.id,
                label=one_line(entity.name, _NAME_CHARS),
                title=f"{one_line(entity.name, 200)} ({entity.type}), mentioned {entity.mention_count:,} times",
                x=round(x, 1),
                y=round(y, 1),
                radius=round(4 + 6 * math.sqrt(entity.mention_count / most), 1),
                label_y=round(y + (_LABEL_ABOVE if y < HEIGHT / 2 - 1 else _LABEL_BELOW), 1),
            )
        first += count
    drawn = [link for link in links if link.from_id in nodes and link.to_id in nodes]
    strongest = max((link.together for link in drawn), default=1)
    heights = [node.y for node in nodes.values()] or [HEIGHT / 2]
    top = min(heights) - _MARGIN
    return GraphView(
        nodes=list(nodes.values()),
        edges=[_edge(link, nodes, strongest) for link in drawn],
        top=round(top, 1),
        height=round(max(heights) + _MARGIN - top, 1),
    )


def _edge(link: EntityLink, nodes: dict[UUID, DrawnNode], strongest: int) -> DrawnEdge:
    one, two = nodes[link.from_id], nodes[link.to_id]
    return DrawnEdge(
        title=f"{one.label} and {two.label}: together {link.together:,} times",
        x1=one.x,
        y1=one.y,
        x2=two.x,
        y2=two.y,
        width=round(1 + 3 * link.together / strongest, 1),
    )
