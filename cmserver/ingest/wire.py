"""Events on the wire: how they are sent, with what options, and what is answered."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.ids import EpochMs
from cmserver.base.text import Key, Label, Text
from cmserver.events.wire import EventOut
from cmserver.generation.wire import GenerationJobOut

BATCH_MOST = 500


class EventIn(msgspec.Struct, rename="camel", kw_only=True):
    """POST /v1/events, and one item of /v1/events/batch."""

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


class EventsQuery(msgspec.Struct, kw_only=True):
    """`?generate=false` stores only; `?wait=true` answers when the observations are there, after 30 s at the latest."""

    generate: bool = True
    wait: bool = False


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """An event, where it stands in the body, and about how large it is."""

    at: str
    event: EventIn
    size_bytes: int


class RecordedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answer to an event. Observation ids are there when `wait=true` was asked and the job has ended."""

    event: EventOut
    generation_job: GenerationJobOut | UnsetType = UNSET
    observation_ids: list[UUID] | UnsetType = UNSET
    observation_numbers: list[int] | UnsetType = UNSET
    wait_timed_out: bool | UnsetType = UNSET
