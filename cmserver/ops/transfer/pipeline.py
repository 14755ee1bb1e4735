"""Stores the lines of a source in a team: redacted, once, with their times, and with a report of what was not taken.

Every importer makes the lines of an export (`model.py`), in their order; the rest is the same for all of them. A run that was
interrupted is repeated: what is there already is passed over.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec import inspect
from psycopg import errors

from cmserver.access import announce, audit, projects
from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.erasure_journal import read_journal
from cmserver.base.errors import CmserverError, Invalid
from cmserver.base.sql import Conn
from cmserver.ingest.identity import EventFacts, make_event_key
from cmserver.observations.model import TYPES, StaleMark, estimate_tokens
from cmserver.ops.transfer import model, repository
from cmserver.ops.transfer.ids import move_id
from cmserver.pins.guard import describe_loss, report_lost
from cmserver.redaction.clean import clean_aside
from cmserver.sessions.ledger import repository as ledger

T = TypeVar("T", bound=msgspec.Struct)
Row = TypeVar("Row")

BATCH_LINES = 500
_BATCHES_AT_ONCE = 2
MAX_EXAMPLES = 20
_MAX_FIELD_CHARS = 200_000
"""Fields of other programs may be longer than those of events; what is cut is counted by nobody."""
_REFERENCES = {
    "id", "project_id", "server_session_id", "agent_event_id", "quote_event_id", "superseded_by", "observation_id", "source_id",
    "from_id", "from_project_id", "to_id", "to_project_id",
}  # fmt: skip
_REFERENCE_LISTS = {"merged_from", "source_ids"}


class Source(Protocol):
    """A file of another program, or an export, read as lines."""

    name: str
    """Names the source in the audit log."""
    has_own_ids: bool
    """Whether its ids are those of a cmserver, to be kept where they are free."""

    def count(self) -> int:
        """About how many lines there will be; 0 when that is not known."""
        ...

    def project_ids(self) -> set[UUID]:
        """The ids of its projects, where they are those of a cmserver."""
        ...

    def lines(self) -> Iterator[tuple[str, model.DataLine] | model.RefusedLine]:
        """The lines with their places in the source, or why one cannot be read."""
        ...


class Importer:
    """One run of an import into a team."""

    def __init__(
        self,
        db: Db,
        principal: Principal,
        source: Source,
        *,
        journal: Path,
        dry_run: bool = False,
        context: Source | None = None,
        is_last: bool = True,
    ) -> None:
        """`context` has what was taken before and the source refers to; `is_last` is whether nothing of it follows."""
        self._db = db
        self._principal = principal
        self._source = source
        self._team_id = principal.team_id
        self._journal = journal
        self._dry_run = dry_run
        self._context = context
        self._is_last = is_last
        self._report = model.ImportReport()
        self._erased: set[UUID] = set()
        self._projects: dict[UUID | None, UUID] = {}
        """Id in the source -> id here."""
        self._sessions: dict[UUID | None, UUID] = {}
        """Id in the source, as it would be here -> id of the session that is here already."""
        self._numbers: dict[int, int] = {}
        """Number in the source -> number here, where they differ."""
        self._linked: list[tuple[str, model.DataLine]] = []
        """Observations that were merged or closed: they are stored after those that they name."""
        self._links: list[dict[str, object]] = []
        self._unnumbered: list[tuple[str, model.DataLine]] = []
        """Turns without a number: they get theirs after the observations, whose numbers are written in texts."""
        self._moves = False

    async def run(self, progress: Callable[[int], object]) -> model.ImportReport:
        """Store everything; `progress` is told how many lines are done. A dry run stores nothing, and counts what it would."""
        began = time.monotonic()
        self._erased = self._read_erased()
        async with self._db.system() as conn:
            self._moves = not self._source.has_own_ids or await repository.are_of_other_teams(
                conn, self._team_id, self._source.project_ids()
            )
        if self._context is not None:
            await self._store_all(self._context, lambda _done: None)
            self._report = model.ImportReport()  # it was counted before
        await self._store_all(self._source, progress)
        await self._db.in_system(self._finish)
        self._report.seconds = round(time.monotonic() - began, 1)
        return self._report

    async def _store_all(self, source: Source, progress: Callable[[int], object]) -> None:
        """Store batch after batch. While the database works on one, the next one is read and redacted."""
        done = 0
        running: deque[asyncio.Task[None]] = deque()
        last_type: type[model.DataLine] | None = None
        try:
            for line_type, batch in _batches(source.lines(), self._refuse):
                # What a batch refers to is stored before it begins.
                while running and (line_type is not last_type or len(running) >= _BATCHES_AT_ONCE):
                    await running.popleft()
                if line_type is not last_type:
                    await self._store_linked()
                running.append(asyncio.create_task(self._store(line_type, batch)))
                await asyncio.sleep(0)
                last_type, done = line_type, done + len(batch)
                progress(done)
            while running:
                await running.popleft()
            await self._store_linked()
            unnumbered, self._unnumbered = self._unnumbered, []
            for batch in _chunks(unnumbered, BATCH_LINES):
                await self._store(model.TurnLine, batch, numbers_late=False)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _store(
        self, line_type: type[model.DataLine], batch: Sequence[tuple[str, model.DataLine]], *, numbers_late: bool = True
    ) -> None:
        if line_type is model.TurnLine and numbers_late:
            self._unnumbered += [item for item in batch if getattr(item[1], "number", None) is None]
            batch = [item for item in batch if getattr(item[1], "number", None) is not None]
        if line_type is model.ObservationLine:
            self._linked += [item for item in batch if _is_linked(item[1])]
            batch = [item for item in batch if not _is_linked(item[1])]
        await self._db.in_system(lambda conn: self._take(conn, line_type, batch))

    async def _store_linked(self) -> None:
        """Store the observations that were merged or closed together with what they name, so that no interruption parts them."""
        linked, self._linked = self._linked, []

        async def take(conn: Conn) -> None:
            self._links.clear()
            for chunk in _chunks(linked, BATCH_LINES):
                await self._take(conn, model.ObservationLine, chunk)
            for row in self._links:
                closed_by = cast("int", row["closed_by"])
                row["closed_by"] = self._numbers.get(closed_by, closed_by)
            for rows in _chunks(self._links, BATCH_LINES):
                await repository.link(conn, self._team_id, rows)

        if linked:
            await self._db.in_system(take)

    def _read_erased(self) -> set[UUID]:
        """Observations, turns, entities and sessions that were erased here: an import does not bring them back."""
        journal = read_journal(self._journal)
        if journal is None:
            return set()
        return {
            UUID(erasure.resource_id)
            for erasure in journal[1]
            if erasure.action in {"observation.deleted", "turn.deleted", "entity.deleted", "session.deleted"}
            and erasure.team_id == self._team_id
        }

    async def _take(self, conn: Conn, line_type: type[model.DataLine], batch: Sequence[tuple[str, model.DataLine]]) -> None:
        """Store one batch of lines of one type."""
        if line_type is model.ProjectLine:
            for place, line in batch:
                await self._take_project(conn, place, cast("model.ProjectLine", line))
            return
        lines = [(place, self._translated(line)) for place, line in batch if self._has_project(place, line)]
        if line_type is model.SessionLine:
            lines = await self._find_sessions(conn, lines)
        there = await self._find_present(conn, line_type, [line for _, line in lines])
        record = model.record_name(line_type)
        rows: list[tuple[str, model.DataLine]] = []
        for place, line in lines:
            if line.id in there or self._is_recorded_here(line):
                _count(self._report.known, record)
            elif self._is_erased(line):
                _count(self._report.erased, record)
            elif (cleaned := await self._cleaned(place, line)) is not None:
                rows.append((place, cleaned))
        if self._dry_run:
            _count(self._report.taken, record, len(rows))
            return
        if line_type in {model.ObservationLine, model.TurnLine}:
            await self._number(conn, rows)
        await self._add(conn, line_type, rows)

    async def _find_sessions(self, conn: Conn, lines: Sequence[tuple[str, model.DataLine]]) -> list[tuple[str, model.DataLine]]:
        """The lines without those whose session is there already with another id, as agents report it to this server, too."""
        sessions = cast("Sequence[tuple[str, model.SessionLine]]", lines)
        there = await repository.match_sessions(conn, self._team_id, [line for _, line in sessions])
        self._sessions |= there
        _count(self._report.known, "session", len(there))
        return [(place, line) for place, line in lines if line.id not in there]

    def _is_recorded_here(self, line: model.DataLine) -> bool:
        """Whether it is of a session that agents report to this server, too, so that its prompts are here by other ids."""
        is_foreign = not self._source.has_own_ids and isinstance(line, model.EventLine | model.TurnLine)
        return is_foreign and getattr(line, "server_session_id", None) in self._sessions.values()

    def _has_project(self, place: str, line: model.DataLine) -> bool:
        """Whether its projects are here; refuses the line if not."""
        ids = (
            [line.from_project_id, line.to_project_id]
            if isinstance(line, model.RelationshipLine)
            else [getattr(line, "project_id", None)]
        )
        if all(project_id in self._projects for project_id in ids):
            return True
        self._refuse(
            model.RefusedLine(
                record=model.record_name(type(line)), place=place, reason="Its project is not in the source, or was not taken."
            )
        )
        return False

    async def _add(self, conn: Conn, line_type: type[model.DataLine], rows: Sequence[tuple[str, model.DataLine]]) -> None:
        """Insert the rows; where the database refuses one of them, in halves, until that one is found."""
        if not rows:
            return
        try:
            async with conn.transaction():
                new = [self._row(line) for _, line in rows]
                added = await repository.add(conn, self._team_id, line_type, new, person_id=self._principal.user_id)
        except (errors.IntegrityError, errors.DataError, errors.ProgramLimitExceeded) as error:
            if len(rows) == 1:
                reason = await _explain_refusal(conn, error, line_type)
                self._refuse(model.RefusedLine(record=model.record_name(line_type), place=rows[0][0], reason=reason))
                return
            middle = len(rows) // 2
            await self._add(conn, line_type, rows[:middle])
            await self._add(conn, line_type, rows[middle:])
            return
        _count(self._report.taken, model.record_name(line_type), len(added))
        for place, line in rows:
            if line.id not in added:
                self._refuse(
                    model.RefusedLine(record=model.record_name(line_type), place=place, reason=_DOUBLE.get(line_type, _THERE))
                )

    # -- projects

    async def _take_project(self, conn: Conn, place: str, line: model.ProjectLine) -> None:
        """Find the project by its name, or make it with the settings of the line."""
        try:
            found = await projects.find(conn, self._principal, line.canonical_id)
            if found is not None:
                self._projects[line.id] = found.id
                _count(self._report.known, "project")
                return
            canonical = projects.canonical_id(line.canonical_id)
            there = await access.names_taken(conn, self._team_id, [canonical])
            project_id = there[0].project_id if there else self._translate_id(line.id)
            self._projects[line.id] = project_id
            if there:
                _count(self._report.known, "project")
                return
            _count(self._report.taken, "project")
            if self._dry_run:
                return
            cleaned = cast("dict[str, Any]", await self._clean(msgspec.to_builtins(line)))
            name, metadata = str(cleaned["name"]), cast("dict[str, object]", cleaned.get("metadata") or {})
            async with conn.transaction():
                await access.insert_project(conn, project_id, self._team_id, canonical, name, metadata, line.search_language)
                await repository.set_project(
                    conn, self._team_id, msgspec.structs.replace(line, id=project_id, aliases=cleaned.get("aliases") or [])
                )
        except (CmserverError, errors.IntegrityError, errors.DataError) as error:
            self._projects.pop(line.id, None)
            is_refused_by_database = isinstance(error, errors.Error)
            reason = (
                await _explain_refusal(conn, error, model.ProjectLine) if is_refused_by_database else str(error).splitlines()[0]
            )
            self._refuse(model.RefusedLine(record="project", place=place, reason=reason))

    # -- ids and numbers

    def _translate_id(self, original: UUID) -> UUID:
        return move_id(self._team_id, original) if self._moves else original

    def _translated(self, line: T) -> T:
        """The line with the ids of this team."""
        values: dict[str, object] = {}
        for name in line.__struct_fields__:
            value: Any = getattr(line, name)
            if name in {"project_id", "from_project_id", "to_project_id"}:
                values[name] = self._projects.get(value) or self._translate_id(value)
            elif self._moves and name in _REFERENCES and value is not None:
                moved = self._translate_id(value)
                values[name] = self._sessions.get(moved, moved) if name == "server_session_id" else moved
            elif name == "server_session_id" and value in self._sessions:
                values[name] = self._sessions[value]
            elif self._moves and name in _REFERENCE_LISTS:
                values[name] = [self._translate_id(item) for item in value or ()]
            elif self._moves and isinstance(line, model.EntityLine) and name == "aliases":
                values[name] = [msgspec.structs.replace(alias, id=self._translate_id(alias.id)) for alias in line.aliases]
            elif self._moves and isinstance(value, StaleMark) and value.event_id:
                values[name] = msgspec.structs.replace(value, event_id=self._translate_id(value.event_id))
        return msgspec.structs.replace(line, **values) if values else line

    def _is_erased(self, line: model.DataLine) -> bool:
        if (
            isinstance(line, model.SessionLine | model.ObservationLine | model.TurnLine | model.EntityLine)
            and line.id in self._erased
        ):
            return True
        if getattr(line, "server_session_id", None) in self._erased:
            return True
        if isinstance(line, model.RelationshipLine | model.EntityRelationLine):
            return line.from_id in self._erased or line.to_id in self._erased
        return getattr(line, "observation_id", None) in self._erased

    async def _find_present(self, conn: Conn, line_type: type[model.DataLine], lines: Sequence[model.DataLine]) -> set[UUID]:
        """The ids of those that are here already. Notes the numbers of observations, where they differ from the source's."""
        there = await repository.present(conn, self._team_id, line_type, [line.id for line in lines])
        numbers = {line.id: line.number for line in lines if isinstance(line, model.ObservationLine) and line.id in there}
        for here in await repository.numbers_of(conn, self._team_id, list(numbers)) if numbers else ():
            if (number := numbers[here.id]) is not None and number != here.number:
                self._numbers[number] = here.number
        return there

    async def _number(self, conn: Conn, lines: list[tuple[str, model.DataLine]]) -> None:
        """Replace numbers that others have, and give one to each row that has none, in place."""
        if not lines:
            return
        rows = cast("list[tuple[str, model.ObservationLine | model.TurnLine]]", lines)
        wanted = [line.number for _, line in rows if line.number is not None]
        highest = await repository.raise_numbers(conn, self._team_id, max(wanted, default=0))
        taken = await repository.taken_numbers(conn, self._team_id, wanted)
        numbered: list[tuple[str, model.DataLine]] = []
        for place, line in rows:
            number = line.number
            if number in taken and isinstance(line, model.TurnLine):
                self._unnumbered.append((place, msgspec.structs.replace(line, number=None)))
                self._report.renumbered += 1
            elif number is None or number in taken:
                highest += 1
                if number is not None:
                    self._numbers[number] = highest
                    self._report.renumbered += 1
                numbered.append((place, msgspec.structs.replace(line, number=highest)))
            else:
                taken.add(number)
                numbered.append((place, line))
        lines[:] = numbered
        turns = sum(isinstance(line, model.TurnLine) for _, line in numbered)
        await repository.raise_numbers(conn, self._team_id, highest, turns=turns)

    async def _finish(self, conn: Conn) -> None:
        """Let observations name their turns; wake the streams; leave a trace."""
        if self._dry_run:
            return
        if self._is_last:
            await repository.point_to_turns(conn, self._team_id)
            await repository.REVIVE.all(conn)
            await ledger.add_imported(conn, self._team_id)
        if self._report.taken:
            await audit.record(
                conn, self._principal, "memory.imported", "team", self._team_id, source=self._source.name, counts=self._report.taken
            )
            await announce.drop_cached(conn, self._team_id)
            await announce.notify_stream(conn)
        if self._is_last:
            lost = await report_lost(conn, self._principal, "import")
            self._report.lost_pins = [describe_loss(result) for result in lost]

    # -- contents

    async def _cleaned(self, place: str, line: model.DataLine) -> model.DataLine | None:
        """The line without secrets and private passages; None when it cannot be stored."""
        if isinstance(line, model.ObservationLine) and line.type not in TYPES:
            line = msgspec.structs.replace(line, caller_type=line.caller_type or line.type, type="change")
        try:
            values = {name: msgspec.to_builtins(getattr(line, name)) for name in _TEXT_FIELDS[type(line)]}
            cleaned = cast("dict[str, Any]", await self._clean(values))
        except Invalid as error:
            self._refuse(model.RefusedLine(record=model.record_name(type(line)), place=place, reason=str(error)))
            return None
        changed = {name: value for name, value in cleaned.items() if value is not values[name]}
        if not changed:
            return line
        try:
            return msgspec.convert({**msgspec.structs.asdict(line), **changed}, type(line))
        except msgspec.ValidationError as error:
            self._refuse(model.RefusedLine(record=model.record_name(type(line)), place=place, reason=str(error)))
            return None

    async def _clean(self, value: object) -> object:
        cleaned = await clean_aside(value, field_max_chars=_MAX_FIELD_CHARS, size_bytes=len(msgspec.json.encode(value)))
        for kind, count in cleaned.redactions.items():
            _count(self._report.redactions, kind, count)
        return cleaned.value

    def _row(self, line: model.DataLine) -> object:
        """The line as its table wants it."""
        if isinstance(line, model.EventLine):
            text = msgspec.json.encode(line.payload).decode()
            return {**msgspec.structs.asdict(line), "size_chars": len(text), "idempotency_key": self._event_key(line)}
        if isinstance(line, model.ObservationLine):
            if _is_linked(line):
                self._links.append({
                    "id": line.id,
                    "superseded_by": line.superseded_by,
                    "superseded_at": line.superseded_at,
                    "closed_by": line.closed_by,
                })  # fmt: skip
            tokens = estimate_tokens(line.content) if line.read_tokens is None else line.read_tokens
            return msgspec.structs.replace(line, read_tokens=tokens)
        return line

    def _event_key(self, line: model.EventLine) -> str:
        """The key by which the event is recognised when its agent sends it again."""
        return make_event_key(
            EventFacts(
                team_id=self._team_id,
                project_id=line.project_id,
                source_adapter=line.source_adapter,
                platform_source=line.platform_source,
                source_event_id=line.source_event_id if line.source_event_id is not None else f"import:{line.id}",
                session=None,
                event_type=line.event_type,
                occurred_at=line.occurred_at,
                content_hash="",
            )
        )

    def _refuse(self, refusal: model.RefusedLine) -> None:
        refuse(self._report, refusal)


def refuse(report: model.ImportReport, refusal: model.RefusedLine) -> None:
    """Note what is not taken; the first ones with their reasons."""
    _count(report.refused, refusal.record)
    if len(report.examples) < MAX_EXAMPLES:
        report.examples.append(refusal)


_WITHOUT_TEXT = (
    inspect.UUIDType, inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.DateTimeType, inspect.LiteralType,
    inspect.NoneType,
)  # fmt: skip


def _holds_text(kind: inspect.Type) -> bool:
    """Whether a value of that type may hold a text that somebody wrote, or a name that another program gave."""
    match kind:
        case inspect.ListType():
            return _holds_text(kind.item_type)
        case inspect.UnionType():
            return any(map(_holds_text, kind.types))
        case _:
            return not isinstance(kind, _WITHOUT_TEXT)


def _text_fields(line_type: type[model.DataLine]) -> tuple[str, ...]:
    line = cast("inspect.StructType", inspect.type_info(line_type))
    return tuple(field.name for field in line.fields if _holds_text(field.type))


_TEXT_FIELDS = {line_type: _text_fields(line_type) for line_type in model.LINE_TYPES}
_THERE = "It is there already."
_DOUBLE: dict[type[model.DataLine], str] = {
    model.SessionLine: "A session with its agent's id is there already, or another team has its id.",
    model.EventLine: "An event with its source's id is there already, or another team has its id.",
    model.TurnLine: "Its event or its session has that turn already, or its project was not taken.",
    model.ObservationLine: "Its project was not taken, or another team has its id.",
    model.EntityLine: "An entity of its name and type is there already.",
    model.EntityRelationLine: "The two are related so already.",
}


_FIELDS = {"prompt": "text", "agent_event_id": "source_id", "joined_to": "id"}
"""Columns that a line has by another name."""


async def _explain_refusal(conn: Conn, error: errors.Error, line_type: type[model.DataLine]) -> str:
    """What the database does not take, without the values of the row, and the fields that it is about."""
    diag = error.diag
    columns = [diag.column_name] if diag.column_name else []
    if diag.constraint_name and diag.table_name:
        columns = await repository.constraint_columns(conn, diag.table_name, diag.constraint_name)
    names = line_type.__struct_fields__
    fields = [name for column in columns if (name := column if column in names else _FIELDS.get(column)) in names]
    if isinstance(error, errors.ForeignKeyViolation):
        what, fields = "What it refers to is not here", [name for name in fields if name != "project_id"] or fields
    elif isinstance(error, errors.CheckViolation):
        what = "Not allowed"
    else:
        what = str(error).splitlines()[0]
    return f"{what} - at {', '.join(f'`$.{name}`' for name in fields)}" if fields else what


def _batches(
    lines: Iterable[tuple[str, model.DataLine] | model.RefusedLine], refuse: Callable[[model.RefusedLine], None]
) -> Iterator[tuple[type[model.DataLine], list[tuple[str, model.DataLine]]]]:
    """Lines of one type that follow each other, up to BATCH_LINES of them."""
    batch: list[tuple[str, model.DataLine]] = []
    for line in lines:
        if isinstance(line, model.RefusedLine):
            refuse(line)
            continue
        if batch and (type(batch[-1][1]) is not type(line[1]) or len(batch) >= BATCH_LINES):
            yield type(batch[-1][1]), batch
            batch = []
        batch.append(line)
    if batch:
        yield type(batch[-1][1]), batch


def _is_linked(line: model.DataLine) -> bool:
    return isinstance(line, model.ObservationLine) and (line.superseded_by is not None or line.closed_by is not None)


def _chunks(rows: Sequence[Row], size: int) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _count(counts: dict[str, int], name: str, by: int = 1) -> None:
    if by:
        counts[name] = counts.get(name, 0) + by
