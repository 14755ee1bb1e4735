"""Exports and imports for tests, and an export in which every field of every class of line has a value of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID

import msgspec

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.ops.transfer import model
from cmserver.ops.transfer.export import export_team
from cmserver.ops.transfer.model import ImportReport
from cmserver.ops.transfer.pipeline import Importer, Source

_START = datetime(2026, 3, 1, 9, 0, 0, 123456, tzinfo=UTC)
_FIRST_ID = 0x0190_0000_0000_7000_8000_0000_0000_0000


async def take(db: Db, principal: Principal, source: Source, folder: Path, *, dry_run: bool = False) -> ImportReport:
    journal = ErasureJournal(folder / "backups").file
    return await Importer(db, principal, source, journal=journal, dry_run=dry_run).run(lambda _done: None)


async def export(url: str, team_id: UUID, file: Path, *project_ids: UUID) -> Path:
    out: list[bytes] = []
    await export_team(url, team_id, list(project_ids) or None, out.append)
    return write(file, out)


def write(file: Path, content: list[bytes]) -> Path:
    file.write_bytes(b"".join(content))
    return file


def encode(lines: list[model.AnyLine]) -> bytes:
    encoder = msgspec.json.Encoder(order="deterministic")
    return b"".join(encoder.encode(line) + b"\n" for line in lines)


_LINES: list[dict[str, object]] = [
    {
        "record": "project", "id": "@project", "canonical_id": "github.com/acme/orders", "name": "orders",
        "aliases": ["/home/dev/orders"], "metadata": {"owner": "ops"}, "archived_at": "now", "retention": {"eventsDays": 30},
        "generation_policy": {"skipTools": ["Read"]}, "search_language": "german", "consolidation": "merge", "stays_apart": True,
        "merge_with_model": True,
    },
    {
        "record": "project", "id": "@isolated", "canonical_id": "github.com/acme/payroll", "name": "payroll",
        "search_language": "simple", "consolidation": "off", "isolated": True,
    },
    {
        "record": "entity", "id": "@entity", "type": "concept", "name": "The Ledger", "folded_name": "the ledger",
        "notes": "Where money is counted.", "found_by": "model",
        "aliases": [{"id": "@alias", "type": "file", "name": "src/Ledger.py", "folded_name": "src/ledger.py"}],
    },
    {"record": "entity", "id": "@file", "type": "file", "name": "a.py", "folded_name": "a.py"},
    {
        "record": "session", "id": "@session", "external_session_id": "external", "content_session_id": "content",
        "agent_id": "agent", "agent_type": "main", "actor_id": "alice", "platform_source": "claude", "title": "Raise the limit",
        "metadata": {"branch": "main"}, "started_at": "now", "ended_at": "now",
    },
    *(
        {
            "record": "event", "id": f"@{name}", "server_session_id": "@session", "source_adapter": "claude-code",
            "source_event_id": name, "event_type": name, "platform_source": "claude",
            "payload": {"number": 1, "text": "Änderung"}, "metadata": {"a": [1, 2.5, None]}, "occurred_at": "now",
            "received_at": "now", "payload_purged_at": "now",
        }
        for name in ("user_prompt", "tool_use")
    ),
    {
        "record": "prompt", "id": "@turn", "server_session_id": "@session", "number": 3, "agent_event_id": "@user_prompt",
        "prompt_number": 1, "text": "Raise the limit.", "reply": "It is 5 now.", "files": ["src/retry.py"],
        "checks": ["pytest: 3 passed"], "commits": ["abc1234 Raise the limit"], "actor_id": "alice", "ended_at": "now",
        "own_line": "Since May it is 5.",
    },
    {
        "record": "prompt", "id": "@agent turn", "server_session_id": "@session", "number": 4, "agent_id": "explorer",
        "text": "Look where the limit is.",
    },
    {
        "record": "observation", "id": "@merged", "number": 5, "server_session_id": "@session", "scope": "team", "kind": "manual",
        "type": "decision", "title": "The limit is 5", "subtitle": "because of the slow host", "narrative": "It was 3.",
        "facts": ["LIMIT = 5"], "concepts": ["retries"], "files_read": ["README.md"], "files_modified": ["src/retry.py"],
        "summary": {"request": "Raise the limit", "learned": None}, "prompt_number": 1, "actor_id": "alice", "importance": 0.7,
        "quote": "Raise the limit.", "quote_event_id": "@user_prompt", "anchors": ["src/retry.py:3"], "state": "done",
        "closed_by": 6, "closed_at": "now", "content": "The limit is 5", "discovery_tokens": 20, "read_tokens": 7,
        "stale": {
            "reason": "changed", "path": "src/retry.py", "name": "5", "eventId": "@tool_use", "markedAtEpoch": 1_767_225_600_123,
        },
        "metadata": {"by": "hand"}, "agent": "alice's agent", "caller_type": "rule", "ttl_seconds": 3600, "expires_at": "now",
        "version": 2, "superseded_by": "@kept", "superseded_at": "now", "merged_from": ["@late"], "access_count": 3,
        "last_accessed_at": "now",
    },
    *(
        {
            "record": "observation", "id": f"@{name}", "number": number, "type": "feature", "importance": 0.25,
            "content": f"Note {number}", "read_tokens": 2,
        }
        for name, number in (("kept", 6), ("late", 7))
    ),
    {
        "record": "source", "id": "@source", "observation_id": "@merged", "source_type": "agent_event", "source_id": "@tool_use",
        "metadata": {"lines": [1, 3]},
    },
    {
        "record": "version", "id": "@merge", "observation_id": "@kept", "version": 1, "action": "merged",
        "before": {"content": "Note"}, "source_ids": ["@merged"], "strategy": "append", "similarity": 0.75,
        "measured_by": "vector", "performed_by": "alice",
    },
    {
        "record": "version", "id": "@correction", "observation_id": "@kept", "version": 2, "action": "corrected",
        "performed_by": "alice", "undone_at": "now", "sources_purged_at": "now",
    },
    {
        "record": "relationship", "id": "@relationship", "from_id": "@kept", "from_project_id": "@project", "to_id": "@late",
        "to_project_id": "@project", "relationship": "CAUSES", "strength": 0.25, "context": "as seen",
    },
    {
        "record": "entity_relation", "id": "@relation", "from_id": "@entity", "to_id": "@file", "label": "is written in",
        "source_ids": ["@kept"],
    },
    {
        "record": "pin", "id": "@pin", "number": 4, "question": "What is the limit?", "must": ["5"], "must_not": ["3 or 4"],
        "lines": 7, "on_break": "refuse", "from_file": True,
    },
]  # fmt: skip
"""A line each; `@name` is an id, `now` a time. Its project, and when it was created, where a class has them, go without saying."""


def make_whole_export() -> list[model.AnyLine]:
    """One team's memory, with at least one line of each class; together the lines of a class leave no field at its default."""
    ids: dict[str, str] = {}
    times = (_START + timedelta(minutes=place) for place in range(100))

    def fill(value: object) -> object:
        if isinstance(value, dict):
            return {name: fill(part) for name, part in cast("dict[str, object]", value).items()}
        if isinstance(value, list):
            return [fill(part) for part in cast("list[object]", value)]
        if isinstance(value, str) and value.startswith("@"):
            return ids.setdefault(value, str(UUID(int=_FIRST_ID + len(ids))))
        return next(times).isoformat() if value == "now" else value

    lines: list[model.AnyLine] = [model.HeaderLine(format=model.FORMAT)]
    for line in _LINES:
        fields = {field.name for field in msgspec.structs.fields(_CLASSES[str(line["record"])])}
        implied: dict[str, object] = {name: "now" for name in ("created_at", "updated_at") if name in fields}
        implied |= {"project_id": "@project"} if "project_id" in fields else {}
        lines.append(msgspec.convert(fill({**implied, **line}), model.AnyLine))
    return lines


_CLASSES = {model.record_name(type_): type_ for type_ in model.LINE_TYPES}
