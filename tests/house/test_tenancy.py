"""One team never sees another: tried out as the tenant's role, on every table with a team_id, with rows of two teams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString
from uuid import UUID

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.rows import scalar_row

from cmserver.base.ids import new_id
from tests.house.house import has_vectors

OURS, THEIRS = new_id(), new_id()

ROWS: dict[str, LiteralString] = {
    "teams": "INSERT INTO teams (id, name) VALUES (%(team)s, %(name)s)",
    "projects": "INSERT INTO projects (id, team_id, canonical_id, name) VALUES (%(id)s, %(team)s, %(name)s, 'orders')",
    "project_aliases": "INSERT INTO project_aliases (team_id, alias, project_id) VALUES (%(team)s, %(name)s, %(project)s)",
    "team_members": "INSERT INTO team_members (team_id, user_id, role) VALUES (%(team)s, %(name)s, 'owner')",
    "api_keys": "INSERT INTO api_keys (id, key_hash, team_id, actor_id) VALUES (%(id)s, %(name)s, %(team)s, 'alice')",
    "invitations": """
        INSERT INTO invitations (id, team_id, role, token_hash, invited_by, expires_at)
        VALUES (%(id)s, %(team)s, 'viewer', %(name)s, 'alice', now() + interval '1 day')
    """,
    "rate_limits": """
        INSERT INTO rate_limits (id, team_id, per_minute, tokens, refilled_at) VALUES (%(id)s, %(team)s, 60, 60, now())
    """,
    "usage_counters": """
        INSERT INTO usage_counters (team_id, month, kind, api_key_id, amount)
        VALUES (%(team)s, '2026-09-01', 'events', %(api_keys)s, 7)
    """,
    "budgets": "INSERT INTO budgets (id, team_id, project_id, period, max_tokens) VALUES (%(id)s, %(team)s, %(project)s, 'day', 9)",
    "pins": """
        INSERT INTO pins (id, team_id, project_id, number, question, must, must_not, lines, on_break, from_file, holds)
        VALUES (%(id)s, %(team)s, %(project)s, (SELECT count(*) + 1 FROM pins), %(name)s, '{a}', '{}', 5, 'report',
                false, true)
    """,
    "replays": """
        INSERT INTO replays (id, team_id, project_id, number, provider, program, session_count, event_count)
        VALUES (%(id)s, %(team)s, %(project)s, (SELECT count(*) + 1 FROM replays), 'offline', '1', 1, 1)
    """,
    "audit_log": "INSERT INTO audit_log (team_id, action, resource_type) VALUES (%(team)s, 'observation.read', 'observation')",
    "server_sessions": "INSERT INTO server_sessions (id, project_id, team_id) VALUES (%(id)s, %(project)s, %(team)s)",
    "agent_events": """
        INSERT INTO agent_events (id, project_id, team_id, source_adapter, idempotency_key, event_type, origin, generate,
                                  size_chars, payload, occurred_at)
        VALUES (%(id)s, %(project)s, %(team)s, 'api', %(name)s, 'tool_use', 'api', true, 2, '{}', now())
    """,
    "turns": """
        INSERT INTO turns (id, number, team_id, project_id, server_session_id, agent_event_id, prompt_number, prompt)
        VALUES (%(id)s, 1, %(team)s, %(project)s, %(server_sessions)s, %(agent_events)s, 1, 'add a retry')
    """,
    "turn_sentences": "INSERT INTO turn_sentences (turn_id, team_id, project_id) VALUES (%(turns)s, %(team)s, %(project)s)",
    "turn_traces": """
        INSERT INTO turn_traces (team_id, project_id, turn_id, kind, name) VALUES (%(team)s, %(project)s, %(turns)s, 'edit', 'a.py')
    """,
    "untraced_turns": "INSERT INTO untraced_turns (turn_id, team_id, project_id) VALUES (%(turns)s, %(team)s, %(project)s)",
    "turn_ledger": """
        INSERT INTO turn_ledger (team_id, earlier_id, earlier_project_id, later_id, later_project_id, kind, name, token)
        VALUES (%(team)s, %(turns)s, %(project)s, %(turns)s, %(project)s, 'edit', 'a.py', 1)
    """,
    "steward_modes": "INSERT INTO steward_modes (team_id, mode, changed_by) VALUES (%(team)s, 'dry_run', 'alice')",
    "steward_runs": """
        INSERT INTO steward_runs (id, team_id, project_id, job_type, attempt, status, completed_at)
        VALUES (%(id)s, %(team)s, %(project)s, 'policy_tune', 1, 'skipped', now())
    """,
    "observation_derivations": """
        INSERT INTO observation_derivations (id, team_id, project_id, fingerprint, source_observation_ids, derivation_type,
                                             confidence, novelty, status)
        VALUES (%(id)s, %(team)s, %(project)s, %(name)s, '{}', 'recurring_failure', 0.9, 0.9, 'candidate')
    """,
    "steward_policy_history": """
        INSERT INTO steward_policy_history (id, team_id, policy_key, prior_value, new_value, reason, changed_by)
        VALUES (%(id)s, %(team)s, 'derive.novelty', 0.2, 0.21, 'most_kept', 'steward')
    """,
    "generation_lanes": "INSERT INTO generation_lanes (lane, team_id, project_id) VALUES (%(id)s, %(team)s, %(project)s)",
    "observation_generation_jobs": """
        INSERT INTO observation_generation_jobs (id, project_id, team_id, lane, source_type, source_id, job_type, idempotency_key)
        VALUES (%(id)s, %(project)s, %(team)s, %(id)s, 'session_summary', %(id)s, 'observation_generate_session_summary', %(name)s)
    """,
    "observation_generation_job_events": """
        INSERT INTO observation_generation_job_events (team_id, project_id, generation_job_id, event_type, status_after)
        VALUES (%(team)s, %(project)s, %(observation_generation_jobs)s, 'queued', 'queued')
    """,
    "generation_runs": """
        INSERT INTO generation_runs (id, team_id, project_id, lane, claim, kind, provider, model, job_ids, status)
        VALUES (%(id)s, %(team)s, %(project)s, %(id)s, 1, 'summary', 'offline', 'rules', '{}', 'applied')
    """,
    "generation_spending": """
        INSERT INTO generation_spending VALUES (%(team)s, '2026-09-01', %(id)s, 'anthropic', %(name)s, 1, 0, 0, 10, 5, 0, 0, 0.25)
    """,
    "observation_counters": "INSERT INTO observation_counters (team_id, last_number) VALUES (%(team)s, 1)",
    "observations": """
        INSERT INTO observations (id, number, project_id, team_id, origin, content, title)
        VALUES (%(id)s, 1, %(project)s, %(team)s, 'model', 'secret', %(name)s)
    """,
    "observation_embeddings": """
        INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id)
        SELECT %(observations)s, id, %(team)s, %(project)s FROM embedding_models
        ON CONFLICT DO NOTHING -- the observation's trigger was here
    """,
    "embedding_calibrations": """
        INSERT INTO embedding_calibrations (team_id, model_id, intercept, slope, titles)
        SELECT %(team)s, id, -7, 22, 50 FROM embedding_models
    """,
    "observation_versions": """
        INSERT INTO observation_versions (id, team_id, project_id, observation_id, version, action, before, performed_by)
        VALUES (%(id)s, %(team)s, %(project)s, %(observations)s, 2, 'corrected', '{}', 'alice')
    """,
    "observation_relationships": """
        WITH other AS (
            INSERT INTO observations (id, number, project_id, team_id, origin, content)
            VALUES (gen_random_uuid(), 2, %(project)s, %(team)s, 'model', 'secret, too') RETURNING id
        )
        INSERT INTO observation_relationships (id, team_id, from_id, from_project_id, to_id, to_project_id, relationship)
        SELECT %(id)s, %(team)s, %(observations)s, %(project)s, id, %(project)s, 'CAUSES' FROM other
    """,
    "consolidation_suggestions": """
        INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)
        SELECT %(id)s, %(team)s, %(project)s, min(id::text)::uuid, max(id::text)::uuid, 0.9, 'words', 'same'
          FROM observations WHERE project_id = %(project)s
    """,
    "entities": """
        INSERT INTO entities (id, team_id, project_id, type, name, folded_name, found_by)
        VALUES (%(id)s, %(team)s, %(project)s, 'symbol', %(name)s, %(name)s, 'people')
    """,
    "entity_mentions": """
        INSERT INTO entity_mentions (observation_id, named_id, entity_id, team_id, project_id, found_by, seen_at)
        VALUES (%(observations)s, %(entities)s, %(entities)s, %(team)s, %(project)s, 'rules', now())
    """,
    "entity_relations": """
        WITH other AS (
            INSERT INTO entities (id, team_id, project_id, type, name, folded_name, found_by)
            VALUES (gen_random_uuid(), %(team)s, %(project)s, 'file', %(name)s, %(name)s, 'people') RETURNING id
        )
        INSERT INTO entity_relations (id, team_id, project_id, from_id, to_id, label)
        SELECT %(id)s, %(team)s, %(project)s, %(entities)s, id, 'lives in' FROM other
    """,
    "entity_relation_evidence": """
        INSERT INTO entity_relation_evidence (relation_id, observation_id, project_id, team_id)
        VALUES (%(entity_relations)s, %(observations)s, %(project)s, %(team)s)
    """,
    "project_overviews": """
        INSERT INTO project_overviews (id, project_id, team_id, body, made_at)
        VALUES (%(id)s, %(project)s, %(team)s, %(name)s, now())
    """,
    "entity_rereads": "INSERT INTO entity_rereads (place_id, team_id) VALUES (%(observations)s, %(team)s)",
    "memory_telemetry": """
        INSERT INTO memory_telemetry (team_id, project_id, event_type, query_text)
        VALUES (%(team)s, %(project)s, 'recall_attempt', 'secret')
    """,
    "project_joined_rows": """
        INSERT INTO project_joined_rows (project_id, row_id, team_id) VALUES (%(project)s, %(id)s, %(team)s)
    """,
    "clones": "INSERT INTO clones (project_id, team_id, clone_id, head) VALUES (%(project)s, %(team)s, %(id)s, %(name)s)",
    "rule_approvals": """
        INSERT INTO rule_approvals (observation_id, team_id, project_id) VALUES (%(observations)s, %(team)s, %(project)s)
    """,
    "handoffs": """
        INSERT INTO handoffs (team_id, project_id, to_user, from_user, branch)
        VALUES (%(team)s, %(project)s, 'team_members of ' || %(team)s::text, 'team_members of ' || %(team)s::text, %(name)s)
    """,
    "read_positions": "INSERT INTO read_positions (name, team_id, read_to) VALUES ('entities', %(team)s, 1)",
    "context_injections": """
        INSERT INTO context_injections (id, team_id, project_id, server_session_id, reason, numbers, summary_numbers, left_out,
                                        left_out_count, tokens, budget_tokens, chars)
        VALUES (%(id)s, %(team)s, %(project)s, %(server_sessions)s, 'startup', '{1}', '{}', '{}', 0, 10, 2000, 40)
    """,
    "past_values": """
        INSERT INTO past_values (team_id, project_id, turn_id, kind, before)
        VALUES (%(team)s, %(project)s, %(turns)s, 'turn', '{"reply": null}')
    """,
    "personal_counters": "INSERT INTO personal_counters (team_id, user_id) VALUES (%(team)s, %(team)s)",
    "personal_observations": """
        INSERT INTO personal_observations (id, team_id, user_id, number, type, content, actor_id)
        VALUES (%(id)s, %(team)s, %(team)s, (SELECT count(*) + 1 FROM personal_observations), 'rule', %(name)s, 'alice')
    """,
    "retention_counts": "INSERT INTO retention_counts (team_id, kind, row_count) VALUES (%(team)s, %(name)s, 1)",
    "observation_sources": """
        INSERT INTO observation_sources (id, team_id, project_id, observation_id, source_type, source_id)
        VALUES (%(id)s, %(team)s, %(project)s, %(observations)s, 'manual', %(id)s)
    """,
    "replay_lines": """
        INSERT INTO replay_lines (id, team_id, replay_id, project_id, server_session_id, place, difference, what, after)
        VALUES (%(id)s, %(team)s, %(replays)s, %(project)s, %(server_sessions)s, 1, 'new', 'observation', '{}')
    """,
}
"""One row of each table with a team, in an order in which they can be inserted."""

ROW_COUNTS = {"observations": 2, "observation_embeddings": 2, "entities": 2}
"""Where that makes more than one: a relation has two ends."""


VIEWS = ["observations_in_team", "turns_in_team"]
"""What the tenant reads past the policies."""


def fill(conn: psycopg.Connection, team: UUID) -> dict[str, UUID]:
    """A row in every table; the ids that the later ones refer to."""
    known: dict[str, UUID] = {"team": team}
    conn.execute("INSERT INTO users (id, name) VALUES (%s, %s)", [team, f"person of {team}"])  # with the id of the team
    conn.execute(
        "INSERT INTO embedding_models (provider, model, state) SELECT 'ollama', 'one', 'current'"
        " WHERE NOT EXISTS (SELECT FROM embedding_models)"
    )
    for table, statement in ROWS.items():
        known[table] = new_id()
        conn.execute(statement, {**known, "id": known[table], "name": f"{table} of {team}", "project": known.get("projects")})
    if has_vectors(conn):
        conn.execute("UPDATE observation_embeddings SET embedding = '[1,0]'")  # else nothing near is ever found
    return known


@pytest.fixture
def owner(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
def theirs(owner: psycopg.Connection) -> dict[str, UUID]:
    fill(owner, OURS)
    return fill(owner, THEIRS)


@pytest.fixture
def tenant(database: str, theirs: dict[str, UUID]) -> Iterator[psycopg.Connection]:
    """Our team's connection, in a transaction."""
    with psycopg.connect(database, options="-c role=cmserver_tenant") as conn:
        conn.execute("SELECT set_config('cmserver.team_id', %s, true)", [str(OURS)])
        conn.execute("SELECT set_config('cmserver.user_id', %s, true)", [str(OURS)])  # who has the id of the team
        yield conn
        conn.rollback()


def may(conn: psycopg.Connection, privilege: str) -> list[str]:
    """The tables of ROWS on which the tenant has the privilege."""
    with conn.cursor(row_factory=scalar_row) as cursor:
        return [
            table
            for table in ROWS
            if cursor.execute("SELECT has_table_privilege('cmserver_tenant', %s, %s)", [table, privilege]).fetchone()
        ]


def team_column(table: str) -> str:
    return "id" if table == "teams" else "team_id"


def count(conn: psycopg.Connection, statement: LiteralString, table: str, *params: object) -> int:
    """The rows that the statement touches. {table} and {team} are filled in."""
    return conn.execute(
        sql.SQL(statement).format(table=sql.Identifier(table), team=sql.Identifier(team_column(table))), params
    ).rowcount


def test_there_is_a_row_for_every_table_with_a_team(owner: psycopg.Connection):
    with owner.cursor(row_factory=scalar_row) as cursor:
        tables = cursor.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
            "WHERE c.relkind IN ('r', 'p') AND a.attname = 'team_id' AND c.relnamespace = 'public'::regnamespace"
        ).fetchall()

    assert ROWS.keys() - {"teams"} == set(tables), "add a statement to ROWS for each new table"


def test_a_team_sees_its_own_rows_and_no_others(tenant: psycopg.Connection):
    for table in [*may(tenant, "SELECT"), *VIEWS]:
        assert count(tenant, "SELECT FROM {table} WHERE {team} = %s", table, OURS) > 0, table
        assert count(tenant, "SELECT FROM {table} WHERE {team} <> %s", table, OURS) == 0, table


def test_a_team_changes_and_deletes_no_rows_of_another(tenant: psycopg.Connection):
    for table in may(tenant, "UPDATE"):
        assert count(tenant, "UPDATE {table} SET {team} = {team} WHERE {team} = %s", table, THEIRS) == 0, table
        assert count(tenant, "UPDATE {table} SET {team} = {team}", table) == ROW_COUNTS.get(table, 1), table
    for table in may(tenant, "DELETE"):
        assert count(tenant, "DELETE FROM {table} WHERE {team} = %s", table, THEIRS) == 0, table


def test_a_team_cannot_insert_a_row_for_another(tenant: psycopg.Connection, theirs: dict[str, UUID]):
    for table in may(tenant, "INSERT"):
        row = {**theirs, "id": new_id(), "name": f"another of {table}", "project": theirs["projects"]}

        with pytest.raises(errors.InsufficientPrivilege, match="violates row-level security"), tenant.transaction():
            tenant.execute(ROWS[table], row)


def test_a_team_cannot_give_a_row_away(tenant: psycopg.Connection):
    for table in may(tenant, "UPDATE"):
        with pytest.raises(errors.InsufficientPrivilege, match="violates row-level security"), tenant.transaction():
            count(tenant, "UPDATE {table} SET {team} = %s WHERE {team} = %s", table, THEIRS, OURS)


def test_a_team_cannot_attach_a_row_of_its_own_to_one_of_another(tenant: psycopg.Connection, theirs: dict[str, UUID]):
    """A foreign key is checked past row-level security: it would also tell whether an id exists."""
    for table, reference in {"server_sessions": "projects", "observation_sources": "observations"}.items():
        row = {**theirs, "team": OURS, "id": new_id(), "name": "ours", "project": theirs["projects"]}

        with pytest.raises(errors.ForeignKeyViolation, match="fkey"), tenant.transaction():
            tenant.execute(ROWS[table], {**row, reference: theirs[reference]})


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_team_nothing_is_visible(database: str, theirs: dict[str, UUID], value: str | None):
    with psycopg.connect(database, options="-c role=cmserver_tenant") as conn:
        if value is not None:  # what an ended transaction leaves behind
            conn.execute("SELECT set_config('cmserver.team_id', %s, false)", [value])

        for table in [*may(conn, "SELECT"), *VIEWS]:
            assert count(conn, "SELECT FROM {table}", table) == 0, table


def test_what_the_tenant_was_not_granted_stays_closed(tenant: psycopg.Connection):
    for table in [
        "installation",
        "provider_pauses",
        "schema_migrations",
        "procrastinate_workers",
        "failed_jobs",
    ]:
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied"), tenant.transaction():
            count(tenant, "SELECT FROM {table}", table)


def test_resetting_the_role_or_all_settings_does_not_make_a_tenant_the_owner(database: str):
    with psycopg.connect(database, options="-c role=cmserver_tenant", autocommit=True) as conn:
        for statement in ("RESET ROLE", "RESET ALL", "SET SESSION AUTHORIZATION DEFAULT"):
            conn.execute(statement)

            assert conn.execute("SELECT current_user").fetchone() == ("cmserver_tenant",), statement


@pytest.mark.parametrize("person", [None, "", str(THEIRS)], ids=["unset", "ended", "another"])
def test_what_is_a_persons_alone_is_no_other_persons_of_the_team(tenant: psycopg.Connection, person: str | None):
    if person is None:
        tenant.execute("RESET ALL")
        tenant.execute("SELECT set_config('cmserver.team_id', %s, true)", [str(OURS)])
    else:
        tenant.execute("SELECT set_config('cmserver.user_id', %s, true)", [person])

    for table in ("personal_counters", "personal_observations"):
        assert count(tenant, "SELECT FROM {table}", table) == 0, table
        assert count(tenant, "UPDATE {table} SET {team} = {team}", table) == 0, table
    assert count(tenant, "DELETE FROM {table}", "personal_observations") == 0
