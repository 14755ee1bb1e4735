"""Cuts the lines of another program into parts that are taken one by one: each brings what its lines refer to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cmserver.ops.transfer.model import ImportReport, RefusedLine
from cmserver.ops.transfer.pipeline import MAX_EXAMPLES, Source, refuse
from cmserver.ops.transfer.wire import LINES_MOST, ImportedLineIn

_MAX_BYTES = 4 << 20
"""Of the lines of a part: half of what a request may have."""
_REFERENCES = ("project_id", "from_project_id", "to_project_id", "server_session_id")
_REFERRED_TO = {"project", "session"}


class ImportBatch(msgspec.Struct, kw_only=True):
    """A part: `context` has by their ids the projects and sessions of earlier parts to which the lines refer."""

    lines: list[ImportedLineIn] = []
    context: dict[str, ImportedLineIn] = {}
    size_bytes: int = 0

    @property
    def sorted_context(self) -> list[ImportedLineIn]:
        """Projects before the sessions that refer to them."""
        return sorted(self.context.values(), key=lambda given: given.line["record"] != "project")


def make_batches(source: Source, report: ImportReport) -> Iterator[ImportBatch]:
    """The parts in order, one at least; what cannot be read or sent is noted in the report."""
    earlier: dict[str, ImportedLineIn] = {}
    batch = ImportBatch()
    for item in source.lines():
        if isinstance(item, RefusedLine):
            refuse(report, item)
            continue
        place, line = item
        encoded = msgspec.json.encode(line)
        fields: dict[str, Any] = msgspec.json.decode(encoded)
        if len(encoded) > _MAX_BYTES:
            refuse(report, RefusedLine(record=fields["record"], place=place, reason="It is larger than 4 MiB."))
            continue
        if len(batch.lines) >= LINES_MOST or batch.size_bytes + len(encoded) > _MAX_BYTES:
            yield batch
            earlier |= {given.line["id"]: given for given in batch.lines if given.line["record"] in _REFERRED_TO}
            batch = ImportBatch()
        batch.lines.append(ImportedLineIn(place=place, line=fields))
        batch.size_bytes += len(encoded)
        _add_context(batch.context, fields, earlier)
    yield batch


def _add_context(context: dict[str, ImportedLineIn], fields: dict[str, Any], earlier: dict[str, ImportedLineIn]) -> None:
    for name in _REFERENCES:
        id_ = fields.get(name)
        if id_ in earlier and id_ not in context:
            context[id_] = earlier[id_]
            _add_context(context, earlier[id_].line, earlier)


def add_report(report: ImportReport, more: ImportReport) -> None:
    """Add what became of a part."""
    for name in ("taken", "known", "erased", "refused", "redactions"):
        counts: dict[str, int] = getattr(report, name)
        for key, count in getattr(more, name).items():
            counts[key] = counts.get(key, 0) + count
    report.examples = [*report.examples, *more.examples][:MAX_EXAMPLES]
    report.renumbered += more.renumbered
    report.lost_pins += more.lost_pins
