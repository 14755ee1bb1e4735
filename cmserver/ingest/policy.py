"""When observations are made of an event, and whether at all: the project's policy over its team's over the settings. Pure."""

from __future__ import annotations

from typing import Literal, cast

import msgspec

from cmserver.access.model import Project
from cmserver.base.settings import Settings

LATEST_SECONDS = 30 * 86_400.0
"""What waits for the end of its session is generated after so long even if nothing ever ends it; a lane's release says the same."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a project's events."""

    mode: Literal["per_event", "burst", "at_end"]
    debounce_seconds: float
    gathers_turns: bool = True
    """Whether events may wait for the end of their turn: not where the project or the team has chosen its own debounce."""
    skip_event_types: frozenset[str]
    skip_tools: frozenset[str]

    def skips(self, event_type: str, payload: object) -> bool:
        """Whether nothing is ever made of such an event. Names are compared as they are written."""
        if event_type in self.skip_event_types:
            return True
        return (
            bool(self.skip_tools)
            and isinstance(payload, dict)
            and _read_tool_name(cast("dict[str, object]", payload)) in self.skip_tools
        )


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a new event's lane is due, and how many events one provider call may then serve."""

    delay_seconds: float
    at_most: int | None
    waits: bool
    """For the end of its session."""


def gather_seconds(settings: Settings) -> float:
    """How long events of hooks wait for the end of their turn at most."""
    return settings.generation_gather_seconds if settings.generation_debounce_seconds > 0 else 0


def _calls_no_model(settings: Settings) -> bool:
    """Whether no model is ever called: then whole turns are gathered. A model's calls are smaller."""
    return {name.strip() for name in settings.provider.split(",")} == {"offline"}


def gathers_turns(settings: Settings, project: Project | None = None) -> bool:
    """Whether events of hooks, of the project if named, wait for the end of their turn, which then makes them due."""
    policy = resolve_policy(project, settings.generation_debounce_seconds) if project else None
    is_allowed = policy is None or (policy.mode == "burst" and policy.gathers_turns)
    return gather_seconds(settings) > 0 and _calls_no_model(settings) and is_allowed


def resolve_policy(project: Project, debounce_seconds: float) -> Policy:
    """The project's preferences, else its team's, else the settings. Skip rules add up."""
    own, team = project.policy, project.team_policy
    debounce = team.debounce_seconds if own.debounce_seconds is None else own.debounce_seconds
    return Policy(
        mode=own.mode or team.mode or "burst",
        debounce_seconds=debounce_seconds if debounce is None else debounce,
        gathers_turns=debounce is None,
        skip_event_types=frozenset([*team.skip_event_types, *own.skip_event_types]),
        skip_tools=frozenset([*team.skip_tools, *own.skip_tools]),
    )


def decide_timing(policy: Policy, *, has_session: bool, at_once: bool, gather_seconds: float = 0) -> Timing:
    """`at_once` is for somebody who waits for the answer. Without a session there is no end to wait for: that is a burst.

    With `gather_seconds` an event of a burst waits so long for the end of its turn, which then makes its lane due. A policy with a
    debounce of its own keeps to that.
    """
    at_most = 1 if policy.mode == "per_event" else None
    if at_once or policy.mode == "per_event":
        return Timing(delay_seconds=0, at_most=at_most, waits=False)
    if policy.mode == "at_end" and has_session:
        return Timing(delay_seconds=LATEST_SECONDS, at_most=None, waits=True)
    delay_seconds = max(policy.debounce_seconds, gather_seconds if policy.gathers_turns else 0)
    return Timing(delay_seconds=delay_seconds, at_most=None, waits=False)


def _read_tool_name(payload: dict[str, object]) -> str | None:
    name = payload.get("tool_name")
    return name if isinstance(name, str) else None
