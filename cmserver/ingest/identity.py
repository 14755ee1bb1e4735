"""Idempotency keys of events and jobs. The payload is hashed as it was sent."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec import structs

from cmserver.base.ids import epoch_ms
from cmserver.ingest.model import MOMENT, EventIdentity

_sorted = msgspec.json.Encoder(order="sorted")


def encode_canonical_json(value: object) -> bytes:
    """Keys sorted, no spaces, UTF-8. Lone surrogates keep their three bytes; 1 and 1.0 are two different values.

    For finite numbers only, and not for storing: the bytes are UTF-8 only where the value is.
    """
    try:
        return _sorted.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
        return text.encode("utf-8", "surrogatepass")


def hash_payload(secret: bytes, value: object) -> str:
    """HMAC-SHA256, in hex, with the installation's secret.

    Over the payload before it is cleaned: what differs only in a trimmed part stays two, and without the secret nobody can
    try guesses at what was redacted.
    """
    return hmac.digest(secret, encode_canonical_json(value), "sha256").hex()


class EventFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an event's key is made of: `project_id` by whose name it came first, `session` ours, or the client's own."""

    team_id: UUID
    project_id: UUID
    source_adapter: str
    platform_source: str | None
    source_event_id: str | None
    session: UUID | str | None
    turn_id: str | None = None
    """The agent's id for the turn, or for its prompt."""
    event_type: str
    occurred_at: datetime
    content_hash: str


def make_event_key(facts: EventFacts, identity: EventIdentity = "id") -> str:
    """`agent_event:v1:<hex>`, from what the event is known by."""
    source = [facts.team_id, facts.project_id, facts.source_adapter, facts.platform_source]
    said = [facts.session, facts.event_type]
    if identity == "turn":
        return _make_key("agent_event", [*source, "turn", *said, facts.turn_id, facts.content_hash])
    if identity == "moment":
        return _make_key("agent_event", [*source, "moment", *said, _find_moment(facts), facts.content_hash])
    if facts.source_event_id is not None:
        return make_source_key(facts.team_id, facts.project_id, facts.source_adapter, facts.platform_source, facts.source_event_id)
    return _make_key("agent_event", [*source, "said", *said, epoch_ms(facts.occurred_at), facts.content_hash])


def make_source_key(team_id: UUID, project_id: UUID, source_adapter: str, platform_source: str | None, source_event_id: str) -> str:
    """The key of an event that is known by its source's id for it."""
    return _make_key("agent_event", [team_id, project_id, source_adapter, platform_source, "id", source_event_id])


def make_near_keys(facts: EventFacts) -> list[str]:
    """The keys by which an event with this content may be known that happened within MOMENT of it."""
    return [
        make_event_key(structs.replace(facts, occurred_at=facts.occurred_at + shift), "moment")
        for shift in (-MOMENT, timedelta(), MOMENT)
    ]


def _find_moment(facts: EventFacts) -> int:
    return epoch_ms(facts.occurred_at) // (MOMENT // timedelta(milliseconds=1))


def make_job_key(*, team_id: UUID, project_id: UUID, source_type: str, source_id: UUID, job_type: str, source_run: int) -> str:
    """`generation_job:v1:<hex>`. `source_run` counts the jobs of one type that a source has had."""
    return _make_key("generation_job", [team_id, project_id, source_type, source_id, job_type, source_run])


def _make_key(kind: str, parts: list[object]) -> str:
    """A JSON array frames the parts: ("a", "bc") is not ("ab", "c"), and None is not ""."""
    return f"{kind}:v1:{hashlib.sha256(encode_canonical_json(parts)).hexdigest()}"
