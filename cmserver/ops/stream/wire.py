"""The stream on the wire: rows of the two logs as server-sent events, one small JSON object each, with encrypted ids."""

from __future__ import annotations

import heapq
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

import msgspec

from cmserver.base.ids import parse_id
from cmserver.base.structs import reshape
from cmserver.base.token_cipher import TokenCipher
from cmserver.observations.wire import kind_shown
from cmserver.ops.stream.model import STREAM_NAMES, AuditRow, JobStepRow, Name, ObservationPreview, Position, StreamEvent

_ENCODER = msgspec.json.Encoder()
_RANDOM_BYTES = 9
_CURSOR = struct.Struct(f">QQI{_RANDOM_BYTES}s")


class ObservationData(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`observation.created` and `observation.updated`: the observation now. `kind` is the same as in every answer."""

    id: UUID
    number: int
    project_id: UUID
    server_session_id: UUID | None
    kind: str
    observation_kind: str
    type: str
    title: str | None
    created_at_epoch: int


class DeletionData(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`observation.deleted`."""

    id: UUID
    project_id: UUID | None


class JobData(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`job.updated`: one step of the job's lifecycle."""

    id: UUID
    project_id: UUID
    status: str
    event_type: str
    attempt: int
    created_at_epoch: int


class SessionData(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`session.updated`: started, resumed or ended."""

    id: UUID
    project_id: UUID | None
    action: str


class ResetData(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`reset`: the events after the client's last id are no longer available; reload."""

    reason: str


def encode_event(name: str, id_: str, data: msgspec.Struct) -> bytes:
    """Return the text of one server-sent event."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id_.encode(), name.encode(), _ENCODER.encode(data))


class StreamCursors:
    """Positions as encrypted event ids, since the logs count all teams together.

    Each has random bytes: from two equal ids a team could tell whether other teams were active.
    """

    def __init__(self, secret: bytes) -> None:
        self._cipher = TokenCipher(secret, b"stream")

    def write(self, position: Position) -> str:
        return self._cipher.encrypt(_CURSOR.pack(position.audit, position.jobs, position.part, os.urandom(_RANDOM_BYTES)))

    def read(self, text: str) -> Position | None:
        """Return the position; None when the id is not of this installation."""
        plain = self._cipher.decrypt(text)
        if plain is None or len(plain) != _CURSOR.size:
            return None
        audit, jobs, part, _ = _CURSOR.unpack(plain)
        return Position(audit=audit, jobs=jobs, part=part)


def list_previewed_ids(audit_rows: Iterable[AuditRow]) -> list[UUID]:
    """Return the ids of the observations whose events show a preview."""
    names = ("observation.created", "observation.updated")
    return [id_ for row in audit_rows if STREAM_NAMES[row.action] in names for id_ in _list_subject_ids(row) if id_]


def encode_events(
    after: Position,
    audit_rows: Sequence[AuditRow],
    job_steps: Sequence[JobStepRow],
    previews: Mapping[UUID, ObservationPreview],
    cursors: StreamCursors,
) -> Iterator[StreamEvent]:
    """Yield the events of the rows after `after`. A deleted observation has only its deletion event."""
    at = after
    # Each log keeps its own order, that of the positions; the time decides between the two.
    for row in heapq.merge(audit_rows, job_steps, key=lambda row: row.created_at):
        if isinstance(row, JobStepRow):
            at = Position(audit=at.audit, jobs=row.id, part=at.part)
            job = reshape(row, JobData, id=row.generation_job_id, status=row.status_after)
            text = encode_event("job.updated", cursors.write(at), job)
            yield _event(row, row.project_id, "job.updated", at, text, None)
            continue
        subject_ids = _list_subject_ids(row)
        sent_count = after.part if row.id == after.audit + 1 else 0
        for part, subject_id in enumerate(subject_ids[sent_count:], sent_count + 1):
            is_last = part == len(subject_ids)
            at = Position(audit=row.id if is_last else row.id - 1, jobs=at.jobs, part=0 if is_last else part)
            data = _build_event_data(row, subject_id, previews) if subject_id else None
            if data:
                name = STREAM_NAMES[row.action]
                readers = previews[data.id].readers if isinstance(data, ObservationData) else None
                yield _event(row, data.project_id, name, at, encode_event(name, cursors.write(at), data), readers)
        at = Position(audit=row.id, jobs=at.jobs)


def _event(
    row: AuditRow | JobStepRow, project_id: UUID | None, name: Name, after: Position, text: bytes, readers: list[UUID] | None
) -> StreamEvent:
    return StreamEvent(
        team_id=row.team_id,
        project_id=project_id,
        is_isolated=row.is_isolated,
        readers=readers,
        name=name,
        after=after,
        is_step=isinstance(row, JobStepRow),
        text=text,
    )


def _list_subject_ids(row: AuditRow) -> list[UUID | None]:
    """Return the observations in the row's details, else its resource; None for what is no id."""
    ids = [row.resource_id] if row.observations is None else row.observations
    return [parse_id(id_) if isinstance(id_, str) else None for id_ in ids]


def _build_event_data(
    row: AuditRow, subject_id: UUID, previews: Mapping[UUID, ObservationPreview]
) -> SessionData | DeletionData | ObservationData | None:
    """Return what the event shows; None for an observation that no longer exists."""
    name = STREAM_NAMES[row.action]
    if name == "session.updated":
        return SessionData(id=subject_id, project_id=row.project_id, action=row.action.removeprefix("session."))
    if name == "observation.deleted":
        return DeletionData(id=subject_id, project_id=row.project_id)
    preview = previews.get(subject_id)
    if preview is None or preview.team_id != row.team_id:
        return None
    return reshape(preview, ObservationData, kind=kind_shown(preview.kind, preview.type), observation_kind=preview.kind)
