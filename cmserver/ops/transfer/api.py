"""The memory of another program over HTTP, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from cmserver.access.verb import VerbCall, post
from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.base.errors import Invalid
from cmserver.base.settings import Settings
from cmserver.ops.transfer import model
from cmserver.ops.transfer.pipeline import Importer
from cmserver.ops.transfer.wire import ImportedLineIn, ImportIn

_TAKEN = (
    model.ProjectLine
    | model.SessionLine
    | model.EventLine
    | model.TurnLine
    | model.ObservationLine
    | model.SourceLine
    | model.RelationshipLine
)
"""What other programs have. What only a cmserver has comes by its export, which its operator imports."""
_REFERRED_TO = ("project", "session")
_OF_THE_SERVER = ("number", "closed_by", "actor_id")
"""Fields that only an operator's export brings: numbers are the team's to give, and who acted is whom the key names."""


class _SentSource:
    """The lines of a request. Their ids are never taken as they are, so that nobody can name what another team has."""

    has_own_ids = False

    def __init__(self, name: str, lines: Sequence[ImportedLineIn], *, counts_reads: bool) -> None:
        """`counts_reads` is whether the sender says how often an observation was read; else that is counted from now on."""
        self.name = name
        self._lines = lines
        self._left_out = _OF_THE_SERVER if counts_reads else (*_OF_THE_SERVER, "access_count", "last_accessed_at")

    def count(self) -> int:
        return len(self._lines)

    def project_ids(self) -> set[UUID]:
        return set()

    def lines(self) -> Iterator[tuple[str, model.DataLine] | model.RefusedLine]:
        for given in self._lines:
            try:
                line = msgspec.convert(given.line, _TAKEN)
            except msgspec.ValidationError as error:
                yield model.RefusedLine(record="line", place=given.place, reason=str(error))
                continue
            yield given.place, _without_claims(line, self._left_out)


def _without_claims(line: model.DataLine, left_out: Sequence[str]) -> model.DataLine:
    """The line without what its sender has no say in."""
    if isinstance(line, model.ProjectLine):  # its settings are the team's to choose
        line = model.ProjectLine(id=line.id, canonical_id=line.canonical_id, name=line.name, created_at=line.created_at)
    now = datetime.now(UTC)
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(line):
        value = getattr(line, field.name)
        if field.name in left_out:
            values[field.name] = field.default
        elif isinstance(value, datetime) and field.name != "expires_at":
            values[field.name] = min(now, value if value.tzinfo else value.replace(tzinfo=UTC))
        elif field.name == "metadata" and isinstance(line, model.ObservationLine):
            # Only `import git` says of what commit an observation is.
            values["metadata"] = {name: about for name, about in line.metadata.items() if name != "git"}
    return msgspec.structs.replace(line, **values)


@post("/v1/import", "observations:write", whole_team=True)
async def post_import(call: VerbCall, given: ImportIn) -> model.ImportReport:
    """Take over a part of the memory of claude-mem, Claude Code or Contextify. What is there already stays as it is.

    The key needs the scopes events:write and sessions:write, too.
    """
    for scope in ("events:write", "sessions:write"):
        call.principal.require(scope)
    for place, about in enumerate(given.context):
        if about.line.get("record") not in _REFERRED_TO:
            raise Invalid.at(f"$.context[{place}].line.record", "Only projects and sessions are context; send the rest in lines.")
    counts_reads = call.principal.kind == "operator"
    importer = Importer(
        call.dependency(Db),
        call.principal,
        _SentSource(given.source, given.lines, counts_reads=counts_reads),
        journal=ErasureJournal(call.dependency(Settings).backup_folder).file,
        dry_run=given.dry_run,
        context=_SentSource(given.source, given.context, counts_reads=counts_reads),
        is_last=given.is_last,
    )
    return await importer.run(lambda _done: None)


routes = [post_import]
