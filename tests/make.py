"""Factories: each makes one thing the way the program does, with defaults for all that a test does not care about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from cmserver.access.model import Project
from cmserver.base.db import Db
from cmserver.base.ids import new_id
from cmserver.observations import repository as observations
from cmserver.observations.model import Kind, NewObservation, NewSource, Observation, Scope, estimate_tokens
from cmserver.sessions.model import NewSession
from cmserver.sessions.turns import repository as turns
from cmserver.sessions.turns.model import NewTurn, SessionTurn
from cmserver.sessions.write import find_or_make


class Make:
    def __init__(self, db: Db) -> None:
        self._db = db

    async def observation(
        self,
        *,
        project: Project,
        title: str | None = "Added retry to the orders client",
        subtitle: str | None = None,
        narrative: str | None = None,
        facts: Sequence[str] | None = None,
        concepts: Sequence[str] | None = None,
        files_read: Sequence[str] | None = None,
        files_modified: Sequence[str] | None = None,
        summary: Mapping[str, str | None] | None = None,
        content: str | None = None,
        kind: Kind = "observation",
        type: str = "change",  # noqa: A002 - the word of the model
        read_tokens: int | None = None,
        metadata: Mapping[str, object] | None = None,
        server_session_id: UUID | None = None,
        from_event: UUID | None = None,
        created_at: datetime | None = None,
        scope: Scope = "project",
        importance: float = 0.5,
    ) -> Observation:
        """Stored, with the next number of its team. `from_event` links it to the event it was drawn from."""
        texts = [title, subtitle, narrative, *(f"- {fact}" for fact in facts or ())]
        content = "\n\n".join(text for text in texts if text) if content is None else content
        async with self._db.tenant(project.team_id) as conn:
            (number,) = await observations.take_numbers(conn, project.team_id, 1)
            new = NewObservation(
                id=new_id(),
                number=number,
                server_session_id=server_session_id,
                kind=kind,
                type=type,
                origin="model",
                title=title,
                subtitle=subtitle,
                narrative=narrative,
                facts=_list(facts),
                concepts=_list(concepts),
                files_read=_list(files_read),
                files_modified=_list(files_modified),
                summary=None if summary is None else dict(summary),
                prompt_number=None,
                content=content,
                read_tokens=estimate_tokens(content) if read_tokens is None else read_tokens,
                discovery_tokens=0,
                generation_key=None,
                metadata=dict(metadata or {}),
                created_by_job_id=None,
                scope=scope,
                importance=importance,
            )
            await observations.insert(conn, project.team_id, project.id, [new])
            if from_event:
                source = NewSource(
                    id=new_id(),
                    observation_id=new.id,
                    source_type="agent_event",
                    source_id=from_event,
                    agent_event_id=from_event,
                    generation_job_id=None,
                )
                await observations.insert_sources(conn, project.team_id, project.id, [source])
            if created_at:
                await conn.execute("UPDATE observations SET created_at = %s WHERE id = %s", [created_at, new.id])
            made = await observations.by_id(conn, project.team_id, new.id)
        assert made is not None
        return made

    async def turn(
        self,
        *,
        project: Project,
        prompt: str = "Why is it slow?",
        reply: str | None = None,
        session: str = "s1",
        actor_id: str = "a",
    ) -> SessionTurn:
        """Stored in the session with that name, with the next number of its team. It has ended when there is a `reply`."""
        turn_id = new_id()
        async with self._db.tenant(project.team_id) as conn:
            stored, _ = await find_or_make(conn, project.team_id, project.id, NewSession(external_session_id=session))
            (number,) = await observations.take_numbers(conn, project.team_id, 1, for_turns=True)
            new = NewTurn(
                id=turn_id,
                number=number,
                project_id=project.id,
                session_id=stored.id,
                event_id=None,
                prompt=prompt,
                reply=reply,
                actor_id=actor_id,
            )
            await turns.insert(conn, project.team_id, new)
            (turn,) = await turns.by_ids(conn, project.team_id, [turn_id])
        return turn

    async def suggestion(self, *, project: Project, left: UUID | str, right: UUID | str) -> UUID:
        """Stored and open: the two observations seem to say the same."""
        suggestion_id = new_id()
        async with self._db.tenant(project.team_id) as conn:
            await conn.execute(
                """
                INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)
                VALUES (%(id)s, %(team)s, %(project)s, least(%(left)s::uuid, %(right)s), greatest(%(left)s::uuid, %(right)s),
                        0.9, 'words', 'same')
                """,
                {"id": suggestion_id, "team": project.team_id, "project": project.id, "left": left, "right": right},
            )
        return suggestion_id

    async def run(
        self,
        *,
        project: Project,
        kind: str = "observations",
        provider: str = "anthropic",
        model: str = "claude-haiku-5-5",
        status: str = "applied",
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        cost_usd: Decimal | str | None = None,
        error: tuple[str, str] | None = None,
        days_ago: int = 0,
    ) -> UUID:
        """A call of a provider, as a worker leaves it; `error` is its class and its message."""
        run_id = new_id()
        async with self._db.system() as conn:
            await conn.execute(
                "INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status,"
                " input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, error_class, error_message,"
                " created_at) VALUES (%s, %s, %s, %s, 1, %s, %s, %s, '{}', %s, %s, %s, %s, %s, %s, %s, %s,"
                " now() - %s * interval '1 day')",
                [
                    *(run_id, project.team_id, project.id, run_id, kind, provider, model, status),
                    *(input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd),
                    *(*(error or (None, None)), days_ago),
                ],
            )
        return run_id


def _list(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)
