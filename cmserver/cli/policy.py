"""The options of `policy` and `retention` of projects and teams: when observations are made, and how long what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import click
from msgspec import structs

from cmserver.access.model import GenerationPolicy, RetentionPolicy
from cmserver.cli.output import Cell

Policy = TypeVar("Policy", GenerationPolicy, RetentionPolicy)

_OPTIONS = (
    click.option(
        "--mode",
        type=click.Choice(["per_event", "burst", "at_end"]),
        help="Make observations of each event at once, of a burst together, or only when the session has ended.",
    ),
    click.option("--debounce-seconds", type=click.FloatRange(0, 3600), help="How long to wait for the end of a burst."),
    click.option(
        "--skip-event-type", "skip_event_types", multiple=True, metavar="TYPE", help="Skip events of this type; may be repeated."
    ),
    click.option("--skip-tool", "skip_tools", multiple=True, metavar="NAME", help="Skip uses of this tool; may be repeated."),
    click.option("--verbosity", type=click.Choice(["minimal", "normal", "verbose"]), help="How much is recorded."),
    click.option("--language", help="The language of observations, such as German."),
    click.option(
        "--skip-rule",
        "skip_rules",
        multiple=True,
        metavar="RULE",
        help="Skip events with such a file (path:GLOB) or command (command:PREFIX); any other text is an instruction for the "
        "model. May be repeated.",
    ),
    click.option("--clear", is_flag=True, help="Reset everything that no other option sets."),
)


_DAYS = click.IntRange(0, 36_500)
_RETENTION_OPTIONS = (
    click.option("--observations-days", type=_DAYS, help="Let observations expire at this age."),
    click.option(
        "--min-importance", type=click.FloatRange(0, 1), help="Do not let observations of at least this importance expire by age."
    ),
    click.option(
        "--promote-accesses",
        type=click.IntRange(1, 1_000_000),
        help="Make an observation that expires permanent when it is read for this many times.",
    ),
    click.option("--events-days", type=_DAYS, help="Empty the payloads of events at this age."),
    click.option("--job-log-days", type=_DAYS, help="Delete the log of a job this long after its end."),
    click.option("--receipts-days", type=_DAYS, help="Delete receipts of what sessions were shown at this age."),
    click.option("--audit-days", type=_DAYS, help="Delete rows of the audit log at this age."),
    click.option("--clear", is_flag=True, help="Reset everything that no other option sets."),
)


def policy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that `change_policy` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def retention_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that `change_policy` takes for retention."""
    for option in reversed(_RETENTION_OPTIONS):
        command = option(command)
    return command


def change_policy(policy: Policy, options: Mapping[str, object]) -> Policy | None:
    """The policy with the options applied; None when no option was passed."""
    changes = {name: value for name, value in options.items() if name != "clear" and value not in (None, "", ())}
    if not changes and not options["clear"]:
        return None
    return structs.replace(type(policy)() if options["clear"] else policy, **changes)


def policy_fields(policy: GenerationPolicy) -> tuple[tuple[str, Cell], ...]:
    """The policy for `render_fields`."""
    return (
        ("mode", policy.mode),
        ("debounce seconds", None if policy.debounce_seconds is None else f"{policy.debounce_seconds:g}"),
        ("skipped event types", ", ".join(policy.skip_event_types)),
        ("skipped tools", ", ".join(policy.skip_tools)),
        ("verbosity", policy.verbosity),
        ("language", policy.language),
        *((("skip rule", rule) for rule in policy.skip_rules) if policy.skip_rules else (("skip rules", None),)),
    )


def retention_fields(retention: RetentionPolicy) -> tuple[tuple[str, Cell], ...]:
    """The policy for `render_fields`."""
    days = {
        "observations": retention.observations_days,
        "payloads of events": retention.events_days,
        "job logs": retention.job_log_days,
        "receipts": retention.receipts_days,
        "audit log": retention.audit_days,
    }
    return (
        *((name, "for good" if value == 0 else None if value is None else f"{value} days") for name, value in days.items()),
        ("min importance", None if retention.min_importance is None else f"{retention.min_importance:g}"),
        ("promote accesses", retention.promote_accesses),
    )
