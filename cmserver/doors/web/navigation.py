"""The navigation: every area in its group and order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec

from cmserver.access.model import Principal


class NavigationItem(msgspec.Struct, frozen=True):
    """One area: its name, the path of its first page, and the scope that it needs."""

    label: str
    path: str
    scope: str
    is_for_operators: bool = False


GROUPS = {
    "Memory": [
        NavigationItem("Today", "/ui", "observations:read"),
        NavigationItem("Projects", "/ui/projects", "observations:read"),
        NavigationItem("Sessions", "/ui/sessions", "observations:read"),
        NavigationItem("Observations", "/ui/observations", "observations:read"),
        NavigationItem("Mine", "/ui/mine", "observations:read"),
        NavigationItem("Review", "/ui/review", "observations:read"),
        NavigationItem("Graph", "/ui/graph", "observations:read"),
        NavigationItem("Pins", "/ui/pins", "observations:read"),
    ],
    "Together": [
        NavigationItem("Team", "/ui/team", ""),
        NavigationItem("Analytics", "/ui/analytics", "observations:read"),
        NavigationItem("Steward", "/ui/steward", "observations:read"),
    ],
    "Operation": [
        NavigationItem("Jobs", "/ui/jobs", "jobs:read"),
        NavigationItem("Costs", "/ui/costs", "jobs:read"),
        NavigationItem("Model", "/ui/model", "", is_for_operators=True),
        NavigationItem("Server", "/ui/server", "", is_for_operators=True),
        NavigationItem("Doctor", "/ui/doctor", "", is_for_operators=True),
    ],
}
"""In the order of the page."""


TABS = [
    NavigationItem("List", "/ui/observations", "observations:read"),
    NavigationItem("Why this code", "/ui/observations/why", "observations:read"),
    NavigationItem("Pairs", "/ui/review", "observations:read"),
    NavigationItem("Rules", "/ui/review/rules", "observations:read"),
    NavigationItem("Questions", "/ui/pins", "observations:read"),
    NavigationItem("Replays", "/ui/pins/replays", "observations:read"),
    NavigationItem("Jobs", "/ui/jobs", "jobs:read"),
    NavigationItem("Lanes", "/ui/jobs/lanes", "jobs:read"),
    NavigationItem("Providers", "/ui/jobs/providers", "jobs:read"),
    NavigationItem("Workers", "/ui/jobs/workers", "", is_for_operators=True),
    NavigationItem("Calls", "/ui/costs", "jobs:read"),
    NavigationItem("Budgets", "/ui/costs/budgets", "jobs:read"),
    NavigationItem("Overview", "/ui/steward", "observations:read"),
    NavigationItem("Runs", "/ui/steward/runs", "observations:read"),
    NavigationItem("Policies", "/ui/steward/policies", "observations:read"),
    NavigationItem("People", "/ui/team", ""),
    NavigationItem("Proof", "/ui/team/proof", "observations:read"),
    NavigationItem("Keys", "/ui/team/keys", "keys:write"),
    NavigationItem("Audit log", "/ui/team/audit", "admin"),
]
"""The pages of the areas that have several, below the area's path."""


def visible_tabs(path: str, principal: Principal | None, *, is_operator: bool) -> list[NavigationItem]:
    """The pages of the path's area that the visitor may open; none where the area has but one."""
    area = "/".join(path.split("/")[:3])
    return _visible(
        [item for item in TABS if item.path == area or item.path.startswith(f"{area}/")], principal, is_operator=is_operator
    )


def visible_groups(principal: Principal | None, *, is_operator: bool) -> dict[str, list[NavigationItem]]:
    """The areas that the visitor may open, by group; no group is empty."""
    groups = {name: _visible(items, principal, is_operator=is_operator) for name, items in GROUPS.items()}
    return {name: items for name, items in groups.items() if items}


def visible_items(principal: Principal | None, *, is_operator: bool) -> list[NavigationItem]:
    """The areas that the visitor may open."""
    return list(chain.from_iterable(visible_groups(principal, is_operator=is_operator).values()))


def _visible(items: Sequence[NavigationItem], principal: Principal | None, *, is_operator: bool) -> list[NavigationItem]:
    return [
        item
        for item in items
        if (is_operator if item.is_for_operators else principal is not None and (not item.scope or principal.may(item.scope)))
    ]
