"""`policy` and `retention` of projects and teams: when observations are made, and how long what is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeVar, get_args

import click
from msgspec import structs

from cmserver.access.model import GenerationPolicy, MergeStrategy, RetentionPolicy
from cmserver.access.wire import ProjectOut, TeamOut, policy_fields
from cmserver.base.columns import Cell, render_fields
from cmserver.cli import api_client

Policy = TypeVar("Policy", GenerationPolicy, RetentionPolicy)
T = TypeVar("T")

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
    click.option("--default-ttl-seconds", type=click.IntRange(1), help="How long a memory of Contextify's clients lives."),
    click.option("--extend-factor", type=click.FloatRange(0, 100), help="Extend a life by this part of it at each read."),
    click.option(
        "--promote-importance",
        type=click.FloatRange(0, 1),
        help="Make memories of this importance permanent, of Contextify's clients.",
    ),
    click.option("--cleanup-seconds", type=click.IntRange(1), help="Delete what has expired only once in this time."),
    click.option("--suggest-above", type=click.FloatRange(0, 1), help="Suggest pairs from this likeness on."),
    click.option(
        "--auto-merge-above",
        type=click.FloatRange(0, 1),
        help="Merge memories of Contextify's clients by themselves from this likeness on, and let the steward's model do so, "
        "unless they differ in a fact.",
    ),
    click.option(
        "--merge-strategy",
        type=click.Choice(get_args(MergeStrategy)),
        help="How Contextify's clients merge when they do not say it.",
    ),
    click.option("--clear", is_flag=True, help="Reset everything that no other option sets."),
)


def add_policy_commands(
    group: click.Group,
    noun: Literal["team", "project"],
    scope: tuple[str, str],
    make_command: Callable[[api_client.Action], Callable[..., None]],
    find_path: Callable[[api_client.ApiClient, str], Awaitable[str]],
    type_: type[T],
    read: Callable[[T], TeamOut | ProjectOut],
) -> None:
    """Add `policy` and `retention`, which take the name of a `noun`. `scope` is what each is set for, in its help."""

    async def policy(client: api_client.ApiClient, **options: object) -> None:
        path = await find_path(client, str(options.pop(noun)))
        answer = await client.get(path)
        if (changed := change_policy(read(answer.read(type_)).generation_policy, options)) is not None:
            answer = await client.patch(path, {"generationPolicy": changed})
        client.show(answer, type_, lambda found: render_fields(head(found), *policy_fields(read(found).generation_policy)))

    async def retention(client: api_client.ApiClient, **options: object) -> None:
        path = await find_path(client, str(options.pop(noun)))
        answer = await client.get(path)
        if (changed := change_policy(read(answer.read(type_)).retention, options)) is not None:
            answer = await client.patch(path, {"retention": changed})
        client.show(answer, type_, lambda found: render_fields(head(found), *retention_fields(read(found).retention)))

    def head(found: T) -> tuple[str, Cell]:
        owner = read(found)
        return noun, owner.canonical_id if isinstance(owner, ProjectOut) else owner.name

    policy.__doc__ = f"Set when observations are made {scope[0]}, and how they are worded; without options show it."
    retention.__doc__ = f"Set how long {scope[1]}, in days (0: for good), and what is merged; without options show it."
    for action, options in ((policy, _OPTIONS), (retention, _RETENTION_OPTIONS)):
        command = make_command(action)
        for option in reversed(options):
            command = option(command)
        group.command(action.__name__)(click.argument(noun)(command))


def change_policy(policy: Policy, options: Mapping[str, object]) -> Policy | None:
    """The policy with the options applied; None when no option was passed."""
    changes = {name: value for name, value in options.items() if name != "clear" and value not in (None, "", ())}
    if not changes and not options["clear"]:
        return None
    return structs.replace(type(policy)() if options["clear"] else policy, **changes)


def retention_fields(retention: RetentionPolicy) -> tuple[tuple[str, Cell], ...]:
    """The policy for `render_fields`."""
    days = {
        "observations": retention.observations_days,
        "payloads of events": retention.events_days,
        "job logs": retention.job_log_days,
        "receipts": retention.receipts_days,
        "audit log": retention.audit_days,
    }
    others = [(name, getattr(retention, name)) for name in retention.__struct_fields__ if not name.endswith("_days")]
    return (
        *((name, "for good" if value == 0 else None if value is None else f"{value} days") for name, value in days.items()),
        *((name.replace("_", " "), f"{value:g}" if isinstance(value, float) else value) for name, value in others),
    )
