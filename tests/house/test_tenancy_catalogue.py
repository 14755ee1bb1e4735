"""One team never sees another: what the catalogue must say for that, whatever a migration adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from tests.conftest import Server

POLICY = "(team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid)"
POLICY_READ_ONCE = "(team_id = ( SELECT (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid AS \"nullif\"))"
READ_ONCE = {"observation_embeddings": "compared by the ten thousand: the team is read once, not for each row"}
POLICY_OF_TEAMS = POLICY.replace("team_id =", "id =", 1)

POLICY_OF_PERSON = f"({POLICY} AND {POLICY.replace('team_id', 'user_id')})"
OF_PERSONS = {"personal_counters", "personal_observations"}
"""What is a person's alone: the policy is on team and person."""

ALL_WORDS = """(( SELECT
        CASE
            WHEN (pg_trigger_depth() > 0) THEN ''::text
            ELSE COALESCE(current_setting('cmserver.words'::text, true), ''::text)
        END AS "coalesce") <> 'own'::text)"""
OF_READER = "(person_id IS NULL) OR ((person_id)::text = current_setting('cmserver.reader'::text, true))"
WORDS = {
    "server_sessions": OF_READER,
    "agent_events": "reads_session(server_session_id)",
    "turns": "reads_session(server_session_id)",
    "turn_sentences": "reads_turn(turn_id)",
    "turn_traces": "reads_turn(turn_id)",
    "turn_ledger": "(reads_turn(earlier_id) AND reads_turn(later_id))",
    "observations": OF_READER,
    "observation_sources": "reads_observation(observation_id)",
    "observation_versions": "reads_observation(observation_id)",
    "observation_relationships": "(reads_observation(from_id) AND reads_observation(to_id))",
    "consolidation_suggestions": "(reads_observation(left_id) AND reads_observation(right_id))",
    "past_values": "reads_observation(observation_id) OR reads_turn(turn_id)",
    "observation_embeddings": "reads_observation(observation_id) OR reads_turn(turn_id)",
    "context_injections": "reads_session(server_session_id)",
    "observation_generation_jobs": "reads_job(id)",
    "observation_generation_job_events": "reads_job(generation_job_id)",
    "generation_runs": "(answer IS NULL) OR reads_session(lane)",
    "replay_lines": "reads_session(server_session_id)",
    "memory_telemetry": "",
    "entities": "",
    "entity_mentions": "",
    "entity_relations": "",
    "entity_relation_evidence": "",
    "project_overviews": "",
    "observation_derivations": "",
    "steward_runs": "",
}
"""The tables that hold words, or were made of them, and of which rows a reader sees who may not read all; "" is none."""

NO_WORDS = {
    "api_keys": "names and scopes",
    "audit_log": "ids and names, never texts",
    "budgets": "amounts",
    "clones": "what git says of files and commits, which every clone has",
    "embedding_calibrations": "numbers",
    "entity_rereads": "ids",
    "generation_lanes": "ids and times",
    "generation_spending": "amounts",
    "handoffs": "who gives the page of a branch to whom; the page is made as its reader may read it",
    "invitations": "who is invited",
    "observation_counters": "numbers",
    "personal_counters": "numbers",
    "personal_observations": "a person's alone, whoever reads others' words",
    "pins": "what people ask for the team; whether they hold is found out as somebody who reads what is nobody's",
    "project_aliases": "names of projects",
    "project_joined_rows": "ids",
    "projects": "names of projects",
    "rate_limits": "numbers",
    "read_positions": "numbers",
    "replays": "counts and times",
    "retention_counts": "numbers",
    "rule_approvals": "ids and states",
    "steward_modes": "what the steward may do",
    "steward_policy_history": "thresholds and the counts behind them",
    "team_members": "names",
    "teams": "is the team itself",
    "untraced_turns": "ids",
    "usage_counters": "numbers",
    "left_memories": "a person's, who is in the team no more; the owner's pool alone reads it",
}
"""The tables of teams without a word of what somebody or their agents said, and why."""

NO_TEAM = {
    "teams": "is the team itself; its policy is on id",
    "schema_migrations": "the database's own",
    "installation": "the database's own",
    "embedding_models": "one model embeds the texts of all teams",
    "provider_pauses": "a quota or a bad key stops a provider for everybody",
    "generation_workers": "a worker works for every team",
    "users": "a person may belong to several teams; the owner's pool alone reads it",
    "left_memories": "a person's, who is in the team no more; the owner's pool alone reads it",
    "web_sessions": "a person's, whichever team they look at; the owner's pool alone reads it",
}
"""The tables without a team_id, and why. The tables of procrastinate, which know ids only, come on top."""

TEAM_MAY_BE_NULL = {"read_positions": "a place in a log of all teams, which no request sees"}

NO_TEAM_IN_KEY = {
    "agent_events (idempotency_key)": "a hash that contains the project's id",
    "api_keys (key_hash)": "looked up before the team is known",
    "invitations (token_hash)": "looked up before the team is known",
    "audit_log (id)": "a number of the database's",
    "memory_telemetry (id)": "a number of the database's",
    "observation_generation_job_events (id)": "a number of the database's",
    "entity_rereads (place_id)": "the id of an observation or of a turn",
    "generation_lanes (lane)": "the id of a session, of a project, or of a job",
    "observation_generation_jobs (source_id, source_type, job_type, source_run)": "the id of what it is about, or of a project",
    "server_sessions (coalesce, coalesce1, external_session_id)": "the id of a project, in an expression",
}
"""The unique keys of teams' tables that carry no team and refer to no row that does, and why."""

VIEWS = {
    "observations_in_team": "the tenant's: search can use no index under the policy, so the team is in its WHERE",
    "turns_in_team": "the tenant's, for the same reason",
    "work_in_team": "the tenant's: what others did, without a word of it",
    "session_of_job_in_team": "the tenant's: ids, for the policy `words` of jobs, which cannot read behind itself",
    "queue_overview": "operators only",
    "queue_totals": "operators only",
    "lane_overview": "operators only",
    "failed_jobs": "operators only",
    "worker_overview": "operators only",
    "spend_by_project": "operators only",
    "consolidation_log": "operators only",
}
"""A view reads with its owner's eyes, past every policy, unless it is said to read with those of who asks: each has its reason."""

WITHOUT_WORDS = {"session_of_job_in_team"}
"""Those of the tenant's that show the same whichever words may be read."""

READ = {"SELECT"}
ADD = READ | {"INSERT"}
CHANGE = ADD | {"UPDATE"}
ALL = CHANGE | {"DELETE"}
GRANTS = {
    "agent_events": ADD | {"DELETE"},
    "api_keys": ALL,
    "audit_log": ADD,
    "budgets": ALL,
    "clones": ALL,
    "consolidation_suggestions": ALL,
    "context_injections": ALL,
    "embedding_calibrations": CHANGE,
    "embedding_models": READ,
    "entities": ALL,
    "entity_mentions": ALL,
    "entity_relation_evidence": ALL,
    "entity_relations": ALL,
    "entity_rereads": ADD | {"DELETE"},
    "generation_lanes": ALL,
    "generation_runs": READ | {"DELETE"},
    "generation_spending": READ,
    "handoffs": ALL,
    "memory_telemetry": ADD | {"DELETE"},
    "observation_counters": CHANGE,
    "observation_derivations": ALL,
    "observation_embeddings": ALL,
    "observation_generation_job_events": ADD,
    "observation_generation_jobs": ALL,
    "observation_relationships": ALL,
    "observation_sources": ALL,
    "observation_versions": ALL,
    "observations": ALL,
    "observations_in_team": READ,
    "observations_that_are_read": READ,
    "past_values": ADD | {"DELETE"},
    "personal_counters": CHANGE,
    "personal_observations": ALL,
    "pins": ALL,
    "project_aliases": ALL,
    "project_overviews": ALL,
    "projects": ALL,
    "rate_limits": ALL,
    "read_positions": CHANGE,
    "replay_lines": ALL,
    "replays": ALL,
    "rule_approvals": CHANGE,
    "server_sessions": ALL,
    "session_of_job_in_team": READ,
    "steward_events": READ,
    "steward_jobs": READ,
    "steward_modes": ALL,
    "steward_policy_history": ADD,
    "steward_runs": CHANGE,
    "turn_sentences": CHANGE,
    "turn_ledger": READ,
    "turn_traces": READ,
    "turns": ALL,
    "turns_in_team": READ,
    "turns_that_are_read": READ,
    "team_members": ADD,
    "teams": ALL,
    "untraced_turns": READ,
    "work_in_team": READ,
    "usage_counters": CHANGE,
}
"""All that the tenant's role may do."""


def rows(conn: psycopg.Connection, query: LiteralString) -> list[tuple[Any, ...]]:
    return conn.execute(query).fetchall()


def tables_without_policy(conn: psycopg.Connection) -> Iterator[str]:
    found = rows(
        conn,
        """
        SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,
               EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'team_id' AND NOT a.attisdropped),
               EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'team_id' AND a.attnotnull),
               ARRAY(SELECT format('%s %s %s %s %s', polcmd, polpermissive, polroles, pg_get_expr(polqual, polrelid),
                                   coalesce(pg_get_expr(polwithcheck, polrelid), ''))
                       FROM pg_policy p WHERE p.polrelid = c.oid AND polname <> 'words')
          FROM pg_class c
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'm', 'f')
           AND c.relname NOT LIKE 'procrastinate\\_%'
         ORDER BY c.relname
        """,
    )
    for name, enabled, forced, has_team, never_null, policies in found:
        if not has_team and name not in NO_TEAM:
            yield f"{name} has no team_id and no reason in NO_TEAM"
        if has_team and not never_null and name not in TEAM_MAY_BE_NULL:
            yield f"{name}.team_id may be NULL"
        if not has_team and name != "teams":
            continue
        expected = POLICY_OF_TEAMS if name == "teams" else POLICY_READ_ONCE if name in READ_ONCE else POLICY
        expected = POLICY_OF_PERSON if name in OF_PERSONS else expected
        if not enabled or forced:
            yield f"{name}: row-level security must be ENABLED and not FORCED"
        if policies != [f"* t {{0}} {expected} "]:
            yield f"{name}: its one policy must be USING {expected}; it has {policies}"


def tables_with_words(conn: psycopg.Connection) -> Iterator[str]:
    """Whatever somebody or their agents said stands behind the policy `words`; each table of teams is in WORDS or NO_WORDS."""
    found = rows(
        conn,
        """
        SELECT c.relname, (SELECT format('%s %s %s %s', polcmd, polpermissive, polroles, pg_get_expr(polqual, polrelid))
                             FROM pg_policy p WHERE p.polrelid = c.oid AND polname = 'words')
          FROM pg_class c
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relrowsecurity
         ORDER BY c.relname
        """,
    )
    for name, policy in found:
        if (name in WORDS) == (name in NO_WORDS):
            yield f"{name} must be in WORDS, or in NO_WORDS with the reason why no word of anybody's is in it"
        condition = f"({ALL_WORDS} OR {WORDS[name]})" if WORDS.get(name) else ALL_WORDS
        expected = f"r f {{0}} {condition}" if name in WORDS else None
        if policy != expected:
            yield f"{name}: its policy `words` must be {expected}; it is {policy}"
    yield from (f"{name} is no such table" for name in sorted((WORDS.keys() | NO_WORDS.keys()) - {name for name, _ in found}))


def foreign_keys_past_the_policy(conn: psycopg.Connection) -> Iterator[str]:
    """A foreign key is checked past row-level security: without the team in it, one team could attach to another's row."""
    found = rows(
        conn,
        """
        SELECT c.conrelid::regclass::text, c.conname, c.confrelid::regclass::text,
               ARRAY(SELECT a.attname || ' = ' || b.attname
                       FROM unnest(c.conkey, c.confkey) AS pair(mine, other)
                       JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = pair.mine
                       JOIN pg_attribute b ON b.attrelid = c.confrelid AND b.attnum = pair.other)
          FROM pg_constraint c
         WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace
           AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.conrelid AND a.attname = 'team_id')
           AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.confrelid AND a.attname = 'team_id')
        """,
    )
    for table, name, other, pairs in found:
        if "team_id = team_id" not in pairs:
            yield f"{table}: the reference {name} to {other} must carry team_id"


def unique_keys_without_team(conn: psycopg.Connection) -> Iterator[str]:
    """Teams must not get in each other's way; and other keys than these could be kept by each of several databases.

    A key carries the team, or it is a UUID that we make, or it refers to a row that carries the team: an observation's version.
    """
    found = rows(
        conn,
        """
        SELECT c.relname || ' (' || string_agg(a.attname, ', ' ORDER BY a.attnum) || ')'
          FROM pg_index x
          JOIN pg_class c ON c.oid = x.indrelid
          JOIN pg_attribute a ON a.attrelid = x.indexrelid AND a.attnum <= x.indnkeyatts
         WHERE x.indisunique AND c.relnamespace = 'public'::regnamespace
           AND EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attname = 'team_id' AND NOT t.attisdropped)
         GROUP BY x.indexrelid, c.oid
        HAVING NOT bool_or(
            a.attname = 'team_id'
            OR (a.atttypid = 'uuid'::regtype AND a.attname = 'id')
            OR EXISTS (SELECT FROM pg_constraint f
                         JOIN pg_attribute m ON m.attrelid = f.conrelid AND m.attnum = ANY(f.conkey) AND m.attname = a.attname
                        WHERE f.conrelid = c.oid AND f.contype = 'f'
                          AND EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = f.confrelid AND t.attname = 'team_id')))
        """,
    )
    there = {key for (key,) in found}
    yield from (
        f"{key} is unique in the whole database and has no reason in NO_TEAM_IN_KEY"
        for key in sorted(there - NO_TEAM_IN_KEY.keys())
    )
    yield from (f"{key} is no such key any more" for key in sorted(NO_TEAM_IN_KEY.keys() - there))


def views_without_reason(conn: psycopg.Connection) -> Iterator[str]:
    found = rows(
        conn,
        """
        SELECT c.relname, pg_get_viewdef(c.oid) FROM pg_class c
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v'
           AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
           AND NOT 'security_invoker=true' = ANY(coalesce(c.reloptions, '{}'))
        """,
    )
    for name, text in found:
        if name not in VIEWS:
            yield f"{name} has no reason in VIEWS"
        if name in GRANTS and POLICY.strip("()") not in text:
            yield f"{name} is granted to the tenant and does not name the team"
        if name in GRANTS and name not in WITHOUT_WORDS and "current_setting('cmserver.words'::text, true)" not in text:
            yield f"{name} is granted to the tenant and does not ask which words may be read"
    yield from (f"{name} is no view any more" for name in sorted(VIEWS.keys() - {name for name, *_ in found}))


def grants_that_differ(conn: psycopg.Connection) -> Iterator[str]:
    found = rows(
        conn,
        """
        SELECT c.relname, array_agg(g.privilege_type ORDER BY g.privilege_type) FROM pg_class c
         CROSS JOIN LATERAL aclexplode(c.relacl) g
         WHERE g.grantee IN (0, 'cmserver_tenant'::regrole) AND c.relnamespace = 'public'::regnamespace
         GROUP BY c.relname
         UNION ALL
        SELECT c.relname || '.' || a.attname, array_agg(g.privilege_type) FROM pg_attribute a
          JOIN pg_class c ON c.oid = a.attrelid CROSS JOIN LATERAL aclexplode(a.attacl) g
         WHERE g.grantee IN (0, 'cmserver_tenant'::regrole) AND c.relnamespace = 'public'::regnamespace
         GROUP BY c.relname, a.attname
        """,
    )
    there = {name: set(privileges) for name, privileges in found}
    for name in sorted(there.keys() | GRANTS.keys()):
        if there.get(name, set()) != GRANTS.get(name, set()):
            yield f"{name}: the tenant has {there.get(name)}, GRANTS says {GRANTS.get(name)}"


def what_the_tenant_must_not_be(conn: psycopg.Connection) -> Iterator[str]:
    owned = rows(
        conn,
        """
        SELECT pg_describe_object(d.classid, d.objid, 0) FROM pg_shdepend d
         WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = 'cmserver_tenant'::regrole AND d.deptype = 'o'
           AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
        """,
    )
    yield from (f"the tenant owns {what}" for (what,) in owned)
    powers = rows(
        conn,
        """
        SELECT p.power FROM pg_roles r CROSS JOIN LATERAL (VALUES
               ('is superuser', r.rolsuper), ('may log in', r.rolcanlogin), ('bypasses row-level security', r.rolbypassrls),
               ('may create roles', r.rolcreaterole),
               ('is member of another role', EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid)),
               ('may create in the schema', has_schema_privilege(r.oid, 'public', 'CREATE'))) AS p(power, has)
         WHERE r.rolname = 'cmserver_tenant' AND p.has
        """,
    )
    yield from (f"the tenant {power}" for (power,) in powers)


def not_leakproof_or_too_powerful(conn: psycopg.Connection) -> Iterator[str]:
    """No enums of ours (their equality is not leakproof: no index under a policy), no function with its owner's rights."""
    found = rows(
        conn,
        """
        SELECT 'enum ' || t.typname FROM pg_type t
         WHERE t.typtype = 'e' AND t.typnamespace = 'public'::regnamespace AND t.typname NOT LIKE 'procrastinate\\_%'
         UNION ALL
        SELECT 'SECURITY DEFINER ' || p.proname FROM pg_proc p WHERE p.prosecdef AND p.pronamespace = 'public'::regnamespace
        """,
    )
    yield from (what for (what,) in found)


Rule = Callable[[psycopg.Connection], Iterator[str]]
RULES: list[Rule] = [
    tables_without_policy,
    tables_with_words,
    foreign_keys_past_the_policy,
    unique_keys_without_team,
    views_without_reason,
    grants_that_differ,
    what_the_tenant_must_not_be,
    not_leakproof_or_too_powerful,
]


@pytest.mark.parametrize("rule", RULES)
def test_the_catalogue_keeps_teams_apart(server: Server, template: str, rule: Rule):
    with psycopg.connect(server.url(template)) as conn:
        assert list(rule(conn)) == []


@pytest.mark.parametrize(
    ("rule", "wrong", "said"),
    [
        (tables_without_policy, "CREATE TABLE colours (id uuid)", ["colours has no team_id and no reason in NO_TEAM"]),
        (
            tables_without_policy,
            "CREATE TABLE colours (team_id uuid)",
            ["colours.team_id may be NULL", "colours: row-level security must be", "colours: its one policy must be"],
        ),
        (tables_without_policy, "ALTER TABLE projects FORCE ROW LEVEL SECURITY", ["projects: row-level security must be"]),
        (tables_without_policy, "CREATE POLICY also ON projects USING (true)", ["projects: its one policy must be"]),
        (
            tables_without_policy,
            "ALTER POLICY team ON teams USING (id = current_setting('cmserver.team_id')::uuid)",
            ["teams: its one policy must be"],
        ),
        (
            foreign_keys_past_the_policy,
            "ALTER TABLE audit_log ADD CONSTRAINT wrong FOREIGN KEY (project_id) REFERENCES api_keys (id)",
            ["audit_log: the reference wrong to api_keys must carry team_id"],
        ),
        (
            foreign_keys_past_the_policy,
            "ALTER TABLE audit_log ADD CONSTRAINT wrong FOREIGN KEY (team_id, project_id) REFERENCES projects (id, team_id)",
            ["audit_log: the reference wrong to projects must carry team_id"],
        ),
        (
            unique_keys_without_team,
            "CREATE UNIQUE INDEX wrong ON projects (canonical_id)",
            ["projects (canonical_id) is unique in the whole database"],
        ),
        (
            unique_keys_without_team,
            "ALTER TABLE api_keys DROP CONSTRAINT api_keys_key_hash_key",
            ["api_keys (key_hash) is no such key any more"],
        ),
        (views_without_reason, "CREATE VIEW all_teams AS SELECT * FROM teams", ["all_teams has no reason in VIEWS"]),
        (
            views_without_reason,
            "CREATE OR REPLACE VIEW observations_in_team AS SELECT * FROM observations",
            [
                "observations_in_team is granted to the tenant and does not name",
                "observations_in_team is granted to the tenant and does not ask",
            ],
        ),
        (views_without_reason, "DROP VIEW failed_jobs", ["failed_jobs is no view any more"]),
        (
            tables_with_words,
            "CREATE TABLE colours (team_id uuid NOT NULL); ALTER TABLE colours ENABLE ROW LEVEL SECURITY",
            ["colours must be in WORDS"],
        ),
        (tables_with_words, "DROP POLICY words ON turns", ["turns: its policy `words` must be"]),
        (
            tables_with_words,
            "DROP POLICY words ON turns; CREATE POLICY words ON turns USING (true)",
            ["turns: its policy `words` must be"],
        ),
        (
            views_without_reason,
            """
            DROP VIEW work_in_team;
            CREATE VIEW work_in_team AS
                SELECT id FROM turns WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
            GRANT SELECT ON work_in_team TO cmserver_tenant
            """,
            ["work_in_team is granted to the tenant and does not ask"],
        ),
        (grants_that_differ, "GRANT SELECT ON failed_jobs TO cmserver_tenant", ["failed_jobs: the tenant has {'SELECT'}"]),
        (grants_that_differ, "GRANT SELECT ON installation TO PUBLIC", ["installation: the tenant has {'SELECT'}"]),
        (grants_that_differ, "GRANT SELECT (secret) ON installation TO cmserver_tenant", ["installation.secret: the tenant has"]),
        (grants_that_differ, "REVOKE ALL ON teams FROM cmserver_tenant", ["teams: the tenant has None"]),
        (
            what_the_tenant_must_not_be,
            "GRANT CREATE ON SCHEMA public TO cmserver_tenant; SET ROLE cmserver_tenant; CREATE TABLE mine (); RESET ROLE",
            ["the tenant owns table mine", "the tenant may create in the schema"],
        ),
        (not_leakproof_or_too_powerful, "CREATE TYPE colour AS ENUM ('red')", ["enum colour"]),
        (
            not_leakproof_or_too_powerful,
            "CREATE FUNCTION peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM teams'",
            ["SECURITY DEFINER peek"],
        ),
    ],
)
def test_each_rule_bites(server: Server, template: str, rule: Rule, wrong: LiteralString, said: list[str]):
    with psycopg.connect(server.url(template)) as conn:
        conn.execute(wrong)

        found = list(rule(conn))
        conn.rollback()

    assert len(found) == len(said)
    for sentence, part in zip(found, said, strict=True):
        assert sentence.startswith(part)
