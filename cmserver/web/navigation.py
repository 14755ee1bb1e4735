"""The navigation: every area in its order."""

from __future__ import annotations

import msgspec

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
    NavigationItem("Costs", "/ui/costs", "jobs:read"),
    NavigationItem("Analytics", "/ui/analytics", "observations:read"),
    NavigationItem("Steward", "/ui/steward", "observations:read"),
    NavigationItem("Team", "/ui/team", ""),
    NavigationItem("Server", "/ui/server", "", is_for_operators=True),
    NavigationItem("Doctor", "/ui/doctor", "", is_for_operators=True),
]
"""In the order of the page."""


def visible_items(principal: Principal | None, *, is_operator: bool) -> list[NavigationItem]:
    """The areas that the visitor may open."""
    return [
        item
        for item in ITEMS
        if (is_operator if item.is_for_operators else principal is not None and (not item.scope or principal.may(item.scope)))
    ]
