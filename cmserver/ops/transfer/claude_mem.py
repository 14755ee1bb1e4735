"""Reads claude-mem's SQLite database: what version 3 has kept (memories, overviews), and 4 to 13 (observations, summaries).

A database that was upgraded has both, and one that its server has used also memory items. Columns came and went with its versions,
so each is read where it is there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.ids import from_epoch_ms, from_iso
from cmserver.models.providers.model import SUMMARY_FIELDS, DraftSummary
from cmserver.observations.model import INSTRUCTION_IMPORTANCE, compose
from cmserver.observations.tidy import tidy_line, tidy_list, tidy_text
from cmserver.ops.transfer.ids import derive_id
from cmserver.ops.transfer.model import (
    DataLine,
    EventLine,
    ObservationLine,
    ProjectLine,
    RefusedLine,
    SessionLine,
    SourceLine,
    TurnLine,
)

_NAME = "claude-mem"
_NO_PROJECT = "claude-mem"
"""The project of what names none."""
_SESSION_TABLES = ("sdk_sessions", "sessions", "server_sessions")
_OBSERVATION_TABLES = ("observations", "session_summaries", "memories", "overviews", "directives", "memory_items")
_QUERIES = {
    "server_sessions": """
        SELECT s.*, s.title AS custom_title, p.name AS project FROM server_sessions s LEFT JOIN projects p ON p.id = s.project_id
         WHERE s.rowid = ?
    """,
    # Those of an observation, or of a prompt, have it from the other tables.
    "memory_items": """
        SELECT m.*, s.content_session_id AS memory_session_id, p.name AS project
          FROM memory_items m LEFT JOIN projects p ON p.id = m.project_id
          LEFT JOIN server_sessions s ON s.id = m.server_session_id
         WHERE m.legacy_observation_id IS NULL AND m.kind <> 'prompt' AND m.rowid = ?
    """,
}
"""One row by its number, by table, where the rows alone do not say enough."""
_RECORDS = {"user_prompts": "prompt", "tool_uses": "event", **dict.fromkeys(_SESSION_TABLES, "session")}
"""What the rows of a table become, where that is no observation."""
_MAX_SECONDS = 100_000_000_000
"""Times below are in seconds, above in milliseconds."""
_MAX_VALUE_BYTES = 16 << 20
"""Of a value, which a column may also compute: the row of a longer one stays behind."""
_YEAR_1970 = datetime(1970, 1, 1, tzinfo=UTC)

Row = Mapping[str, Any]


class ClaudeMemSource:
    """The lines of a database of claude-mem. Invalid when the file is none."""

    name = _NAME
    has_own_ids = False

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        if not self._file.is_file():
            raise Invalid(f"There is no file {file}. Name claude-mem's database: `cmserver import claude-mem FILE`.")
        try:
            with closing(self._open()) as database:
                names = {str(row["name"]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.Error as error:
            raise Invalid(f"{file} cannot be read as an SQLite database: {error}.") from error
        self._tables = names & {*_SESSION_TABLES, *_OBSERVATION_TABLES, "user_prompts", "tool_uses"}
        if not self._tables & {*_OBSERVATION_TABLES}:
            raise Invalid(f"{file} has none of claude-mem's tables ({', '.join(_OBSERVATION_TABLES)}).")
        self._sessions: dict[str, UUID] = {}
        """By the session's id at its agent, and by claude-mem's own."""
        self._too_large: dict[tuple[str, int], None] = {}
        """Tables and numbers of rows that stay behind."""

    def count(self) -> int:
        with closing(self._open()) as database:
            rows = sum(int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in self._tables)  # noqa: S608
            prompts = (
                int(database.execute("SELECT count(*) FROM user_prompts").fetchone()[0]) if "user_prompts" in self._tables else 0
            )
        return rows + prompts

    def project_ids(self) -> set[UUID]:
        return set()

    def lines(self) -> Iterator[tuple[str, DataLine] | RefusedLine]:
        self._sessions.clear()
        self._too_large.clear()
        with closing(self._open()) as database:
            yield from self._projects(database)
            yield from self._session_lines(database)
            yield from self._tool_use_lines(database)
            yield from self._prompt_lines(database)
            numbers: dict[object, ObservationLine] = {}
            for table, make in _MAKERS.items():
                for row in self._rows(database, table):
                    line = make(row, self._session_of(row))
                    place = f"{table}, id {row.get('id')}"
                    if line and table == "observations":
                        numbers[row.get("id")] = line
                    yield (place, line) if line else RefusedLine(record="observation", place=place, reason="It has no text.")
            for row in self._rows(database, "tool_uses"):
                observation, event = numbers.get(row.get("observation_id")), self._tool_use(row)
                if observation and event and event.project_id == observation.project_id:
                    yield f"tool_uses, id {row.get('id')}", _source(observation, event)
        for table, number in self._too_large:
            record = _RECORDS.get(table, "observation")
            yield RefusedLine(record=record, place=f"{table}, row {number}", reason="A value of it is larger than 16 MiB.")

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)
        database.row_factory = sqlite3.Row
        database.text_factory = _decode
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        return database

    def _rows(self, database: sqlite3.Connection, table: str) -> Iterator[Row]:
        if table not in self._tables:
            return
        query = _QUERIES.get(table, f"SELECT * FROM {table} WHERE rowid = ?")  # noqa: S608 - one of our names
        try:
            for (number,) in database.execute(f"SELECT rowid FROM {table} ORDER BY rowid").fetchall():  # noqa: S608
                try:
                    row = database.execute(query, (number,)).fetchone()
                except sqlite3.DataError:  # too long a value
                    self._too_large[table, number] = None
                    continue
                if row is not None:
                    yield dict(cast("Mapping[str, Any]", row))
        except sqlite3.Error as error:
            raise Invalid(f"{self._file} cannot be read on, in its table {table}: {error}.") from error

    def _projects(self, database: sqlite3.Connection) -> Iterator[tuple[str, DataLine]]:
        names: dict[str, datetime] = {}
        for table in sorted(self._tables - {"user_prompts"}):
            for row in self._rows(database, table):
                name, at = _project(row), _time(row, "created_at", "started_at")
                names[name] = min(at, names.get(name, at))
        for name, at in names.items():
            yield f"project {name}", ProjectLine(id=_project_id(name), canonical_id=name, name=name, created_at=at)

    def _session_lines(self, database: sqlite3.Connection) -> Iterator[tuple[str, DataLine]]:
        for table in _SESSION_TABLES:
            for row in self._rows(database, table):
                external_id = _first(row, "content_session_id", "claude_session_id", "session_id")
                if external_id is None or external_id in self._sessions:
                    continue
                at = _time(row, "started_at", "created_at")
                session_id = derive_id(_NAME, f"session {external_id}", at)
                for name in (external_id, _first(row, "memory_session_id", "sdk_session_id")):
                    if name is not None:
                        self._sessions.setdefault(name, session_id)
                line = SessionLine(
                    id=session_id,
                    project_id=_project_id(_project(row)),
                    external_session_id=external_id,
                    content_session_id=external_id,
                    platform_source=_first(row, "platform_source") or "claude",
                    title=tidy_line(_first(row, "custom_title")),
                    metadata={
                        name: text
                        for name, column in (("observedModel", "observed_model"), ("observedBilling", "observed_billing"))
                        if (text := _first(row, column))
                    },
                    started_at=at,
                    ended_at=_time(row, "completed_at") if row.get("completed_at") or row.get("completed_at_epoch") else None,
                )
                yield f"{table}, id {row.get('id')}", line

    def _tool_use_lines(self, database: sqlite3.Connection) -> Iterator[tuple[str, DataLine]]:
        """What agents sent to tools, and what these answered."""
        for row in self._rows(database, "tool_uses"):
            if event := self._tool_use(row):
                yield f"tool_uses, id {row.get('id')}", event

    def _tool_use(self, row: Row) -> EventLine | None:
        """The event of a tool call; None without the id of the call, or the name of the tool."""
        call_id, session, tool = (_first(row, name) for name in ("tool_use_id", "content_session_id", "tool_name"))
        if call_id is None or tool is None:
            return None
        at = _time(row, "created_at")
        agent = {name: _first(row, name) for name in ("agent_id", "agent_type")}
        return EventLine(
            id=derive_id(_NAME, f"tool use {session} {call_id}", at),
            project_id=_project_id(_project(row)),
            server_session_id=self._sessions.get(session or ""),
            source_adapter="import",
            source_event_id=f"tool:{call_id}",
            event_type="tool_use",
            platform_source=_first(row, "platform_source") or "claude",
            payload={
                "tool_name": tool,
                "tool_input": _value(row.get("tool_input")),
                "tool_response": _value(row.get("tool_response")),
                "cwd": _first(row, "cwd"),
            },
            metadata={name: text for name, text in agent.items() if text},
            occurred_at=at,
            received_at=at,
        )

    def _prompt_lines(self, database: sqlite3.Connection) -> Iterator[tuple[str, DataLine]]:
        """The event that each prompt came in, then the prompts. Without a table of prompts, sessions have their first one.

        Where there is such a table, the prompts of sessions are not read: they hold what was private.
        """
        projects = {
            _first(row, "content_session_id", "claude_session_id"): _project(row) for row in self._rows(database, "sdk_sessions")
        }
        rows: Iterable[Row] = self._rows(database, "user_prompts")
        if "user_prompts" not in self._tables:
            first: dict[str, object] = {"prompt_number": 1}
            rows = ({**row, **first, "prompt_text": row.get("user_prompt")} for row in self._rows(database, "sdk_sessions"))
        prompts: list[tuple[str, TurnLine]] = []
        seen: set[tuple[UUID, int]] = set()
        for row in rows:
            external_id, text = _first(row, "content_session_id", "claude_session_id"), tidy_text(_first(row, "prompt_text"))
            session_id = self._sessions.get(external_id or "")
            number = row.get("prompt_number")
            if session_id is None or text is None or not isinstance(number, int) or number < 1 or (session_id, number) in seen:
                continue
            seen.add((session_id, number))
            at, place = _time(row, "created_at", "started_at"), f"user_prompts, id {row.get('id')}"
            project_id = _project_id(projects.get(external_id, _NO_PROJECT))
            event_id = derive_id(_NAME, f"event {external_id} {number}", at)
            yield (
                place,
                EventLine(
                    id=event_id,
                    project_id=project_id,
                    server_session_id=session_id,
                    source_adapter="import",
                    event_type="user_prompt",
                    platform_source="claude",
                    payload={"prompt": text},
                    occurred_at=at,
                    received_at=at,
                ),
            )
            prompts.append((place, TurnLine(
                id=derive_id(_NAME, f"prompt {external_id} {number}", at),
                project_id=project_id,
                server_session_id=session_id,
                agent_event_id=event_id,
                prompt_number=number,
                text=text,
                created_at=at,
            )))  # fmt: skip
        yield from prompts

    def _session_of(self, row: Row) -> UUID | None:
        return self._sessions.get(_first(row, "memory_session_id", "sdk_session_id", "session_id") or "")


def _observation(row: Row, session_id: UUID | None) -> ObservationLine | None:
    """Of versions 4 to 13; those of 4 have only a text."""
    narrative = tidy_text(_first(row, "narrative")) or tidy_text(_first(row, "text"))
    return _structured(row, session_id, "observation", narrative, files_read=_list(row.get("files_read")))


def _memory(row: Row, session_id: UUID | None) -> ObservationLine | None:
    """Of version 3."""
    row = {"type": "discovery", **row}
    return _structured(row, session_id, "memory", tidy_text(_first(row, "text")), files_read=_list(row.get("files_touched")))


def _item(row: Row, session_id: UUID | None) -> ObservationLine | None:
    """Of claude-mem's own server."""
    narrative = tidy_text(_first(row, "narrative")) or tidy_text(_first(row, "text"))
    line = _structured(row, session_id, "memory_item", narrative, files_read=_list(row.get("files_read")))
    kind = row.get("kind")
    return line if line is None or kind not in {"summary", "manual"} else msgspec.structs.replace(line, kind=kind)


def _structured(
    row: Row, session_id: UUID | None, table: str, narrative: str | None, *, files_read: list[str] | None
) -> ObservationLine | None:
    title, subtitle, facts = tidy_line(_first(row, "title")), tidy_text(_first(row, "subtitle")), _list(row.get("facts"))
    content = compose(title, subtitle, narrative, facts)
    if not content:
        return None
    line = _line_of(row, session_id, table, content)
    return msgspec.structs.replace(
        line,
        type=_first(row, "type") or "change",
        title=title,
        subtitle=subtitle,
        narrative=narrative,
        facts=facts,
        concepts=_list(row.get("concepts")),
        files_read=files_read,
        files_modified=_list(row.get("files_modified")),
    )


def _summary(row: Row, session_id: UUID | None) -> ObservationLine | None:
    fields = {name: tidy_text(_first(row, name)) for name in SUMMARY_FIELDS}
    return _summed_up(row, session_id, "summary", fields)


def _overview(row: Row, session_id: UUID | None) -> ObservationLine | None:
    """Version 3's summary of a session, which is one text."""
    return _summed_up(row, session_id, "overview", {"completed": tidy_text(_first(row, "content"))})


def _summed_up(row: Row, session_id: UUID | None, table: str, fields: Mapping[str, str | None]) -> ObservationLine | None:
    content = DraftSummary(**fields).text
    if not content:
        return None
    return msgspec.structs.replace(
        _line_of(row, session_id, table, content),
        kind="summary",
        title=tidy_line(fields.get("request") or fields.get("completed")) or "Session summary",
        summary=dict(fields),
        files_read=_list(row.get("files_read")),
        files_modified=_list(row.get("files_edited")),
    )


def _directive(row: Row, session_id: UUID | None) -> ObservationLine | None:
    """A rule that the user laid down for good."""
    content = tidy_text(_first(row, "content"))
    if content is None or row.get("status", "active") != "active":
        return None
    line = _line_of(row, session_id, "directive", content)
    scope = "team" if row.get("scope") == "global" else "project"
    return msgspec.structs.replace(
        line, type="decision", title=tidy_line(content), narrative=content, importance=INSTRUCTION_IMPORTANCE, scope=scope
    )


_MAKERS = {
    "memories": _memory,
    "overviews": _overview,
    "observations": _observation,
    "session_summaries": _summary,
    "directives": _directive,
    "memory_items": _item,
}


def _line_of(row: Row, session_id: UUID | None, table: str, content: str) -> ObservationLine:
    """What all tables have. A row is known by its session, its id and its time: two machines count their rows alike."""
    at = _time(row, "created_at")
    session = _first(row, "memory_session_id", "sdk_session_id", "session_id")
    model = _first(row, "generated_by_model")
    tokens, number = row.get("discovery_tokens"), row.get("prompt_number")
    return ObservationLine(
        id=derive_id(_NAME, f"{table} {session} {row.get('id')}", at),
        project_id=_project_id(_project(row)),
        server_session_id=session_id,
        content=content,
        prompt_number=number if isinstance(number, int) and number > 0 else None,
        discovery_tokens=tokens if isinstance(tokens, int) and tokens >= 0 else None,
        metadata={"importedFrom": _NAME, **({"model": model} if model else {})},
        created_at=at,
        updated_at=at,
    )


def _source(observation: ObservationLine, event: EventLine) -> SourceLine:
    return SourceLine(
        id=derive_id(_NAME, f"source {observation.id} {event.id}", observation.created_at),
        project_id=observation.project_id,
        observation_id=observation.id,
        source_type="agent_event",
        source_id=event.id,
        created_at=observation.created_at,
    )


def _value(text: object) -> object:
    """A value that is kept as JSON; the text itself where it is none, or was cut."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


def _project(row: Row) -> str:
    return " ".join((_first(row, "merged_into_project", "project") or _NO_PROJECT).split())


def _project_id(name: str) -> UUID:
    return derive_id(_NAME, f"project {name}", _YEAR_1970)


def _first(row: Row, *names: str) -> str | None:
    """The first of the columns that has a text."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return value
    return None


def _list(value: object) -> list[str] | None:
    """A list as claude-mem keeps it: JSON, or words between commas."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        items: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        items = value.split(",")
    return tidy_list([str(item) for item in cast("Sequence[object]", items)] if isinstance(items, list) else [str(items)])


def _time(row: Row, *names: str) -> datetime:
    """The first of these times, as its epoch or else as its text; 1970 when there is none."""
    for name in names:
        epoch = row.get(f"{name}_epoch")
        if isinstance(epoch, int | float) and 0 < epoch < 253_402_300_799_999:
            return from_epoch_ms(int(epoch * 1000 if epoch < _MAX_SECONDS else epoch))
        text = row.get(name)
        if isinstance(text, str):
            try:
                return from_iso(text.replace("Z", "+00:00"))
            except ValueError:
                continue
    return _YEAR_1970
