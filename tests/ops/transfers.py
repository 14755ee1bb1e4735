"""Exports and imports for tests, and an export in which every field of every class of line has a value of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec

from cmserver.access.model import Principal
from cmserver.base.db import Db
from cmserver.base.erasure_journal import ErasureJournal
from cmserver.observations.model import StaleMark
from cmserver.ops.transfer import model
from cmserver.ops.transfer.export import export_team
from cmserver.ops.transfer.model import ImportReport
from cmserver.ops.transfer.pipeline import Importer, Source

_START = datetime(2026, 3, 1, 9, 0, 0, 123456, tzinfo=UTC)


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


def make_whole_export() -> list[model.AnyLine]:
    """One team's memory, with at least one line of each class; together the lines of a class leave no field at its default."""
    ids = iter(UUID(int=0x0190_0000_0000_7000_8000_0000_0000_0000 + place) for place in range(100))
    times = iter(_START + timedelta(minutes=place) for place in range(100))
    project, isolated, entity, other_entity, alias = (next(ids) for _ in range(5))
    session, prompt_event, tool_event, turn, agent_turn = (next(ids) for _ in range(5))
    merged, kept, late = next(ids), next(ids), next(ids)
    return [
        model.HeaderLine(format=model.FORMAT),
        model.ProjectLine(
            id=project,
            canonical_id="github.com/acme/orders",
            name="orders",
            aliases=["/home/dev/orders"],
            metadata={"owner": "ops"},
            archived_at=next(times),
            generation_policy={"skipTools": ["Read"]},
            search_language="german",
            consolidation="merge",
            retention={"eventsDays": 30},
            stays_apart=True,
            merge_with_model=True,
            created_at=next(times),
        ),
        model.ProjectLine(
            id=isolated,
            canonical_id="github.com/acme/payroll",
            name="payroll",
            search_language="simple",
            consolidation="off",
            isolated=True,
            created_at=next(times),
        ),
        model.EntityLine(
            id=entity,
            project_id=project,
            type="concept",
            name="The Ledger",
            folded_name="the ledger",
            notes="Where money is counted.",
            found_by="model",
            aliases=[model.AliasOfEntity(id=alias, type="file", name="src/Ledger.py", folded_name="src/ledger.py")],
            created_at=next(times),
        ),
        model.EntityLine(id=other_entity, project_id=project, type="file", name="a.py", folded_name="a.py", created_at=next(times)),
        model.SessionLine(
            id=session,
            project_id=project,
            external_session_id="external",
            content_session_id="content",
            agent_id="agent",
            agent_type="main",
            actor_id="alice",
            platform_source="claude",
            title="Raise the limit",
            metadata={"branch": "main"},
            started_at=next(times),
            ended_at=next(times),
        ),
        *(
            model.EventLine(
                id=event,
                project_id=project,
                server_session_id=session,
                source_adapter="claude-code",
                source_event_id=name,
                event_type=name,
                platform_source="claude",
                payload={"number": 1, "text": "Änderung"},
                metadata={"a": [1, 2.5, None]},
                occurred_at=next(times),
                received_at=next(times),
                payload_purged_at=next(times),
            )
            for event, name in ((prompt_event, "user_prompt"), (tool_event, "tool_use"))
        ),
        model.TurnLine(
            id=turn,
            project_id=project,
            server_session_id=session,
            number=3,
            agent_event_id=prompt_event,
            prompt_number=1,
            text="Raise the limit.",
            reply="It is 5 now.",
            files=["src/retry.py"],
            checks=["pytest: 3 passed"],
            commits=["abc1234 Raise the limit"],
            actor_id="alice",
            created_at=next(times),
            ended_at=next(times),
        ),
        model.TurnLine(
            id=agent_turn,
            project_id=project,
            server_session_id=session,
            number=4,
            agent_id="explorer",
            text="Look where the limit is.",
            created_at=next(times),
        ),
        model.ObservationLine(
            id=merged,
            number=5,
            project_id=project,
            server_session_id=session,
            scope="team",
            kind="manual",
            type="decision",
            title="The limit is 5",
            subtitle="because of the slow host",
            narrative="It was 3.",
            facts=["LIMIT = 5"],
            concepts=["retries"],
            files_read=["README.md"],
            files_modified=["src/retry.py"],
            summary={"request": "Raise the limit", "learned": None},
            prompt_number=1,
            actor_id="alice",
            importance=0.7,
            quote="Raise the limit.",
            quote_event_id=prompt_event,
            anchors=["src/retry.py:3"],
            state="done",
            closed_by=6,
            closed_at=next(times),
            stale=StaleMark(
                reason="changed", path="src/retry.py", name="5", event_id=tool_event, marked_at_epoch=1_767_225_600_123
            ),
            content="The limit is 5",
            discovery_tokens=20,
            read_tokens=7,
            metadata={"by": "hand"},
            agent="alice's agent",
            caller_type="rule",
            ttl_seconds=3600,
            expires_at=next(times),
            version=2,
            superseded_by=kept,
            superseded_at=next(times),
            merged_from=[late],
            access_count=3,
            last_accessed_at=next(times),
            created_at=next(times),
            updated_at=next(times),
        ),
        *(
            model.ObservationLine(
                id=id_,
                number=number,
                project_id=project,
                type="feature",
                importance=0.25,
                content=f"Note {number}",
                read_tokens=2,
                created_at=next(times),
                updated_at=next(times),
            )
            for id_, number in ((kept, 6), (late, 7))
        ),
        model.SourceLine(
            id=next(ids),
            project_id=project,
            observation_id=merged,
            source_type="agent_event",
            source_id=tool_event,
            metadata={"lines": [1, 3]},
            created_at=next(times),
        ),
        model.VersionLine(
            id=next(ids),
            project_id=project,
            observation_id=kept,
            version=1,
            action="merged",
            before={"content": "Note"},
            source_ids=[merged],
            strategy="append",
            similarity=0.75,
            measured_by="vector",
            performed_by="alice",
            created_at=next(times),
        ),
        model.VersionLine(
            id=next(ids),
            project_id=project,
            observation_id=kept,
            version=2,
            action="corrected",
            performed_by="alice",
            created_at=next(times),
            undone_at=next(times),
            sources_purged_at=next(times),
        ),
        model.RelationshipLine(
            id=next(ids),
            from_id=kept,
            from_project_id=project,
            to_id=late,
            to_project_id=project,
            relationship="CAUSES",
            strength=0.25,
            context="as seen",
            created_at=next(times),
        ),
        model.EntityRelationLine(
            id=next(ids),
            project_id=project,
            from_id=entity,
            to_id=other_entity,
            label="is written in",
            source_ids=[kept],
            created_at=next(times),
        ),
    ]
