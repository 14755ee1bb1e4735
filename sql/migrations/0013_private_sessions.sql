-- A session that is marked private is its person's alone: it lies in a team of their own, which nobody else is in
--
-- Such a private place is a row of teams, of one person in one team. All that is kept of a session has its team, and row-level security
-- lets a transaction see the rows of one team: so no query, count, worker or export of the team's can come by what is private, and
-- nothing that is not private costs more than before. Numbers there begin above all of a team's, so that none means two things.
--
-- How long: milliseconds; no row is read.

ALTER TABLE teams ADD COLUMN private_of uuid REFERENCES teams (id) ON DELETE CASCADE;
ALTER TABLE teams ADD COLUMN private_to uuid REFERENCES users (id) ON DELETE CASCADE;
ALTER TABLE teams ADD CONSTRAINT private_of_and_to CHECK ((private_of IS NULL) = (private_to IS NULL));
CREATE UNIQUE INDEX teams_private ON teams (private_of, private_to) WHERE private_of IS NOT NULL;
CREATE INDEX teams_private_to ON teams (private_to) WHERE private_to IS NOT NULL;
COMMENT ON COLUMN teams.private_of IS 'The team in which this is the private place of a person. NULL for a team of people.';
COMMENT ON COLUMN teams.private_to IS 'The person whose private place it is.';

-- Numbers are told beside those of the team.
CREATE FUNCTION private_numbers_begin() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_counters (team_id, last_number) VALUES (NEW.id, 1000000000);
    RETURN NULL;
END $$;
CREATE TRIGGER private_numbers_begin AFTER INSERT ON teams
    FOR EACH ROW WHEN (NEW.private_of IS NOT NULL) EXECUTE FUNCTION private_numbers_begin();

-- Who keeps something in a private place is nobody but its person: no member, no key and no invitation can be of it.
CREATE FUNCTION private_place_takes_nobody() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM teams WHERE id = NEW.team_id AND private_of IS NOT NULL) THEN
        RAISE check_violation USING CONSTRAINT = 'private_place_takes_nobody', MESSAGE = 'A private place has no members, keys or invitations';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER private_place_takes_nobody BEFORE INSERT OR UPDATE OF team_id ON team_members
    FOR EACH ROW EXECUTE FUNCTION private_place_takes_nobody();
CREATE TRIGGER private_place_takes_nobody BEFORE INSERT OR UPDATE OF team_id ON api_keys
    FOR EACH ROW EXECUTE FUNCTION private_place_takes_nobody();
CREATE TRIGGER private_place_takes_nobody BEFORE INSERT OR UPDATE OF team_id ON invitations
    FOR EACH ROW EXECUTE FUNCTION private_place_takes_nobody();

-- Gives a session to another team, from or into a private place: what it said and what it did goes along, and what was drawn of it alone;
-- then it is erased where it was, with all that is derived of it there. Where others said the same, theirs stays, without it. Returns the
-- numbers of observations that were merged with those of other sessions; nothing is done while there are any.
CREATE FUNCTION give_session(given uuid, team uuid, to_team uuid, to_project uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = given AND team_id = team);
    merged bigint[];
    last   bigint;
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (given);
    merged := gather_moving(held, team, true);
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    CREATE TEMPORARY TABLE given_sessions ON COMMIT DROP AS SELECT * FROM server_sessions WHERE id = given AND team_id = team;
    CREATE TEMPORARY TABLE given_events ON COMMIT DROP AS
        SELECT * FROM agent_events WHERE server_session_id = given AND project_id = held AND team_id = team;
    CREATE TEMPORARY TABLE given_turns ON COMMIT DROP AS SELECT * FROM turns WHERE server_session_id = given AND team_id = team;
    CREATE TEMPORARY TABLE given_jobs ON COMMIT DROP AS
        SELECT * FROM observation_generation_jobs
         WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team AND phase = 'open';
    CREATE TEMPORARY TABLE given_observations ON COMMIT DROP AS
        SELECT * FROM observations o
         WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team
           AND NOT EXISTS (SELECT FROM observation_derivations d WHERE d.derived_observation_id = o.id AND d.team_id = team);
    CREATE TEMPORARY TABLE given_sources ON COMMIT DROP AS
        SELECT * FROM observation_sources
         WHERE observation_id IN (SELECT id FROM given_observations) AND team_id = team
           AND (agent_event_id IS NULL OR agent_event_id IN (SELECT id FROM given_events));
    CREATE TEMPORARY TABLE given_versions ON COMMIT DROP AS
        SELECT * FROM observation_versions
         WHERE observation_id IN (SELECT id FROM given_observations) AND team_id = team AND source_ids = '{}';
    -- What another session has said, too, is that one's from now on, as it said it; this one's copy has another id.
    CREATE TEMPORARY TABLE said_elsewhere ON COMMIT DROP AS
        SELECT DISTINCT ON (o.id) o.id, gen_random_uuid() AS copy, e.server_session_id, e.received_at, n.actor_id
          FROM given_observations o
          JOIN observation_sources s ON s.observation_id = o.id AND s.project_id = held AND s.team_id = team
          JOIN agent_events e ON e.id = s.agent_event_id AND e.server_session_id IS DISTINCT FROM given
          LEFT JOIN server_sessions n ON n.id = e.server_session_id
         ORDER BY o.id, e.received_at;
    DELETE FROM observation_sources s USING said_elsewhere e
     WHERE s.observation_id = e.id AND s.team_id = team
       AND (s.agent_event_id IN (SELECT id FROM given_events) OR s.generation_job_id IN (SELECT id FROM moving));
    UPDATE observations o
       SET server_session_id = e.server_session_id, actor_id = e.actor_id, created_at = e.received_at, created_by_job_id = NULL,
           turn_number = NULL, quote = NULL, quote_event_id = NULL, prompt_number = NULL, updated_at = now()
      FROM said_elsewhere e
     WHERE o.id = e.id AND o.team_id = team
       AND (o.server_session_id = given OR o.created_by_job_id IN (SELECT id FROM moving)
            OR o.quote_event_id IN (SELECT id FROM given_events));
    UPDATE given_observations o SET id = e.copy, server_session_id = given, generation_key = NULL FROM said_elsewhere e WHERE e.id = o.id;
    UPDATE given_sources s SET id = gen_random_uuid(), observation_id = e.copy FROM said_elsewhere e WHERE e.id = s.observation_id;
    DELETE FROM given_versions v USING said_elsewhere e WHERE e.id = v.observation_id;
    DROP TABLE moving;
    -- What was drawn of it for its person stays theirs.
    UPDATE personal_observations SET turn_id = NULL, project_id = NULL WHERE turn_id IN (SELECT id FROM given_turns) AND team_id = team;
    DELETE FROM memory_telemetry
     WHERE team_id = team AND session_id IN (SELECT unnest(ARRAY[id::text, external_session_id, content_session_id]) FROM given_sessions);
    PERFORM erase_session(given, team, false, false);

    INSERT INTO observation_counters (team_id) VALUES (to_team) ON CONFLICT DO NOTHING;
    UPDATE observation_counters
       SET last_number = last_number + (SELECT count(*) FROM given_turns) + (SELECT count(*) FROM given_observations),
           turns = turns + (SELECT count(*) FROM given_turns)
     WHERE team_id = to_team RETURNING last_number INTO last;
    CREATE TEMPORARY TABLE given_numbers ON COMMIT DROP AS
        SELECT number, last + 1 - row_number() OVER (ORDER BY number DESC) AS new
          FROM (SELECT number FROM given_turns UNION ALL SELECT number FROM given_observations) numbers;
    UPDATE given_sessions
       SET origin_project_id = NULL, project_id = to_project, team_id = to_team, idle_from = now(), moved_at = now(), updated_at = now();
    -- Other keys: whoever sends the same where it was learns nothing from a conflict.
    UPDATE given_events
       SET project_id = to_project, team_id = to_team, idempotency_key = split_part(idempotency_key, '@', 1) || '@' || given;
    UPDATE given_turns t SET project_id = to_project, team_id = to_team, number = n.new FROM given_numbers n WHERE n.number = t.number;
    UPDATE given_observations o
       SET project_id = to_project, team_id = to_team, number = n.new, created_by_job_id = NULL,
           turn_number = (SELECT new FROM given_numbers WHERE number = o.turn_number),
           closed_by = (SELECT new FROM given_numbers WHERE number = o.closed_by),
           server_session_id = CASE WHEN server_session_id = given THEN given END,
           quote_event_id = (SELECT id FROM given_events WHERE id = o.quote_event_id),
           superseded_at = CASE WHEN superseded_by IN (SELECT id FROM given_observations) THEN superseded_at END,
           superseded_by = CASE WHEN superseded_by IN (SELECT id FROM given_observations) THEN superseded_by END
      FROM given_numbers n WHERE n.number = o.number;
    UPDATE given_sources SET project_id = to_project, team_id = to_team, generation_job_id = NULL;
    UPDATE given_versions SET project_id = to_project, team_id = to_team;
    SET CONSTRAINTS ALL DEFERRED;
    INSERT INTO server_sessions SELECT * FROM given_sessions;
    INSERT INTO agent_events SELECT * FROM given_events;
    INSERT INTO turns SELECT * FROM given_turns;
    INSERT INTO untraced_turns (turn_id, team_id, project_id)
    SELECT id, to_team, to_project FROM given_turns WHERE ended_at IS NOT NULL ORDER BY created_at, number;
    INSERT INTO observations SELECT * FROM given_observations;
    INSERT INTO observation_sources SELECT * FROM given_sources;
    INSERT INTO observation_versions SELECT * FROM given_versions;
    INSERT INTO observation_generation_jobs
           (id, project_id, team_id, lane, agent_event_id, source_type, source_id, source_run, server_session_id, job_type,
            idempotency_key, max_attempts, payload, size_chars, api_key_id, actor_id, source_adapter, request_id, created_at, waits_for_end)
    SELECT id, to_project, to_team, lane, agent_event_id, source_type, source_id, source_run, server_session_id, job_type,
           idempotency_key, max_attempts, payload, size_chars, api_key_id, actor_id, source_adapter, request_id, created_at, waits_for_end
      FROM given_jobs ORDER BY seq;
    INSERT INTO generation_lanes (lane, team_id, project_id, due_at)
    SELECT DISTINCT lane, to_team, to_project, now() FROM given_jobs ON CONFLICT DO NOTHING;
    PERFORM follow_language(to_project, to_team);
    SET CONSTRAINTS ALL IMMEDIATE;
    DROP TABLE given_sessions, given_events, given_turns, given_jobs, given_observations, given_sources, given_versions, said_elsewhere,
               given_numbers;
    RETURN '{}';
END $$;
REVOKE ALL ON FUNCTION give_session FROM PUBLIC;

-- Who leaves a team takes along what is theirs alone: it is kept for the person for 30 days, whom their account lets in, and is gone from
-- the team with its words and vectors. Requests never read this table.
CREATE TABLE left_memories (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id    uuid NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    left_team  uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    names      text[] NOT NULL,
    content    jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL DEFAULT now() + interval '30 days'
);
CREATE INDEX left_memories_user ON left_memories (user_id);
CREATE INDEX left_memories_team ON left_memories (left_team);
COMMENT ON TABLE left_memories IS 'What people had for themselves in a team that they have left, for them to take along.';
COMMENT ON COLUMN left_memories.names IS 'Under which names they worked there: the person may ask for another one, a former member.';
ALTER TABLE left_memories ENABLE ROW LEVEL SECURITY;

CREATE FUNCTION personal_memory(team uuid, person uuid) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object(
    'personal', (SELECT coalesce(jsonb_agg(jsonb_build_object('name', 'm' || p.number, 'type', p.type, 'content', p.content,
                                                              'state', p.state, 'createdAt', p.created_at)
                                           ORDER BY p.number), '[]')
                   FROM personal_observations p
                  WHERE p.user_id = person
                    AND p.team_id IN (SELECT team UNION ALL SELECT id FROM teams WHERE private_of = team AND private_to = person)),
    'sessions', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                            'id', s.id, 'project', r.canonical_id, 'agent', s.platform_source, 'agentsId', s.external_session_id,
                            'title', s.title, 'startedAt', s.started_at, 'endedAt', s.ended_at,
                            'turns', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                                                 'number', t.number, 'prompt', t.prompt, 'reply', t.reply, 'files', t.files,
                                                 'checks', t.checks, 'commits', t.commits, 'createdAt', t.created_at)
                                             ORDER BY t.created_at, t.number), '[]')
                                        FROM turns t WHERE t.server_session_id = s.id AND t.team_id = s.team_id))
                            ORDER BY s.started_at, s.id), '[]')
                   FROM teams v
                   JOIN server_sessions s ON s.team_id = v.id
                   JOIN projects r ON r.id = s.project_id AND r.team_id = s.team_id
                  WHERE v.private_of = team AND v.private_to = person),
    'observations', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                                'number', o.number, 'project', r.canonical_id, 'session', o.server_session_id, 'type', o.type,
                                'kind', o.kind, 'content', o.content, 'createdAt', o.created_at)
                                ORDER BY o.number), '[]')
                       FROM teams v
                       JOIN observations o ON o.team_id = v.id
                       JOIN projects r ON r.id = o.project_id AND r.team_id = o.team_id
                      WHERE v.private_of = team AND v.private_to = person AND o.superseded_at IS NULL));
REVOKE ALL ON FUNCTION personal_memory FROM PUBLIC;

-- A team that is deleted as a whole is gone by now, and takes all along.
CREATE FUNCTION member_leaves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM teams WHERE id = OLD.team_id) THEN
        RETURN NULL;
    END IF;
    INSERT INTO left_memories (user_id, left_team, names, content)
    SELECT u.id, OLD.team_id, ARRAY[OLD.user_id, u.name], personal_memory(OLD.team_id, u.id) FROM users u WHERE u.id = OLD.account_id;
    DELETE FROM personal_observations WHERE team_id = OLD.team_id AND user_id = OLD.account_id;
    DELETE FROM personal_counters WHERE team_id = OLD.team_id AND user_id = OLD.account_id;
    DELETE FROM teams WHERE private_of = OLD.team_id AND private_to = OLD.account_id;
    RETURN NULL;
END $$;
CREATE TRIGGER member_leaves AFTER DELETE ON team_members
    FOR EACH ROW WHEN (OLD.account_id IS NOT NULL) EXECUTE FUNCTION member_leaves();

-- What somebody gave a team stays, under another name. The audit log keeps theirs.
CREATE FUNCTION rename_actor(team uuid, names text[], new_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE server_sessions SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE turns SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE observations SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE observation_versions SET performed_by = new_name WHERE team_id = team AND performed_by = ANY(names);
    UPDATE observation_generation_jobs SET actor_id = new_name WHERE team_id = team AND actor_id = ANY(names);
    UPDATE consolidation_suggestions SET resolved_by = new_name WHERE team_id = team AND resolved_by = ANY(names);
END $$;
REVOKE ALL ON FUNCTION rename_actor FROM PUBLIC;
