"""The memory of another program over HTTP, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from cmserver.access.verb import VerbCall, post
from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal
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


class _SentSource:
    """The lines of a request. Their ids are never taken as they are, so that nobody can name what another team has."""

    has_own_ids = False

    def __init__(self, name: str, lines: Sequence[ImportedLineIn]) -> None:
        self.name = name
        self._lines = lines

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
            if isinstance(line, model.ProjectLine):  # its settings are the team's to choose
                line = model.ProjectLine(id=line.id, canonical_id=line.canonical_id, name=line.name, created_at=line.created_at)
            yield given.place, line


@post("/v1/import", "observations:write", whole_team=True)
async def post_import(call: VerbCall, given: ImportIn) -> model.ImportReport:
    """Take over a part of the memory of claude-mem, Claude Code or Contextify. What is there already stays as it is.

    The key needs the scopes events:write and sessions:write, too.
    """
    for scope in ("events:write", "sessions:write"):
        call.principal.require(scope)
    importer = Importer(
        call.dependency(Db),
        call.principal,
        _SentSource(given.source, given.lines),
        journal=ErasureJournal(call.dependency(Settings).backup_folder).file,
        dry_run=given.dry_run,
        context=_SentSource(given.source, given.context),
        is_last=given.is_last,
    )
    return await importer.run(lambda _done: None)


routes = [post_import]
