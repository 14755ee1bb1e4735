"""When observations are made of an event, and whether at all: the project's policy over its team's over the settings. Pure."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from cmserver.access.model import Project

LATEST_SECONDS = 30 * 86_400.0
"""What waits for the end of its session is generated after so long even if nothing ever ends it; a lane's release says the same."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a project's events."""

    mode: Literal["per_event", "burst", "at_end"]
    debounce_seconds: float
    skip_event_types: frozenset[str]
    skip_tools: frozenset[str]

    def skips(self, event_type: str, payload: object) -> bool:
        """Whether nothing is ever made of such an event. Names are compared as they are written."""
        if event_type in self.skip_event_types:
            return True
        return bool(self.skip_tools) and isinstance(payload, dict) and _tool(cast("dict[str, object]", payload)) in self.skip_tools


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a new event's lane is due, and how many events one provider call may then serve."""

    delay_seconds: float
    at_most: int | None
    waits: bool
    """For the end of its session."""


def resolve(project: Project, debounce_seconds: float) -> Policy:
    """What the project does not say, its team says; what neither says, the settings. What is skipped adds up."""
    own, team = project.policy, project.team_policy
    debounce = team.debounce_seconds if own.debounce_seconds is None else own.debounce_seconds
    return Policy(
        mode=own.mode or team.mode or "burst",
        debounce_seconds=debounce_seconds if debounce is None else debounce,
        skip_event_types=frozenset([*team.skip_event_types, *own.skip_event_types]),
        skip_tools=frozenset([*team.skip_tools, *own.skip_tools]),
    )


def timing(policy: Policy, *, has_session: bool, at_once: bool) -> Timing:
    """`at_once` is for somebody who waits for the answer. Without a session there is no end to wait for: that is a burst."""
    at_most = 1 if policy.mode == "per_event" else None
    if at_once or policy.mode == "per_event":
        return Timing(delay_seconds=0, at_most=at_most, waits=False)
    if policy.mode == "at_end" and has_session:
        return Timing(delay_seconds=LATEST_SECONDS, at_most=None, waits=True)
    return Timing(delay_seconds=policy.debounce_seconds, at_most=None, waits=False)


def _tool(payload: dict[str, object]) -> str | None:
    name = payload.get("tool_name")
    return name if isinstance(name, str) else None
