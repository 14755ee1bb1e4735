"""The memory of another program on the wire: whoever has it sends its lines, for the server reads no file of theirs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from cmserver.base.text import Text

SourceName = Literal["claude-mem", "claude-code", "contextify"]
LINES_MOST, CONTEXT_MOST = 500, 1_500
"""How many one request may bring. A line names three others at most."""


class ImportedLineIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A thing of the source: `place` is where it is there; `line` is an object as exports of cmserver have them."""

    place: Annotated[Text, Meta(max_length=5_000)]
    line: dict[str, Any]


class ImportIn(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the memory of another program, in the order of an export. `source` is the program; `lines` are
    what it has.

    `context` are lines that came in earlier parts, projects and sessions, to which these refer: they are counted nowhere. `dryRun`
    stores nothing, and counts what would be taken; `isLast` is whether nothing follows.
    """

    source: SourceName
    context: Annotated[list[ImportedLineIn], Meta(max_length=CONTEXT_MOST)] = []
    lines: Annotated[list[ImportedLineIn], Meta(max_length=LINES_MOST)] = []
    dry_run: bool = False
    is_last: bool = False
