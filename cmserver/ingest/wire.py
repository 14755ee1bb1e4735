"""Events, and the start and end of sessions, on the wire."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.ids import EpochMs
from cmserver.base.text import Key, Label, Text
from cmserver.events.wire import EventOut
from cmserver.generation.wire import GenerationJobOut
from cmserver.sessions.wire import SessionOut

BATCH_MOST = 500


class EventIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/events, and one item of /v1/events/batch. `sourceType` is through what it came in, which answers call
    `sourceAdapter`; `memorySessionId` is accepted from clients of claude-mem, but not kept.
    """

    event_type: Annotated[Text, Meta(min_length=1, max_length=200)]
    project_id: Key | None = None
    source_type: Literal["hook", "worker", "provider", "server", "api"] = "api"
    occurred_at_epoch: EpochMs | None = None
    server_session_id: UUID | None = None
    content_session_id: Key | None = None
    memory_session_id: Text | None = None
    platform_source: Label | None = None
    source_event_id: Key | None = None
    payload: object = None
    metadata: dict[str, object] = {}


class RecordOptions(msgspec.Struct, kw_only=True):
    """`?generate=false` only stores; `?wait=true` answers when the observations are there, after 30 s at the latest."""

    generate: bool = True
    wait: bool = False


class EventResultOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to an event. It has observation ids when `wait=true` was sent and the job has ended."""

    event: EventOut
    generation_job: GenerationJobOut | UnsetType = UNSET
    observation_ids: list[UUID] | UnsetType = UNSET
    observation_numbers: list[int] | UnsetType = UNSET
    wait_timed_out: bool | UnsetType = UNSET


class SessionStartIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/sessions/start."""

    project_id: Key | None = None
    external_session_id: Key | None = None
    content_session_id: Key | None = None
    agent_id: Key | None = None
    agent_type: Key | None = None
    platform_source: Label | None = None
    metadata: dict[str, object] = {}


class EventBatchOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a batch, in its order."""

    events: list[EventResultOut]


class SessionChangeOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to a start or an end."""

    session: SessionOut
    generation_job: GenerationJobOut | UnsetType = UNSET
