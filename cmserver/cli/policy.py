"""The options of `projects policy` and `teams policy`: when observations are made, and how they are worded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click
from msgspec import structs

from cmserver.access.model import GenerationPolicy
from cmserver.cli.output import Cell

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


def policy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that `change_policy` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def change_policy(policy: GenerationPolicy, options: Mapping[str, object]) -> GenerationPolicy | None:
    """The policy with the options applied; None when no option was passed."""
    changes = {name: value for name, value in options.items() if name != "clear" and value not in (None, "", ())}
    if not changes and not options["clear"]:
        return None
    return structs.replace(GenerationPolicy() if options["clear"] else policy, **changes)


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
