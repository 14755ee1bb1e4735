"""The navigation: every area in its order. An area appears as soon as a page has its path."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.routing import BaseRoute, Route

from cmserver.access.model import Principal


class NavigationItem(msgspec.Struct, frozen=True):
    """One area: its name, the path of its first page, and the scope that it needs."""

    label: str
    path: str
    scope: str
    is_for_operators: bool = False


ITEMS = [
    NavigationItem("Today", "/ui", "observations:read"),
    NavigationItem("Projects", "/ui/projects", "observations:read"),
    NavigationItem("Sessions", "/ui/sessions", "observations:read"),
    NavigationItem("Observations", "/ui/observations", "observations:read"),
    NavigationItem("Review", "/ui/review", "observations:read"),
    NavigationItem("Graph", "/ui/graph", "observations:read"),
    NavigationItem("Jobs", "/ui/jobs", "jobs:read"),
    NavigationItem("Costs", "/ui/costs", "observations:read"),
    NavigationItem("Analytics", "/ui/analytics", "observations:read"),
    NavigationItem("Steward", "/ui/steward", "observations:read"),
    NavigationItem("Team", "/ui/team", ""),
    NavigationItem("Server", "/ui/server", "", is_for_operators=True),
    NavigationItem("Doctor", "/ui/doctor", "", is_for_operators=True),
]
"""In the order of the page. What has no page yet does not show."""


def has_page(routes: Sequence[BaseRoute], path: str) -> bool:
    """Whether there is a page at that path, whatever its query; for links to areas that may not exist."""
    return any(isinstance(route, Route) and route.path == path.partition("?")[0] for route in routes)


def visible_items(routes: Sequence[BaseRoute], principal: Principal | None, *, is_operator: bool) -> list[NavigationItem]:
    """The areas that have a page and that the visitor may open."""
    paths = {route.path for route in routes if isinstance(route, Route)}
    return [
        item
        for item in ITEMS
        if item.path in paths
        and (is_operator if item.is_for_operators else principal is not None and (not item.scope or principal.may(item.scope)))
    ]
