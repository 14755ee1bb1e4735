"""The stream's events on the wire: server-sent events whose data is one small JSON object, and ids that tell nobody anything."""

from __future__ import annotations

import os
import struct
from uuid import UUID

import msgspec

from cmserver.base.ids import epoch_ms
from cmserver.base.sealed import Seal
from cmserver.observations.wire import kind_shown
from cmserver.ops.stream.model import Glimpse, Position, Step

_ENCODER = msgspec.json.Encoder()
_CHANCE_BYTES = 9
_PLAIN = struct.Struct(f">QQI{_CHANCE_BYTES}s")


class ObservationTold(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`observation.created` and `observation.updated`: as it is now. `kind` is what it is in every answer (see observations)."""

    id: UUID
    number: int
    project_id: UUID
    server_session_id: UUID | None
    kind: str
    observation_kind: str
    type: str
    title: str | None
    created_at_epoch: int


class DeletedTold(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`observation.deleted`: it is gone, so nothing else can be said."""

    id: UUID
    project_id: UUID | None


class JobTold(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`job.updated`: one step of its life."""

    id: UUID
    project_id: UUID
    status: str
    event_type: str
    attempt: int
    created_at_epoch: int


class SessionTold(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`session.updated`: started, resumed or ended."""

    id: UUID
    project_id: UUID | None
    action: str


class ResetTold(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`reset`: what came after the given id is not known any more; read anew what you show."""

    reason: str


def observation_told(one: Glimpse) -> ObservationTold:
    return ObservationTold(
        id=one.id,
        number=one.number,
        project_id=one.project_id,
        server_session_id=one.server_session_id,
        kind=kind_shown(one.kind, one.type),
        observation_kind=one.kind,
        type=one.type,
        title=one.title,
        created_at_epoch=epoch_ms(one.created_at),
    )


def job_told(step: Step) -> JobTold:
    return JobTold(
        id=step.generation_job_id,
        project_id=step.project_id,
        status=step.status_after,
        event_type=step.event_type,
        attempt=step.attempt,
        created_at_epoch=epoch_ms(step.created_at),
    )


def event(name: str, id_: str, data: msgspec.Struct) -> bytes:
    """One server-sent event."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id_.encode(), name.encode(), _ENCODER.encode(data))


class Tickets:
    """Positions as event ids, sealed: the logs count all teams together. None is written twice in the same way, for from two that
    are equal a team to which nothing happens could tell that nothing happened to the others, and when something did.
    """

    def __init__(self, secret: bytes) -> None:
        self._seal = Seal(secret, b"stream")

    def write(self, position: Position) -> str:
        return self._seal.close(_PLAIN.pack(position.audit, position.jobs, position.part, os.urandom(_CHANCE_BYTES)))

    def read(self, text: str) -> Position | None:
        """None when it was not written here."""
        plain = self._seal.open(text)
        if plain is None or len(plain) != _PLAIN.size:
            return None
        audit, jobs, part, _ = _PLAIN.unpack(plain)
        return Position(audit=audit, jobs=jobs, part=part)
