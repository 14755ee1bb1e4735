"""When observations are made and how they are worded, as a team or a project says it: the options of both `policy` commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Literal

import click
import msgspec

from cmserver.cli.show import Cell

Mode = Literal["per_event", "burst", "at_end"]
Verbosity = Literal["minimal", "normal", "verbose"]


class Policy(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True):
    """A generation policy, as far as the command line knows it."""

    mode: Mode | None = None
    debounce_seconds: float | None = None
    skip_event_types: list[str] = []
    skip_tools: list[str] = []
    verbosity: Verbosity | None = None
    language: str | None = None
    skip_rules: list[str] = []


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say should be otherwise."""

    mode: Mode | None
    debounce_seconds: float | None
    skip_event_type: tuple[str, ...]
    skip_tool: tuple[str, ...]
    verbosity: Verbosity | None
    language: str | None
    skip_rule: tuple[str, ...]
    clear: bool

    @property
    def nothing(self) -> bool:
        texts = (self.mode, self.skip_event_type, self.skip_tool, self.verbosity, self.language, self.skip_rule)
        return not (self.clear or self.debounce_seconds is not None or any(texts))

    def of(self, policy: Policy) -> Policy:
        """The policy with the change made."""
        old = Policy() if self.clear else policy
        return Policy(
            mode=self.mode or old.mode,
            debounce_seconds=old.debounce_seconds if self.debounce_seconds is None else self.debounce_seconds,
            skip_event_types=list(self.skip_event_type) or old.skip_event_types,
            skip_tools=list(self.skip_tool) or old.skip_tools,
            verbosity=self.verbosity or old.verbosity,
            language=self.language or old.language,
            skip_rules=list(self.skip_rule) or old.skip_rules,
        )


def policy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Of a command that takes a `change`."""

    @wraps(command)
    def changing(
        *words: object,
        mode: Mode | None,
        debounce_seconds: float | None,
        skip_event_type: tuple[str, ...],
        skip_tool: tuple[str, ...],
        verbosity: Verbosity | None,
        language: str | None,
        skip_rule: tuple[str, ...],
        clear: bool,
        **others: object,
    ) -> None:
        change = Change(
            mode=mode,
            debounce_seconds=debounce_seconds,
            skip_event_type=skip_event_type,
            skip_tool=skip_tool,
            verbosity=verbosity,
            language=language,
            skip_rule=skip_rule,
            clear=clear,
        )
        command(*words, change=change, **others)

    result: Callable[..., None] = changing
    for option in (
        click.option("--clear", is_flag=True, help="Forget what was said before."),
        click.option(
            "--skip-rule",
            multiple=True,
            metavar="RULE",
            help="Never of events with such a file (path:GLOB) or command (command:BEGINNING); or a sentence for the model. "
            "May be repeated.",
        ),
        click.option("--language", help="What observations are worded in, such as German."),
        click.option("--verbosity", type=click.Choice(["minimal", "normal", "verbose"]), help="How much is recorded."),
        click.option("--skip-tool", multiple=True, metavar="NAME", help="Never of uses of this tool; may be repeated."),
        click.option("--skip-event-type", multiple=True, metavar="TYPE", help="Never of events of this type; may be repeated."),
        click.option("--debounce-seconds", type=click.FloatRange(0, 3600), help="How long a burst is waited for."),
        click.option(
            "--mode",
            type=click.Choice(["per_event", "burst", "at_end"]),
            help="Of each event at once, of a burst together, or only when a session has ended.",
        ),
    ):
        result = option(result)
    return result


def policy_lines(policy: Policy) -> tuple[tuple[str, Cell], ...]:
    """For `show.pairs`."""
    return (
        ("mode", policy.mode),
        ("debounce seconds", None if policy.debounce_seconds is None else f"{policy.debounce_seconds:g}"),
        ("skipped event types", ", ".join(policy.skip_event_types)),
        ("skipped tools", ", ".join(policy.skip_tools)),
        ("verbosity", policy.verbosity),
        ("language", policy.language),
        *((("skip rule", rule) for rule in policy.skip_rules) if policy.skip_rules else (("skip rules", None),)),
    )
