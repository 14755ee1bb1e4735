"""What commands print beside tables: JSON, what was erased, and the name of the program."""

from __future__ import annotations

import os
import re
import shlex
import shutil

import click
import msgspec

from cmserver.base.lookalikes import sanitize_line

_NAME = "cmserver"
_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


class TextCommand(click.Command):
    """A command whose argument is somebody's text: one that begins with a dash is no option that is missing."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = f"A text that begins with a dash comes after --: `{ctx.command_path} -- '-…'`."
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from error


def render_json(raw: bytes) -> str:
    """JSON for a terminal, too: what controls one, or turns the direction of a line, is escaped in its texts."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.format(raw).decode())


def program_name() -> str:
    """What the user types for cmserver: `cmserver`, or the path of a checkout's bin/cmserver as it was called."""
    called = os.environ.get("CMSERVER_COMMAND") or _NAME
    return _NAME if called in {_NAME, shutil.which(_NAME)} else shlex.quote(sanitize_line(called))


def as_called(text: str) -> str:
    """The text, in which commands in backticks begin with what the user types for cmserver."""
    return text.replace(f"`{_NAME} ", f"`{program_name()} ")
