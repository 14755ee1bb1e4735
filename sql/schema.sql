-- What the database looks like now. Dumped by bin/check --fix, never edited; the tables of procrastinate are left out.

-- Name: cancel_job(uuid); Type: FUNCTION

CREATE FUNCTION public.cancel_job(job uuid) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    now_is text;
    in_lane uuid;
BEGIN
    SELECT status, lane INTO now_is, in_lane FROM observation_generation_jobs WHERE id = job FOR UPDATE;
    IF now_is = 'queued' THEN
        UPDATE observation_generation_jobs SET status = 'cancelled' WHERE id = job;
        PERFORM pg_notify('cmserver_done', in_lane::text);
        RETURN 'cancelled';
    ELSIF now_is = 'processing' THEN
        UPDATE observation_generation_jobs SET cancel_requested_at = coalesce(cancel_requested_at, now()) WHERE id = job;
        PERFORM pg_notify('cmserver_cancel', job::text);
        RETURN 'cancelling';
    END IF;
    RETURN coalesce('nothing to do: the job is ' || now_is, 'no such job');
END $$;

-- Name: FUNCTION cancel_job(job uuid); Type: COMMENT

COMMENT ON FUNCTION public.cancel_job(job uuid) IS 'Ends a queued job at once; a running one is marked, and writes nothing.';

-- Name: count_entity_mentions(uuid[]); Type: FUNCTION

CREATE FUNCTION public.count_entity_mentions(ids uuid[]) RETURNS void
    LANGUAGE sql
    AS $$
    WITH counted AS (
        SELECT e.id, count(DISTINCT m.place_id)::integer AS mentions, min(m.seen_at) AS first_at, max(m.seen_at) AS last_at
          FROM entities e LEFT JOIN entity_mentions m ON m.entity_id = e.id
         WHERE e.id = ANY (ids) GROUP BY e.id
    )
    UPDATE entities e
       SET mention_count = c.mentions, first_seen_at = coalesce(c.first_at, e.first_seen_at),
           last_seen_at = coalesce(c.last_at, e.last_seen_at)
      FROM counted c WHERE c.id = e.id;
$$;

-- Name: FUNCTION count_entity_mentions(ids uuid[]); Type: COMMENT

COMMENT ON FUNCTION public.count_entity_mentions(ids uuid[]) IS 'Counts the mentions of these entities anew.';

-- Name: cut_paragraphs(text, text); Type: FUNCTION

CREATE FUNCTION public.cut_paragraphs(notes text, part text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN place = 0 THEN notes
                ELSE nullif(concat_ws(E'\n\n', nullif(left(notes, greatest(place - 3, 0)), ''),
                                      nullif(substr(notes, place + length(part) + 2), '')), '') END
      FROM (SELECT coalesce(position(E'\n\n' || part || E'\n\n' IN E'\n\n' || notes || E'\n\n'), 0) AS place) p
$$;

-- Name: entities_follow_project(); Type: FUNCTION

CREATE FUNCTION public.entities_follow_project() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.joined_to IS NULL THEN
        PERFORM give_entities_back(OLD.joined_to, NEW.id, NEW.team_id);
    ELSE
        PERFORM move_entities(NEW.id, NEW.joined_to, NEW.team_id, OLD.joined_to IS NULL);
    END IF;
    RETURN NULL;
END $$;

-- Name: entity_mentions_added(); Type: FUNCTION

CREATE FUNCTION public.entity_mentions_added() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE entities e
       SET mention_count = e.mention_count + n.mentions,
           first_seen_at = CASE WHEN e.mention_count = 0 THEN n.first_at ELSE least(e.first_seen_at, n.first_at) END,
           last_seen_at = CASE WHEN e.mention_count = 0 THEN n.last_at ELSE greatest(e.last_seen_at, n.last_at) END
      FROM (SELECT entity_id, min(seen_at) AS first_at, max(seen_at) AS last_at,
                   -- What has two names of an entity counts once.
                   (count(DISTINCT place_id) - count(DISTINCT place_id) FILTER (
                       WHERE EXISTS (SELECT FROM entity_mentions o
                                      WHERE o.entity_id = r.entity_id AND o.seen_at = r.seen_at AND o.place_id = r.place_id
                                        AND NOT EXISTS (SELECT FROM new_rows w WHERE w.place_id = o.place_id
                                                           AND w.named_id = o.named_id))))::integer AS mentions
              FROM new_rows r GROUP BY entity_id) n
     WHERE e.id = n.entity_id;
    RETURN NULL;
END $$;

-- Name: entity_mentions_deleted(); Type: FUNCTION

CREATE FUNCTION public.entity_mentions_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE entities e
       SET mention_count = greatest(0, e.mention_count - o.mentions),
           first_seen_at = coalesce((SELECT min(m.seen_at) FROM entity_mentions m WHERE m.entity_id = e.id), e.first_seen_at),
           last_seen_at = coalesce((SELECT max(m.seen_at) FROM entity_mentions m WHERE m.entity_id = e.id), e.last_seen_at)
      FROM (SELECT entity_id,
                   count(DISTINCT place_id) FILTER (
                       WHERE NOT EXISTS (SELECT FROM entity_mentions m
                                          WHERE m.entity_id = r.entity_id AND m.seen_at = r.seen_at
                                            AND m.place_id = r.place_id))::integer AS mentions
              FROM old_rows r GROUP BY entity_id) o
     WHERE e.id = o.entity_id;
    DELETE FROM entities e
     USING (SELECT DISTINCT named_id FROM old_rows) o
     WHERE e.id = o.named_id AND e.found_by <> 'people' AND e.merged_into IS NULL
       AND NOT EXISTS (SELECT FROM entity_mentions m WHERE m.entity_id = e.id)
       AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
    RETURN NULL;
END $$;

-- Name: entity_waits_for_embedding(); Type: FUNCTION

CREATE FUNCTION public.entity_waits_for_embedding() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO observation_embeddings AS e (entity_id, model_id, team_id, project_id)
    SELECT NEW.id, m.id, NEW.team_id, NEW.project_id FROM embedding_models m WHERE m.state <> 'retired'
    ON CONFLICT (entity_id, model_id) WHERE entity_id IS NOT NULL DO UPDATE
       SET is_outdated = e.embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL;
    RETURN NULL;
END $$;

-- Name: erase_observation(uuid, uuid); Type: FUNCTION

CREATE FUNCTION public.erase_observation(gone uuid, team uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM forget_sources(ARRAY(
        WITH RECURSIVE merged AS (
            SELECT gone AS id
             UNION
            SELECT o.id FROM observations o JOIN merged m ON o.superseded_by = m.id WHERE o.team_id = team
        )
        SELECT id FROM merged), team);
    UPDATE observation_derivations SET status = 'undone', updated_at = now()
     WHERE derived_observation_id = gone AND team_id = team AND status = 'accepted';
    DELETE FROM observations WHERE id = gone AND team_id = team;
    RETURN FOUND;
END $$;

-- Name: FUNCTION erase_observation(gone uuid, team uuid); Type: COMMENT

COMMENT ON FUNCTION public.erase_observation(gone uuid, team uuid) IS 'Deletes an observation with what was merged into it and what the steward drew from those.';

-- Name: erase_session(uuid, uuid, boolean, boolean); Type: FUNCTION

CREATE FUNCTION public.erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = gone AND team_id = team);
    merged bigint[];
    counts jsonb;
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (gone);
    merged := gather_moving(held, team, true);
    counts := jsonb_build_object(
        'observations', (SELECT count(*) FROM observations
                          WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)),
        'vectors', (SELECT count(*) FROM observation_embeddings
                     WHERE project_id = held AND team_id = team
                       AND (observation_id IN (SELECT id FROM moving)
                            OR turn_id IN (SELECT id FROM turns WHERE server_session_id = gone AND team_id = team))),
        'turns', (SELECT count(*) FROM turns WHERE server_session_id = gone AND team_id = team),
        'events', (SELECT count(*) FROM agent_events WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)),
        'jobs', (SELECT count(*) FROM observation_generation_jobs
                  WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)),
        'runs', (SELECT count(*) FROM generation_runs
                  WHERE project_id = held AND team_id = team AND lane IN (SELECT id FROM moving)),
        'receipts', (SELECT count(*) FROM context_injections
                      WHERE project_id = held AND team_id = team AND server_session_id = gone),
        'merged', coalesce(to_jsonb(merged), '[]'));
    IF NOT only_count AND (merged IS NULL OR with_merged) THEN
        PERFORM forget_sources(ARRAY(SELECT id FROM moving), team);
        UPDATE observations SET stale = NULL
         WHERE project_id = held AND team_id = team AND stale IS NOT NULL
           AND stale ->> 'eventId' IN (SELECT id::text FROM moving);
        UPDATE observation_versions SET before = before - 'stale'
         WHERE project_id = held AND team_id = team AND before -> 'stale' ->> 'eventId' IN (SELECT id::text FROM moving);
        DELETE FROM context_injections WHERE project_id = held AND team_id = team AND server_session_id = gone;
        DELETE FROM observations
         WHERE project_id = held AND team_id = team
           AND (id IN (SELECT id FROM moving)
                OR id IN (SELECT superseded_by FROM observations
                           WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving)));
        DELETE FROM turns WHERE server_session_id = gone AND team_id = team;
        DELETE FROM observation_generation_jobs WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving);
        DELETE FROM agent_events WHERE project_id = held AND team_id = team AND id IN (SELECT id FROM moving);
        DELETE FROM server_sessions WHERE id = gone AND team_id = team;
        DELETE FROM generation_runs WHERE project_id = held AND team_id = team AND lane IN (SELECT id FROM moving);
        DELETE FROM generation_lanes WHERE team_id = team AND lane IN (SELECT id FROM moving);
    END IF;
    DROP TABLE moving;
    RETURN counts;
END $$;

-- Name: follow_language(uuid, uuid); Type: FUNCTION

CREATE FUNCTION public.follow_language(project uuid, team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    language text := (SELECT search_language FROM projects WHERE id = project AND team_id = team);
BEGIN
    UPDATE observations SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
    UPDATE turns SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
END $$;

-- Name: forget_sources(uuid[], uuid); Type: FUNCTION

CREATE FUNCTION public.forget_sources(gone uuid[], team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    derived uuid[] := ARRAY(SELECT d.derived_observation_id FROM observation_derivations d
                             WHERE d.team_id = team AND d.derived_observation_id IS NOT NULL
                               AND EXISTS (SELECT FROM unnest(d.source_observation_ids) s WHERE s IN (SELECT unnest(gone))));
BEGIN
    IF gone = '{}' THEN
        RETURN;
    END IF;
    -- What people have refused stays known; it has no words.
    DELETE FROM observation_derivations d
     WHERE d.team_id = team AND d.status NOT IN ('undone', 'skipped')
       AND EXISTS (SELECT FROM unnest(d.source_observation_ids) s WHERE s IN (SELECT unnest(gone)));
    UPDATE steward_runs r
       SET output_snapshot = jsonb_set(r.output_snapshot, '{proposals}', coalesce(
               (SELECT jsonb_agg(p) FROM jsonb_array_elements(r.output_snapshot -> 'proposals') p WHERE NOT is_proposal_of(p, gone)), '[]'))
     WHERE r.team_id = team AND r.output_snapshot -> 'proposals' <> '[]' AND is_proposal_of(r.output_snapshot -> 'proposals', gone);
    DELETE FROM observations
     WHERE team_id = team
       AND (id = ANY(derived) OR id IN (SELECT superseded_by FROM observations WHERE team_id = team AND id = ANY(derived)));
END $$;

-- Name: FUNCTION forget_sources(gone uuid[], team uuid); Type: COMMENT

COMMENT ON FUNCTION public.forget_sources(gone uuid[], team uuid) IS 'Deletes what the steward drew from these observations and events: observations, candidates, proposals of runs.';

-- Name: gather_moving(uuid, uuid, boolean); Type: FUNCTION

CREATE FUNCTION public.gather_moving(held uuid, team uuid, is_erased boolean) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
BEGIN
    ANALYZE moving;
    INSERT INTO moving
    SELECT e.id FROM moving m JOIN agent_events e ON e.server_session_id = m.id AND e.project_id = held AND e.team_id = team
    ON CONFLICT DO NOTHING;
    ANALYZE moving;
    INSERT INTO moving
    SELECT j.id FROM moving m
      JOIN observation_generation_jobs j ON j.server_session_id = m.id AND j.project_id = held AND j.team_id = team
    UNION
    SELECT j.id FROM moving m
      JOIN observation_generation_jobs j ON j.agent_event_id = m.id AND j.project_id = held AND j.team_id = team
    ON CONFLICT DO NOTHING;
    ANALYZE moving;
    INSERT INTO moving
    SELECT o.id FROM moving m JOIN observations o ON o.server_session_id = m.id AND o.project_id = held AND o.team_id = team
    UNION
    SELECT o.id FROM moving m JOIN observations o ON o.created_by_job_id = m.id AND o.project_id = held AND o.team_id = team
    UNION
    SELECT o.id FROM moving m JOIN observations o ON o.quote_event_id = m.id AND o.project_id = held AND o.team_id = team
    UNION
    SELECT o.id FROM moving m
      JOIN observation_sources s ON s.agent_event_id = m.id AND s.project_id = held AND s.team_id = team
      JOIN observations o ON o.id = s.observation_id AND o.project_id = held AND o.team_id = team
    UNION
    SELECT o.id FROM moving m
      JOIN observation_sources s ON s.generation_job_id = m.id AND s.project_id = held AND s.team_id = team
      JOIN observations o ON o.id = s.observation_id AND o.project_id = held AND o.team_id = team
    ON CONFLICT DO NOTHING;
    INSERT INTO moving
    SELECT row_id FROM observation_derivations d, unnest(ARRAY[d.id, d.derived_observation_id]) row_id
     WHERE d.project_id = held AND d.team_id = team AND row_id IS NOT NULL
       AND EXISTS (SELECT FROM unnest(d.source_observation_ids) s WHERE s IN (SELECT id FROM moving))
       AND (is_erased OR NOT EXISTS (
               SELECT FROM observations o
                WHERE o.id = ANY(d.source_observation_ids) AND o.project_id = held AND o.id NOT IN (SELECT id FROM moving)))
    ON CONFLICT DO NOTHING;
    ANALYZE moving;
    RETURN (SELECT array_agg(merged.number ORDER BY merged.number) FROM (
            SELECT t.number FROM moving m
              JOIN observations o ON o.id = m.id AND o.project_id = held AND o.team_id = team
              JOIN observations t ON t.id = o.superseded_by AND t.team_id = o.team_id
             WHERE NOT EXISTS (SELECT FROM moving WHERE id = t.id)
            UNION ALL
            SELECT t.number FROM moving m
              JOIN observations t ON t.id = m.id AND t.team_id = team
              JOIN observations o ON o.superseded_by = t.id AND o.project_id = held AND o.team_id = team
             WHERE NOT EXISTS (SELECT FROM moving WHERE id = o.id)) merged);
END $$;

-- Name: generation_job_law(); Type: FUNCTION

CREATE FUNCTION public.generation_job_law() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT ((OLD.status = 'queued' AND NEW.status IN ('processing', 'cancelled'))
         OR (OLD.status = 'processing' AND NEW.status IN ('completed', 'failed', 'cancelled'))
         OR (OLD.status = 'processing' AND NEW.status = 'queued' AND NEW.attempts < NEW.max_attempts)
         OR (OLD.status IN ('failed', 'cancelled') AND NEW.status = 'queued')) THEN
        RAISE EXCEPTION 'a generation job cannot go from % to % (job %, attempt % of %)',
            OLD.status, NEW.status, NEW.id, NEW.attempts, NEW.max_attempts USING ERRCODE = 'check_violation',
            CONSTRAINT = 'generation_job_law';
    END IF;
    IF OLD.status IN ('failed', 'cancelled') THEN
        NEW.max_attempts := greatest(NEW.max_attempts, NEW.attempts + 3);
        NEW.next_attempt_at := NULL;
        NEW.cancel_requested_at := NULL;
        NEW.generation_run_id := NULL; -- ask again; the old answer stays with its run
        IF OLD.last_error ->> 'reason' = 'key_revoked' AND NEW.api_key_id = OLD.api_key_id THEN
            NEW.api_key_id := NULL; -- whoever sends it back answers for it
        END IF;
    END IF;
    IF NEW.status <> 'processing' THEN
        NEW.locked_at := NULL;
        NEW.locked_by := NULL;
        NEW.worker_id := NULL;
    END IF;
    NEW.completed_at := CASE WHEN NEW.status = 'completed' THEN now() END;
    NEW.failed_at := CASE WHEN NEW.status = 'failed' THEN now() END;
    NEW.cancelled_at := CASE WHEN NEW.status = 'cancelled' THEN now() END;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- Name: generation_job_log_insert(); Type: FUNCTION

CREATE FUNCTION public.generation_job_log_insert() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO observation_generation_job_events (team_id, project_id, generation_job_id, event_type, status_after, attempt)
    SELECT team_id, project_id, id, status, status, attempts FROM new_rows ORDER BY seq;
    RETURN NULL;
END $$;

-- Name: generation_job_log_update(); Type: FUNCTION

CREATE FUNCTION public.generation_job_log_update() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO observation_generation_job_events
           (team_id, project_id, generation_job_id, event_type, status_after, attempt, details)
    SELECT n.team_id, n.project_id, n.id,
           CASE WHEN o.status = 'processing' AND n.status = 'queued' THEN 'retry_scheduled' ELSE n.status END,
           n.status, n.attempts,
           CASE WHEN n.status = 'completed' THEN jsonb_strip_nulls(jsonb_build_object('outcome', n.outcome, 'reason', n.outcome_reason))
                WHEN n.status = 'processing' THEN jsonb_build_object('claim', n.claim, 'by', n.locked_by)
                WHEN o.status = 'processing' AND n.attempts < o.attempts AND n.last_error IS NOT DISTINCT FROM o.last_error
                    THEN '{"reason": "given back"}'
                WHEN o.status = 'processing' AND n.last_error IS NOT NULL THEN n.last_error
                ELSE '{}' END
      FROM new_rows n JOIN old_rows o ON o.id = n.id
     WHERE o.status IS DISTINCT FROM n.status
     ORDER BY n.seq;
    IF EXISTS (SELECT FROM new_rows n JOIN old_rows o ON o.id = n.id
                WHERE n.status = 'queued' AND o.status IN ('failed', 'cancelled')) THEN
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        SELECT n.lane, n.team_id, n.project_id, now()
          FROM new_rows n JOIN old_rows o ON o.id = n.id
         WHERE n.status = 'queued' AND o.status IN ('failed', 'cancelled')
         GROUP BY n.lane, n.team_id, n.project_id ORDER BY n.lane
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at));
    END IF;
    RETURN NULL;
END $$;

-- Name: generation_runs_count(); Type: FUNCTION

CREATE FUNCTION public.generation_runs_count() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO generation_spending AS s
        SELECT team_id, (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model, sum(sign),
               coalesce(sum(sign) FILTER (WHERE status IN ('failed', 'unusable', 'lost')), 0),
               coalesce(sum(sign) FILTER (WHERE cost_usd IS NULL
                   AND (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) <> (0, 0, 0, 0)), 0),
               sum(sign * input_tokens), sum(sign * output_tokens), sum(sign * cache_read_tokens), sum(sign * cache_write_tokens),
               coalesce(sum(sign * cost_usd), 0)
          FROM (SELECT 1 AS sign, n.* FROM new_rows n) r
         GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (team_id, day, project_id, provider, model) DO UPDATE
           SET calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
               unpriced_calls = s.unpriced_calls + excluded.unpriced_calls, input_tokens = s.input_tokens + excluded.input_tokens,
               output_tokens = s.output_tokens + excluded.output_tokens,
               cache_read_tokens = s.cache_read_tokens + excluded.cache_read_tokens,
               cache_write_tokens = s.cache_write_tokens + excluded.cache_write_tokens, cost_usd = s.cost_usd + excluded.cost_usd;
    ELSIF EXISTS (SELECT FROM new_rows n JOIN old_rows o ON o.id = n.id
                   WHERE (n.project_id, n.model, n.status IN ('failed', 'unusable', 'lost'), n.cost_usd, n.input_tokens,
                          n.output_tokens, n.cache_read_tokens, n.cache_write_tokens)
                         IS DISTINCT FROM (o.project_id, o.model, o.status IN ('failed', 'unusable', 'lost'), o.cost_usd,
                          o.input_tokens, o.output_tokens, o.cache_read_tokens, o.cache_write_tokens)) THEN
        INSERT INTO generation_spending AS s
        SELECT team_id, (created_at AT TIME ZONE 'UTC')::date, project_id, provider, model, sum(sign),
               coalesce(sum(sign) FILTER (WHERE status IN ('failed', 'unusable', 'lost')), 0),
               coalesce(sum(sign) FILTER (WHERE cost_usd IS NULL
                   AND (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) <> (0, 0, 0, 0)), 0),
               sum(sign * input_tokens), sum(sign * output_tokens), sum(sign * cache_read_tokens), sum(sign * cache_write_tokens),
               coalesce(sum(sign * cost_usd), 0)
          FROM (SELECT 1 AS sign, n.* FROM new_rows n UNION ALL SELECT -1, o.* FROM old_rows o) r
         GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
        ON CONFLICT (team_id, day, project_id, provider, model) DO UPDATE
           SET calls = s.calls + excluded.calls, failed_calls = s.failed_calls + excluded.failed_calls,
               unpriced_calls = s.unpriced_calls + excluded.unpriced_calls, input_tokens = s.input_tokens + excluded.input_tokens,
               output_tokens = s.output_tokens + excluded.output_tokens,
               cache_read_tokens = s.cache_read_tokens + excluded.cache_read_tokens,
               cache_write_tokens = s.cache_write_tokens + excluded.cache_write_tokens, cost_usd = s.cost_usd + excluded.cost_usd;
    END IF;
    RETURN NULL;
END $$;

-- Name: give_entities_back(uuid, uuid, uuid); Type: FUNCTION

CREATE FUNCTION public.give_entities_back(source uuid, target uuid, team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    copies uuid[] := ARRAY(SELECT j.row_id FROM project_joined_rows j
                            WHERE j.project_id = target AND j.team_id = team
                              AND (EXISTS (SELECT FROM entities e WHERE e.id = j.row_id)
                                   OR EXISTS (SELECT FROM entity_relations r WHERE r.id = j.row_id)));
    -- Those that another joined project has, too: of their notes only a part is the target's.
    shared uuid[] := ARRAY(SELECT s.id FROM entities s
                            WHERE s.id = ANY(copies)
                              AND EXISTS (SELECT FROM entities e JOIN projects p ON p.id = e.project_id AND p.joined_to = source
                                           WHERE p.id <> target AND e.folded_name = s.folded_name AND e.type = s.type));
BEGIN
    WITH changed AS (
        UPDATE entities t SET notes = s.notes, found_by = CASE WHEN s.found_by = 'people' THEN s.found_by ELSE t.found_by END
          FROM entities s
         WHERE s.project_id = source AND s.team_id = team
           AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
           AND CASE WHEN s.id = ANY(shared)
                    THEN t.notes IS NOT NULL AND cut_paragraphs(s.notes, t.notes) IS NOT DISTINCT FROM s.notes
                    WHEN s.id = ANY(copies)
                    THEN s.notes IS DISTINCT FROM t.notes OR (s.found_by = 'people' AND t.found_by <> 'people')
                    ELSE t.notes IS NOT NULL AND s.notes IS DISTINCT FROM t.notes
                         AND position(E'\n\n' || t.notes || E'\n\n' IN coalesce(s.notes, '') || E'\n\n') = 0 END
        RETURNING s.id
    )
    UPDATE entities s
       SET notes = CASE WHEN s.id <> ALL(copies)
                        THEN overlay(s.notes PLACING '' FROM position(E'\n\n' || t.notes || E'\n\n' IN s.notes || E'\n\n')
                                     FOR length(t.notes) + 2)
                        WHEN s.id = ANY(shared) THEN cut_paragraphs(s.notes, t.notes) END,
           found_by = CASE WHEN s.id <> ALL(copies) OR s.id = ANY(shared) THEN s.found_by ELSE 'rules' END
      FROM entities t
     WHERE s.project_id = source AND s.team_id = team AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
       AND s.id NOT IN (SELECT id FROM changed)
       AND CASE WHEN s.id = ANY(shared)
                THEN t.notes IS NOT NULL
                     AND NOT EXISTS (SELECT FROM entities e JOIN projects p ON p.id = e.project_id AND p.joined_to = source
                                      WHERE p.id <> target AND e.folded_name = s.folded_name AND e.type = s.type
                                        AND e.notes = t.notes)
                WHEN s.id = ANY(copies)
                THEN NOT EXISTS (SELECT FROM entity_relations r WHERE s.id IN (r.from_id, r.to_id) AND r.id <> ALL(copies))
                ELSE position(E'\n\n' || t.notes || E'\n\n' IN s.notes || E'\n\n') > 0 END;
    PERFORM move_entities(source, target, team, false);
    DELETE FROM entity_relations r
     WHERE r.project_id = source AND r.team_id = team AND r.id = ANY(copies)
       AND NOT EXISTS (SELECT FROM entity_relation_evidence v WHERE v.relation_id = r.id);
    DELETE FROM entities e
     WHERE e.project_id = source AND e.team_id = team AND e.id = ANY(copies) AND e.merged_into IS NOT NULL
       AND NOT EXISTS (SELECT FROM entity_mentions m WHERE m.named_id = e.id);
    DELETE FROM entities e
     WHERE e.project_id = source AND e.team_id = team AND e.id = ANY(copies) AND e.mention_count = 0 AND e.found_by <> 'people'
       AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
END $$;

-- Name: is_found_by_meaning(text, text); Type: FUNCTION

CREATE FUNCTION public.is_found_by_meaning(type text, notes text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT type IN ('person', 'place', 'project', 'technology', 'concept', 'organization') OR notes IS NOT NULL
$$;

-- Name: FUNCTION is_found_by_meaning(type text, notes text); Type: COMMENT

COMMENT ON FUNCTION public.is_found_by_meaning(type text, notes text) IS 'Whether an entity of the type, with the notes, has a vector.';

-- Name: is_generation_policy(jsonb); Type: FUNCTION

CREATE FUNCTION public.is_generation_policy(policy jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN (jsonb_typeof(policy) = 'object'::text) THEN (((policy - ARRAY['mode'::text, 'debounceSeconds'::text, 'skipEventTypes'::text, 'skipTools'::text, 'verbosity'::text, 'language'::text, 'skipRules'::text]) = '{}'::jsonb) AND (COALESCE((policy ->> 'mode'::text), 'burst'::text) = ANY (ARRAY['per_event'::text, 'burst'::text, 'at_end'::text])) AND
             CASE
                 WHEN (jsonb_typeof(COALESCE((policy -> 'debounceSeconds'::text), '0'::jsonb)) = 'number'::text) THEN ((COALESCE(((policy ->> 'debounceSeconds'::text))::numeric, (0)::numeric) >= (0)::numeric) AND (COALESCE(((policy ->> 'debounceSeconds'::text))::numeric, (0)::numeric) <= (3600)::numeric))
                 ELSE false
             END AND (COALESCE((policy ->> 'verbosity'::text), 'normal'::text) = ANY (ARRAY['minimal'::text, 'normal'::text, 'verbose'::text])) AND (jsonb_typeof(COALESCE((policy -> 'language'::text), '"en"'::jsonb)) = ANY (ARRAY['string'::text, 'null'::text])) AND ((length(COALESCE((policy ->> 'language'::text), 'en'::text)) >= 2) AND (length(COALESCE((policy ->> 'language'::text), 'en'::text)) <= 40)) AND ( SELECT bool_and(
                     CASE
                         WHEN (jsonb_typeof(COALESCE((is_generation_policy.policy -> list.name), '[]'::jsonb)) = 'array'::text) THEN ((jsonb_array_length(COALESCE((is_generation_policy.policy -> list.name), '[]'::jsonb)) <= list.most) AND (NOT (EXISTS ( SELECT
                            FROM jsonb_array_elements(COALESCE((is_generation_policy.policy -> list.name), '[]'::jsonb)) one(text)
                           WHERE ((jsonb_typeof(one.text) <> 'string'::text) OR ((length((one.text #>> '{}'::text[])) < list.shortest) OR (length((one.text #>> '{}'::text[])) > list.longest)))))))
                         ELSE false
                     END) AS bool_and
                FROM ( VALUES ('skipEventTypes'::text,100,1,100), ('skipTools'::text,100,1,100), ('skipRules'::text,50,3,200)) list(name, most, shortest, longest)))
             ELSE false
         END AS "case";
END;

-- Name: is_proposal_of(jsonb, uuid[]); Type: FUNCTION

CREATE FUNCTION public.is_proposal_of(proposal jsonb, ids uuid[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT EXISTS (SELECT FROM jsonb_path_query(proposal, 'strict $.**') part WHERE part #>> '{}' IN (SELECT unnest(ids)::text));
$_$;

-- Name: is_retention_policy(jsonb); Type: FUNCTION

CREATE FUNCTION public.is_retention_policy(policy jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN (jsonb_typeof(policy) = 'object'::text) THEN (((policy - ARRAY['observationsDays'::text, 'minImportance'::text, 'promoteAccesses'::text, 'eventsDays'::text, 'jobLogDays'::text, 'receiptsDays'::text, 'auditDays'::text, 'defaultTtlSeconds'::text, 'extendFactor'::text, 'promoteImportance'::text, 'cleanupSeconds'::text, 'suggestAbove'::text, 'autoMergeAbove'::text, 'mergeStrategy'::text]) = '{}'::jsonb) AND ( SELECT bool_and(
                     CASE jsonb_typeof(COALESCE((is_retention_policy.policy -> field.name), 'null'::jsonb))
                         WHEN 'null'::text THEN true
                         WHEN 'number'::text THEN (((((is_retention_policy.policy ->> field.name))::numeric >= (field."least")::numeric) AND (((is_retention_policy.policy ->> field.name))::numeric <= (field.most)::numeric)) AND (field.is_share OR (scale(((is_retention_policy.policy ->> field.name))::numeric) = 0)))
                         ELSE false
                     END) AS bool_and
                FROM ( VALUES ('observationsDays'::text,0,36500,false), ('minImportance'::text,0,1,true), ('promoteAccesses'::text,1,1000000,false), ('eventsDays'::text,0,36500,false), ('jobLogDays'::text,0,36500,false), ('receiptsDays'::text,0,36500,false), ('auditDays'::text,0,36500,false), ('defaultTtlSeconds'::text,1,'3155760000'::bigint,false), ('extendFactor'::text,0,100,true), ('promoteImportance'::text,0,1,true), ('cleanupSeconds'::text,1,31536000,false), ('suggestAbove'::text,0,1,true), ('autoMergeAbove'::text,0,1,true)) field(name, "least", most, is_share)) AND
             CASE jsonb_typeof(COALESCE((policy -> 'mergeStrategy'::text), 'null'::jsonb))
                 WHEN 'null'::text THEN true
                 WHEN 'string'::text THEN ((policy ->> 'mergeStrategy'::text) = ANY (ARRAY['latest_wins'::text, 'append'::text, 'smart_merge'::text]))
                 ELSE false
             END)
             ELSE false
         END AS "case";
END;

-- Name: unsegmented_characters(); Type: FUNCTION

CREATE FUNCTION public.unsegmented_characters() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (((((('\u0E01-\u0E3A\u0E40-\u0E4E'::text || '\u0E81-\u0EBD\u0EC0-\u0ECE\u0EDC-\u0EDF'::text) || '\u1000-\u103F\u1050-\u108F'::text) || '\u1780-\u17D3\u17D7\u17DC\u17DD'::text) || '\u3041-\u3096\u309D-\u309F\u30A1-\u30FA\u30FC-\u30FF\u31F0-\u31FF'::text) || '\u3005-\u3007\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF'::text) || '\uAC00-\uD7A3'::text);

-- Name: is_unsegmented(text); Type: FUNCTION

CREATE FUNCTION public.is_unsegmented(said text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((octet_length(said) > length(said)) AND (said ~ (('[\u1100-\u11FF\uFF00-\uFFEF'::text || public.unsegmented_characters()) || ']'::text)));

-- Name: isolated_projects_share_nothing(); Type: FUNCTION

CREATE FUNCTION public.isolated_projects_share_nothing() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM projects WHERE id = NEW.project_id AND isolated) THEN
        NEW.scope := 'project';
    END IF;
    RETURN NEW;
END $$;

-- Name: join_project(uuid, uuid, uuid); Type: FUNCTION

CREATE FUNCTION public.join_project(joining uuid, target uuid, team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving
    SELECT id FROM server_sessions WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM agent_events WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM observation_generation_jobs WHERE project_id = joining AND team_id = team
     UNION
    SELECT lane FROM generation_lanes WHERE project_id = joining AND team_id = team
     UNION
    SELECT lane FROM generation_runs WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM observations WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM context_injections WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM observation_derivations WHERE project_id = joining AND team_id = team
     UNION
    SELECT id FROM steward_jobs WHERE project_id = joining AND team_id = team;
    INSERT INTO project_joined_rows (project_id, row_id, team_id) SELECT joining, id, team FROM moving ON CONFLICT DO NOTHING;
    SET CONSTRAINTS ALL DEFERRED;
    UPDATE server_sessions SET project_id = target, origin_project_id = nullif(coalesce(origin_project_id, joining), target)
     WHERE project_id = joining AND team_id = team;
    PERFORM move_gathered(joining, target, team);
    DROP TABLE moving;
    PERFORM follow_language(target, team);
    UPDATE projects SET joined_to = target, stays_apart = false, archived_at = coalesce(archived_at, now()), updated_at = now()
     WHERE id = joining AND team_id = team;
    SET CONSTRAINTS ALL IMMEDIATE;
END $$;

-- Name: joined_entities_go_along(); Type: FUNCTION

CREATE FUNCTION public.joined_entities_go_along() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM old_rows) THEN
        RETURN NULL;
    END IF;
    DELETE FROM entities e USING old_rows o, projects p
     WHERE p.joined_to = o.project_id AND p.team_id = o.team_id
       AND e.project_id = p.id AND e.team_id = o.team_id AND e.folded_name = o.folded_name AND e.type = o.type;
    RETURN NULL;
END $$;

-- Name: joined_relations_go_along(); Type: FUNCTION

CREATE FUNCTION public.joined_relations_go_along() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM old_rows) THEN
        RETURN NULL;
    END IF;
    DELETE FROM entity_relations r
     USING old_rows o, projects p, entities f, entities t, entities old_f, entities old_t
     WHERE p.joined_to = o.project_id AND p.team_id = o.team_id AND old_f.id = o.from_id AND old_t.id = o.to_id
       AND f.project_id = p.id AND f.folded_name = old_f.folded_name AND f.type = old_f.type
       AND t.project_id = p.id AND t.folded_name = old_t.folded_name AND t.type = old_t.type
       AND r.from_id = f.id AND r.to_id = t.id AND r.label = o.label AND r.team_id = o.team_id;
    RETURN NULL;
END $$;

-- Name: live_workers(); Type: FUNCTION

CREATE FUNCTION public.live_workers() RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT g.worker_id FROM generation_workers g JOIN procrastinate_workers w ON w.id = g.worker_id
     WHERE w.last_heartbeat > now() - make_interval(secs => g.lease_seconds)
$$;

-- Name: FUNCTION live_workers(); Type: COMMENT

COMMENT ON FUNCTION public.live_workers() IS 'The workers on the outbox whose lease holds.';

-- Name: move_entities(uuid, uuid, uuid, boolean); Type: FUNCTION

CREATE FUNCTION public.move_entities(source uuid, target uuid, team uuid, is_whole boolean) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    made           uuid[];
    made_relations uuid[];
BEGIN
    IF is_whole THEN
        INSERT INTO project_joined_rows (project_id, row_id, team_id)
        SELECT source, t.id, team
          FROM entities s JOIN entities t ON t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
         WHERE s.project_id = source AND s.team_id = team AND t.notes IS NULL AND t.found_by <> 'people'
           AND (s.notes IS NOT NULL OR s.found_by = 'people');
        UPDATE entities t
           SET notes = CASE WHEN s.notes IS NULL OR s.notes = t.notes THEN t.notes ELSE concat_ws(E'\n\n', t.notes, s.notes) END,
               found_by = CASE WHEN s.found_by = 'people' THEN s.found_by ELSE t.found_by END
          FROM entities s
         WHERE s.project_id = source AND s.team_id = team AND t.project_id = target AND t.folded_name = s.folded_name
           AND t.type = s.type AND (s.notes IS NOT NULL OR s.found_by = 'people');
    END IF;
    WITH new AS (
        INSERT INTO entities (id, team_id, project_id, type, name, folded_name, notes, found_by)
        SELECT gen_random_uuid(), team, target, e.type, e.name, e.folded_name, e.notes, e.found_by
          FROM entities e
         WHERE e.project_id = source AND e.team_id = team
           AND (is_whole
                OR EXISTS (SELECT FROM entity_mentions m JOIN observations o ON o.id = m.observation_id
                            WHERE m.named_id = e.id AND o.project_id = target)
                OR EXISTS (SELECT FROM entity_mentions m JOIN turns t ON t.id = m.turn_id
                            WHERE m.named_id = e.id AND t.project_id = target))
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT array_agg(id) INTO made FROM new;
    UPDATE entities t SET merged_into = coalesce(ti.merged_into, ti.id)
      FROM entities s
      JOIN entities si ON si.id = s.merged_into
      JOIN entities ti ON ti.project_id = target AND ti.folded_name = si.folded_name AND ti.type = si.type
     WHERE s.project_id = source AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
       AND t.id = ANY(made) AND t.id <> coalesce(ti.merged_into, ti.id);
    WITH new AS (
        INSERT INTO entity_relations (id, team_id, project_id, from_id, to_id, label, created_at)
        SELECT gen_random_uuid(), team, target, nf.id, nt.id, r.label, r.created_at
          FROM entity_relations r
          JOIN entities f ON f.id = r.from_id
          JOIN entities nf ON nf.project_id = target AND nf.folded_name = f.folded_name AND nf.type = f.type
          JOIN entities t ON t.id = r.to_id
          JOIN entities nt ON nt.project_id = target AND nt.folded_name = t.folded_name AND nt.type = t.type
         WHERE r.project_id = source AND r.team_id = team AND nf.id <> nt.id
           AND (is_whole OR EXISTS (SELECT FROM entity_relation_evidence v JOIN observations o ON o.id = v.observation_id
                                     WHERE v.relation_id = r.id AND o.project_id = target))
        ON CONFLICT DO NOTHING
        RETURNING id
    )
    SELECT array_agg(id) INTO made_relations FROM new;
    IF is_whole THEN
        INSERT INTO project_joined_rows (project_id, row_id, team_id) SELECT source, unnest(made || made_relations), team;
    END IF;
    INSERT INTO entity_relation_evidence (relation_id, observation_id, project_id, team_id)
    SELECT n.id, v.observation_id, target, team
      FROM entity_relation_evidence v
      JOIN observations o ON o.id = v.observation_id AND o.project_id = target
      JOIN entity_relations r ON r.id = v.relation_id
      JOIN entities f ON f.id = r.from_id
      JOIN entities nf ON nf.project_id = target AND nf.folded_name = f.folded_name AND nf.type = f.type
      JOIN entities t ON t.id = r.to_id
      JOIN entities nt ON nt.project_id = target AND nt.folded_name = t.folded_name AND nt.type = t.type
      JOIN entity_relations n ON n.from_id = nf.id AND n.to_id = nt.id AND n.label = r.label
     WHERE v.project_id = source AND v.team_id = team
    ON CONFLICT DO NOTHING;
    DELETE FROM entity_relation_evidence v USING observations o
     WHERE v.project_id = source AND v.team_id = team AND o.id = v.observation_id AND o.project_id = target;
    UPDATE entity_mentions m SET project_id = target, named_id = n.id, entity_id = coalesce(n.merged_into, n.id)
      FROM observations o, entities e, entities n
     WHERE m.project_id = source AND m.team_id = team AND o.id = m.observation_id AND o.project_id = target
       AND e.id = m.named_id AND n.project_id = target AND n.folded_name = e.folded_name AND n.type = e.type;
    UPDATE entity_mentions m SET project_id = target, named_id = n.id, entity_id = coalesce(n.merged_into, n.id)
      FROM turns t, entities e, entities n
     WHERE m.project_id = source AND m.team_id = team AND t.id = m.turn_id AND t.project_id = target
       AND e.id = m.named_id AND n.project_id = target AND n.folded_name = e.folded_name AND n.type = e.type;
    PERFORM count_entity_mentions(ARRAY(SELECT id FROM entities WHERE project_id IN (source, target) AND team_id = team));
    DELETE FROM entities e
     WHERE e.project_id = ANY(CASE WHEN is_whole THEN ARRAY[target] ELSE ARRAY[source, target] END) AND e.team_id = team
       AND e.mention_count = 0 AND e.found_by <> 'people'
       AND e.merged_into IS NULL AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
END $$;

-- Name: move_gathered(uuid, uuid, uuid); Type: FUNCTION

CREATE FUNCTION public.move_gathered(held uuid, target uuid, team uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    ANALYZE moving;
    DELETE FROM consolidation_suggestions
     WHERE project_id = held AND team_id = team
       AND (left_id IN (SELECT id FROM moving)) <> (right_id IN (SELECT id FROM moving));
    UPDATE agent_events SET project_id = target WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE turns SET project_id = target
     WHERE server_session_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_generation_jobs SET project_id = target
     WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_generation_job_events SET project_id = target
     WHERE generation_job_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE generation_lanes SET project_id = target WHERE lane IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE generation_runs SET project_id = target
     WHERE project_id = held AND lane IN (SELECT id FROM moving) AND team_id = team;
    UPDATE observations SET project_id = target WHERE id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_versions SET project_id = target
     WHERE observation_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_embeddings SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (observation_id IN (SELECT id FROM moving)
            OR turn_id IN (SELECT id FROM turns WHERE team_id = team AND server_session_id IN (SELECT id FROM moving)));
    UPDATE observation_sources SET project_id = target
     WHERE observation_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE consolidation_suggestions SET project_id = target
     WHERE left_id IN (SELECT id FROM moving) AND project_id = held AND team_id = team;
    UPDATE observation_relationships SET from_project_id = target
     WHERE from_id IN (SELECT id FROM moving) AND from_project_id = held AND team_id = team;
    UPDATE observation_relationships SET to_project_id = target
     WHERE to_id IN (SELECT id FROM moving) AND to_project_id = held AND team_id = team;
    UPDATE context_injections SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (server_session_id IN (SELECT id FROM moving) OR id IN (SELECT id FROM moving));
    UPDATE observation_derivations SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (id IN (SELECT id FROM moving) OR derived_observation_id IN (SELECT id FROM moving));
    UPDATE steward_jobs SET project_id = target
     WHERE project_id = held AND team_id = team
       AND (id IN (SELECT id FROM moving)
            OR (source_observation_ids <> '{}'
                AND NOT EXISTS (SELECT FROM unnest(source_observation_ids) s WHERE s NOT IN (SELECT id FROM moving))));
    UPDATE steward_runs r SET project_id = target
      FROM steward_jobs j
     WHERE j.id = r.job_id AND j.team_id = r.team_id AND j.project_id = target AND r.project_id = held AND r.team_id = team;
END $$;

-- Name: move_session(uuid, uuid, uuid); Type: FUNCTION

CREATE FUNCTION public.move_session(moved uuid, target uuid, team uuid) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    held   uuid := (SELECT project_id FROM server_sessions WHERE id = moved AND team_id = team);
    merged bigint[];
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving VALUES (moved);
    merged := gather_moving(held, team, false);
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    SET CONSTRAINTS ALL DEFERRED;
    UPDATE server_sessions SET project_id = target, origin_project_id = nullif(coalesce(origin_project_id, held), target),
                               moved_at = now(), updated_at = now()
     WHERE id = moved AND team_id = team;
    PERFORM move_gathered(held, target, team);
    DROP TABLE moving;
    PERFORM move_entities(held, target, team, false);
    PERFORM follow_language(target, team);
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN '{}';
END $$;

-- Name: observation_hash(text, text, text, text[], text); Type: FUNCTION

CREATE FUNCTION public.observation_hash(title text, subtitle text, narrative text, facts text[], content text) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
DECLARE
    parts text[] := array_remove(ARRAY[title, subtitle, narrative] || facts, NULL);
    part text;
    said text := '';
BEGIN
    IF num_nonnulls(title, subtitle, narrative, facts) = 0 THEN
        parts := ARRAY[content];
    END IF;
    FOREACH part IN ARRAY parts LOOP
        -- Headings, quotes, and dashes of lists at the beginning of a line; `- [x]` keeps its box, and `- 5` its minus.
        part := regexp_replace(part, '^[ \t]*(#{1,6}[ \t]+|>[ \t]+|[-*][ \t]+(?=[^\d\s]))+', '', 'gn');
        part := regexp_replace(part, '(?<![A-Za-z0-9*])\*\*([^*\s]([^*\n]*[^*\s])?)\*\*(?![A-Za-z0-9*])', '\1', 'g');
        part := regexp_replace(part, '(?<![A-Za-z0-9*])\*(\w([^*\n]*\w)?)\*(?![A-Za-z0-9*])', '\1', 'g');
        part := btrim(regexp_replace(part, '\s+', ' ', 'g'));
        part := regexp_replace(part, '^["“„«]\s*([^"“”„«»]*?)\s*["”“»]$', '\1');
        -- Before the marks of code go: the dot of `ruff check .` is none of the sentence.
        part := regexp_replace(part, '([\w`*)\]"”»])( ?[:;!]|[.,…。！])+$', '\1');
        said := said || E'\n' || replace(part, '`', '');
    END LOOP;
    RETURN sha256(convert_to(said, 'UTF8'));
END $_$;

-- Name: observation_is_changed(); Type: FUNCTION

CREATE FUNCTION public.observation_is_changed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- Name: FUNCTION observation_is_changed(); Type: COMMENT

COMMENT ON FUNCTION public.observation_is_changed() IS 'For edits that do not say when they were made. What is read, expires or is merged does not change.';

-- Name: observation_vectors_follow(); Type: FUNCTION

CREATE FUNCTION public.observation_vectors_follow() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.superseded_at IS NOT NULL THEN
        DELETE FROM observation_embeddings WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    ELSIF OLD.superseded_at IS NOT NULL THEN
        INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, expires_at)
        SELECT NEW.id, m.id, NEW.team_id, NEW.project_id, NEW.expires_at FROM embedding_models m WHERE m.state <> 'retired'
        ON CONFLICT DO NOTHING;
    ELSE
        UPDATE observation_embeddings SET expires_at = NEW.expires_at WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    END IF;
    RETURN NULL;
END $$;

-- Name: observation_waits_again(); Type: FUNCTION

CREATE FUNCTION public.observation_waits_again() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE observation_embeddings
       SET is_outdated = embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL
     WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;

-- Name: observation_words(); Type: FUNCTION

CREATE FUNCTION public.observation_words() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    files text := concat_ws(' ', array_to_string(NEW.files_read, ' '), array_to_string(NEW.files_modified, ' '));
    named boolean;
BEGIN
    -- A text without a title, and a summary, is its content; of all others the content only says the fields again. Where a tsvector
    -- has no room for the names, the words alone are in it: what could be stored before there were names can be stored.
    FOREACH named IN ARRAY '{true,false}'::boolean[] LOOP
        BEGIN
            NEW.content_search :=
                   setweight(search_words(NEW.search_language, coalesce(NEW.title, ''), named), 'A')
                || setweight(search_words(NEW.search_language, concat_ws(' ', NEW.subtitle, array_to_string(NEW.facts, ' ')),
                             named), 'B')
                || setweight(search_words(NEW.search_language, coalesce(NEW.narrative,
                             CASE WHEN NEW.title IS NULL OR NEW.summary IS NOT NULL THEN NEW.content END, ''), named), 'C')
                || setweight(search_words(NEW.search_language, concat_ws(' ', array_to_string(NEW.concepts, ' '), files,
                             replace(files, '/', ' ')), named), 'D');
            EXIT;
        EXCEPTION WHEN program_limit_exceeded THEN
            IF NOT named THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    NEW.content_words := tsvector_words(NEW.content_search);
    RETURN NEW;
END $$;

-- Name: observations_wait_for_embedding(); Type: FUNCTION

CREATE FUNCTION public.observations_wait_for_embedding() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, expires_at)
    SELECT n.id, m.id, n.team_id, n.project_id, n.expires_at
      FROM new_ones n CROSS JOIN embedding_models m WHERE m.state <> 'retired' AND n.superseded_at IS NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- Name: overviews_age(); Type: FUNCTION

CREATE FUNCTION public.overviews_age() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE project_overviews SET new_summaries = new_summaries + 1
     WHERE project_id = NEW.project_id AND numbers @> ARRAY[NEW.number];
    RETURN NULL;
END $$;

-- Name: overviews_forget_changed(); Type: FUNCTION

CREATE FUNCTION public.overviews_forget_changed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE project_overviews SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
     WHERE project_id = OLD.project_id AND numbers @> ARRAY[OLD.number];
    RETURN NULL;
END $$;

-- Name: overviews_forget_deleted(); Type: FUNCTION

CREATE FUNCTION public.overviews_forget_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE project_overviews p SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
      FROM (SELECT project_id, array_agg(number) AS numbers FROM old_rows GROUP BY project_id) o
     WHERE p.project_id = o.project_id AND p.numbers && o.numbers;
    RETURN NULL;
END $$;

-- Name: overviews_forget_entities(); Type: FUNCTION

CREATE FUNCTION public.overviews_forget_entities() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE project_overviews p SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
     WHERE p.body IS NOT NULL
       AND EXISTS (SELECT FROM old_rows o
                    WHERE o.project_id = p.project_id AND o.type IN ('file', 'technology')
                      AND strpos(p.body, regexp_replace(o.name, '^.*/', '')) > 0);
    RETURN NULL;
END $$;

-- Name: project_is_isolated(); Type: FUNCTION

CREATE FUNCTION public.project_is_isolated() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE observations SET scope = 'project' WHERE project_id = NEW.id AND team_id = NEW.team_id AND scope = 'team';
    RETURN NULL;
END $$;

-- Name: project_language(); Type: FUNCTION

CREATE FUNCTION public.project_language() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE observations SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    UPDATE turns SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;

-- Name: requeue_stale(double precision); Type: FUNCTION

CREATE FUNCTION public.requeue_stale(hard_limit_seconds double precision DEFAULT 300) RETURNS SETOF uuid
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN QUERY
    WITH stale AS (
        SELECT j.id FROM generation_lanes l
          JOIN observation_generation_jobs j ON j.lane = l.lane AND j.phase = 'open' AND j.status = 'processing'
         WHERE l.worker_id IS NOT NULL
           AND (l.locked_at < now() - make_interval(secs => hard_limit_seconds) OR l.worker_id NOT IN (SELECT live_workers()))
           AND (j.locked_at < now() - make_interval(secs => hard_limit_seconds) OR j.worker_id NOT IN (SELECT live_workers()))
         ORDER BY j.id FOR UPDATE OF j SKIP LOCKED)
    UPDATE observation_generation_jobs j
       SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                         WHEN j.attempts < j.max_attempts THEN 'queued' ELSE 'failed' END,
           last_error = jsonb_build_object('reason', 'worker lost', 'worker', j.locked_by, 'claim', j.claim)
      FROM stale WHERE j.id = stale.id RETURNING j.id;

    -- A lane goes back when its worker is gone and none of its batch is still held by a transaction that may yet commit.
    WITH free AS (
        SELECT l.lane FROM generation_lanes l
         WHERE l.worker_id IS NOT NULL
           AND (l.locked_at < now() - make_interval(secs => hard_limit_seconds) OR l.worker_id NOT IN (SELECT live_workers()))
           AND NOT EXISTS (SELECT FROM observation_generation_jobs j
                            WHERE j.worker_id = l.worker_id AND j.lane = l.lane AND j.phase = 'open' AND j.status = 'processing')
         ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED)
    UPDATE generation_lanes l
       SET worker_id = NULL, claim = NULL, due_at = greatest(l.held_until, now())
      FROM free WHERE l.lane = free.lane;

    DELETE FROM generation_workers g WHERE NOT EXISTS (SELECT FROM procrastinate_workers w WHERE w.id = g.worker_id);
END $$;

-- Name: FUNCTION requeue_stale(hard_limit_seconds double precision); Type: COMMENT

COMMENT ON FUNCTION public.requeue_stale(hard_limit_seconds double precision) IS 'Gives back what dead workers hold; returns the jobs. Every worker does this every two seconds.';

-- Name: requeue_steward_jobs(); Type: FUNCTION

CREATE FUNCTION public.requeue_steward_jobs() RETURNS SETOF uuid
    LANGUAGE plpgsql
    AS $$
DECLARE
    lost uuid[];
BEGIN
    WITH stale AS (
        SELECT id FROM steward_jobs WHERE status = 'running' AND lease_expires_at < now() ORDER BY id FOR UPDATE SKIP LOCKED
    ), recovered AS (
        UPDATE steward_jobs j
           SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                             WHEN j.attempt_count < j.max_attempts THEN 'queued' ELSE 'dead_letter' END,
               last_error = 'worker_lost: ' || coalesce(j.locked_by, '?'), run_after = now()
          FROM stale WHERE j.id = stale.id RETURNING j.id)
    SELECT array_agg(id) INTO lost FROM recovered;
    IF lost IS NOT NULL THEN
        UPDATE steward_runs
           SET status = 'failed', error_class = 'worker_lost', error_message = 'The lease of its worker was over.',
               completed_at = now()
         WHERE status = 'running' AND job_id = ANY(lost);
    END IF;
    RETURN QUERY SELECT unnest(lost);
END $$;

-- Name: FUNCTION requeue_steward_jobs(); Type: COMMENT

COMMENT ON FUNCTION public.requeue_steward_jobs() IS 'Gives back the jobs of the steward whose lease is over; returns them. Every worker does this every few seconds.';

-- Name: retry_failed(uuid, timestamp with time zone); Type: FUNCTION

CREATE FUNCTION public.retry_failed(team uuid, since timestamp with time zone) RETURNS bigint
    LANGUAGE sql
    AS $$
    WITH picked AS (SELECT id FROM observation_generation_jobs
                     WHERE team_id = team AND status = 'failed' AND failed_at >= since ORDER BY id FOR UPDATE),
         sent AS (UPDATE observation_generation_jobs j SET status = 'queued' FROM picked WHERE j.id = picked.id RETURNING 1)
    SELECT count(*) FROM sent
$$;

-- Name: FUNCTION retry_failed(team uuid, since timestamp with time zone); Type: COMMENT

COMMENT ON FUNCTION public.retry_failed(team uuid, since timestamp with time zone) IS 'Sends back every job of a team that failed since then; returns how many.';

-- Name: retry_job(uuid); Type: FUNCTION

CREATE FUNCTION public.retry_job(job uuid) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    now_is text;
BEGIN
    SELECT status INTO now_is FROM observation_generation_jobs WHERE id = job FOR UPDATE;
    IF now_is IN ('failed', 'cancelled') THEN
        UPDATE observation_generation_jobs SET status = 'queued' WHERE id = job;
        RETURN 'queued';
    END IF;
    RETURN coalesce('nothing to do: the job is ' || now_is, 'no such job');
END $$;

-- Name: FUNCTION retry_job(job uuid); Type: COMMENT

COMMENT ON FUNCTION public.retry_job(job uuid) IS 'Sends a failed or cancelled job back to the queue, with three more attempts.';

-- Name: revive_what_words_replaced(); Type: FUNCTION

CREATE FUNCTION public.revive_what_words_replaced() RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    revived integer;
BEGIN
    CREATE TEMPORARY TABLE replaced_by_words AS
        SELECT o.id, o.number, o.team_id, o.project_id, t.id AS target_id, t.number AS target_number, v.id AS version_id
          FROM observation_versions v
          JOIN observations t ON t.id = v.observation_id AND t.team_id = v.team_id
          JOIN observations o ON o.superseded_by = t.id AND o.team_id = t.team_id AND o.id = ANY(v.source_ids)
         WHERE v.action = 'merged' AND v.measured_by = 'words' AND v.performed_by = 'system' AND v.undone_at IS NULL;
    UPDATE observations o SET superseded_by = NULL, superseded_at = NULL FROM replaced_by_words r WHERE o.id = r.id;
    UPDATE observations t
       SET merged_from = ARRAY(SELECT id FROM unnest(t.merged_from) WITH ORDINALITY AS m(id, place)
                                WHERE id NOT IN (SELECT r.id FROM replaced_by_words r) ORDER BY place),
           metadata = t.metadata - 'replaces'
     WHERE t.id IN (SELECT target_id FROM replaced_by_words);
    -- Of two the later one says that it may replace the earlier, whichever of them the other was merged into.
    UPDATE observations o SET metadata = o.metadata || jsonb_build_object('mayReplace', m.earlier)
      FROM (SELECT CASE WHEN number > target_number THEN id ELSE target_id END AS later, max(least(number, target_number)) AS earlier
              FROM replaced_by_words GROUP BY 1) m
     WHERE o.id = m.later;
    DELETE FROM observation_relationships l USING replaced_by_words r
     WHERE l.from_id = r.target_id AND l.to_id = r.id AND l.relationship = 'SUPERSEDES' AND l.team_id = r.team_id;
    UPDATE observation_versions v SET undone_at = now(), before = NULL WHERE v.id IN (SELECT version_id FROM replaced_by_words);
    INSERT INTO audit_log (team_id, project_id, actor_id, action, resource_type, resource_id, details)
    SELECT team_id, project_id, 'system', 'observations.revived', 'project', project_id::text,
           jsonb_build_object('numbers', jsonb_agg(number ORDER BY number))
      FROM (SELECT DISTINCT team_id, project_id, number FROM replaced_by_words) n GROUP BY team_id, project_id;
    SELECT count(DISTINCT id) INTO revived FROM replaced_by_words;
    DROP TABLE replaced_by_words;
    RETURN revived;
END $$;

-- Name: FUNCTION revive_what_words_replaced(); Type: COMMENT

COMMENT ON FUNCTION public.revive_what_words_replaced() IS 'Shows again what was hidden by later words alone, marked beside them; returns how many observations that were.';

-- Name: search_mixed(text, text, boolean); Type: FUNCTION

CREATE FUNCTION public.search_mixed(language text, said text, is_phrase boolean) RETURNS tsquery
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
DECLARE
    config   regconfig := 'pg_catalog.' || language;
    usual    text      := normalize(said, NFKC);
    words    text      := regexp_replace(usual, '[' || unsegmented_characters() || ']+', ' ', 'g');
    wanted   tsquery   := CASE WHEN is_phrase THEN phraseto_tsquery(config, words) ELSE plainto_tsquery(config, words) END;
    run      text;
BEGIN
    FOR run IN SELECT matches[1] FROM regexp_matches(usual, '[' || unsegmented_characters() || ']+', 'g') AS matches LOOP
        wanted := wanted && (SELECT string_agg('''' || letter || coalesce(following, '') || '''', ' <-> ' ORDER BY nth)::tsquery
                               FROM (SELECT letter, nth, lead(letter) OVER (ORDER BY nth) AS following
                                       FROM string_to_table(run, NULL) WITH ORDINALITY AS letters (letter, nth)) AS pairs
                              WHERE following IS NOT NULL OR nth = 1);
    END LOOP;
    RETURN wanted;
END $$;

-- Name: search_all(text, text); Type: FUNCTION

CREATE FUNCTION public.search_all(language text, said text) RETURNS tsquery
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN public.is_unsegmented(said) THEN public.search_mixed(language, said, false) ELSE plainto_tsquery((('pg_catalog.'::text || language))::regconfig, said) END;

-- Name: search_marked_mixed(text, text); Type: FUNCTION

CREATE FUNCTION public.search_marked_mixed(language text, said text) RETURNS tsquery
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $$
DECLARE
    wanted tsquery := '';
    phrase tsquery;
    mark   text[];
BEGIN
    FOR mark IN SELECT matches FROM regexp_matches(said, '(-?)"([^"]+)"', 'g') AS matches LOOP
        phrase := search_mixed(language, mark[2], true);
        IF numnode(phrase) > 0 THEN
            wanted := wanted && CASE WHEN mark[1] = '-' THEN !!phrase ELSE phrase END;
        END IF;
    END LOOP;
    RETURN wanted;
END $$;

-- Name: search_marked(text, text); Type: FUNCTION

CREATE FUNCTION public.search_marked(language text, said text) RETURNS tsquery
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN public.is_unsegmented(said) THEN public.search_marked_mixed(language, said) ELSE websearch_to_tsquery((('pg_catalog.'::text || language))::regconfig, said) END;

-- Name: search_names(text); Type: FUNCTION

CREATE FUNCTION public.search_names(said text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT array_agg(found.found[1]) AS array_agg FROM regexp_matches(search_names.said, '[A-Za-z0-9_$]+(?:[./:_#@\\][A-Za-z0-9_$-]+)+|[A-Za-z0-9$]*[a-z0-9][A-Z][A-Za-z0-9$]*|[A-Za-z0-9]*[_$][A-Za-z0-9_$]*|[A-Za-z]+-[0-9]+'::text, 'g'::text) found(found) WHERE (length(found.found[1]) <= 400));

-- Name: search_pairs(text); Type: FUNCTION

CREATE FUNCTION public.search_pairs(said text) RETURNS tsvector
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT (string_agg((CASE WHEN (letters.following IS NOT NULL) THEN ((((''''::text || letters.letter) || letters.following) || ''':'::text) || letters.place) WHEN (letters.nth = 1) THEN (((''''::text || letters.letter) || ''':'::text) || letters.place) ELSE ''::text END || CASE WHEN ((letters.letter ~ '[\u3400-\u9FFF\uAC00-\uD7A3\uF900-\uFAFF\U00020000-\U0003FFFF]'::text) AND ((letters.nth > 1) OR (letters.following IS NOT NULL))) THEN ((' '''::text || letters.letter) || ''''::text) ELSE ''::text END), ' '::text))::tsvector AS string_agg FROM (SELECT letters_1.letter, letters_1.nth, lead(letters_1.letter) OVER (PARTITION BY runs.run ORDER BY letters_1.nth) AS following, row_number() OVER (ORDER BY runs.run, letters_1.nth) AS place FROM (regexp_matches(search_pairs.said, (('['::text || public.unsegmented_characters()) || ']+'::text), 'g'::text) WITH ORDINALITY runs(found, run) CROSS JOIN LATERAL string_to_table(runs.found[1], NULL::text) WITH ORDINALITY letters_1(letter, nth))) letters WHERE (letters.place <= 16000));

-- Name: search_words(text, text, boolean); Type: FUNCTION

CREATE FUNCTION public.search_words(language text, said text, with_names boolean DEFAULT true) RETURNS tsvector
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
DECLARE
    config regconfig := 'pg_catalog.' || language;
    names  text[];
    wholes tsvector;
    pairs  tsvector  := '';
BEGIN
    IF with_names AND is_unsegmented(said) THEN
        said := normalize(said, NFKC);
        pairs := coalesce(search_pairs(said), '');
        said := regexp_replace(said, '[' || unsegmented_characters() || ']+', ' ', 'g');
    END IF;
    IF with_names THEN
        names := search_names(said);
    END IF;
    IF names IS NULL THEN
        RETURN to_tsvector(config, said) || pairs;
    END IF;
    SELECT string_agg('''' || replace(replace(whole, '\', '\\'), '''', '''''') || ''':' || place, ' ')::tsvector
      INTO wholes
      FROM (SELECT lower(part) AS whole, row_number() OVER () AS place
              FROM unnest(names) AS name
             CROSS JOIN LATERAL (
                   SELECT name AS part
                    UNION
                   SELECT regexp_split_to_table(name, '[/\\:#@]+')
                    UNION
                   SELECT regexp_split_to_table(name, '[./\\:#@]+')
                    UNION
                   SELECT substr(name, 2) WHERE name ~* '^v[0-9]') AS parts
             WHERE part = name OR part ~ '[._$]|[a-z0-9][A-Z]') AS found
     WHERE whole <> '' AND place <= 16000;
    RETURN to_tsvector(config, said) || wholes
        || to_tsvector(config, regexp_replace(translate(array_to_string(names, ' '), './:_#@\$-', '         '),
                                              '([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])', '\1\3 \2\4', 'g'))
        || pairs;
END $_$;

-- Name: separate_project(uuid, uuid); Type: FUNCTION

CREATE FUNCTION public.separate_project(joined uuid, team uuid) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    target  uuid := (SELECT joined_to FROM projects WHERE id = joined AND team_id = team);
    merged  bigint[];
BEGIN
    CREATE TEMPORARY TABLE moving (id uuid PRIMARY KEY) ON COMMIT DROP;
    INSERT INTO moving SELECT row_id FROM project_joined_rows WHERE project_id = joined AND team_id = team;
    DELETE FROM moving WHERE id IN (SELECT id FROM server_sessions WHERE project_id <> target AND team_id = team);
    INSERT INTO moving
    SELECT id FROM server_sessions WHERE origin_project_id = joined AND project_id = target AND team_id = team AND moved_at IS NULL
    ON CONFLICT DO NOTHING;
    merged := gather_moving(target, team, false);
    IF merged IS NOT NULL THEN
        DROP TABLE moving;
        RETURN merged;
    END IF;
    SET CONSTRAINTS ALL DEFERRED;
    UPDATE server_sessions SET project_id = joined, origin_project_id = nullif(coalesce(origin_project_id, target), joined)
     WHERE id IN (SELECT id FROM moving) AND team_id = team;
    PERFORM move_gathered(target, joined, team);
    DROP TABLE moving;
    UPDATE projects SET joined_to = NULL, archived_at = NULL, stays_apart = true, updated_at = now(),
                        isolated = isolated OR (SELECT t.isolated FROM projects t WHERE t.id = target)
     WHERE id = joined AND team_id = team;
    DELETE FROM project_joined_rows WHERE project_id = joined AND team_id = team;
    PERFORM follow_language(joined, team);
    SET CONSTRAINTS ALL IMMEDIATE;
    RETURN '{}';
END $$;

-- Name: steward_job_law(); Type: FUNCTION

CREATE FUNCTION public.steward_job_law() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT ((OLD.status = 'queued' AND NEW.status IN ('running', 'cancelled'))
         OR (OLD.status = 'running' AND NEW.status IN ('succeeded', 'failed', 'dead_letter', 'cancelled'))
         OR (OLD.status = 'running' AND NEW.status = 'queued' AND NEW.attempt_count < NEW.max_attempts)
         OR (OLD.status IN ('failed', 'dead_letter', 'cancelled') AND NEW.status = 'queued')) THEN
        RAISE EXCEPTION 'a job of the steward cannot go from % to % (job %, attempt % of %)',
            OLD.status, NEW.status, NEW.id, NEW.attempt_count, NEW.max_attempts USING ERRCODE = 'check_violation',
            CONSTRAINT = 'steward_job_law';
    END IF;
    IF OLD.status IN ('failed', 'dead_letter', 'cancelled') THEN
        NEW.max_attempts := greatest(NEW.max_attempts, NEW.attempt_count + 3);
        NEW.run_after := now();
        NEW.cancel_requested_at := NULL;
    END IF;
    IF NEW.status <> 'running' THEN
        NEW.locked_by := NULL;
        NEW.locked_at := NULL;
        NEW.lease_expires_at := NULL;
    END IF;
    NEW.ended_at := CASE WHEN NEW.status NOT IN ('queued', 'running') THEN now() END;
    NEW.updated_at := now();
    RETURN NEW;
END $$;

-- Name: steward_job_log(); Type: FUNCTION

CREATE FUNCTION public.steward_job_log() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO steward_events (team_id, job_id, event_type, data)
        VALUES (NEW.team_id, NEW.id, 'job_created', jsonb_build_object('type', NEW.job_type, 'reason', NEW.trigger_reason));
    ELSE
        INSERT INTO steward_events (team_id, job_id, event_type, data)
        VALUES (NEW.team_id, NEW.id,
                CASE WHEN OLD.status = 'running' AND OLD.lease_expires_at < now() AND NEW.status IN ('queued', 'dead_letter')
                     THEN 'recovery_detected'
                     WHEN NEW.status = 'running' THEN 'job_claimed'
                     WHEN NEW.status IN ('failed', 'dead_letter') THEN 'job_failed'
                     WHEN NEW.status = 'queued' AND OLD.status = 'running' THEN 'job_failed'
                     WHEN NEW.status = 'queued' THEN 'job_created'
                     ELSE 'job_completed' END,
                jsonb_strip_nulls(jsonb_build_object(
                    'status', NEW.status, 'attempt', NEW.attempt_count,
                    'claim', CASE WHEN NEW.status = 'running' THEN NEW.claim END,
                    'error', CASE WHEN OLD.status = 'running' AND NEW.status <> 'succeeded' THEN NEW.last_error END,
                    'runAfter', CASE WHEN NEW.status = 'queued' THEN NEW.run_after END)));
    END IF;
    IF NEW.status = 'queued' THEN
        PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW('steward', 'steward.run', NEW.priority, NULL, NULL,
            jsonb_build_object('job_id', NEW.id), NEW.run_after)::procrastinate_job_to_defer_v1]);
    END IF;
    RETURN NULL;
END $$;

-- Name: text_is_read_again(); Type: FUNCTION

CREATE FUNCTION public.text_is_read_again() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO entity_rereads (place_id, team_id) VALUES (NEW.id, NEW.team_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- Name: time_of_event(timestamp with time zone, timestamp with time zone); Type: FUNCTION

CREATE FUNCTION public.time_of_event(occurred_at timestamp with time zone, received_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN occurred_at BETWEEN received_at - interval '30 days' AND received_at - interval '1 minute'
                THEN occurred_at ELSE received_at END
$$;

-- Name: FUNCTION time_of_event(occurred_at timestamp with time zone, received_at timestamp with time zone); Type: COMMENT

COMMENT ON FUNCTION public.time_of_event(occurred_at timestamp with time zone, received_at timestamp with time zone) IS 'When something happened: as its client says if it was delivered late, else when it arrived.';

-- Name: tsvector_words(tsvector); Type: FUNCTION

CREATE FUNCTION public.tsvector_words(vector tsvector) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (COALESCE(sum(cardinality(u.positions)), (0)::bigint))::integer AS "coalesce"
    FROM unnest(tsvector_words.vector) u(lexeme, positions, weights);
END;

-- Name: turn_waits_for_embedding(); Type: FUNCTION

CREATE FUNCTION public.turn_waits_for_embedding() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.ended_at IS NOT NULL AND (OLD.prompt, OLD.reply) IS NOT DISTINCT FROM (NEW.prompt, NEW.reply) THEN
        RETURN NULL;
    END IF;
    INSERT INTO observation_embeddings AS e (turn_id, model_id, team_id, project_id)
    SELECT NEW.id, m.id, NEW.team_id, NEW.project_id FROM embedding_models m WHERE m.state <> 'retired'
    ON CONFLICT (turn_id, model_id) WHERE turn_id IS NOT NULL DO UPDATE
       SET is_outdated = e.embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL;
    RETURN NULL;
END $$;

-- Name: turn_waits_for_sentences(); Type: FUNCTION

CREATE FUNCTION public.turn_waits_for_sentences() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.ended_at IS NOT NULL
        AND (OLD.prompt, OLD.reply, OLD.own_line, OLD.search_language)
            IS NOT DISTINCT FROM (NEW.prompt, NEW.reply, NEW.own_line, NEW.search_language) THEN
        RETURN NULL;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO turn_sentences (turn_id, team_id, project_id) VALUES (NEW.id, NEW.team_id, NEW.project_id)
        ON CONFLICT (turn_id) DO UPDATE SET due_at = now(), texts = '{}', of_user = 0, words = '{}', model_id = 0, vectors = NULL,
            later_ids = '{}', later_places = '{}', nearness = '{}';
        IF TG_OP = 'UPDATE' AND OLD.ended_at IS NOT NULL AND OLD.reply IS NOT DISTINCT FROM NEW.reply THEN
            RETURN NULL;
        END IF;
    END IF;
    UPDATE turn_sentences s
       SET due_at = now(), texts = '{}', of_user = 0, words = '{}', model_id = 0, vectors = NULL,
           later_ids = '{}', later_places = '{}', nearness = '{}'
      FROM turns t
     WHERE t.server_session_id = coalesce(NEW.server_session_id, OLD.server_session_id)
       AND t.team_id = coalesce(NEW.team_id, OLD.team_id)
       AND t.prompt_number = coalesce(NEW.prompt_number, OLD.prompt_number) + 1 AND s.turn_id = t.id;
    RETURN NULL;
END $$;

-- Name: turn_words(); Type: FUNCTION

CREATE FUNCTION public.turn_words() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    named boolean;
BEGIN
    FOREACH named IN ARRAY '{true,false}'::boolean[] LOOP
        BEGIN
            NEW.text_search := search_words(NEW.search_language, NEW.prompt, named)
                || search_words(NEW.search_language, coalesce(NEW.reply, ''), named)
                || search_words(NEW.search_language, array_to_string(NEW.files || NEW.commits, ' '), named);
            EXIT;
        EXCEPTION WHEN program_limit_exceeded THEN
            IF NOT named THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    RETURN NEW;
END $$;

-- Name: wake_sleeping_lanes(); Type: FUNCTION

CREATE FUNCTION public.wake_sleeping_lanes() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    woken_count bigint;
BEGIN
    WITH lost AS (
        SELECT j.id FROM observation_generation_jobs j
         WHERE j.phase = 'open' AND j.status = 'processing' AND j.worker_id NOT IN (SELECT live_workers())
           AND NOT EXISTS (SELECT FROM generation_lanes l WHERE l.lane = j.lane AND l.claim = j.claim)
         ORDER BY j.id FOR UPDATE OF j SKIP LOCKED)
    UPDATE observation_generation_jobs j
       SET status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                         WHEN j.attempts < j.max_attempts THEN 'queued' ELSE 'failed' END,
           last_error = jsonb_build_object('reason', 'worker lost', 'worker', j.locked_by, 'claim', j.claim)
      FROM lost WHERE j.id = lost.id;

    WITH sleeping AS (
        SELECT j.lane, min(j.team_id::text)::uuid AS team_id, min(j.project_id::text)::uuid AS project_id
          FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
         WHERE j.phase = 'open' AND j.status = 'queued' AND (l.lane IS NULL OR (l.worker_id IS NULL AND l.due_at IS NULL))
         GROUP BY j.lane ORDER BY j.lane
    ), woken AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        SELECT lane, team_id, project_id, now() FROM sleeping ORDER BY lane
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)) RETURNING 1
    ) SELECT count(*) INTO woken_count FROM woken;
    RETURN woken_count;
END $$;

-- Name: FUNCTION wake_sleeping_lanes(); Type: COMMENT

COMMENT ON FUNCTION public.wake_sleeping_lanes() IS 'Finds queued jobs whose lane is missing or asleep (rows that psql wrote) and makes them due; done every ten minutes.';

-- Name: wake_steward_jobs(); Type: FUNCTION

CREATE FUNCTION public.wake_steward_jobs() RETURNS bigint
    LANGUAGE plpgsql
    AS $$
DECLARE
    woken_count bigint;
BEGIN
    -- The tasks of workers that are gone: they finish nothing, and nobody else finishes them.
    DELETE FROM procrastinate_jobs p
     WHERE p.queue_name = 'steward' AND p.status = 'doing'
       AND NOT EXISTS (SELECT FROM procrastinate_workers w
                        WHERE w.id = p.worker_id AND w.last_heartbeat > now() - interval '1 minute');
    PERFORM procrastinate_defer_jobs_v1(array_agg(ROW('steward', 'steward.run', j.priority, NULL, NULL,
                jsonb_build_object('job_id', j.id), j.run_after)::procrastinate_job_to_defer_v1))
       FROM steward_jobs j JOIN steward_modes m ON m.team_id = j.team_id AND m.project_id IS NULL
      WHERE j.status = 'queued' AND m.mode <> 'off' AND NOT m.is_paused
        AND NOT EXISTS (SELECT FROM procrastinate_jobs p
                         WHERE p.queue_name = 'steward' AND p.status IN ('todo', 'doing') AND p.args ->> 'job_id' = j.id::text)
     HAVING count(*) > 0;
    GET DIAGNOSTICS woken_count = ROW_COUNT;
    RETURN woken_count;
END $$;

-- Name: FUNCTION wake_steward_jobs(); Type: COMMENT

COMMENT ON FUNCTION public.wake_steward_jobs() IS 'Makes a task for each queued job of the steward that has none: it was paused, or psql took the task away. Done every minute.';

-- Name: access_counting; Type: TABLE

CREATE TABLE public.access_counting (
    only_one boolean DEFAULT true NOT NULL,
    counted_to bigint DEFAULT 0 NOT NULL,
    seen_to bigint DEFAULT 0 NOT NULL,
    seen_below xid8,
    CONSTRAINT access_counting_only_one_check CHECK (only_one)
);

-- Name: TABLE access_counting; Type: COMMENT

COMMENT ON TABLE public.access_counting IS 'One row: up to which row of audit_log accesses are counted into observations.';

-- Name: COLUMN access_counting.seen_to; Type: COMMENT

COMMENT ON COLUMN public.access_counting.seen_to IS 'Up to here all is counted next, when every transaction below seen_below is over.';

-- Name: agent_events; Type: TABLE

CREATE TABLE public.agent_events (
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    team_id uuid NOT NULL,
    server_session_id uuid,
    source_adapter text NOT NULL,
    source_event_id text,
    idempotency_key text NOT NULL,
    event_type text NOT NULL,
    platform_source text,
    origin text NOT NULL,
    generate boolean NOT NULL,
    size_chars integer NOT NULL,
    payload jsonb NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    received_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    payload_purged_at timestamp with time zone,
    CONSTRAINT agent_events_origin_check CHECK ((origin = ANY (ARRAY['hook'::text, 'api'::text, 'mcp'::text, 'import'::text, 'model'::text]))),
    CONSTRAINT agent_events_size_chars_check CHECK ((size_chars >= 0))
);

-- Name: TABLE agent_events; Type: COMMENT

COMMENT ON TABLE public.agent_events IS 'What agents reported, once each, redacted. Never changed, but for the payload, which retention may empty.';

-- Name: COLUMN agent_events.origin; Type: COMMENT

COMMENT ON COLUMN public.agent_events.origin IS 'The door it came through, stamped by the server.';

-- Name: COLUMN agent_events.generate; Type: COMMENT

COMMENT ON COLUMN public.agent_events.generate IS 'Whether the sender asked for observations: such an event has exactly one job.';

-- Name: COLUMN agent_events.payload_purged_at; Type: COMMENT

COMMENT ON COLUMN public.agent_events.payload_purged_at IS 'When the payload was emptied; NULL while it is there.';

-- Name: api_keys; Type: TABLE

CREATE TABLE public.api_keys (
    id uuid NOT NULL,
    key_hash text NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid,
    name text DEFAULT ''::text NOT NULL,
    actor_id text NOT NULL,
    scopes jsonb DEFAULT '[]'::jsonb NOT NULL,
    revoked_at timestamp with time zone,
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    last_used_at timestamp with time zone,
    replaced_by uuid,
    counts_as uuid,
    requests_per_minute integer,
    events_per_month bigint,
    user_id uuid,
    made_by uuid,
    CONSTRAINT api_keys_actor_id_check CHECK ((actor_id <> ''::text)),
    CONSTRAINT api_keys_events_per_month_check CHECK ((events_per_month >= 0)),
    CONSTRAINT api_keys_requests_per_minute_check CHECK ((requests_per_minute > 0)),
    CONSTRAINT api_keys_scopes_check CHECK ((jsonb_typeof(scopes) = 'array'::text))
);

-- Name: TABLE api_keys; Type: COMMENT

COMMENT ON TABLE public.api_keys IS 'Keys: what they may do, in which team, and in which project when bound to one.';

-- Name: COLUMN api_keys.key_hash; Type: COMMENT

COMMENT ON COLUMN public.api_keys.key_hash IS 'SHA-256 of the secret part of the key, hex. The key itself is shown once and stored nowhere.';

-- Name: COLUMN api_keys.last_used_at; Type: COMMENT

COMMENT ON COLUMN public.api_keys.last_used_at IS 'Known to the minute: it is not written with each request.';

-- Name: COLUMN api_keys.replaced_by; Type: COMMENT

COMMENT ON COLUMN public.api_keys.replaced_by IS 'The key that a rotation has put in its place.';

-- Name: COLUMN api_keys.counts_as; Type: COMMENT

COMMENT ON COLUMN public.api_keys.counts_as IS 'The key whose limits and usage this one goes on with: the first that was rotated into it; NULL for its own. Or any key could escape its limits by rotating itself.';

-- Name: COLUMN api_keys.user_id; Type: COMMENT

COMMENT ON COLUMN public.api_keys.user_id IS 'The person who made the key for themselves; it ends with their membership.';

-- Name: COLUMN api_keys.made_by; Type: COMMENT

COMMENT ON COLUMN public.api_keys.made_by IS 'The person who made it, for themselves or another actor, also by a key of theirs; it ends with their membership.';

-- Name: audit_log; Type: TABLE

CREATE TABLE public.audit_log (
    id bigint NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid,
    actor_id text,
    api_key_id uuid,
    action text NOT NULL,
    resource_type text NOT NULL,
    resource_id text,
    request_id text,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    user_id uuid
);

-- Name: TABLE audit_log; Type: COMMENT

COMMENT ON TABLE public.audit_log IS 'Who did what, in ids and names, never in texts. Only appended to.';

-- Name: COLUMN audit_log.user_id; Type: COMMENT

COMMENT ON COLUMN public.audit_log.user_id IS 'The person who acted, by their account or a key of theirs.';

-- Name: audit_log_id_seq; Type: SEQUENCE

ALTER TABLE public.audit_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: budgets; Type: TABLE

CREATE TABLE public.budgets (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid,
    period text NOT NULL,
    max_tokens bigint,
    max_usd numeric,
    warned_at timestamp with time zone,
    exhausted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT budgets_check CHECK ((num_nonnulls(max_tokens, max_usd) > 0)),
    CONSTRAINT budgets_max_tokens_check CHECK ((max_tokens > 0)),
    CONSTRAINT budgets_max_usd_check CHECK ((max_usd > (0)::numeric)),
    CONSTRAINT budgets_period_check CHECK ((period = ANY (ARRAY['day'::text, 'month'::text])))
);

-- Name: TABLE budgets; Type: COMMENT

COMMENT ON TABLE public.budgets IS 'How much a team, or one of its projects, may spend on providers in a calendar day or month (UTC); at the cap generation waits.';

-- Name: COLUMN budgets.project_id; Type: COMMENT

COMMENT ON COLUMN public.budgets.project_id IS 'NULL is the whole team.';

-- Name: COLUMN budgets.warned_at; Type: COMMENT

COMMENT ON COLUMN public.budgets.warned_at IS 'When it was last said that 80 % are spent: once a period. NULL again when the budget is changed.';

-- Name: COLUMN budgets.exhausted_at; Type: COMMENT

COMMENT ON COLUMN public.budgets.exhausted_at IS 'When it was last said that all is spent: once a period. NULL again when the budget is changed.';

-- Name: observation_versions; Type: TABLE

CREATE TABLE public.observation_versions (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    observation_id uuid NOT NULL,
    version integer NOT NULL,
    action text NOT NULL,
    before jsonb,
    source_ids uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    strategy text,
    similarity real,
    measured_by text,
    performed_by text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    undone_at timestamp with time zone,
    sources_purged_at timestamp with time zone,
    CONSTRAINT observation_versions_action_check CHECK ((action = ANY (ARRAY['corrected'::text, 'merged'::text, 'promoted'::text]))),
    CONSTRAINT observation_versions_check CHECK (((before IS NULL) = (undone_at IS NOT NULL))),
    CONSTRAINT observation_versions_measured_by_check CHECK ((measured_by = ANY (ARRAY['text'::text, 'vector'::text, 'words'::text]))),
    CONSTRAINT observation_versions_strategy_check CHECK ((strategy = ANY (ARRAY['latest_wins'::text, 'append'::text, 'smart_merge'::text])))
);

-- Name: TABLE observation_versions; Type: COMMENT

COMMENT ON TABLE public.observation_versions IS 'The changes of observations: how each was before, and what it was merged from.';

-- Name: COLUMN observation_versions.version; Type: COMMENT

COMMENT ON COLUMN public.observation_versions.version IS 'The version that the observation got with the change.';

-- Name: COLUMN observation_versions.performed_by; Type: COMMENT

COMMENT ON COLUMN public.observation_versions.performed_by IS 'The name of the key, or `system`.';

-- Name: COLUMN observation_versions.sources_purged_at; Type: COMMENT

COMMENT ON COLUMN public.observation_versions.sources_purged_at IS 'When the texts of merged sources went; from then on the merge cannot be undone.';

-- Name: observations; Type: TABLE

CREATE TABLE public.observations (
    id uuid NOT NULL,
    number bigint NOT NULL,
    project_id uuid NOT NULL,
    team_id uuid NOT NULL,
    server_session_id uuid,
    scope text DEFAULT 'project'::text NOT NULL,
    kind text DEFAULT 'observation'::text NOT NULL,
    type text DEFAULT 'change'::text NOT NULL,
    origin text NOT NULL,
    title text,
    subtitle text,
    narrative text,
    facts text[],
    concepts text[],
    files_read text[],
    files_modified text[],
    summary jsonb,
    prompt_number integer,
    content text NOT NULL,
    content_search tsvector NOT NULL,
    content_words integer NOT NULL,
    read_tokens integer,
    discovery_tokens integer,
    access_count integer DEFAULT 0 NOT NULL,
    last_accessed_at timestamp with time zone,
    generation_key text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_by_job_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    search_language text DEFAULT 'english'::text NOT NULL,
    importance real DEFAULT 0.5 NOT NULL,
    quote text,
    quote_event_id uuid,
    anchors text[],
    state text,
    closed_by bigint,
    closed_at timestamp with time zone,
    ttl_seconds bigint,
    expires_at timestamp with time zone,
    version integer DEFAULT 1 NOT NULL,
    superseded_by uuid,
    superseded_at timestamp with time zone,
    merged_from uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    agent text,
    caller_type text,
    stale jsonb,
    actor_id text,
    turn_number bigint,
    CONSTRAINT closed_when_not_open CHECK (((closed_at IS NOT NULL) = COALESCE((state = ANY (ARRAY['done'::text, 'dropped'::text])), false))),
    CONSTRAINT expires_with_a_lifetime CHECK (((expires_at IS NULL) OR (ttl_seconds IS NOT NULL))),
    CONSTRAINT observations_importance_check CHECK (((importance >= (0)::double precision) AND (importance <= (1)::double precision))),
    CONSTRAINT observations_kind_check CHECK ((kind = ANY (ARRAY['observation'::text, 'summary'::text, 'manual'::text]))),
    CONSTRAINT observations_number_check CHECK ((number >= 1)),
    CONSTRAINT observations_origin_check CHECK ((origin = ANY (ARRAY['hook'::text, 'api'::text, 'mcp'::text, 'import'::text, 'model'::text, 'rules'::text]))),
    CONSTRAINT observations_quote_check CHECK ((length(quote) <= 400)),
    CONSTRAINT observations_scope_check CHECK ((scope = ANY (ARRAY['project'::text, 'team'::text]))),
    CONSTRAINT observations_stale_check CHECK ((jsonb_typeof(stale) = 'object'::text)),
    CONSTRAINT observations_state_check CHECK ((state = ANY (ARRAY['open'::text, 'done'::text, 'dropped'::text]))),
    CONSTRAINT observations_ttl_seconds_check CHECK ((ttl_seconds > 0)),
    CONSTRAINT observations_type_check CHECK ((type = ANY (ARRAY['bugfix'::text, 'feature'::text, 'refactor'::text, 'change'::text, 'discovery'::text, 'decision'::text, 'security_alert'::text, 'security_note'::text, 'sensitive'::text]))),
    CONSTRAINT observations_version_check CHECK ((version >= 1)),
    CONSTRAINT superseded_at_a_time CHECK (((superseded_by IS NULL) = (superseded_at IS NULL))),
    CONSTRAINT superseded_by_another CHECK ((superseded_by <> id))
)
WITH (fillfactor='90', toast_tuple_target='8160');

-- Name: TABLE observations; Type: COMMENT

COMMENT ON TABLE public.observations IS 'What is remembered: one thing each, titled and typed, with facts and files.';

-- Name: COLUMN observations.number; Type: COMMENT

COMMENT ON COLUMN public.observations.number IS 'The short id that people and models use (#1234), counted per team.';

-- Name: COLUMN observations.ttl_seconds; Type: COMMENT

COMMENT ON COLUMN public.observations.ttl_seconds IS 'How long it lives after it was written; NULL is for good.';

-- Name: COLUMN observations.expires_at; Type: COMMENT

COMMENT ON COLUMN public.observations.expires_at IS 'From then on it is not shown. NULL is never.';

-- Name: COLUMN observations.superseded_by; Type: COMMENT

COMMENT ON COLUMN public.observations.superseded_by IS 'The observation that it was merged into. Its text goes when that one is deleted.';

-- Name: COLUMN observations.agent; Type: COMMENT

COMMENT ON COLUMN public.observations.agent IS 'Who wrote it by hand, in his own words.';

-- Name: COLUMN observations.caller_type; Type: COMMENT

COMMENT ON COLUMN public.observations.caller_type IS 'The type that the caller gave, where it is none of ours.';

-- Name: COLUMN observations.stale; Type: COMMENT

COMMENT ON COLUMN public.observations.stale IS 'Why what it says of a file does not hold any more: reason, path, event and time. NULL while nothing is known against it.';

-- Name: COLUMN observations.actor_id; Type: COMMENT

COMMENT ON COLUMN public.observations.actor_id IS 'Whose key it came by.';

-- Name: COLUMN observations.turn_number; Type: COMMENT

COMMENT ON COLUMN public.observations.turn_number IS 'The number of the turn that it was made of; that may be deleted.';

-- Name: projects; Type: TABLE

CREATE TABLE public.projects (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    canonical_id text NOT NULL,
    name text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    archived_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    generation_policy jsonb DEFAULT '{}'::jsonb NOT NULL,
    search_language text DEFAULT 'english'::text NOT NULL,
    consolidation text DEFAULT 'suggest'::text NOT NULL,
    retention jsonb DEFAULT '{}'::jsonb NOT NULL,
    joined_to uuid,
    stays_apart boolean DEFAULT false NOT NULL,
    merge_with_model boolean DEFAULT false NOT NULL,
    isolated boolean DEFAULT false NOT NULL,
    CONSTRAINT projects_canonical_id_check CHECK (((canonical_id <> ''::text) AND (length(canonical_id) <= 500))),
    CONSTRAINT projects_consolidation_check CHECK ((consolidation = ANY (ARRAY['off'::text, 'suggest'::text, 'merge'::text]))),
    CONSTRAINT projects_generation_policy_check CHECK (public.is_generation_policy(generation_policy)),
    CONSTRAINT projects_joined_is_archived CHECK (((joined_to IS NULL) OR (archived_at IS NOT NULL))),
    CONSTRAINT projects_joined_to_another CHECK ((joined_to <> id)),
    CONSTRAINT projects_name_check CHECK ((name <> ''::text)),
    CONSTRAINT projects_retention_check CHECK (public.is_retention_policy(retention)),
    CONSTRAINT projects_search_language_check CHECK ((search_language = ANY (ARRAY['simple'::text, 'arabic'::text, 'armenian'::text, 'basque'::text, 'catalan'::text, 'danish'::text, 'dutch'::text, 'english'::text, 'finnish'::text, 'french'::text, 'german'::text, 'greek'::text, 'hindi'::text, 'hungarian'::text, 'indonesian'::text, 'irish'::text, 'italian'::text, 'lithuanian'::text, 'nepali'::text, 'norwegian'::text, 'portuguese'::text, 'romanian'::text, 'russian'::text, 'serbian'::text, 'spanish'::text, 'swedish'::text, 'tamil'::text, 'turkish'::text, 'yiddish'::text])))
);

-- Name: TABLE projects; Type: COMMENT

COMMENT ON TABLE public.projects IS 'A code base of a team, by its canonical id (github.com/user/repo, a name, or a path).';

-- Name: COLUMN projects.search_language; Type: COMMENT

COMMENT ON COLUMN public.projects.search_language IS 'The text search configuration by which its texts and queries are stemmed; simple is none.';

-- Name: COLUMN projects.consolidation; Type: COMMENT

COMMENT ON COLUMN public.projects.consolidation IS 'What becomes of generated observations that say what is there already.';

-- Name: COLUMN projects.joined_to; Type: COMMENT

COMMENT ON COLUMN public.projects.joined_to IS 'The project that has its rows, and is meant by its names.';

-- Name: COLUMN projects.stays_apart; Type: COMMENT

COMMENT ON COLUMN public.projects.stays_apart IS 'It was separated again: it is joined by nobody but people.';

-- Name: COLUMN projects.merge_with_model; Type: COMMENT

COMMENT ON COLUMN public.projects.merge_with_model IS 'Whether a model words what people merge; what is merged by itself is merged by rules.';

-- Name: COLUMN projects.isolated; Type: COMMENT

COMMENT ON COLUMN public.projects.isolated IS 'Nothing of it is found from elsewhere, and it sees nothing that other projects share.';

-- Name: teams; Type: TABLE

CREATE TABLE public.teams (
    id uuid NOT NULL,
    name text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    archived_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    generation_policy jsonb DEFAULT '{}'::jsonb NOT NULL,
    requests_per_minute integer,
    events_per_month bigint,
    retention jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT teams_events_per_month_check CHECK ((events_per_month >= 0)),
    CONSTRAINT teams_generation_policy_check CHECK (public.is_generation_policy(generation_policy)),
    CONSTRAINT teams_name_check CHECK ((name <> ''::text)),
    CONSTRAINT teams_requests_per_minute_check CHECK ((requests_per_minute > 0)),
    CONSTRAINT teams_retention_check CHECK (public.is_retention_policy(retention))
);

-- Name: TABLE teams; Type: COMMENT

COMMENT ON TABLE public.teams IS 'People who share what their agents remember; teams never see each other.';

-- Name: COLUMN teams.generation_policy; Type: COMMENT

COMMENT ON COLUMN public.teams.generation_policy IS 'When observations are made of the team''s events, and of which never; a project may say it for itself.';

-- Name: COLUMN teams.requests_per_minute; Type: COMMENT

COMMENT ON COLUMN public.teams.requests_per_minute IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';

-- Name: COLUMN teams.events_per_month; Type: COMMENT

COMMENT ON COLUMN public.teams.events_per_month IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';

-- Name: COLUMN teams.retention; Type: COMMENT

COMMENT ON COLUMN public.teams.retention IS 'How long what is kept; a project may say it for itself. 0 days is for good.';

-- Name: consolidation_log; Type: VIEW

CREATE VIEW public.consolidation_log AS
 SELECT v.created_at,
    t.name AS team,
    p.canonical_id AS project,
    o.number AS target,
    v.version,
    v.strategy,
    v.similarity,
    v.measured_by,
    v.performed_by,
    v.undone_at,
    ARRAY( SELECT s.number
           FROM public.observations s
          WHERE (s.id = ANY (v.source_ids))
          ORDER BY s.number) AS sources
   FROM (((public.observation_versions v
     JOIN public.observations o ON ((o.id = v.observation_id)))
     JOIN public.projects p ON ((p.id = v.project_id)))
     JOIN public.teams t ON ((t.id = v.team_id)))
  WHERE (v.action = 'merged'::text);

-- Name: VIEW consolidation_log; Type: COMMENT

COMMENT ON VIEW public.consolidation_log IS 'Merges of all teams, for operators: which observations became which, how alike they were, and who did it.';

-- Name: consolidation_progress; Type: TABLE

CREATE TABLE public.consolidation_progress (
    team_id uuid NOT NULL,
    compared_to bigint DEFAULT 0 NOT NULL
);

-- Name: TABLE consolidation_progress; Type: COMMENT

COMMENT ON TABLE public.consolidation_progress IS 'Up to which number the observations of a team are compared with the others of their projects.';

-- Name: consolidation_suggestions; Type: TABLE

CREATE TABLE public.consolidation_suggestions (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    left_id uuid NOT NULL,
    right_id uuid NOT NULL,
    similarity real NOT NULL,
    measured_by text NOT NULL,
    reason text NOT NULL,
    status text DEFAULT 'open'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    resolved_at timestamp with time zone,
    resolved_by text,
    CONSTRAINT consolidation_suggestions_check CHECK ((left_id < right_id)),
    CONSTRAINT consolidation_suggestions_check1 CHECK (((status = 'open'::text) = (resolved_at IS NULL))),
    CONSTRAINT consolidation_suggestions_measured_by_check CHECK ((measured_by = ANY (ARRAY['vector'::text, 'words'::text]))),
    CONSTRAINT consolidation_suggestions_reason_check CHECK ((reason = ANY (ARRAY['same'::text, 'related'::text, 'contradicts'::text]))),
    CONSTRAINT consolidation_suggestions_status_check CHECK ((status = ANY (ARRAY['open'::text, 'accepted'::text, 'dismissed'::text])))
);

-- Name: TABLE consolidation_suggestions; Type: COMMENT

COMMENT ON TABLE public.consolidation_suggestions IS 'Pairs of observations that seem to say the same, or to contradict each other. What was dismissed is not suggested again.';

-- Name: context_injections; Type: TABLE

CREATE TABLE public.context_injections (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    server_session_id uuid,
    reason text NOT NULL,
    platform_source text,
    numbers bigint[] NOT NULL,
    summary_numbers bigint[] NOT NULL,
    left_out bigint[] NOT NULL,
    left_out_count integer NOT NULL,
    tokens integer NOT NULL,
    budget_tokens integer NOT NULL,
    chars integer NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT context_injections_budget_tokens_check CHECK ((budget_tokens >= 0)),
    CONSTRAINT context_injections_chars_check CHECK ((chars >= 0)),
    CONSTRAINT context_injections_left_out_count_check CHECK ((left_out_count >= 0)),
    CONSTRAINT context_injections_reason_check CHECK ((reason = ANY (ARRAY['startup'::text, 'resume'::text, 'clear'::text, 'compact'::text, 'fork'::text, 'prompt'::text, 'file'::text, 'asked'::text]))),
    CONSTRAINT context_injections_tokens_check CHECK ((tokens >= 0))
);

-- Name: TABLE context_injections; Type: COMMENT

COMMENT ON TABLE public.context_injections IS 'Receipts: what of the memory was shown to which session, why, and how many tokens it cost. Never the text itself.';

-- Name: COLUMN context_injections.reason; Type: COMMENT

COMMENT ON COLUMN public.context_injections.reason IS 'How the session started (startup, resume, clear, compact, fork), a prompt, a file that was opened, or asked: somebody asked for what the session would be told.';

-- Name: COLUMN context_injections.numbers; Type: COMMENT

COMMENT ON COLUMN public.context_injections.numbers IS 'The observations that were shown, in the order of the text.';

-- Name: COLUMN context_injections.summary_numbers; Type: COMMENT

COMMENT ON COLUMN public.context_injections.summary_numbers IS 'Those of them that are summaries.';

-- Name: COLUMN context_injections.left_out; Type: COMMENT

COMMENT ON COLUMN public.context_injections.left_out IS 'The most useful of those that had no room, at most 100.';

-- Name: COLUMN context_injections.details; Type: COMMENT

COMMENT ON COLUMN public.context_injections.details IS 'How useful each line was judged and by what, for cmserver context --explain. Numbers and words of ours, never a text of an observation.';

-- Name: embedding_calibrations; Type: TABLE

CREATE TABLE public.embedding_calibrations (
    team_id uuid NOT NULL,
    model_id smallint NOT NULL,
    intercept double precision NOT NULL,
    slope double precision NOT NULL,
    titles integer NOT NULL,
    calibrated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT embedding_calibrations_slope_check CHECK ((slope > (0)::double precision)),
    CONSTRAINT embedding_calibrations_titles_check CHECK ((titles >= 1))
);

-- Name: TABLE embedding_calibrations; Type: COMMENT

COMMENT ON TABLE public.embedding_calibrations IS 'What the cosine of a query and its nearest document says about the query, by team and embedding model.';

-- Name: COLUMN embedding_calibrations.intercept; Type: COMMENT

COMMENT ON COLUMN public.embedding_calibrations.intercept IS 'The log-odds that a title is one of the project, at a cosine of 0.';

-- Name: COLUMN embedding_calibrations.slope; Type: COMMENT

COMMENT ON COLUMN public.embedding_calibrations.slope IS 'How much they grow with the cosine.';

-- Name: COLUMN embedding_calibrations.titles; Type: COMMENT

COMMENT ON COLUMN public.embedding_calibrations.titles IS 'How many titles of the team it was measured with.';

-- Name: embedding_models; Type: TABLE

CREATE TABLE public.embedding_models (
    id smallint NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    base_url text,
    asked_dimensions integer,
    dimensions integer,
    state text NOT NULL,
    backfilled_to uuid,
    is_backfilled boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    switched_at timestamp with time zone,
    pulled_percent smallint,
    document_prefix text DEFAULT ''::text NOT NULL,
    CONSTRAINT embedding_models_dimensions_check CHECK (((dimensions >= 1) AND (dimensions <= 4000))),
    CONSTRAINT embedding_models_pulled_percent_check CHECK (((pulled_percent >= 0) AND (pulled_percent <= 100))),
    CONSTRAINT embedding_models_state_check CHECK ((state = ANY (ARRAY['building'::text, 'current'::text, 'retired'::text])))
);

-- Name: TABLE embedding_models; Type: COMMENT

COMMENT ON TABLE public.embedding_models IS 'What embeds texts, of all teams: the model in use, and the one that takes its place when all is embedded.';

-- Name: COLUMN embedding_models.asked_dimensions; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.asked_dimensions IS 'How long its vectors shall be; NULL leaves it to the model.';

-- Name: COLUMN embedding_models.dimensions; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.dimensions IS 'How long they are; NULL until the first answer of a model whose length only its server knows.';

-- Name: COLUMN embedding_models.backfilled_to; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.backfilled_to IS 'Down to which observation, turn or entity, by id, earlier ones have their rows in observation_embeddings; of a retired model: have none any more.';

-- Name: COLUMN embedding_models.pulled_percent; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.pulled_percent IS 'How much of the model its server has downloaded; NULL while it downloads nothing.';

-- Name: COLUMN embedding_models.document_prefix; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.document_prefix IS 'What is put before each text that is embedded with it.';

-- Name: embedding_models_id_seq; Type: SEQUENCE

ALTER TABLE public.embedding_models ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.embedding_models_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: entities; Type: TABLE

CREATE TABLE public.entities (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    type text NOT NULL,
    name text NOT NULL,
    folded_name text NOT NULL COLLATE pg_catalog."C",
    notes text,
    found_by text NOT NULL,
    merged_into uuid,
    mention_count integer DEFAULT 0 NOT NULL,
    first_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT entities_check CHECK ((merged_into <> id)),
    CONSTRAINT entities_folded_name_check CHECK ((folded_name <> ''::text)),
    CONSTRAINT entities_found_by_check CHECK ((found_by = ANY (ARRAY['rules'::text, 'model'::text, 'people'::text]))),
    CONSTRAINT entities_name_check CHECK ((name <> ''::text)),
    CONSTRAINT entities_type_check CHECK ((type = ANY (ARRAY['person'::text, 'place'::text, 'project'::text, 'technology'::text, 'concept'::text, 'organization'::text, 'file'::text, 'symbol'::text, 'command'::text, 'error'::text])))
);

-- Name: TABLE entities; Type: COMMENT

COMMENT ON TABLE public.entities IS 'What observations are about: files, symbols, commands, errors, technologies, people and others, by project.';

-- Name: COLUMN entities.folded_name; Type: COMMENT

COMMENT ON COLUMN public.entities.folded_name IS 'The name without differences of case, width and spaces: one entity of a type has it in a project.';

-- Name: COLUMN entities.found_by; Type: COMMENT

COMMENT ON COLUMN public.entities.found_by IS 'One that people made stays without mentions.';

-- Name: COLUMN entities.merged_into; Type: COMMENT

COMMENT ON COLUMN public.entities.merged_into IS 'The entity that this name is an alias of.';

-- Name: COLUMN entities.mention_count; Type: COMMENT

COMMENT ON COLUMN public.entities.mention_count IS 'The observations and turns that mention it or one of its aliases; 0 for an alias. Triggers keep it and the times.';

-- Name: entity_mentions; Type: TABLE

CREATE TABLE public.entity_mentions (
    observation_id uuid,
    named_id uuid NOT NULL,
    entity_id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    found_by text NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    turn_id uuid,
    place_id uuid GENERATED ALWAYS AS (COALESCE(observation_id, turn_id)) STORED NOT NULL,
    CONSTRAINT entity_mentions_found_by_check CHECK ((found_by = ANY (ARRAY['rules'::text, 'model'::text, 'people'::text]))),
    CONSTRAINT entity_mentions_of_one CHECK ((num_nonnulls(observation_id, turn_id) = 1))
);

-- Name: TABLE entity_mentions; Type: COMMENT

COMMENT ON TABLE public.entity_mentions IS 'Which observation or turn mentions which entity, and by which of its names.';

-- Name: COLUMN entity_mentions.seen_at; Type: COMMENT

COMMENT ON COLUMN public.entity_mentions.seen_at IS 'The time of the observation or the turn.';

-- Name: COLUMN entity_mentions.place_id; Type: COMMENT

COMMENT ON COLUMN public.entity_mentions.place_id IS 'The observation or the turn.';

-- Name: entity_progress; Type: TABLE

CREATE TABLE public.entity_progress (
    team_id uuid NOT NULL,
    read_to bigint DEFAULT 0 NOT NULL
);

-- Name: TABLE entity_progress; Type: COMMENT

COMMENT ON TABLE public.entity_progress IS 'Up to which number the observations of a team are read for entities.';

-- Name: entity_relation_evidence; Type: TABLE

CREATE TABLE public.entity_relation_evidence (
    relation_id uuid NOT NULL,
    observation_id uuid NOT NULL,
    project_id uuid NOT NULL,
    team_id uuid NOT NULL
);

-- Name: TABLE entity_relation_evidence; Type: COMMENT

COMMENT ON TABLE public.entity_relation_evidence IS 'The observations that say so.';

-- Name: entity_relations; Type: TABLE

CREATE TABLE public.entity_relations (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    from_id uuid NOT NULL,
    to_id uuid NOT NULL,
    label text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT entity_relations_check CHECK ((from_id <> to_id)),
    CONSTRAINT entity_relations_label_check CHECK ((label <> ''::text))
);

-- Name: TABLE entity_relations; Type: COMMENT

COMMENT ON TABLE public.entity_relations IS 'What people or clients say of two entities. Which are mentioned together is counted from the mentions.';

-- Name: entity_rereads; Type: TABLE

CREATE TABLE public.entity_rereads (
    place_id uuid CONSTRAINT entity_rereads_observation_id_not_null NOT NULL,
    team_id uuid NOT NULL
);

-- Name: TABLE entity_rereads; Type: COMMENT

COMMENT ON TABLE public.entity_rereads IS 'Turns that have ended, and observations that have changed since they were read for entities; some may be gone.';

-- Name: COLUMN entity_rereads.place_id; Type: COMMENT

COMMENT ON COLUMN public.entity_rereads.place_id IS 'The observation or the turn.';

-- Name: observation_generation_jobs; Type: TABLE

CREATE TABLE public.observation_generation_jobs (
    id uuid NOT NULL,
    seq bigint NOT NULL,
    project_id uuid NOT NULL,
    team_id uuid NOT NULL,
    lane uuid NOT NULL,
    agent_event_id uuid,
    source_type text NOT NULL,
    source_id uuid NOT NULL,
    source_run integer DEFAULT 1 NOT NULL,
    server_session_id uuid,
    job_type text NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    idempotency_key text,
    attempts integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 3 NOT NULL,
    next_attempt_at timestamp with time zone,
    locked_at timestamp with time zone,
    locked_by text,
    worker_id bigint,
    claim bigint,
    cancel_requested_at timestamp with time zone,
    completed_at timestamp with time zone,
    failed_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    outcome text,
    outcome_reason text,
    generation_run_id uuid,
    last_error jsonb,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    size_chars integer DEFAULT 0 NOT NULL,
    api_key_id uuid,
    actor_id text,
    source_adapter text,
    request_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    waits_for_end boolean DEFAULT false NOT NULL,
    phase text GENERATED ALWAYS AS (
CASE
    WHEN (status = ANY (ARRAY['queued'::text, 'processing'::text])) THEN 'open'::text
    ELSE status
END) STORED NOT NULL,
    CONSTRAINT attempts_within_bounds CHECK (((attempts <= max_attempts) AND ((status <> 'queued'::text) OR (attempts < max_attempts)))),
    CONSTRAINT locked_while_processing CHECK (((status = 'processing'::text) = ((locked_at IS NOT NULL) AND (locked_by IS NOT NULL) AND (worker_id IS NOT NULL) AND (claim IS NOT NULL)))),
    CONSTRAINT observation_generation_jobs_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT observation_generation_jobs_check CHECK ((((source_type = 'agent_event'::text) AND (agent_event_id IS NOT NULL) AND (source_id = agent_event_id)) OR ((source_type = 'session_summary'::text) AND (agent_event_id IS NULL) AND ((server_session_id IS NULL) OR (source_id = server_session_id))) OR ((source_type = ANY (ARRAY['observation_reindex'::text, 'turn'::text])) AND (agent_event_id IS NULL)))),
    CONSTRAINT observation_generation_jobs_max_attempts_check CHECK ((max_attempts >= 1)),
    CONSTRAINT observation_generation_jobs_outcome_check CHECK ((outcome = ANY (ARRAY['observed'::text, 'skipped'::text]))),
    CONSTRAINT observation_generation_jobs_size_chars_check CHECK ((size_chars >= 0)),
    CONSTRAINT observation_generation_jobs_source_run_check CHECK ((source_run >= 1)),
    CONSTRAINT observation_generation_jobs_source_type_check CHECK ((source_type = ANY (ARRAY['agent_event'::text, 'session_summary'::text, 'observation_reindex'::text, 'turn'::text]))),
    CONSTRAINT observation_generation_jobs_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'processing'::text, 'completed'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT one_terminal_timestamp CHECK ((((completed_at IS NOT NULL) = (status = 'completed'::text)) AND ((failed_at IS NOT NULL) = (status = 'failed'::text)) AND ((cancelled_at IS NOT NULL) = (status = 'cancelled'::text)))),
    CONSTRAINT outcome_when_completed CHECK (((outcome IS NOT NULL) = (status = 'completed'::text)))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05', fillfactor='50');

-- Name: TABLE observation_generation_jobs; Type: COMMENT

COMMENT ON TABLE public.observation_generation_jobs IS 'The outbox, which is itself the queue: what is to be generated, and what became of it.';

-- Name: COLUMN observation_generation_jobs.lane; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.lane IS 'The session of the job, or the job itself when it has none. One batch of a lane is in progress at any time.';

-- Name: COLUMN observation_generation_jobs.idempotency_key; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.idempotency_key IS 'Of summaries and reindex jobs. The job of an event is unique by its event.';

-- Name: COLUMN observation_generation_jobs.claim; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.claim IS 'The fencing token: only the claim that took the job may write its end.';

-- Name: COLUMN observation_generation_jobs.waits_for_end; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.waits_for_end IS 'By the policy at_end: the job alone does not make its lane due. Cleared when it is claimed.';

-- Name: COLUMN observation_generation_jobs.phase; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.phase IS '`open` while queued or processing, else the status: what indexes hold, so that a claim changes none.';

-- Name: failed_jobs; Type: VIEW

CREATE VIEW public.failed_jobs AS
 SELECT j.id,
    t.name AS team,
    p.canonical_id AS project,
    j.job_type,
    j.attempts,
    j.failed_at,
    (j.last_error ->> 'reason'::text) AS reason,
    (j.last_error ->> 'message'::text) AS message
   FROM ((public.observation_generation_jobs j
     JOIN public.projects p ON ((p.id = j.project_id)))
     JOIN public.teams t ON ((t.id = j.team_id)))
  WHERE (j.status = 'failed'::text);

-- Name: VIEW failed_jobs; Type: COMMENT

COMMENT ON VIEW public.failed_jobs IS 'Jobs that have failed for good, with the reason; retry_job(id) sends one back.';

-- Name: generation_claims; Type: SEQUENCE

CREATE SEQUENCE public.generation_claims
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

-- Name: generation_lanes; Type: TABLE

CREATE TABLE public.generation_lanes (
    lane uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    due_at timestamp with time zone,
    held_until timestamp with time zone,
    held_reason text,
    held_for text,
    worker_id bigint,
    claim bigint,
    locked_at timestamp with time zone,
    at_most integer,
    CONSTRAINT generation_lanes_at_most_check CHECK ((at_most >= 1)),
    CONSTRAINT generation_lanes_check CHECK (((worker_id IS NULL) = (claim IS NULL)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500');

-- Name: TABLE generation_lanes; Type: COMMENT

COMMENT ON TABLE public.generation_lanes IS 'The ready list: one row a session (or a job without one), claimed by one worker at a time.';

-- Name: COLUMN generation_lanes.due_at; Type: COMMENT

COMMENT ON COLUMN public.generation_lanes.due_at IS 'When the lane may be claimed; NULL when nothing waits in it. Never before held_until.';

-- Name: COLUMN generation_lanes.held_for; Type: COMMENT

COMMENT ON COLUMN public.generation_lanes.held_for IS 'The provider whose pause holds the lane; budget, where it waits for money; NULL for a back-off.';

-- Name: COLUMN generation_lanes.at_most; Type: COMMENT

COMMENT ON COLUMN public.generation_lanes.at_most IS 'How many events one provider call may serve, where the policy of the last one says so; NULL for as many as the settings allow.';

-- Name: generation_runs; Type: TABLE

CREATE TABLE public.generation_runs (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    lane uuid NOT NULL,
    claim bigint NOT NULL,
    kind text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    job_ids uuid[] NOT NULL,
    status text NOT NULL,
    error_class text,
    error_message text,
    answer text,
    input_tokens integer DEFAULT 0 NOT NULL,
    output_tokens integer DEFAULT 0 NOT NULL,
    cache_read_tokens integer DEFAULT 0 NOT NULL,
    cache_write_tokens integer DEFAULT 0 NOT NULL,
    cost_usd numeric(12,6),
    latency_ms integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    applied_at timestamp with time zone,
    CONSTRAINT generation_runs_kind_check CHECK ((kind = ANY (ARRAY['observations'::text, 'summary'::text, 'merge'::text, 'guard'::text, 'derive'::text, 'overview'::text, 'entities'::text]))),
    CONSTRAINT generation_runs_status_check CHECK ((status = ANY (ARRAY['asked'::text, 'answered'::text, 'applied'::text, 'unusable'::text, 'failed'::text, 'lost'::text])))
);

-- Name: TABLE generation_runs; Type: COMMENT

COMMENT ON TABLE public.generation_runs IS 'Provider calls: what they served, what they cost, and an answer until it is applied.';

-- Name: COLUMN generation_runs.lane; Type: COMMENT

COMMENT ON COLUMN public.generation_runs.lane IS 'Of its jobs; a call that is made for none has none, and its own id here.';

-- Name: COLUMN generation_runs.status; Type: COMMENT

COMMENT ON COLUMN public.generation_runs.status IS 'asked (its tokens are an estimate), answered (not applied yet), applied, unusable (its answer is kept), failed (there was none), lost (nobody heard the end).';

-- Name: COLUMN generation_runs.answer; Type: COMMENT

COMMENT ON COLUMN public.generation_runs.answer IS 'The raw answer until it has been applied: a crash between answer and write does not buy it twice. One that could not be used stays, for the operator.';

-- Name: COLUMN generation_runs.cost_usd; Type: COMMENT

COMMENT ON COLUMN public.generation_runs.cost_usd IS 'By the provider, or by its price table; NULL where no price is known.';

-- Name: generation_spending; Type: TABLE

CREATE TABLE public.generation_spending (
    team_id uuid NOT NULL,
    day date NOT NULL,
    project_id uuid NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    calls bigint NOT NULL,
    failed_calls bigint NOT NULL,
    unpriced_calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_usd numeric NOT NULL
)
WITH (fillfactor='70');

-- Name: TABLE generation_spending; Type: COMMENT

COMMENT ON TABLE public.generation_spending IS 'What was spent on providers, by day (UTC), project and model: the sums of generation_runs, kept by its triggers, and by what is gone from it.';

-- Name: COLUMN generation_spending.failed_calls; Type: COMMENT

COMMENT ON COLUMN public.generation_spending.failed_calls IS 'Those that gave no answer that could be used, and those whose end nobody heard.';

-- Name: COLUMN generation_spending.unpriced_calls; Type: COMMENT

COMMENT ON COLUMN public.generation_spending.unpriced_calls IS 'Those with tokens whose price is not known; they are not in cost_usd.';

-- Name: generation_workers; Type: TABLE

CREATE TABLE public.generation_workers (
    worker_id bigint NOT NULL,
    label text NOT NULL,
    lease_seconds double precision NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL
);

-- Name: TABLE generation_workers; Type: COMMENT

COMMENT ON TABLE public.generation_workers IS 'Who works on the outbox; procrastinate keeps their heartbeats.';

-- Name: installation; Type: TABLE

CREATE TABLE public.installation (
    only_one boolean DEFAULT true NOT NULL,
    id uuid NOT NULL,
    secret bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT installation_only_one_check CHECK (only_one),
    CONSTRAINT installation_secret_check CHECK ((length(secret) >= 32))
);

-- Name: TABLE installation; Type: COMMENT

COMMENT ON TABLE public.installation IS 'One row: who this server is, and the secret of its keyed hashes (an idempotency key must not let anybody guess what it was made from).';

-- Name: invitations; Type: TABLE

CREATE TABLE public.invitations (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    role text NOT NULL,
    makes_operator boolean DEFAULT false NOT NULL,
    token_hash text NOT NULL,
    note text DEFAULT ''::text NOT NULL,
    invited_by text NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    used_by uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    made_by uuid,
    CONSTRAINT invitations_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'member'::text, 'viewer'::text])))
);

-- Name: TABLE invitations; Type: COMMENT

COMMENT ON TABLE public.invitations IS 'Links that make somebody a member of a team, once.';

-- Name: COLUMN invitations.made_by; Type: COMMENT

COMMENT ON COLUMN public.invitations.made_by IS 'The person who made it, also by a key of theirs; it ends with their membership.';

-- Name: lane_overview; Type: VIEW

CREATE VIEW public.lane_overview AS
 SELECT l.lane,
    t.name AS team,
    p.canonical_id AS project,
        CASE
            WHEN (l.worker_id IS NOT NULL) THEN 'working'::text
            WHEN (l.held_until > now()) THEN 'held'::text
            WHEN (l.due_at <= now()) THEN 'due'::text
            WHEN (l.due_at IS NOT NULL) THEN 'waiting'::text
            ELSE 'idle'::text
        END AS state,
    l.due_at,
    l.held_until,
    l.held_reason,
    l.worker_id,
    l.locked_at,
    ( SELECT count(*) AS count
           FROM public.observation_generation_jobs j
          WHERE ((j.lane = l.lane) AND (j.phase = 'open'::text) AND (j.status = 'queued'::text))) AS queued
   FROM ((public.generation_lanes l
     LEFT JOIN public.projects p ON ((p.id = l.project_id)))
     LEFT JOIN public.teams t ON ((t.id = l.team_id)));

-- Name: VIEW lane_overview; Type: COMMENT

COMMENT ON VIEW public.lane_overview IS 'Each lane: working, held, due, waiting or idle, and how many jobs wait in it.';

-- Name: memberships; Type: TABLE

CREATE TABLE public.memberships (
    team_id uuid NOT NULL,
    user_id uuid NOT NULL,
    role text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT memberships_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'member'::text, 'viewer'::text])))
);

-- Name: TABLE memberships; Type: COMMENT

COMMENT ON TABLE public.memberships IS 'Which people belong to which team, and as what.';

-- Name: memory_telemetry; Type: TABLE

CREATE TABLE public.memory_telemetry (
    id bigint NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid,
    observation_id uuid,
    event_type text NOT NULL,
    session_id text,
    request_id text,
    agent text,
    action text,
    hit_count integer,
    latency_ms integer,
    query_text text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT memory_telemetry_action_check CHECK ((action = ANY (ARRAY['created'::text, 'created_with_suggestions'::text, 'updated'::text]))),
    CONSTRAINT memory_telemetry_check CHECK (((query_text IS NULL) OR (project_id IS NOT NULL))),
    CONSTRAINT memory_telemetry_event_type_check CHECK ((event_type = ANY (ARRAY['recall_attempt'::text, 'recall_hit'::text, 'store_opportunity'::text, 'store_action'::text]))),
    CONSTRAINT memory_telemetry_hit_count_check CHECK ((hit_count >= 0)),
    CONSTRAINT memory_telemetry_latency_ms_check CHECK ((latency_ms >= 0))
);

-- Name: TABLE memory_telemetry; Type: COMMENT

COMMENT ON TABLE public.memory_telemetry IS 'What clients of Contextify looked for and stored, and what came of it; for its funnel.';

-- Name: COLUMN memory_telemetry.observation_id; Type: COMMENT

COMMENT ON COLUMN public.memory_telemetry.observation_id IS 'The observation that was stored or merged into; it may be gone.';

-- Name: COLUMN memory_telemetry.session_id; Type: COMMENT

COMMENT ON COLUMN public.memory_telemetry.session_id IS 'The session in the words of the client (X-Session-ID); no row is looked up by it.';

-- Name: COLUMN memory_telemetry.query_text; Type: COMMENT

COMMENT ON COLUMN public.memory_telemetry.query_text IS 'The words that were looked for, redacted.';

-- Name: memory_telemetry_id_seq; Type: SEQUENCE

ALTER TABLE public.memory_telemetry ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.memory_telemetry_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: observation_counters; Type: TABLE

CREATE TABLE public.observation_counters (
    team_id uuid NOT NULL,
    last_number bigint DEFAULT 0 NOT NULL,
    turns bigint DEFAULT 0 NOT NULL
);

-- Name: TABLE observation_counters; Type: COMMENT

COMMENT ON TABLE public.observation_counters IS 'The last number given out in a team. Its row is locked last in a transaction: a global sequence would show one team how busy another is.';

-- Name: COLUMN observation_counters.turns; Type: COMMENT

COMMENT ON COLUMN public.observation_counters.turns IS 'How many of the numbers were given to turns.';

-- Name: observation_derivations; Type: TABLE

CREATE TABLE public.observation_derivations (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    run_id uuid,
    fingerprint text NOT NULL,
    source_observation_ids uuid[] NOT NULL,
    derived_observation_id uuid,
    derivation_type text NOT NULL,
    confidence real NOT NULL,
    novelty real NOT NULL,
    status text NOT NULL,
    model text,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT observation_derivations_confidence_check CHECK (((confidence >= (0)::double precision) AND (confidence <= (1)::double precision))),
    CONSTRAINT observation_derivations_novelty_check CHECK (((novelty >= (0)::double precision) AND (novelty <= (1)::double precision))),
    CONSTRAINT observation_derivations_status_check CHECK ((status = ANY (ARRAY['candidate'::text, 'accepted'::text, 'skipped'::text, 'failed'::text, 'undone'::text])))
);

-- Name: TABLE observation_derivations; Type: COMMENT

COMMENT ON TABLE public.observation_derivations IS 'What the steward drew from several observations, or would have, from which, how sure and how new.';

-- Name: observation_embeddings; Type: TABLE

CREATE TABLE public.observation_embeddings (
    observation_id uuid,
    model_id smallint NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_at timestamp with time zone DEFAULT now() NOT NULL,
    last_error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    embedded_at timestamp with time zone,
    embedding public.halfvec,
    expires_at timestamp with time zone,
    is_outdated boolean DEFAULT false NOT NULL,
    turn_id uuid,
    entity_id uuid,
    CONSTRAINT observation_embeddings_of_one CHECK ((num_nonnulls(observation_id, turn_id, entity_id) = 1))
)
WITH (toast_tuple_target='8160');

-- Name: TABLE observation_embeddings; Type: COMMENT

COMMENT ON TABLE public.observation_embeddings IS 'The place of each observation, turn and entity among meanings, by model. Without an embedding it waits for one.';

-- Name: COLUMN observation_embeddings.next_at; Type: COMMENT

COMMENT ON COLUMN public.observation_embeddings.next_at IS 'Not to be tried before; later after each failure, and while a worker has it in hand, who stores only what he finds it still to be.';

-- Name: COLUMN observation_embeddings.last_error; Type: COMMENT

COMMENT ON COLUMN public.observation_embeddings.last_error IS 'The kind of the last failure. One that was given up has a next_at of infinity.';

-- Name: COLUMN observation_embeddings.expires_at; Type: COMMENT

COMMENT ON COLUMN public.observation_embeddings.expires_at IS 'That of the observation; a trigger keeps it.';

-- Name: COLUMN observation_embeddings.is_outdated; Type: COMMENT

COMMENT ON COLUMN public.observation_embeddings.is_outdated IS 'The text has changed since: the embedding is used until there is another.';

-- Name: observation_generation_job_events; Type: TABLE

CREATE TABLE public.observation_generation_job_events (
    id bigint NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    generation_job_id uuid NOT NULL,
    event_type text NOT NULL,
    status_after text NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT observation_generation_job_events_event_type_check CHECK ((event_type = ANY (ARRAY['queued'::text, 'processing'::text, 'retry_scheduled'::text, 'completed'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT observation_generation_job_events_status_after_check CHECK ((status_after = ANY (ARRAY['queued'::text, 'processing'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])))
);

-- Name: TABLE observation_generation_job_events; Type: COMMENT

COMMENT ON TABLE public.observation_generation_job_events IS 'The lifecycle log of jobs, written by a trigger whoever makes the step.';

-- Name: observation_generation_job_events_id_seq; Type: SEQUENCE

ALTER TABLE public.observation_generation_job_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.observation_generation_job_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: observation_generation_jobs_seq_seq; Type: SEQUENCE

ALTER TABLE public.observation_generation_jobs ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.observation_generation_jobs_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: observation_relationships; Type: TABLE

CREATE TABLE public.observation_relationships (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    from_id uuid NOT NULL,
    from_project_id uuid NOT NULL,
    to_id uuid NOT NULL,
    to_project_id uuid NOT NULL,
    relationship text NOT NULL,
    strength real DEFAULT 0.5 NOT NULL,
    context text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT observation_relationships_check CHECK ((from_id <> to_id)),
    CONSTRAINT observation_relationships_relationship_check CHECK ((relationship ~ '^[A-Z][A-Z0-9_]{0,63}$'::text)),
    CONSTRAINT observation_relationships_strength_check CHECK (((strength >= (0)::double precision) AND (strength <= (1)::double precision)))
);

-- Name: TABLE observation_relationships; Type: COMMENT

COMMENT ON TABLE public.observation_relationships IS 'How observations of a team have to do with each other: SUPERSEDES and DERIVED_FROM by the system, all others by callers.';

-- Name: observation_sources; Type: TABLE

CREATE TABLE public.observation_sources (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    observation_id uuid NOT NULL,
    agent_event_id uuid,
    generation_job_id uuid,
    source_type text NOT NULL,
    source_id uuid NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT observation_sources_check CHECK ((((source_type = 'agent_event'::text) AND (agent_event_id IS NOT NULL) AND (source_id = agent_event_id)) OR ((source_type <> 'agent_event'::text) AND (agent_event_id IS NULL)))),
    CONSTRAINT observation_sources_source_type_check CHECK ((source_type = ANY (ARRAY['agent_event'::text, 'session_summary'::text, 'observation_reindex'::text, 'manual'::text])))
);

-- Name: TABLE observation_sources; Type: COMMENT

COMMENT ON TABLE public.observation_sources IS 'What each observation was drawn from.';

-- Name: observations_in_team; Type: VIEW

CREATE VIEW public.observations_in_team AS
 SELECT id,
    number,
    project_id,
    team_id,
    server_session_id,
    scope,
    kind,
    type,
    origin,
    title,
    subtitle,
    narrative,
    facts,
    concepts,
    files_read,
    files_modified,
    summary,
    prompt_number,
    content,
    content_search,
    content_words,
    read_tokens,
    discovery_tokens,
    access_count,
    last_accessed_at,
    generation_key,
    metadata,
    created_by_job_id,
    created_at,
    updated_at,
    search_language,
    importance,
    quote,
    quote_event_id,
    anchors,
    state,
    closed_by,
    closed_at,
    ttl_seconds,
    expires_at,
    version,
    superseded_by,
    superseded_at,
    merged_from,
    agent,
    caller_type,
    stale,
    actor_id,
    turn_number
   FROM public.observations
  WHERE ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid) AND (superseded_at IS NULL) AND ((expires_at IS NULL) OR (expires_at > now())));

-- Name: VIEW observations_in_team; Type: COMMENT

COMMENT ON VIEW public.observations_in_team IS 'What search reads: the observations of the team in cmserver.team_id, with its indexes usable.';

-- Name: project_aliases; Type: TABLE

CREATE TABLE public.project_aliases (
    team_id uuid NOT NULL,
    alias text NOT NULL,
    project_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    name_until timestamp with time zone,
    CONSTRAINT project_aliases_alias_check CHECK (((alias <> ''::text) AND (length(alias) <= 500)))
);

-- Name: TABLE project_aliases; Type: COMMENT

COMMENT ON TABLE public.project_aliases IS 'Older and other names of projects.';

-- Name: COLUMN project_aliases.name_until; Type: COMMENT

COMMENT ON COLUMN public.project_aliases.name_until IS 'When the project got another name by itself, whose name it was until then. NULL for what people called it.';

-- Name: project_joined_rows; Type: TABLE

CREATE TABLE public.project_joined_rows (
    project_id uuid NOT NULL,
    row_id uuid NOT NULL,
    team_id uuid NOT NULL
);

-- Name: TABLE project_joined_rows; Type: COMMENT

COMMENT ON TABLE public.project_joined_rows IS 'The rows that a joined project had, or that were made of them in the other one; they may be gone.';

-- Name: project_overviews; Type: TABLE

CREATE TABLE public.project_overviews (
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    team_id uuid NOT NULL,
    body text,
    opening text[] DEFAULT '{}'::text[] NOT NULL,
    numbers bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    made_by text DEFAULT 'rules'::text NOT NULL,
    summary_count integer DEFAULT 0 NOT NULL,
    new_summaries integer DEFAULT 0 NOT NULL,
    made_at timestamp with time zone,
    CONSTRAINT project_overviews_check CHECK (((body IS NULL) = (made_at IS NULL)))
);

-- Name: TABLE project_overviews; Type: COMMENT

COMMENT ON TABLE public.project_overviews IS 'The page about each project. Without a body it is still to be made.';

-- Name: COLUMN project_overviews.opening; Type: COMMENT

COMMENT ON COLUMN public.project_overviews.opening IS 'The lines with which the index of a session begins.';

-- Name: COLUMN project_overviews.numbers; Type: COMMENT

COMMENT ON COLUMN public.project_overviews.numbers IS 'The observations and turns that it cites.';

-- Name: COLUMN project_overviews.made_by; Type: COMMENT

COMMENT ON COLUMN public.project_overviews.made_by IS '`rules`, the model that wrote it, or `people`.';

-- Name: COLUMN project_overviews.new_summaries; Type: COMMENT

COMMENT ON COLUMN public.project_overviews.new_summaries IS 'Session summaries since it was made.';

-- Name: provider_pauses; Type: TABLE

CREATE TABLE public.provider_pauses (
    provider text NOT NULL,
    reason text NOT NULL,
    message text NOT NULL,
    paused_at timestamp with time zone DEFAULT now() NOT NULL,
    until_at timestamp with time zone NOT NULL,
    times integer DEFAULT 1 NOT NULL
);

-- Name: TABLE provider_pauses; Type: COMMENT

COMMENT ON TABLE public.provider_pauses IS 'Providers that nobody calls for now, and why.';

-- Name: queue_overview; Type: VIEW

CREATE VIEW public.queue_overview AS
 SELECT t.name AS team,
    p.canonical_id AS project,
    j.source_type,
    j.status,
    count(*) AS jobs,
    min(j.created_at) AS oldest,
    max(j.attempts) AS most_attempts
   FROM ((public.observation_generation_jobs j
     JOIN public.projects p ON ((p.id = j.project_id)))
     JOIN public.teams t ON ((t.id = j.team_id)))
  GROUP BY t.name, p.canonical_id, j.source_type, j.status;

-- Name: VIEW queue_overview; Type: COMMENT

COMMENT ON VIEW public.queue_overview IS 'Jobs by team, project, source and status.';

-- Name: queue_totals; Type: VIEW

CREATE VIEW public.queue_totals AS
 SELECT t.name AS team,
    q.waiting,
    q.active,
    q.delayed,
    q.held,
    e.completed,
    e.failed,
    e.cancelled,
    r.recovered,
    q.oldest_waiting
   FROM (((public.teams t
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE (o.state = 'waiting'::text)) AS waiting,
            count(*) FILTER (WHERE (o.state = 'delayed'::text)) AS delayed,
            count(*) FILTER (WHERE (o.state = 'held'::text)) AS held,
            count(*) FILTER (WHERE (o.state = 'active'::text)) AS active,
            (now() - min(o.updated_at) FILTER (WHERE (o.state = 'waiting'::text))) AS oldest_waiting
           FROM ( SELECT j.updated_at,
                        CASE
                            WHEN (j.status = 'processing'::text) THEN 'active'::text
                            WHEN (l.held_until > now()) THEN 'held'::text
                            WHEN (l.due_at > now()) THEN 'delayed'::text
                            ELSE 'waiting'::text
                        END AS state
                   FROM (public.observation_generation_jobs j
                     LEFT JOIN public.generation_lanes l ON ((l.lane = j.lane)))
                  WHERE ((j.team_id = t.id) AND (j.phase = 'open'::text) AND (j.created_at > '-infinity'::timestamp with time zone))) o) q)
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE (j.phase = 'completed'::text)) AS completed,
            count(*) FILTER (WHERE (j.phase = 'failed'::text)) AS failed,
            count(*) FILTER (WHERE (j.phase = 'cancelled'::text)) AS cancelled
           FROM public.observation_generation_jobs j
          WHERE ((j.team_id = t.id) AND (j.phase = ANY (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text])) AND (j.created_at > '-infinity'::timestamp with time zone))) e)
     CROSS JOIN LATERAL ( SELECT count(*) AS recovered
           FROM public.observation_generation_job_events j
          WHERE ((j.team_id = t.id) AND ((j.details ->> 'reason'::text) = 'worker lost'::text))) r);

-- Name: VIEW queue_totals; Type: COMMENT

COMMENT ON VIEW public.queue_totals IS 'Each team''s queue at a glance: what waits, runs, rests and has ended, what came back from lost workers, and how long the oldest has waited.';

-- Name: rate_limits; Type: TABLE

CREATE TABLE public.rate_limits (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    per_minute integer NOT NULL,
    tokens double precision NOT NULL,
    refilled_at timestamp with time zone NOT NULL,
    CONSTRAINT rate_limits_check CHECK (((tokens >= ((- per_minute))::double precision) AND (tokens <= (per_minute)::double precision))),
    CONSTRAINT rate_limits_per_minute_check CHECK ((per_minute > 0))
);

-- Name: TABLE rate_limits; Type: COMMENT

COMMENT ON TABLE public.rate_limits IS 'Token buckets of keys and teams with a limit of requests per minute; the id is the key''s or the team''s.';

-- Name: retention_counts; Type: TABLE

CREATE TABLE public.retention_counts (
    team_id uuid NOT NULL,
    kind text NOT NULL,
    row_count bigint NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT retention_counts_row_count_check CHECK ((row_count >= 0))
);

-- Name: TABLE retention_counts; Type: COMMENT

COMMENT ON TABLE public.retention_counts IS 'How many rows retention took of each team, by kind, since it exists.';

-- Name: retention_marks; Type: TABLE

CREATE TABLE public.retention_marks (
    kind text NOT NULL,
    read_to bigint NOT NULL
);

-- Name: TABLE retention_marks; Type: COMMENT

COMMENT ON TABLE public.retention_marks IS 'Up to which row of a log the current pass of retention has looked.';

-- Name: schema_migrations; Type: TABLE

CREATE TABLE public.schema_migrations (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

-- Name: server_sessions; Type: TABLE

CREATE TABLE public.server_sessions (
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    team_id uuid NOT NULL,
    external_session_id text,
    content_session_id text,
    agent_id text,
    agent_type text,
    platform_source text,
    generation_status text DEFAULT 'idle'::text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    last_generated_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    idle_from timestamp with time zone DEFAULT now(),
    title text,
    origin_project_id uuid,
    from_hooks boolean DEFAULT false NOT NULL,
    moved_at timestamp with time zone,
    actor_id text,
    CONSTRAINT server_sessions_generation_status_check CHECK ((generation_status = ANY (ARRAY['idle'::text, 'processing'::text, 'completed'::text, 'failed'::text]))),
    CONSTRAINT server_sessions_title_check CHECK (((length(title) >= 1) AND (length(title) <= 200)))
);

-- Name: TABLE server_sessions; Type: COMMENT

COMMENT ON TABLE public.server_sessions IS 'Conversations of agents with their users, found by the id that the agent gave them.';

-- Name: COLUMN server_sessions.idle_from; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.idle_from IS 'The last sign of life that the idle sweep knows of; it looks at the session again when that is long ago. NULL when its last run has its summary and nothing has come since.';

-- Name: COLUMN server_sessions.title; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.title IS 'What people call the session. NULL until somebody gives it a title.';

-- Name: COLUMN server_sessions.origin_project_id; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.origin_project_id IS 'The project by whose name it was made, if that is another one: its keys and those of its events contain it. It may be deleted.';

-- Name: COLUMN server_sessions.from_hooks; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.from_hooks IS 'Whether hooks find it by its agent''s id alone, whatever the folder''s project is.';

-- Name: COLUMN server_sessions.moved_at; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.moved_at IS 'When people moved it here from another project. NULL for never.';

-- Name: COLUMN server_sessions.actor_id; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.actor_id IS 'Whose key began it.';

-- Name: spend_by_project; Type: VIEW

CREATE VIEW public.spend_by_project AS
 SELECT t.name AS team,
    p.canonical_id AS project,
    r.provider,
    r.model,
    date_trunc('day'::text, r.created_at) AS day,
    count(*) AS calls,
    count(*) FILTER (WHERE (r.status = 'failed'::text)) AS failed_calls,
    sum(r.input_tokens) AS input_tokens,
    sum(r.output_tokens) AS output_tokens,
    sum(r.cache_read_tokens) AS cache_read_tokens,
    sum(r.cache_write_tokens) AS cache_write_tokens,
    sum(r.cost_usd) AS cost_usd,
    count(*) FILTER (WHERE ((r.cost_usd IS NULL) AND ((r.input_tokens + r.output_tokens) > 0))) AS unpriced_calls
   FROM ((public.generation_runs r
     JOIN public.projects p ON ((p.id = r.project_id)))
     JOIN public.teams t ON ((t.id = r.team_id)))
  GROUP BY t.name, p.canonical_id, r.provider, r.model, (date_trunc('day'::text, r.created_at));

-- Name: VIEW spend_by_project; Type: COMMENT

COMMENT ON VIEW public.spend_by_project IS 'Provider calls, tokens and money by project, model and day.';

-- Name: steward_claims; Type: SEQUENCE

CREATE SEQUENCE public.steward_claims
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

-- Name: steward_events; Type: TABLE

CREATE TABLE public.steward_events (
    id bigint NOT NULL,
    team_id uuid NOT NULL,
    job_id uuid NOT NULL,
    run_id uuid,
    event_type text NOT NULL,
    data jsonb DEFAULT '{}'::jsonb NOT NULL,
    schema_version integer DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT steward_events_event_type_check CHECK ((event_type = ANY (ARRAY['job_created'::text, 'job_claimed'::text, 'model_invoked'::text, 'decision_made'::text, 'write_applied'::text, 'write_skipped'::text, 'job_completed'::text, 'job_failed'::text, 'recovery_detected'::text, 'run_undone'::text])))
);

-- Name: TABLE steward_events; Type: COMMENT

COMMENT ON TABLE public.steward_events IS 'The timeline of the steward, only appended, each in the transaction of what it tells.';

-- Name: steward_events_id_seq; Type: SEQUENCE

ALTER TABLE public.steward_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.steward_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: steward_jobs; Type: TABLE

CREATE TABLE public.steward_jobs (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid,
    job_type text NOT NULL,
    source_observation_ids uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    trigger_reason text NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 3 NOT NULL,
    run_after timestamp with time zone DEFAULT now() NOT NULL,
    claim bigint,
    locked_by text,
    locked_at timestamp with time zone,
    lease_expires_at timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    decision jsonb,
    last_error text,
    idempotency_key text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT steward_jobs_attempt_count_check CHECK ((attempt_count >= 0)),
    CONSTRAINT steward_jobs_check CHECK (((status = 'running'::text) = (lease_expires_at IS NOT NULL))),
    CONSTRAINT steward_jobs_check1 CHECK (((status = ANY (ARRAY['queued'::text, 'running'::text])) = (ended_at IS NULL))),
    CONSTRAINT steward_jobs_job_type_check CHECK ((job_type <> ''::text)),
    CONSTRAINT steward_jobs_max_attempts_check CHECK ((max_attempts >= 1)),
    CONSTRAINT steward_jobs_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'dead_letter'::text, 'cancelled'::text])))
);

-- Name: TABLE steward_jobs; Type: COMMENT

COMMENT ON TABLE public.steward_jobs IS 'What the steward has to do and has done. Each queued row has a task in procrastinate''s queue.';

-- Name: COLUMN steward_jobs.claim; Type: COMMENT

COMMENT ON COLUMN public.steward_jobs.claim IS 'The number of the last claim. Who writes for a job names it, so that a worker whose lease is over writes nothing.';

-- Name: COLUMN steward_jobs.decision; Type: COMMENT

COMMENT ON COLUMN public.steward_jobs.decision IS 'The last decision: what, why, how sure, and whether it is tried again.';

-- Name: steward_modes; Type: TABLE

CREATE TABLE public.steward_modes (
    team_id uuid NOT NULL,
    project_id uuid,
    mode text,
    is_paused boolean DEFAULT false NOT NULL,
    executors text[] DEFAULT '{auto_merge,derive,recheck,policy_tune}'::text[] NOT NULL,
    changed_by text NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT steward_modes_check CHECK (((project_id IS NULL) = (mode IS NOT NULL))),
    CONSTRAINT steward_modes_executors_check CHECK ((executors <@ '{auto_merge,derive,recheck,policy_tune}'::text[])),
    CONSTRAINT steward_modes_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'dry_run'::text, 'write'::text])))
);

-- Name: TABLE steward_modes; Type: COMMENT

COMMENT ON TABLE public.steward_modes IS 'What the steward of a team may do, and which executors it may run; a row of a project narrows the executors. No row is off.';

-- Name: steward_policy_history; Type: TABLE

CREATE TABLE public.steward_policy_history (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    run_id uuid,
    policy_key text NOT NULL,
    prior_value double precision NOT NULL,
    new_value double precision NOT NULL,
    reason text NOT NULL,
    sample_size integer DEFAULT 0 NOT NULL,
    evidence jsonb DEFAULT '{}'::jsonb NOT NULL,
    changed_by text NOT NULL,
    rollback_of_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

-- Name: TABLE steward_policy_history; Type: COMMENT

COMMENT ON TABLE public.steward_policy_history IS 'Changes of the steward''s thresholds with their evidence. The newest of a key is what holds.';

-- Name: steward_runs; Type: TABLE

CREATE TABLE public.steward_runs (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid,
    job_id uuid NOT NULL,
    job_type text NOT NULL,
    attempt integer NOT NULL,
    provider text,
    model text,
    input_snapshot jsonb DEFAULT '{}'::jsonb NOT NULL,
    output_snapshot jsonb,
    input_hash text,
    prompt_tokens integer DEFAULT 0 NOT NULL,
    completion_tokens integer DEFAULT 0 NOT NULL,
    total_tokens integer GENERATED ALWAYS AS ((prompt_tokens + completion_tokens)) STORED NOT NULL,
    latency_ms integer,
    status text DEFAULT 'running'::text NOT NULL,
    error_class text,
    error_message text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    completed_at timestamp with time zone,
    undone_at timestamp with time zone,
    undone_by text,
    CONSTRAINT steward_runs_check CHECK (((status = 'running'::text) = (completed_at IS NULL))),
    CONSTRAINT steward_runs_check1 CHECK (((undone_at IS NULL) = (undone_by IS NULL))),
    CONSTRAINT steward_runs_completion_tokens_check CHECK ((completion_tokens >= 0)),
    CONSTRAINT steward_runs_latency_ms_check CHECK ((latency_ms >= 0)),
    CONSTRAINT steward_runs_prompt_tokens_check CHECK ((prompt_tokens >= 0)),
    CONSTRAINT steward_runs_status_check CHECK ((status = ANY (ARRAY['running'::text, 'succeeded'::text, 'failed'::text, 'skipped'::text])))
);

-- Name: TABLE steward_runs; Type: COMMENT

COMMENT ON TABLE public.steward_runs IS 'Each attempt at a job: what it looked at and decided, by ids; tokens, duration, and how it ended.';

-- Name: team_members; Type: TABLE

CREATE TABLE public.team_members (
    team_id uuid NOT NULL,
    user_id text NOT NULL,
    role text NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT team_members_role_check CHECK ((role = ANY (ARRAY['owner'::text, 'member'::text]))),
    CONSTRAINT team_members_user_id_check CHECK ((user_id <> ''::text))
);

-- Name: TABLE team_members; Type: COMMENT

COMMENT ON TABLE public.team_members IS 'Who belongs to a team, as owner or member.';

-- Name: turn_ledger; Type: TABLE

CREATE TABLE public.turn_ledger (
    team_id uuid NOT NULL,
    earlier_id uuid NOT NULL,
    earlier_project_id uuid NOT NULL,
    later_id uuid NOT NULL,
    later_project_id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    token integer NOT NULL,
    instead integer[] DEFAULT '{}'::integer[] NOT NULL,
    CONSTRAINT turn_ledger_kind_check CHECK ((kind = ANY (ARRAY['edit'::text, 'check'::text])))
);

-- Name: TABLE turn_ledger; Type: COMMENT

COMMENT ON TABLE public.turn_ledger IS 'What of an earlier turn is over, by which later one. Made of turn_traces.';

-- Name: COLUMN turn_ledger.kind; Type: COMMENT

COMMENT ON COLUMN public.turn_ledger.kind IS 'The evidence: an edit, or git, took out what was put in; or the check passes.';

-- Name: COLUMN turn_ledger.name; Type: COMMENT

COMMENT ON COLUMN public.turn_ledger.name IS 'The file, or the check as its turn names it.';

-- Name: COLUMN turn_ledger.token; Type: COMMENT

COMMENT ON COLUMN public.turn_ledger.token IS 'What was taken out, as a hash; 0 for a check.';

-- Name: COLUMN turn_ledger.instead; Type: COMMENT

COMMENT ON COLUMN public.turn_ledger.instead IS 'What the same place of the file got instead.';

-- Name: turn_sentences; Type: TABLE

CREATE TABLE public.turn_sentences (
    turn_id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    due_at timestamp with time zone DEFAULT now(),
    texts text[] DEFAULT '{}'::text[] NOT NULL,
    of_user smallint DEFAULT 0 NOT NULL,
    words tsvector[] DEFAULT '{}'::tsvector[] NOT NULL,
    model_id integer DEFAULT 0 NOT NULL,
    vectors bytea,
    later_ids uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    later_places smallint[] DEFAULT '{}'::smallint[] NOT NULL,
    nearness real[] DEFAULT '{}'::real[] NOT NULL
)
WITH (toast_tuple_target='8160');

-- Name: TABLE turn_sentences; Type: COMMENT

COMMENT ON TABLE public.turn_sentences IS 'The sentences of a turn that say most, the user''s first.';

-- Name: COLUMN turn_sentences.due_at; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.due_at IS 'When the worker shall write them, or at the latest, while it has them in hand. NULL when they are written.';

-- Name: COLUMN turn_sentences.of_user; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.of_user IS 'How many of the first are the user''s; the others are the agent''s.';

-- Name: COLUMN turn_sentences.words; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.words IS 'The words of each, as search knows them.';

-- Name: COLUMN turn_sentences.model_id; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.model_id IS 'The embedding model that was asked for their vectors; 0 without one.';

-- Name: COLUMN turn_sentences.vectors; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.vectors IS 'A vector of length 127 for each, one after the other, a signed byte a number. NULL where the model made none.';

-- Name: COLUMN turn_sentences.later_ids; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.later_ids IS 'For each sentence the later turn of the project in which the nearest later one was said, NULL without one. It may be gone.';

-- Name: COLUMN turn_sentences.later_places; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.later_places IS 'Which of its sentences that is, from 0.';

-- Name: COLUMN turn_sentences.nearness; Type: COMMENT

COMMENT ON COLUMN public.turn_sentences.nearness IS 'How near it is.';

-- Name: turn_traces; Type: TABLE

CREATE TABLE public.turn_traces (
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    turn_id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    put_in integer[] DEFAULT '{}'::integer[] NOT NULL,
    took_out integer[] DEFAULT '{}'::integer[] NOT NULL,
    results jsonb DEFAULT '[]'::jsonb NOT NULL,
    commit text,
    CONSTRAINT turn_traces_kind_check CHECK ((kind = ANY (ARRAY['edit'::text, 'check'::text])))
);

-- Name: TABLE turn_traces; Type: COMMENT

COMMENT ON TABLE public.turn_traces IS 'What a turn''s edits put into each file and took out of it, and how its checks ended. Made of its events.';

-- Name: COLUMN turn_traces.name; Type: COMMENT

COMMENT ON COLUMN public.turn_traces.name IS 'The file of an edit, the program of a check.';

-- Name: COLUMN turn_traces.put_in; Type: COMMENT

COMMENT ON COLUMN public.turn_traces.put_in IS 'Telling words and numbers of the new lines, as hashes; 0 stands between two places of the file.';

-- Name: COLUMN turn_traces.took_out; Type: COMMENT

COMMENT ON COLUMN public.turn_traces.took_out IS 'The same of the old lines, with a 0 for each of put_in.';

-- Name: COLUMN turn_traces.results; Type: COMMENT

COMMENT ON COLUMN public.turn_traces.results IS 'How the runs of a check ended, in order.';

-- Name: COLUMN turn_traces.commit; Type: COMMENT

COMMENT ON COLUMN public.turn_traces.commit IS 'The commit that has the edit, empty where its hash is not known; NULL until there is one.';

-- Name: turns; Type: TABLE

CREATE TABLE public.turns (
    id uuid CONSTRAINT session_prompts_id_not_null NOT NULL,
    team_id uuid CONSTRAINT session_prompts_team_id_not_null NOT NULL,
    project_id uuid CONSTRAINT session_prompts_project_id_not_null NOT NULL,
    server_session_id uuid CONSTRAINT session_prompts_server_session_id_not_null NOT NULL,
    agent_event_id uuid,
    prompt_number integer,
    prompt text CONSTRAINT session_prompts_text_not_null NOT NULL,
    text_search tsvector,
    created_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT session_prompts_created_at_not_null NOT NULL,
    search_language text DEFAULT 'english'::text CONSTRAINT session_prompts_search_language_not_null NOT NULL,
    number bigint NOT NULL,
    reply text,
    actor_id text,
    files text[] DEFAULT '{}'::text[] NOT NULL,
    checks text[] DEFAULT '{}'::text[] NOT NULL,
    commits text[] DEFAULT '{}'::text[] NOT NULL,
    ended_at timestamp with time zone,
    agent_id text,
    own_line text,
    borrowed integer[] DEFAULT '{}'::integer[] NOT NULL,
    CONSTRAINT turns_of_user_or_subagent CHECK (((prompt_number IS NULL) = (agent_id IS NOT NULL))),
    CONSTRAINT turns_own_line_check CHECK ((length(own_line) <= 600)),
    CONSTRAINT turns_prompt_number_check CHECK ((prompt_number >= 1))
);

-- Name: TABLE turns; Type: COMMENT

COMMENT ON TABLE public.turns IS 'What users asked for and what the agent answered, whole, numbered from 1 in each session. Its number is the team''s.';

-- Name: COLUMN turns.prompt_number; Type: COMMENT

COMMENT ON COLUMN public.turns.prompt_number IS 'Counts the user''s prompts in the session. NULL for a sub-agent''s turn.';

-- Name: COLUMN turns.number; Type: COMMENT

COMMENT ON COLUMN public.turns.number IS 'From the same counter as those of observations: a number means one thing.';

-- Name: COLUMN turns.reply; Type: COMMENT

COMMENT ON COLUMN public.turns.reply IS 'The agent''s last message of the turn. NULL until there is one.';

-- Name: COLUMN turns.actor_id; Type: COMMENT

COMMENT ON COLUMN public.turns.actor_id IS 'Whose key it was.';

-- Name: COLUMN turns.ended_at; Type: COMMENT

COMMENT ON COLUMN public.turns.ended_at IS 'When the agent had answered, or the turn was over without an answer.';

-- Name: COLUMN turns.agent_id; Type: COMMENT

COMMENT ON COLUMN public.turns.agent_id IS 'The sub-agent that was asked and answered, by its id at the agent. NULL for the session''s own.';

-- Name: COLUMN turns.own_line; Type: COMMENT

COMMENT ON COLUMN public.turns.own_line IS 'What a person says its line shall be: empty for none, NULL for the one that is made of it.';

-- Name: COLUMN turns.borrowed; Type: COMMENT

COMMENT ON COLUMN public.turns.borrowed IS 'Hashes of the reply''s sentences that share eight words in a row with what a tool put out.';

-- Name: turns_in_team; Type: VIEW

CREATE VIEW public.turns_in_team AS
 SELECT id,
    team_id,
    project_id,
    server_session_id,
    agent_event_id,
    prompt_number,
    prompt,
    text_search,
    created_at,
    search_language,
    number,
    reply,
    actor_id,
    files,
    checks,
    commits,
    ended_at,
    agent_id
   FROM public.turns
  WHERE (team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid);

-- Name: VIEW turns_in_team; Type: COMMENT

COMMENT ON VIEW public.turns_in_team IS 'What search reads: the turns of the team in cmserver.team_id, with their indexes usable.';

-- Name: untraced_turns; Type: TABLE

CREATE TABLE public.untraced_turns (
    place bigint NOT NULL,
    turn_id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL
);

-- Name: TABLE untraced_turns; Type: COMMENT

COMMENT ON TABLE public.untraced_turns IS 'Turns of which the worker shall still note what they did, in this order; a row goes when it has.';

-- Name: untraced_turns_place_seq; Type: SEQUENCE

ALTER TABLE public.untraced_turns ALTER COLUMN place ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.untraced_turns_place_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: usage_counters; Type: TABLE

CREATE TABLE public.usage_counters (
    team_id uuid NOT NULL,
    month date NOT NULL,
    kind text NOT NULL,
    api_key_id uuid NOT NULL,
    amount bigint NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT usage_counters_amount_check CHECK ((amount >= 0)),
    CONSTRAINT usage_counters_kind_check CHECK ((kind = ANY (ARRAY['requests'::text, 'events'::text]))),
    CONSTRAINT usage_counters_month_check CHECK ((EXTRACT(day FROM month) = (1)::numeric))
);

-- Name: TABLE usage_counters; Type: COMMENT

COMMENT ON TABLE public.usage_counters IS 'Requests and newly stored events of each key, by calendar month (UTC).';

-- Name: users; Type: TABLE

CREATE TABLE public.users (
    id uuid NOT NULL,
    name text NOT NULL,
    password_hash text,
    is_operator boolean DEFAULT false NOT NULL,
    reset_hash text,
    reset_expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT users_check CHECK (((reset_hash IS NULL) = (reset_expires_at IS NULL))),
    CONSTRAINT users_name_check CHECK (((name <> ''::text) AND (length(name) <= 100)))
);

-- Name: TABLE users; Type: COMMENT

COMMENT ON TABLE public.users IS 'Accounts of people. Names are unique without regard to case.';

-- Name: COLUMN users.is_operator; Type: COMMENT

COMMENT ON COLUMN public.users.is_operator IS 'Whether the person may run the server as a whole; no role in a team.';

-- Name: COLUMN users.reset_hash; Type: COMMENT

COMMENT ON COLUMN public.users.reset_hash IS 'SHA-256 of the token of a link that signs the person in once, to set a new password.';

-- Name: web_sessions; Type: TABLE

CREATE TABLE public.web_sessions (
    id uuid NOT NULL,
    token_hash text NOT NULL,
    user_id uuid,
    api_key_id uuid,
    current_team_id uuid,
    address text DEFAULT ''::text NOT NULL,
    browser text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT web_sessions_check CHECK ((num_nonnulls(user_id, api_key_id) = 1))
);

-- Name: TABLE web_sessions; Type: COMMENT

COMMENT ON TABLE public.web_sessions IS 'Who is signed in to the web interface: a person, or whoever sent a key. They end after 14 days without a request.';

-- Name: worker_overview; Type: VIEW

CREATE VIEW public.worker_overview AS
 SELECT g.worker_id,
    g.label,
    g.started_at,
    w.last_heartbeat,
    (now() - w.last_heartbeat) AS silent_for,
    count(l.lane) AS lanes,
    min(l.locked_at) AS oldest_batch
   FROM ((public.generation_workers g
     LEFT JOIN public.procrastinate_workers w ON ((w.id = g.worker_id)))
     LEFT JOIN public.generation_lanes l ON ((l.worker_id = g.worker_id)))
  GROUP BY g.worker_id, g.label, g.started_at, w.last_heartbeat;

-- Name: VIEW worker_overview; Type: COMMENT

COMMENT ON VIEW public.worker_overview IS 'Each worker: how long it has been silent, and what it holds.';

-- Name: access_counting access_counting_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.access_counting
    ADD CONSTRAINT access_counting_pkey PRIMARY KEY (only_one);

-- Name: agent_events agent_events_idempotency_key_key; Type: CONSTRAINT

ALTER TABLE ONLY public.agent_events
    ADD CONSTRAINT agent_events_idempotency_key_key UNIQUE (idempotency_key);

-- Name: agent_events agent_events_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.agent_events
    ADD CONSTRAINT agent_events_of_project UNIQUE (id, project_id, team_id);

-- Name: api_keys api_keys_key_hash_key; Type: CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_key_hash_key UNIQUE (key_hash);

-- Name: api_keys api_keys_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);

-- Name: audit_log audit_log_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);

-- Name: budgets budgets_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_pkey PRIMARY KEY (id);

-- Name: budgets budgets_team_id_project_id_period_key; Type: CONSTRAINT

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_team_id_project_id_period_key UNIQUE NULLS NOT DISTINCT (team_id, project_id, period);

-- Name: consolidation_progress consolidation_progress_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.consolidation_progress
    ADD CONSTRAINT consolidation_progress_pkey PRIMARY KEY (team_id);

-- Name: consolidation_suggestions consolidation_suggestions_left_id_right_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.consolidation_suggestions
    ADD CONSTRAINT consolidation_suggestions_left_id_right_id_key UNIQUE (left_id, right_id);

-- Name: consolidation_suggestions consolidation_suggestions_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.consolidation_suggestions
    ADD CONSTRAINT consolidation_suggestions_pkey PRIMARY KEY (id);

-- Name: context_injections context_injections_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_pkey PRIMARY KEY (id);

-- Name: embedding_calibrations embedding_calibrations_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.embedding_calibrations
    ADD CONSTRAINT embedding_calibrations_pkey PRIMARY KEY (team_id, model_id);

-- Name: embedding_models embedding_models_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.embedding_models
    ADD CONSTRAINT embedding_models_pkey PRIMARY KEY (id);

-- Name: entities entities_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.entities
    ADD CONSTRAINT entities_of_project UNIQUE (id, project_id, team_id);

-- Name: entities entities_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.entities
    ADD CONSTRAINT entities_pkey PRIMARY KEY (id);

-- Name: entities entities_project_id_folded_name_type_key; Type: CONSTRAINT

ALTER TABLE ONLY public.entities
    ADD CONSTRAINT entities_project_id_folded_name_type_key UNIQUE (project_id, folded_name, type);

-- Name: entity_progress entity_progress_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.entity_progress
    ADD CONSTRAINT entity_progress_pkey PRIMARY KEY (team_id);

-- Name: entity_relation_evidence entity_relation_evidence_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.entity_relation_evidence
    ADD CONSTRAINT entity_relation_evidence_pkey PRIMARY KEY (relation_id, observation_id);

-- Name: entity_relations entity_relations_from_id_to_id_label_key; Type: CONSTRAINT

ALTER TABLE ONLY public.entity_relations
    ADD CONSTRAINT entity_relations_from_id_to_id_label_key UNIQUE (from_id, to_id, label);

-- Name: entity_relations entity_relations_id_team_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.entity_relations
    ADD CONSTRAINT entity_relations_id_team_id_key UNIQUE (id, team_id);

-- Name: entity_relations entity_relations_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.entity_relations
    ADD CONSTRAINT entity_relations_pkey PRIMARY KEY (id);

-- Name: entity_rereads entity_rereads_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.entity_rereads
    ADD CONSTRAINT entity_rereads_pkey PRIMARY KEY (place_id);

-- Name: generation_lanes generation_lanes_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.generation_lanes
    ADD CONSTRAINT generation_lanes_pkey PRIMARY KEY (lane);

-- Name: generation_runs generation_runs_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.generation_runs
    ADD CONSTRAINT generation_runs_pkey PRIMARY KEY (id);

-- Name: generation_spending generation_spending_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.generation_spending
    ADD CONSTRAINT generation_spending_pkey PRIMARY KEY (team_id, day, project_id, provider, model);

-- Name: generation_workers generation_workers_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.generation_workers
    ADD CONSTRAINT generation_workers_pkey PRIMARY KEY (worker_id);

-- Name: installation installation_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_one);

-- Name: invitations invitations_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_pkey PRIMARY KEY (id);

-- Name: invitations invitations_token_hash_key; Type: CONSTRAINT

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_token_hash_key UNIQUE (token_hash);

-- Name: memberships memberships_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.memberships
    ADD CONSTRAINT memberships_pkey PRIMARY KEY (team_id, user_id);

-- Name: memory_telemetry memory_telemetry_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.memory_telemetry
    ADD CONSTRAINT memory_telemetry_pkey PRIMARY KEY (id);

-- Name: observation_counters observation_counters_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_counters
    ADD CONSTRAINT observation_counters_pkey PRIMARY KEY (team_id);

-- Name: observation_derivations observation_derivations_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_derivations
    ADD CONSTRAINT observation_derivations_pkey PRIMARY KEY (id);

-- Name: observation_generation_job_events observation_generation_job_events_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_generation_job_events
    ADD CONSTRAINT observation_generation_job_events_pkey PRIMARY KEY (id);

-- Name: observation_generation_jobs observation_jobs_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_jobs_of_project UNIQUE (id, project_id, team_id);

-- Name: observation_relationships observation_relationships_from_id_to_id_relationship_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_relationships
    ADD CONSTRAINT observation_relationships_from_id_to_id_relationship_key UNIQUE (from_id, to_id, relationship);

-- Name: observation_relationships observation_relationships_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_relationships
    ADD CONSTRAINT observation_relationships_pkey PRIMARY KEY (id);

-- Name: observation_sources observation_sources_observation_id_source_type_source_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_observation_id_source_type_source_id_key UNIQUE (observation_id, source_type, source_id);

-- Name: observation_sources observation_sources_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_pkey PRIMARY KEY (id);

-- Name: observation_versions observation_versions_observation_id_version_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_versions
    ADD CONSTRAINT observation_versions_observation_id_version_key UNIQUE (observation_id, version);

-- Name: observation_versions observation_versions_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_versions
    ADD CONSTRAINT observation_versions_pkey PRIMARY KEY (id);

-- Name: observations observations_generation_key_project_id_team_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_generation_key_project_id_team_id_key UNIQUE (generation_key, project_id, team_id);

-- Name: observations observations_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_of_project UNIQUE (id, project_id, team_id);

-- Name: observations observations_team_id_number_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_team_id_number_key UNIQUE (team_id, number);

-- Name: project_aliases project_aliases_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.project_aliases
    ADD CONSTRAINT project_aliases_pkey PRIMARY KEY (team_id, alias);

-- Name: project_joined_rows project_joined_rows_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.project_joined_rows
    ADD CONSTRAINT project_joined_rows_pkey PRIMARY KEY (project_id, row_id);

-- Name: project_overviews project_overviews_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.project_overviews
    ADD CONSTRAINT project_overviews_pkey PRIMARY KEY (id);

-- Name: project_overviews project_overviews_project_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.project_overviews
    ADD CONSTRAINT project_overviews_project_id_key UNIQUE (project_id);

-- Name: projects projects_id_team_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_id_team_id_key UNIQUE (id, team_id);

-- Name: projects projects_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_pkey PRIMARY KEY (id);

-- Name: projects projects_team_id_canonical_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_team_id_canonical_id_key UNIQUE (team_id, canonical_id);

-- Name: provider_pauses provider_pauses_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.provider_pauses
    ADD CONSTRAINT provider_pauses_pkey PRIMARY KEY (provider);

-- Name: rate_limits rate_limits_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.rate_limits
    ADD CONSTRAINT rate_limits_pkey PRIMARY KEY (id);

-- Name: retention_counts retention_counts_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.retention_counts
    ADD CONSTRAINT retention_counts_pkey PRIMARY KEY (team_id, kind);

-- Name: retention_marks retention_marks_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.retention_marks
    ADD CONSTRAINT retention_marks_pkey PRIMARY KEY (kind);

-- Name: schema_migrations schema_migrations_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (number);

-- Name: server_sessions server_sessions_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.server_sessions
    ADD CONSTRAINT server_sessions_of_project UNIQUE (id, project_id, team_id);

-- Name: server_sessions server_sessions_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.server_sessions
    ADD CONSTRAINT server_sessions_pkey PRIMARY KEY (id);

-- Name: steward_events steward_events_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_events
    ADD CONSTRAINT steward_events_pkey PRIMARY KEY (id);

-- Name: steward_jobs steward_jobs_id_team_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_jobs
    ADD CONSTRAINT steward_jobs_id_team_id_key UNIQUE (id, team_id);

-- Name: steward_jobs steward_jobs_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_jobs
    ADD CONSTRAINT steward_jobs_pkey PRIMARY KEY (id);

-- Name: steward_modes steward_modes_team_id_project_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_modes
    ADD CONSTRAINT steward_modes_team_id_project_id_key UNIQUE NULLS NOT DISTINCT (team_id, project_id);

-- Name: steward_policy_history steward_policy_history_id_team_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_policy_history
    ADD CONSTRAINT steward_policy_history_id_team_id_key UNIQUE (id, team_id);

-- Name: steward_policy_history steward_policy_history_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_policy_history
    ADD CONSTRAINT steward_policy_history_pkey PRIMARY KEY (id);

-- Name: steward_policy_history steward_policy_history_rollback_of_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_policy_history
    ADD CONSTRAINT steward_policy_history_rollback_of_id_key UNIQUE (rollback_of_id);

-- Name: steward_runs steward_runs_id_team_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_runs
    ADD CONSTRAINT steward_runs_id_team_id_key UNIQUE (id, team_id);

-- Name: steward_runs steward_runs_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.steward_runs
    ADD CONSTRAINT steward_runs_pkey PRIMARY KEY (id);

-- Name: team_members team_members_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.team_members
    ADD CONSTRAINT team_members_pkey PRIMARY KEY (team_id, user_id);

-- Name: teams teams_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.teams
    ADD CONSTRAINT teams_pkey PRIMARY KEY (id);

-- Name: turn_ledger turn_ledger_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.turn_ledger
    ADD CONSTRAINT turn_ledger_pkey PRIMARY KEY (earlier_id, kind, name, token);

-- Name: turn_sentences turn_sentences_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.turn_sentences
    ADD CONSTRAINT turn_sentences_pkey PRIMARY KEY (turn_id);

-- Name: turn_traces turn_traces_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.turn_traces
    ADD CONSTRAINT turn_traces_pkey PRIMARY KEY (turn_id, kind, name);

-- Name: turns turns_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_of_project UNIQUE (id, project_id, team_id);

-- Name: turns turns_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (id);

-- Name: turns turns_server_session_id_prompt_number_key; Type: CONSTRAINT

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_server_session_id_prompt_number_key UNIQUE (server_session_id, prompt_number);

-- Name: untraced_turns untraced_turns_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.untraced_turns
    ADD CONSTRAINT untraced_turns_pkey PRIMARY KEY (turn_id);

-- Name: usage_counters usage_counters_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.usage_counters
    ADD CONSTRAINT usage_counters_pkey PRIMARY KEY (team_id, month, kind, api_key_id);

-- Name: users users_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);

-- Name: web_sessions web_sessions_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.web_sessions
    ADD CONSTRAINT web_sessions_pkey PRIMARY KEY (id);

-- Name: web_sessions web_sessions_token_hash_key; Type: CONSTRAINT

ALTER TABLE ONLY public.web_sessions
    ADD CONSTRAINT web_sessions_token_hash_key UNIQUE (token_hash);

-- Name: agent_events_payload; Type: INDEX

CREATE INDEX agent_events_payload ON public.agent_events USING btree (project_id, received_at) WHERE (payload_purged_at IS NULL);

-- Name: agent_events_project; Type: INDEX

CREATE INDEX agent_events_project ON public.agent_events USING btree (project_id, occurred_at);

-- Name: agent_events_project_session; Type: INDEX

CREATE INDEX agent_events_project_session ON public.agent_events USING btree (project_id, server_session_id, occurred_at);

-- Name: agent_events_purged; Type: INDEX

CREATE INDEX agent_events_purged ON public.agent_events USING btree (payload_purged_at) WHERE (payload_purged_at IS NOT NULL);

-- Name: api_keys_made_by; Type: INDEX

CREATE INDEX api_keys_made_by ON public.api_keys USING btree (made_by) WHERE (made_by IS NOT NULL);

-- Name: api_keys_project; Type: INDEX

CREATE INDEX api_keys_project ON public.api_keys USING btree (project_id, team_id) WHERE (project_id IS NOT NULL);

-- Name: api_keys_team; Type: INDEX

CREATE INDEX api_keys_team ON public.api_keys USING btree (team_id, created_at);

-- Name: api_keys_user; Type: INDEX

CREATE INDEX api_keys_user ON public.api_keys USING btree (user_id) WHERE (user_id IS NOT NULL);

-- Name: audit_log_project; Type: INDEX

CREATE INDEX audit_log_project ON public.audit_log USING btree (project_id, id) WHERE (project_id IS NOT NULL);

-- Name: audit_log_seldom; Type: INDEX

CREATE INDEX audit_log_seldom ON public.audit_log USING btree (team_id, action, id) WHERE (action <> ALL (ARRAY['events.received'::text, 'jobs.queued'::text, 'generation.started'::text, 'observations.generated'::text, 'observations.served'::text]));

-- Name: audit_log_team; Type: INDEX

CREATE INDEX audit_log_team ON public.audit_log USING btree (team_id, id);

-- Name: consolidation_suggestions_open; Type: INDEX

CREATE INDEX consolidation_suggestions_open ON public.consolidation_suggestions USING btree (team_id, project_id, similarity) WHERE (status = 'open'::text);

-- Name: consolidation_suggestions_right; Type: INDEX

CREATE INDEX consolidation_suggestions_right ON public.consolidation_suggestions USING btree (right_id);

-- Name: consolidation_suggestions_team; Type: INDEX

CREATE INDEX consolidation_suggestions_team ON public.consolidation_suggestions USING btree (team_id, created_at, id);

-- Name: context_injections_project; Type: INDEX

CREATE INDEX context_injections_project ON public.context_injections USING btree (project_id, created_at, id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: context_injections_session; Type: INDEX

CREATE INDEX context_injections_session ON public.context_injections USING btree (server_session_id, created_at, id) WHERE ((server_session_id IS NOT NULL) AND (created_at > '-infinity'::timestamp with time zone));

-- Name: embedding_calibrations_model; Type: INDEX

CREATE INDEX embedding_calibrations_model ON public.embedding_calibrations USING btree (model_id);

-- Name: embedding_models_building; Type: INDEX

CREATE UNIQUE INDEX embedding_models_building ON public.embedding_models USING btree (state) WHERE (state = 'building'::text);

-- Name: embedding_models_current; Type: INDEX

CREATE UNIQUE INDEX embedding_models_current ON public.embedding_models USING btree (state) WHERE (state = 'current'::text);

-- Name: entities_aliases; Type: INDEX

CREATE INDEX entities_aliases ON public.entities USING btree (merged_into) WHERE (merged_into IS NOT NULL);

-- Name: entities_by_mentions; Type: INDEX

CREATE INDEX entities_by_mentions ON public.entities USING btree (project_id, mention_count DESC, id) WHERE (merged_into IS NULL);

-- Name: entities_team; Type: INDEX

CREATE INDEX entities_team ON public.entities USING btree (team_id, mention_count DESC, id) WHERE (merged_into IS NULL);

-- Name: entity_mentions_named; Type: INDEX

CREATE INDEX entity_mentions_named ON public.entity_mentions USING btree (named_id);

-- Name: entity_mentions_newest; Type: INDEX

CREATE INDEX entity_mentions_newest ON public.entity_mentions USING btree (entity_id, seen_at, place_id) INCLUDE (team_id);

-- Name: entity_mentions_of_observation; Type: INDEX

CREATE UNIQUE INDEX entity_mentions_of_observation ON public.entity_mentions USING btree (observation_id, named_id) WHERE (observation_id IS NOT NULL);

-- Name: entity_mentions_of_turn; Type: INDEX

CREATE UNIQUE INDEX entity_mentions_of_turn ON public.entity_mentions USING btree (turn_id, named_id) WHERE (turn_id IS NOT NULL);

-- Name: entity_mentions_place; Type: INDEX

CREATE INDEX entity_mentions_place ON public.entity_mentions USING btree (place_id) INCLUDE (entity_id, team_id);

-- Name: entity_relation_evidence_observation; Type: INDEX

CREATE INDEX entity_relation_evidence_observation ON public.entity_relation_evidence USING btree (observation_id);

-- Name: entity_relations_to; Type: INDEX

CREATE INDEX entity_relations_to ON public.entity_relations USING btree (to_id);

-- Name: entity_rereads_team; Type: INDEX

CREATE INDEX entity_rereads_team ON public.entity_rereads USING btree (team_id);

-- Name: generation_lanes_due; Type: INDEX

CREATE INDEX generation_lanes_due ON public.generation_lanes USING btree (due_at) WHERE ((worker_id IS NULL) AND (due_at IS NOT NULL));

-- Name: generation_lanes_held; Type: INDEX

CREATE INDEX generation_lanes_held ON public.generation_lanes USING btree (worker_id) WHERE (worker_id IS NOT NULL);

-- Name: generation_runs_asked; Type: INDEX

CREATE INDEX generation_runs_asked ON public.generation_runs USING btree (created_at) WHERE (status = 'asked'::text);

-- Name: generation_runs_project; Type: INDEX

CREATE INDEX generation_runs_project ON public.generation_runs USING btree (project_id, created_at);

-- Name: generation_runs_steward; Type: INDEX

CREATE INDEX generation_runs_steward ON public.generation_runs USING btree (team_id, created_at) WHERE (kind = ANY (ARRAY['guard'::text, 'derive'::text]));

-- Name: generation_runs_team; Type: INDEX

CREATE INDEX generation_runs_team ON public.generation_runs USING btree (team_id, created_at);

-- Name: invitations_made_by; Type: INDEX

CREATE INDEX invitations_made_by ON public.invitations USING btree (made_by) WHERE (made_by IS NOT NULL);

-- Name: invitations_team; Type: INDEX

CREATE INDEX invitations_team ON public.invitations USING btree (team_id, created_at);

-- Name: invitations_used_by; Type: INDEX

CREATE INDEX invitations_used_by ON public.invitations USING btree (used_by) WHERE (used_by IS NOT NULL);

-- Name: memberships_user; Type: INDEX

CREATE INDEX memberships_user ON public.memberships USING btree (user_id);

-- Name: memory_telemetry_project; Type: INDEX

CREATE INDEX memory_telemetry_project ON public.memory_telemetry USING btree (project_id) WHERE (project_id IS NOT NULL);

-- Name: memory_telemetry_team; Type: INDEX

CREATE INDEX memory_telemetry_team ON public.memory_telemetry USING btree (team_id, created_at);

-- Name: observation_derivations_derived; Type: INDEX

CREATE INDEX observation_derivations_derived ON public.observation_derivations USING btree (derived_observation_id) WHERE (derived_observation_id IS NOT NULL);

-- Name: observation_derivations_fingerprint; Type: INDEX

CREATE INDEX observation_derivations_fingerprint ON public.observation_derivations USING btree (project_id, fingerprint);

-- Name: observation_derivations_run; Type: INDEX

CREATE INDEX observation_derivations_run ON public.observation_derivations USING btree (run_id) WHERE (run_id IS NOT NULL);

-- Name: observation_embeddings_entity_scope; Type: INDEX

CREATE INDEX observation_embeddings_entity_scope ON public.observation_embeddings USING btree (team_id, model_id, project_id) WHERE ((embedding IS NOT NULL) AND (entity_id IS NOT NULL));

-- Name: observation_embeddings_of_entity; Type: INDEX

CREATE UNIQUE INDEX observation_embeddings_of_entity ON public.observation_embeddings USING btree (entity_id, model_id) WHERE (entity_id IS NOT NULL);

-- Name: observation_embeddings_of_observation; Type: INDEX

CREATE UNIQUE INDEX observation_embeddings_of_observation ON public.observation_embeddings USING btree (observation_id, model_id) WHERE (observation_id IS NOT NULL);

-- Name: observation_embeddings_of_turn; Type: INDEX

CREATE UNIQUE INDEX observation_embeddings_of_turn ON public.observation_embeddings USING btree (turn_id, model_id) WHERE (turn_id IS NOT NULL);

-- Name: observation_embeddings_scope; Type: INDEX

CREATE INDEX observation_embeddings_scope ON public.observation_embeddings USING btree (team_id, model_id, project_id) WHERE ((embedding IS NOT NULL) AND (observation_id IS NOT NULL));

-- Name: observation_embeddings_turn_scope; Type: INDEX

CREATE INDEX observation_embeddings_turn_scope ON public.observation_embeddings USING btree (team_id, model_id, project_id) WHERE ((embedding IS NOT NULL) AND (turn_id IS NOT NULL));

-- Name: observation_embeddings_waiting; Type: INDEX

CREATE INDEX observation_embeddings_waiting ON public.observation_embeddings USING btree (model_id, next_at) WHERE ((embedding IS NULL) OR is_outdated);

-- Name: observation_job_events_job; Type: INDEX

CREATE INDEX observation_job_events_job ON public.observation_generation_job_events USING btree (generation_job_id, id);

-- Name: observation_job_events_recovered; Type: INDEX

CREATE INDEX observation_job_events_recovered ON public.observation_generation_job_events USING btree (team_id, project_id) WHERE ((details ->> 'reason'::text) = 'worker lost'::text);

-- Name: observation_jobs_event; Type: INDEX

CREATE UNIQUE INDEX observation_jobs_event ON public.observation_generation_jobs USING btree (agent_event_id) WHERE (agent_event_id IS NOT NULL);

-- Name: observation_jobs_lane; Type: INDEX

CREATE INDEX observation_jobs_lane ON public.observation_generation_jobs USING btree (lane, seq) WHERE (phase = 'open'::text);

-- Name: observation_jobs_others; Type: INDEX

CREATE INDEX observation_jobs_others ON public.observation_generation_jobs USING btree (team_id, created_at, id, project_id, source_type, phase) WHERE (source_type <> 'agent_event'::text);

-- Name: observation_jobs_project; Type: INDEX

CREATE INDEX observation_jobs_project ON public.observation_generation_jobs USING btree (project_id, phase, created_at, id) INCLUDE (team_id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: observation_jobs_session; Type: INDEX

CREATE INDEX observation_jobs_session ON public.observation_generation_jobs USING btree (server_session_id, seq) WHERE (server_session_id IS NOT NULL);

-- Name: observation_jobs_source; Type: INDEX

CREATE UNIQUE INDEX observation_jobs_source ON public.observation_generation_jobs USING btree (source_id, source_type, job_type, source_run) WHERE (source_type <> 'agent_event'::text);

-- Name: observation_jobs_team; Type: INDEX

CREATE INDEX observation_jobs_team ON public.observation_generation_jobs USING btree (team_id, phase, created_at, id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: observation_relationships_to; Type: INDEX

CREATE INDEX observation_relationships_to ON public.observation_relationships USING btree (to_id);

-- Name: observation_sources_event; Type: INDEX

CREATE INDEX observation_sources_event ON public.observation_sources USING btree (agent_event_id) WHERE (agent_event_id IS NOT NULL);

-- Name: observation_sources_job; Type: INDEX

CREATE INDEX observation_sources_job ON public.observation_sources USING btree (generation_job_id) WHERE (generation_job_id IS NOT NULL);

-- Name: observation_versions_sources; Type: INDEX

CREATE INDEX observation_versions_sources ON public.observation_versions USING gin (source_ids) WHERE (source_ids <> '{}'::uuid[]);

-- Name: observation_versions_team; Type: INDEX

CREATE INDEX observation_versions_team ON public.observation_versions USING btree (team_id, created_at, id);

-- Name: observations_closed; Type: INDEX

CREATE INDEX observations_closed ON public.observations USING btree (team_id, closed_at) WHERE (closed_by IS NOT NULL);

-- Name: observations_content_search; Type: INDEX

CREATE INDEX observations_content_search ON public.observations USING gin (content_search) WITH (gin_pending_list_limit='128');

-- Name: observations_expiring; Type: INDEX

CREATE INDEX observations_expiring ON public.observations USING btree (expires_at) WHERE (expires_at IS NOT NULL);

-- Name: observations_hash; Type: INDEX

CREATE INDEX observations_hash ON public.observations USING btree (project_id, public.observation_hash(title, subtitle, narrative, facts, content)) WHERE ((superseded_at IS NULL) AND (kind = 'manual'::text));

-- Name: observations_job; Type: INDEX

CREATE INDEX observations_job ON public.observations USING btree (created_by_job_id) WHERE (created_by_job_id IS NOT NULL);

-- Name: observations_manual; Type: INDEX

CREATE INDEX observations_manual ON public.observations USING btree (team_id, created_at, id) WHERE (kind = 'manual'::text);

-- Name: observations_open; Type: INDEX

CREATE INDEX observations_open ON public.observations USING btree (team_id, project_id, number) WHERE (state = 'open'::text);

-- Name: observations_project; Type: INDEX

CREATE INDEX observations_project ON public.observations USING btree (project_id, created_at, id) INCLUDE (team_id, content_words, expires_at) WHERE (superseded_at IS NULL);

-- Name: observations_project_session; Type: INDEX

CREATE INDEX observations_project_session ON public.observations USING btree (project_id, server_session_id, created_at);

-- Name: observations_quote_event; Type: INDEX

CREATE INDEX observations_quote_event ON public.observations USING btree (quote_event_id) WHERE (quote_event_id IS NOT NULL);

-- Name: observations_summaries; Type: INDEX

CREATE INDEX observations_summaries ON public.observations USING btree (project_id, created_at, id) WHERE (kind = 'summary'::text);

-- Name: observations_superseded; Type: INDEX

CREATE INDEX observations_superseded ON public.observations USING btree (superseded_by) WHERE (superseded_by IS NOT NULL);

-- Name: observations_team; Type: INDEX

CREATE INDEX observations_team ON public.observations USING btree (team_id, created_at, id);

-- Name: observations_team_scope; Type: INDEX

CREATE INDEX observations_team_scope ON public.observations USING btree (team_id, created_at, id) INCLUDE (project_id, content_words, expires_at) WHERE ((scope = 'team'::text) AND (superseded_at IS NULL));

-- Name: observations_type; Type: INDEX

CREATE INDEX observations_type ON public.observations USING btree (team_id, type, created_at, id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: project_aliases_project; Type: INDEX

CREATE INDEX project_aliases_project ON public.project_aliases USING btree (project_id, team_id);

-- Name: project_joined_rows_team; Type: INDEX

CREATE INDEX project_joined_rows_team ON public.project_joined_rows USING btree (team_id);

-- Name: project_overviews_due; Type: INDEX

CREATE INDEX project_overviews_due ON public.project_overviews USING btree (team_id) WHERE ((body IS NULL) OR (new_summaries >= 10));

-- Name: projects_isolated; Type: INDEX

CREATE INDEX projects_isolated ON public.projects USING btree (team_id) WHERE isolated;

-- Name: projects_joined; Type: INDEX

CREATE INDEX projects_joined ON public.projects USING btree (joined_to, team_id) WHERE (joined_to IS NOT NULL);

-- Name: rate_limits_team; Type: INDEX

CREATE INDEX rate_limits_team ON public.rate_limits USING btree (team_id);

-- Name: server_sessions_content; Type: INDEX

CREATE INDEX server_sessions_content ON public.server_sessions USING btree (COALESCE(origin_project_id, project_id), content_session_id) WHERE (content_session_id IS NOT NULL);

-- Name: server_sessions_external; Type: INDEX

CREATE UNIQUE INDEX server_sessions_external ON public.server_sessions USING btree (COALESCE(origin_project_id, project_id), COALESCE(platform_source, ''::text), external_session_id) WHERE (external_session_id IS NOT NULL);

-- Name: server_sessions_idle; Type: INDEX

CREATE INDEX server_sessions_idle ON public.server_sessions USING btree (idle_from) WHERE (idle_from IS NOT NULL);

-- Name: server_sessions_of_hooks; Type: INDEX

CREATE UNIQUE INDEX server_sessions_of_hooks ON public.server_sessions USING btree (team_id, COALESCE(platform_source, ''::text), external_session_id) WHERE from_hooks;

-- Name: server_sessions_open; Type: INDEX

CREATE INDEX server_sessions_open ON public.server_sessions USING btree (team_id, started_at, id) WHERE (ended_at IS NULL);

-- Name: server_sessions_project; Type: INDEX

CREATE INDEX server_sessions_project ON public.server_sessions USING btree (project_id, started_at);

-- Name: server_sessions_said; Type: INDEX

CREATE INDEX server_sessions_said ON public.server_sessions USING btree (team_id, content_session_id) WHERE (content_session_id IS NOT NULL);

-- Name: server_sessions_team; Type: INDEX

CREATE INDEX server_sessions_team ON public.server_sessions USING btree (team_id, started_at, id) WHERE (started_at > '-infinity'::timestamp with time zone);

-- Name: steward_events_job; Type: INDEX

CREATE INDEX steward_events_job ON public.steward_events USING btree (job_id, id);

-- Name: steward_events_run; Type: INDEX

CREATE INDEX steward_events_run ON public.steward_events USING btree (run_id, id) WHERE (run_id IS NOT NULL);

-- Name: steward_jobs_dead; Type: INDEX

CREATE INDEX steward_jobs_dead ON public.steward_jobs USING btree (team_id, ended_at) WHERE (status = 'dead_letter'::text);

-- Name: steward_jobs_idempotency; Type: INDEX

CREATE UNIQUE INDEX steward_jobs_idempotency ON public.steward_jobs USING btree (team_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);

-- Name: steward_jobs_lease; Type: INDEX

CREATE INDEX steward_jobs_lease ON public.steward_jobs USING btree (lease_expires_at) WHERE (status = 'running'::text);

-- Name: steward_jobs_open; Type: INDEX

CREATE INDEX steward_jobs_open ON public.steward_jobs USING btree (team_id, project_id, run_after) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

-- Name: steward_jobs_project; Type: INDEX

CREATE INDEX steward_jobs_project ON public.steward_jobs USING btree (project_id) WHERE (project_id IS NOT NULL);

-- Name: steward_jobs_suggestion; Type: INDEX

CREATE INDEX steward_jobs_suggestion ON public.steward_jobs USING btree (((payload ->> 'suggestionId'::text))) WHERE (job_type = 'auto_merge'::text);

-- Name: steward_jobs_team; Type: INDEX

CREATE INDEX steward_jobs_team ON public.steward_jobs USING btree (team_id, job_type, created_at, id);

-- Name: steward_policy_history_key; Type: INDEX

CREATE INDEX steward_policy_history_key ON public.steward_policy_history USING btree (team_id, policy_key, created_at, id);

-- Name: steward_policy_history_run; Type: INDEX

CREATE INDEX steward_policy_history_run ON public.steward_policy_history USING btree (run_id) WHERE (run_id IS NOT NULL);

-- Name: steward_runs_job; Type: INDEX

CREATE INDEX steward_runs_job ON public.steward_runs USING btree (job_id, created_at);

-- Name: steward_runs_project; Type: INDEX

CREATE INDEX steward_runs_project ON public.steward_runs USING btree (project_id) WHERE (project_id IS NOT NULL);

-- Name: steward_runs_team; Type: INDEX

CREATE INDEX steward_runs_team ON public.steward_runs USING btree (team_id, created_at, id);

-- Name: steward_runs_with_proposals; Type: INDEX

CREATE INDEX steward_runs_with_proposals ON public.steward_runs USING btree (team_id) WHERE ((output_snapshot -> 'proposals'::text) <> '[]'::jsonb);

-- Name: teams_name; Type: INDEX

CREATE UNIQUE INDEX teams_name ON public.teams USING btree (name) WHERE (archived_at IS NULL);

-- Name: turn_ledger_later; Type: INDEX

CREATE INDEX turn_ledger_later ON public.turn_ledger USING btree (later_id);

-- Name: turn_sentences_due; Type: INDEX

CREATE INDEX turn_sentences_due ON public.turn_sentences USING btree (turn_id) WHERE (due_at IS NOT NULL);

-- Name: turn_sentences_model; Type: INDEX

CREATE INDEX turn_sentences_model ON public.turn_sentences USING btree (model_id, turn_id);

-- Name: turn_traces_name; Type: INDEX

CREATE INDEX turn_traces_name ON public.turn_traces USING btree (project_id, kind, name);

-- Name: turns_event; Type: INDEX

CREATE UNIQUE INDEX turns_event ON public.turns USING btree (agent_event_id);

-- Name: turns_number; Type: INDEX

CREATE UNIQUE INDEX turns_number ON public.turns USING btree (team_id, number);

-- Name: turns_project; Type: INDEX

CREATE INDEX turns_project ON public.turns USING btree (project_id, created_at);

-- Name: turns_search; Type: INDEX

CREATE INDEX turns_search ON public.turns USING gin (text_search) WITH (gin_pending_list_limit='128');

-- Name: turns_subagent; Type: INDEX

CREATE UNIQUE INDEX turns_subagent ON public.turns USING btree (server_session_id, agent_id) WHERE (agent_id IS NOT NULL);

-- Name: turns_team; Type: INDEX

CREATE INDEX turns_team ON public.turns USING btree (team_id, created_at) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: untraced_turns_place; Type: INDEX

CREATE INDEX untraced_turns_place ON public.untraced_turns USING btree (place);

-- Name: users_name; Type: INDEX

CREATE UNIQUE INDEX users_name ON public.users USING btree (lower(name));

-- Name: users_reset; Type: INDEX

CREATE UNIQUE INDEX users_reset ON public.users USING btree (reset_hash) WHERE (reset_hash IS NOT NULL);

-- Name: web_sessions_key; Type: INDEX

CREATE INDEX web_sessions_key ON public.web_sessions USING btree (api_key_id) WHERE (api_key_id IS NOT NULL);

-- Name: web_sessions_team; Type: INDEX

CREATE INDEX web_sessions_team ON public.web_sessions USING btree (current_team_id) WHERE (current_team_id IS NOT NULL);

-- Name: web_sessions_user; Type: INDEX

CREATE INDEX web_sessions_user ON public.web_sessions USING btree (user_id) WHERE (user_id IS NOT NULL);

-- Name: turns ended_turns_are_read; Type: TRIGGER

CREATE TRIGGER ended_turns_are_read AFTER INSERT ON public.turns FOR EACH ROW WHEN ((new.ended_at IS NOT NULL)) EXECUTE FUNCTION public.text_is_read_again();

-- Name: projects entities_follow_project; Type: TRIGGER

CREATE TRIGGER entities_follow_project AFTER UPDATE OF joined_to ON public.projects FOR EACH ROW WHEN (((old.joined_to IS DISTINCT FROM new.joined_to) OR (new.joined_to IS NOT NULL))) EXECUTE FUNCTION public.entities_follow_project();

-- Name: entities entities_to_embed; Type: TRIGGER

CREATE TRIGGER entities_to_embed AFTER INSERT ON public.entities FOR EACH ROW WHEN (public.is_found_by_meaning(new.type, new.notes)) EXECUTE FUNCTION public.entity_waits_for_embedding();

-- Name: entities entities_to_embed_again; Type: TRIGGER

CREATE TRIGGER entities_to_embed_again AFTER UPDATE OF name, notes ON public.entities FOR EACH ROW WHEN ((((old.name IS DISTINCT FROM new.name) OR (old.notes IS DISTINCT FROM new.notes)) AND (public.is_found_by_meaning(new.type, new.notes) OR (old.notes IS NOT NULL)))) EXECUTE FUNCTION public.entity_waits_for_embedding();

-- Name: entity_mentions entity_mentions_added; Type: TRIGGER

CREATE TRIGGER entity_mentions_added AFTER INSERT ON public.entity_mentions REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.entity_mentions_added();

-- Name: entity_mentions entity_mentions_deleted; Type: TRIGGER

CREATE TRIGGER entity_mentions_deleted AFTER DELETE ON public.entity_mentions REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.entity_mentions_deleted();

-- Name: observation_generation_jobs generation_job_law; Type: TRIGGER

CREATE TRIGGER generation_job_law BEFORE UPDATE OF status ON public.observation_generation_jobs FOR EACH ROW WHEN ((old.status IS DISTINCT FROM new.status)) EXECUTE FUNCTION public.generation_job_law();

-- Name: observation_generation_jobs generation_job_log_insert; Type: TRIGGER

CREATE TRIGGER generation_job_log_insert AFTER INSERT ON public.observation_generation_jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.generation_job_log_insert();

-- Name: observation_generation_jobs generation_job_log_update; Type: TRIGGER

CREATE TRIGGER generation_job_log_update AFTER UPDATE ON public.observation_generation_jobs REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.generation_job_log_update();

-- Name: generation_runs generation_runs_count_changed; Type: TRIGGER

CREATE TRIGGER generation_runs_count_changed AFTER UPDATE ON public.generation_runs REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.generation_runs_count();

-- Name: generation_runs generation_runs_count_new; Type: TRIGGER

CREATE TRIGGER generation_runs_count_new AFTER INSERT ON public.generation_runs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.generation_runs_count();

-- Name: observations imported_observations_are_read; Type: TRIGGER

CREATE TRIGGER imported_observations_are_read AFTER INSERT ON public.observations FOR EACH ROW WHEN ((new.origin = 'import'::text)) EXECUTE FUNCTION public.text_is_read_again();

-- Name: TRIGGER imported_observations_are_read ON observations; Type: COMMENT

COMMENT ON TRIGGER imported_observations_are_read ON public.observations IS 'They keep their numbers, which may be lower than what is read already.';

-- Name: observations isolated_projects_share_nothing; Type: TRIGGER

CREATE TRIGGER isolated_projects_share_nothing BEFORE INSERT OR UPDATE OF scope, project_id ON public.observations FOR EACH ROW WHEN ((new.scope = 'team'::text)) EXECUTE FUNCTION public.isolated_projects_share_nothing();

-- Name: entities joined_entities_go_along; Type: TRIGGER

CREATE TRIGGER joined_entities_go_along AFTER DELETE ON public.entities REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.joined_entities_go_along();

-- Name: TRIGGER joined_entities_go_along ON entities; Type: COMMENT

COMMENT ON TRIGGER joined_entities_go_along ON public.entities IS 'What is deleted after a join does not come back when it is separated.';

-- Name: entity_relations joined_relations_go_along; Type: TRIGGER

CREATE TRIGGER joined_relations_go_along AFTER DELETE ON public.entity_relations REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.joined_relations_go_along();

-- Name: observations observations_are_changed; Type: TRIGGER

CREATE TRIGGER observations_are_changed BEFORE UPDATE OF type, scope, title, subtitle, narrative, facts, concepts, files_read, files_modified, summary, content, importance, metadata, state, quote ON public.observations FOR EACH ROW WHEN (((new.updated_at = old.updated_at) AND (((((((((((((((new.type IS DISTINCT FROM old.type) OR (new.scope IS DISTINCT FROM old.scope)) OR (new.title IS DISTINCT FROM old.title)) OR (new.subtitle IS DISTINCT FROM old.subtitle)) OR (new.narrative IS DISTINCT FROM old.narrative)) OR (new.facts IS DISTINCT FROM old.facts)) OR (new.concepts IS DISTINCT FROM old.concepts)) OR (new.files_read IS DISTINCT FROM old.files_read)) OR (new.files_modified IS DISTINCT FROM old.files_modified)) OR (new.summary IS DISTINCT FROM old.summary)) OR (new.content IS DISTINCT FROM old.content)) OR (new.importance IS DISTINCT FROM old.importance)) OR (new.metadata IS DISTINCT FROM old.metadata)) OR (new.state IS DISTINCT FROM old.state)) OR (new.quote IS DISTINCT FROM old.quote)))) EXECUTE FUNCTION public.observation_is_changed();

-- Name: observations observations_are_read_again; Type: TRIGGER

CREATE TRIGGER observations_are_read_again AFTER UPDATE OF title, subtitle, narrative, facts, files_read, files_modified, anchors, content, superseded_at ON public.observations FOR EACH ROW WHEN ((((((((((old.title IS DISTINCT FROM new.title) OR (old.subtitle IS DISTINCT FROM new.subtitle)) OR (old.narrative IS DISTINCT FROM new.narrative)) OR (old.facts IS DISTINCT FROM new.facts)) OR (old.files_read IS DISTINCT FROM new.files_read)) OR (old.files_modified IS DISTINCT FROM new.files_modified)) OR (old.anchors IS DISTINCT FROM new.anchors)) OR (old.content IS DISTINCT FROM new.content)) OR (old.superseded_at IS DISTINCT FROM new.superseded_at))) EXECUTE FUNCTION public.text_is_read_again();

-- Name: observations observations_to_embed; Type: TRIGGER

CREATE TRIGGER observations_to_embed AFTER INSERT ON public.observations REFERENCING NEW TABLE AS new_ones FOR EACH STATEMENT EXECUTE FUNCTION public.observations_wait_for_embedding();

-- Name: observations observations_to_embed_again; Type: TRIGGER

CREATE TRIGGER observations_to_embed_again AFTER UPDATE OF title, subtitle, narrative, facts, concepts, summary, content ON public.observations FOR EACH ROW WHEN ((((((((old.title IS DISTINCT FROM new.title) OR (old.subtitle IS DISTINCT FROM new.subtitle)) OR (old.narrative IS DISTINCT FROM new.narrative)) OR (old.facts IS DISTINCT FROM new.facts)) OR (old.concepts IS DISTINCT FROM new.concepts)) OR (old.summary IS DISTINCT FROM new.summary)) OR (old.content IS DISTINCT FROM new.content))) EXECUTE FUNCTION public.observation_waits_again();

-- Name: observations observations_vectors_follow; Type: TRIGGER

CREATE TRIGGER observations_vectors_follow AFTER UPDATE OF superseded_at, expires_at ON public.observations FOR EACH ROW WHEN (((old.superseded_at IS DISTINCT FROM new.superseded_at) OR (old.expires_at IS DISTINCT FROM new.expires_at))) EXECUTE FUNCTION public.observation_vectors_follow();

-- Name: observations observations_words; Type: TRIGGER

CREATE TRIGGER observations_words BEFORE INSERT OR UPDATE OF title, subtitle, narrative, facts, concepts, files_read, files_modified, summary, content, search_language ON public.observations FOR EACH ROW EXECUTE FUNCTION public.observation_words();

-- Name: observations overviews_age; Type: TRIGGER

CREATE TRIGGER overviews_age AFTER UPDATE OF state ON public.observations FOR EACH ROW WHEN (((old.state = 'open'::text) AND (new.state IS DISTINCT FROM 'open'::text))) EXECUTE FUNCTION public.overviews_age();

-- Name: observations overviews_forget_changed; Type: TRIGGER

CREATE TRIGGER overviews_forget_changed AFTER UPDATE OF title, content, summary, superseded_at, project_id ON public.observations FOR EACH ROW WHEN ((((((old.title IS DISTINCT FROM new.title) OR (old.content IS DISTINCT FROM new.content)) OR (old.summary IS DISTINCT FROM new.summary)) OR (old.superseded_at IS DISTINCT FROM new.superseded_at)) OR (old.project_id IS DISTINCT FROM new.project_id))) EXECUTE FUNCTION public.overviews_forget_changed();

-- Name: turns overviews_forget_changed; Type: TRIGGER

CREATE TRIGGER overviews_forget_changed AFTER UPDATE OF project_id ON public.turns FOR EACH ROW WHEN ((old.project_id IS DISTINCT FROM new.project_id)) EXECUTE FUNCTION public.overviews_forget_changed();

-- Name: observations overviews_forget_deleted; Type: TRIGGER

CREATE TRIGGER overviews_forget_deleted AFTER DELETE ON public.observations REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.overviews_forget_deleted();

-- Name: turns overviews_forget_deleted; Type: TRIGGER

CREATE TRIGGER overviews_forget_deleted AFTER DELETE ON public.turns REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.overviews_forget_deleted();

-- Name: entities overviews_forget_entities; Type: TRIGGER

CREATE TRIGGER overviews_forget_entities AFTER DELETE ON public.entities REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.overviews_forget_entities();

-- Name: projects project_is_isolated; Type: TRIGGER

CREATE TRIGGER project_is_isolated AFTER UPDATE OF isolated ON public.projects FOR EACH ROW WHEN ((new.isolated AND (NOT old.isolated))) EXECUTE FUNCTION public.project_is_isolated();

-- Name: projects projects_language; Type: TRIGGER

CREATE TRIGGER projects_language AFTER UPDATE OF search_language ON public.projects FOR EACH ROW WHEN ((old.search_language <> new.search_language)) EXECUTE FUNCTION public.project_language();

-- Name: turns quotes_of_deleted_turns; Type: TRIGGER

CREATE TRIGGER quotes_of_deleted_turns AFTER DELETE ON public.turns FOR EACH ROW WHEN (((old.reply IS NOT NULL) AND (old.agent_id IS NULL))) EXECUTE FUNCTION public.turn_waits_for_sentences();

-- Name: steward_jobs steward_job_law; Type: TRIGGER

CREATE TRIGGER steward_job_law BEFORE UPDATE OF status ON public.steward_jobs FOR EACH ROW WHEN ((old.status IS DISTINCT FROM new.status)) EXECUTE FUNCTION public.steward_job_law();

-- Name: steward_jobs steward_job_log_insert; Type: TRIGGER

CREATE TRIGGER steward_job_log_insert AFTER INSERT ON public.steward_jobs FOR EACH ROW EXECUTE FUNCTION public.steward_job_log();

-- Name: steward_jobs steward_job_log_update; Type: TRIGGER

CREATE TRIGGER steward_job_log_update AFTER UPDATE OF status ON public.steward_jobs FOR EACH ROW WHEN ((old.status IS DISTINCT FROM new.status)) EXECUTE FUNCTION public.steward_job_log();

-- Name: turns turns_are_read_again; Type: TRIGGER

CREATE TRIGGER turns_are_read_again AFTER UPDATE OF prompt, reply, ended_at ON public.turns FOR EACH ROW WHEN (((new.ended_at IS NOT NULL) AND ((old.ended_at IS NULL) OR ((old.prompt IS DISTINCT FROM new.prompt) OR (old.reply IS DISTINCT FROM new.reply))))) EXECUTE FUNCTION public.text_is_read_again();

-- Name: turns turns_to_embed; Type: TRIGGER

CREATE TRIGGER turns_to_embed AFTER INSERT OR UPDATE OF prompt, reply, ended_at ON public.turns FOR EACH ROW WHEN ((new.ended_at IS NOT NULL)) EXECUTE FUNCTION public.turn_waits_for_embedding();

-- Name: turns turns_to_sentences; Type: TRIGGER

CREATE TRIGGER turns_to_sentences AFTER INSERT OR UPDATE OF prompt, reply, own_line, ended_at, search_language ON public.turns FOR EACH ROW WHEN (((new.ended_at IS NOT NULL) AND (new.agent_id IS NULL))) EXECUTE FUNCTION public.turn_waits_for_sentences();

-- Name: turns turns_words; Type: TRIGGER

CREATE TRIGGER turns_words BEFORE INSERT OR UPDATE OF prompt, reply, files, commits, search_language ON public.turns FOR EACH ROW EXECUTE FUNCTION public.turn_words();

-- Name: agent_events agent_events_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.agent_events
    ADD CONSTRAINT agent_events_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: agent_events agent_events_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.agent_events
    ADD CONSTRAINT agent_events_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE SET NULL (server_session_id) DEFERRABLE;

-- Name: api_keys api_keys_made_by_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_made_by_fkey FOREIGN KEY (made_by) REFERENCES public.users(id) ON DELETE SET NULL;

-- Name: api_keys api_keys_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: api_keys api_keys_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: api_keys api_keys_user_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE SET NULL;

-- Name: budgets budgets_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: budgets budgets_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: consolidation_progress consolidation_progress_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.consolidation_progress
    ADD CONSTRAINT consolidation_progress_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: consolidation_suggestions consolidation_suggestions_left_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.consolidation_suggestions
    ADD CONSTRAINT consolidation_suggestions_left_id_project_id_team_id_fkey FOREIGN KEY (left_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: consolidation_suggestions consolidation_suggestions_right_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.consolidation_suggestions
    ADD CONSTRAINT consolidation_suggestions_right_id_project_id_team_id_fkey FOREIGN KEY (right_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: context_injections context_injections_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: context_injections context_injections_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: context_injections context_injections_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: embedding_calibrations embedding_calibrations_model_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.embedding_calibrations
    ADD CONSTRAINT embedding_calibrations_model_id_fkey FOREIGN KEY (model_id) REFERENCES public.embedding_models(id) ON DELETE CASCADE;

-- Name: embedding_calibrations embedding_calibrations_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.embedding_calibrations
    ADD CONSTRAINT embedding_calibrations_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: entities entities_merged_into_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entities
    ADD CONSTRAINT entities_merged_into_fkey FOREIGN KEY (merged_into, project_id, team_id) REFERENCES public.entities(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entities entities_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entities
    ADD CONSTRAINT entities_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: entity_mentions entity_mentions_entity_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_mentions
    ADD CONSTRAINT entity_mentions_entity_id_project_id_team_id_fkey FOREIGN KEY (entity_id, project_id, team_id) REFERENCES public.entities(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entity_mentions entity_mentions_named_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_mentions
    ADD CONSTRAINT entity_mentions_named_id_project_id_team_id_fkey FOREIGN KEY (named_id, project_id, team_id) REFERENCES public.entities(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entity_mentions entity_mentions_observation_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_mentions
    ADD CONSTRAINT entity_mentions_observation_id_project_id_team_id_fkey FOREIGN KEY (observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entity_mentions entity_mentions_turn_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_mentions
    ADD CONSTRAINT entity_mentions_turn_id_project_id_team_id_fkey FOREIGN KEY (turn_id, project_id, team_id) REFERENCES public.turns(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entity_progress entity_progress_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_progress
    ADD CONSTRAINT entity_progress_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: entity_relation_evidence entity_relation_evidence_observation_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_relation_evidence
    ADD CONSTRAINT entity_relation_evidence_observation_id_project_id_team_id_fkey FOREIGN KEY (observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entity_relation_evidence entity_relation_evidence_relation_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_relation_evidence
    ADD CONSTRAINT entity_relation_evidence_relation_id_team_id_fkey FOREIGN KEY (relation_id, team_id) REFERENCES public.entity_relations(id, team_id) ON DELETE CASCADE;

-- Name: entity_relations entity_relations_from_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_relations
    ADD CONSTRAINT entity_relations_from_id_project_id_team_id_fkey FOREIGN KEY (from_id, project_id, team_id) REFERENCES public.entities(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entity_relations entity_relations_to_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_relations
    ADD CONSTRAINT entity_relations_to_id_project_id_team_id_fkey FOREIGN KEY (to_id, project_id, team_id) REFERENCES public.entities(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: entity_rereads entity_rereads_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.entity_rereads
    ADD CONSTRAINT entity_rereads_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: generation_runs generation_runs_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.generation_runs
    ADD CONSTRAINT generation_runs_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: generation_spending generation_spending_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.generation_spending
    ADD CONSTRAINT generation_spending_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: invitations invitations_made_by_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_made_by_fkey FOREIGN KEY (made_by) REFERENCES public.users(id) ON DELETE CASCADE;

-- Name: invitations invitations_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: invitations invitations_used_by_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_used_by_fkey FOREIGN KEY (used_by) REFERENCES public.users(id) ON DELETE SET NULL;

-- Name: memberships memberships_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.memberships
    ADD CONSTRAINT memberships_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: memberships memberships_user_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.memberships
    ADD CONSTRAINT memberships_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

-- Name: memory_telemetry memory_telemetry_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.memory_telemetry
    ADD CONSTRAINT memory_telemetry_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: memory_telemetry memory_telemetry_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.memory_telemetry
    ADD CONSTRAINT memory_telemetry_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: observation_counters observation_counters_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_counters
    ADD CONSTRAINT observation_counters_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: observation_derivations observation_derivations_derived_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_derivations
    ADD CONSTRAINT observation_derivations_derived_fkey FOREIGN KEY (derived_observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE SET NULL (derived_observation_id) DEFERRABLE;

-- Name: observation_derivations observation_derivations_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_derivations
    ADD CONSTRAINT observation_derivations_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: observation_derivations observation_derivations_run_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_derivations
    ADD CONSTRAINT observation_derivations_run_id_team_id_fkey FOREIGN KEY (run_id, team_id) REFERENCES public.steward_runs(id, team_id) ON DELETE SET NULL (run_id);

-- Name: observation_embeddings observation_embeddings_entity_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_embeddings
    ADD CONSTRAINT observation_embeddings_entity_id_project_id_team_id_fkey FOREIGN KEY (entity_id, project_id, team_id) REFERENCES public.entities(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_embeddings observation_embeddings_model_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_embeddings
    ADD CONSTRAINT observation_embeddings_model_id_fkey FOREIGN KEY (model_id) REFERENCES public.embedding_models(id);

-- Name: observation_embeddings observation_embeddings_observation_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_embeddings
    ADD CONSTRAINT observation_embeddings_observation_id_project_id_team_id_fkey FOREIGN KEY (observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_embeddings observation_embeddings_turn_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_embeddings
    ADD CONSTRAINT observation_embeddings_turn_id_project_id_team_id_fkey FOREIGN KEY (turn_id, project_id, team_id) REFERENCES public.turns(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_generation_job_events observation_generation_job_ev_generation_job_id_project_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_job_events
    ADD CONSTRAINT observation_generation_job_ev_generation_job_id_project_id_fkey FOREIGN KEY (generation_job_id, project_id, team_id) REFERENCES public.observation_generation_jobs(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_generation_jobs observation_generation_jobs_agent_event_id_project_id_team_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_agent_event_id_project_id_team_fkey FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_generation_jobs observation_generation_jobs_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: observation_generation_jobs observation_generation_jobs_server_session_id_project_id_t_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_server_session_id_project_id_t_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE SET NULL (server_session_id) DEFERRABLE;

-- Name: observation_relationships observation_relationships_from_id_from_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_relationships
    ADD CONSTRAINT observation_relationships_from_id_from_project_id_team_id_fkey FOREIGN KEY (from_id, from_project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_relationships observation_relationships_to_id_to_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_relationships
    ADD CONSTRAINT observation_relationships_to_id_to_project_id_team_id_fkey FOREIGN KEY (to_id, to_project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_sources observation_sources_agent_event_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_agent_event_id_project_id_team_id_fkey FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_sources observation_sources_generation_job_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_generation_job_id_project_id_team_id_fkey FOREIGN KEY (generation_job_id, project_id, team_id) REFERENCES public.observation_generation_jobs(id, project_id, team_id) ON DELETE SET NULL (generation_job_id) DEFERRABLE;

-- Name: observation_sources observation_sources_observation_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_observation_id_project_id_team_id_fkey FOREIGN KEY (observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observation_versions observation_versions_observation_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_versions
    ADD CONSTRAINT observation_versions_observation_id_project_id_team_id_fkey FOREIGN KEY (observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: observations observations_created_by_job_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_created_by_job_id_project_id_team_id_fkey FOREIGN KEY (created_by_job_id, project_id, team_id) REFERENCES public.observation_generation_jobs(id, project_id, team_id) ON DELETE SET NULL (created_by_job_id) DEFERRABLE;

-- Name: observations observations_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: observations observations_quote_event_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_quote_event_fkey FOREIGN KEY (quote_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE SET NULL (quote_event_id) DEFERRABLE;

-- Name: observations observations_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE SET NULL (server_session_id) DEFERRABLE;

-- Name: observations observations_superseded_by_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_superseded_by_fkey FOREIGN KEY (superseded_by, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: project_aliases project_aliases_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.project_aliases
    ADD CONSTRAINT project_aliases_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: project_joined_rows project_joined_rows_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.project_joined_rows
    ADD CONSTRAINT project_joined_rows_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: project_joined_rows project_joined_rows_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.project_joined_rows
    ADD CONSTRAINT project_joined_rows_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: project_overviews project_overviews_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.project_overviews
    ADD CONSTRAINT project_overviews_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: projects projects_joined_to_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_joined_to_fkey FOREIGN KEY (joined_to, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: projects projects_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: rate_limits rate_limits_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.rate_limits
    ADD CONSTRAINT rate_limits_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: retention_counts retention_counts_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.retention_counts
    ADD CONSTRAINT retention_counts_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: server_sessions server_sessions_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.server_sessions
    ADD CONSTRAINT server_sessions_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: steward_events steward_events_job_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_events
    ADD CONSTRAINT steward_events_job_id_team_id_fkey FOREIGN KEY (job_id, team_id) REFERENCES public.steward_jobs(id, team_id) ON DELETE CASCADE;

-- Name: steward_events steward_events_run_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_events
    ADD CONSTRAINT steward_events_run_id_team_id_fkey FOREIGN KEY (run_id, team_id) REFERENCES public.steward_runs(id, team_id) ON DELETE CASCADE;

-- Name: steward_jobs steward_jobs_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_jobs
    ADD CONSTRAINT steward_jobs_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: steward_jobs steward_jobs_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_jobs
    ADD CONSTRAINT steward_jobs_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: steward_modes steward_modes_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_modes
    ADD CONSTRAINT steward_modes_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: steward_modes steward_modes_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_modes
    ADD CONSTRAINT steward_modes_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: steward_policy_history steward_policy_history_rollback_of_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_policy_history
    ADD CONSTRAINT steward_policy_history_rollback_of_id_team_id_fkey FOREIGN KEY (rollback_of_id, team_id) REFERENCES public.steward_policy_history(id, team_id) ON DELETE CASCADE;

-- Name: steward_policy_history steward_policy_history_run_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_policy_history
    ADD CONSTRAINT steward_policy_history_run_id_team_id_fkey FOREIGN KEY (run_id, team_id) REFERENCES public.steward_runs(id, team_id) ON DELETE SET NULL (run_id);

-- Name: steward_policy_history steward_policy_history_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_policy_history
    ADD CONSTRAINT steward_policy_history_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: steward_runs steward_runs_job_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_runs
    ADD CONSTRAINT steward_runs_job_id_team_id_fkey FOREIGN KEY (job_id, team_id) REFERENCES public.steward_jobs(id, team_id) ON DELETE CASCADE;

-- Name: steward_runs steward_runs_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.steward_runs
    ADD CONSTRAINT steward_runs_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: team_members team_members_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.team_members
    ADD CONSTRAINT team_members_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: turn_ledger turn_ledger_earlier_id_earlier_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turn_ledger
    ADD CONSTRAINT turn_ledger_earlier_id_earlier_project_id_team_id_fkey FOREIGN KEY (earlier_id, earlier_project_id, team_id) REFERENCES public.turns(id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE;

-- Name: turn_ledger turn_ledger_later_id_later_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turn_ledger
    ADD CONSTRAINT turn_ledger_later_id_later_project_id_team_id_fkey FOREIGN KEY (later_id, later_project_id, team_id) REFERENCES public.turns(id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE;

-- Name: turn_ledger turn_ledger_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turn_ledger
    ADD CONSTRAINT turn_ledger_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: turn_sentences turn_sentences_turn_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turn_sentences
    ADD CONSTRAINT turn_sentences_turn_id_project_id_team_id_fkey FOREIGN KEY (turn_id, project_id, team_id) REFERENCES public.turns(id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE;

-- Name: turn_traces turn_traces_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turn_traces
    ADD CONSTRAINT turn_traces_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: turn_traces turn_traces_turn_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turn_traces
    ADD CONSTRAINT turn_traces_turn_id_project_id_team_id_fkey FOREIGN KEY (turn_id, project_id, team_id) REFERENCES public.turns(id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE;

-- Name: turns turns_agent_event_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_agent_event_id_project_id_team_id_fkey FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE SET NULL (agent_event_id) DEFERRABLE;

-- Name: turns turns_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT turns_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;

-- Name: untraced_turns untraced_turns_turn_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.untraced_turns
    ADD CONSTRAINT untraced_turns_turn_id_project_id_team_id_fkey FOREIGN KEY (turn_id, project_id, team_id) REFERENCES public.turns(id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE;

-- Name: usage_counters usage_counters_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.usage_counters
    ADD CONSTRAINT usage_counters_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: web_sessions web_sessions_api_key_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.web_sessions
    ADD CONSTRAINT web_sessions_api_key_id_fkey FOREIGN KEY (api_key_id) REFERENCES public.api_keys(id) ON DELETE CASCADE;

-- Name: web_sessions web_sessions_current_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.web_sessions
    ADD CONSTRAINT web_sessions_current_team_id_fkey FOREIGN KEY (current_team_id) REFERENCES public.teams(id) ON DELETE SET NULL;

-- Name: web_sessions web_sessions_user_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.web_sessions
    ADD CONSTRAINT web_sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;

-- Name: agent_events; Type: ROW SECURITY

ALTER TABLE public.agent_events ENABLE ROW LEVEL SECURITY;

-- Name: api_keys; Type: ROW SECURITY

ALTER TABLE public.api_keys ENABLE ROW LEVEL SECURITY;

-- Name: audit_log; Type: ROW SECURITY

ALTER TABLE public.audit_log ENABLE ROW LEVEL SECURITY;

-- Name: budgets; Type: ROW SECURITY

ALTER TABLE public.budgets ENABLE ROW LEVEL SECURITY;

-- Name: consolidation_progress; Type: ROW SECURITY

ALTER TABLE public.consolidation_progress ENABLE ROW LEVEL SECURITY;

-- Name: consolidation_suggestions; Type: ROW SECURITY

ALTER TABLE public.consolidation_suggestions ENABLE ROW LEVEL SECURITY;

-- Name: context_injections; Type: ROW SECURITY

ALTER TABLE public.context_injections ENABLE ROW LEVEL SECURITY;

-- Name: embedding_calibrations; Type: ROW SECURITY

ALTER TABLE public.embedding_calibrations ENABLE ROW LEVEL SECURITY;

-- Name: entities; Type: ROW SECURITY

ALTER TABLE public.entities ENABLE ROW LEVEL SECURITY;

-- Name: entity_mentions; Type: ROW SECURITY

ALTER TABLE public.entity_mentions ENABLE ROW LEVEL SECURITY;

-- Name: entity_progress; Type: ROW SECURITY

ALTER TABLE public.entity_progress ENABLE ROW LEVEL SECURITY;

-- Name: entity_relation_evidence; Type: ROW SECURITY

ALTER TABLE public.entity_relation_evidence ENABLE ROW LEVEL SECURITY;

-- Name: entity_relations; Type: ROW SECURITY

ALTER TABLE public.entity_relations ENABLE ROW LEVEL SECURITY;

-- Name: entity_rereads; Type: ROW SECURITY

ALTER TABLE public.entity_rereads ENABLE ROW LEVEL SECURITY;

-- Name: generation_lanes; Type: ROW SECURITY

ALTER TABLE public.generation_lanes ENABLE ROW LEVEL SECURITY;

-- Name: generation_runs; Type: ROW SECURITY

ALTER TABLE public.generation_runs ENABLE ROW LEVEL SECURITY;

-- Name: generation_spending; Type: ROW SECURITY

ALTER TABLE public.generation_spending ENABLE ROW LEVEL SECURITY;

-- Name: invitations; Type: ROW SECURITY

ALTER TABLE public.invitations ENABLE ROW LEVEL SECURITY;

-- Name: memberships; Type: ROW SECURITY

ALTER TABLE public.memberships ENABLE ROW LEVEL SECURITY;

-- Name: memory_telemetry; Type: ROW SECURITY

ALTER TABLE public.memory_telemetry ENABLE ROW LEVEL SECURITY;

-- Name: observation_counters; Type: ROW SECURITY

ALTER TABLE public.observation_counters ENABLE ROW LEVEL SECURITY;

-- Name: observation_derivations; Type: ROW SECURITY

ALTER TABLE public.observation_derivations ENABLE ROW LEVEL SECURITY;

-- Name: observation_embeddings; Type: ROW SECURITY

ALTER TABLE public.observation_embeddings ENABLE ROW LEVEL SECURITY;

-- Name: observation_generation_job_events; Type: ROW SECURITY

ALTER TABLE public.observation_generation_job_events ENABLE ROW LEVEL SECURITY;

-- Name: observation_generation_jobs; Type: ROW SECURITY

ALTER TABLE public.observation_generation_jobs ENABLE ROW LEVEL SECURITY;

-- Name: observation_relationships; Type: ROW SECURITY

ALTER TABLE public.observation_relationships ENABLE ROW LEVEL SECURITY;

-- Name: observation_sources; Type: ROW SECURITY

ALTER TABLE public.observation_sources ENABLE ROW LEVEL SECURITY;

-- Name: observation_versions; Type: ROW SECURITY

ALTER TABLE public.observation_versions ENABLE ROW LEVEL SECURITY;

-- Name: observations; Type: ROW SECURITY

ALTER TABLE public.observations ENABLE ROW LEVEL SECURITY;

-- Name: project_aliases; Type: ROW SECURITY

ALTER TABLE public.project_aliases ENABLE ROW LEVEL SECURITY;

-- Name: project_joined_rows; Type: ROW SECURITY

ALTER TABLE public.project_joined_rows ENABLE ROW LEVEL SECURITY;

-- Name: project_overviews; Type: ROW SECURITY

ALTER TABLE public.project_overviews ENABLE ROW LEVEL SECURITY;

-- Name: projects; Type: ROW SECURITY

ALTER TABLE public.projects ENABLE ROW LEVEL SECURITY;

-- Name: rate_limits; Type: ROW SECURITY

ALTER TABLE public.rate_limits ENABLE ROW LEVEL SECURITY;

-- Name: retention_counts; Type: ROW SECURITY

ALTER TABLE public.retention_counts ENABLE ROW LEVEL SECURITY;

-- Name: server_sessions; Type: ROW SECURITY

ALTER TABLE public.server_sessions ENABLE ROW LEVEL SECURITY;

-- Name: steward_events; Type: ROW SECURITY

ALTER TABLE public.steward_events ENABLE ROW LEVEL SECURITY;

-- Name: steward_jobs; Type: ROW SECURITY

ALTER TABLE public.steward_jobs ENABLE ROW LEVEL SECURITY;

-- Name: steward_modes; Type: ROW SECURITY

ALTER TABLE public.steward_modes ENABLE ROW LEVEL SECURITY;

-- Name: steward_policy_history; Type: ROW SECURITY

ALTER TABLE public.steward_policy_history ENABLE ROW LEVEL SECURITY;

-- Name: steward_runs; Type: ROW SECURITY

ALTER TABLE public.steward_runs ENABLE ROW LEVEL SECURITY;

-- Name: agent_events team; Type: POLICY

CREATE POLICY team ON public.agent_events USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: api_keys team; Type: POLICY

CREATE POLICY team ON public.api_keys USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: audit_log team; Type: POLICY

CREATE POLICY team ON public.audit_log USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: budgets team; Type: POLICY

CREATE POLICY team ON public.budgets USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: consolidation_progress team; Type: POLICY

CREATE POLICY team ON public.consolidation_progress USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: consolidation_suggestions team; Type: POLICY

CREATE POLICY team ON public.consolidation_suggestions USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: context_injections team; Type: POLICY

CREATE POLICY team ON public.context_injections USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: embedding_calibrations team; Type: POLICY

CREATE POLICY team ON public.embedding_calibrations USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: entities team; Type: POLICY

CREATE POLICY team ON public.entities USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: entity_mentions team; Type: POLICY

CREATE POLICY team ON public.entity_mentions USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: entity_progress team; Type: POLICY

CREATE POLICY team ON public.entity_progress USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: entity_relation_evidence team; Type: POLICY

CREATE POLICY team ON public.entity_relation_evidence USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: entity_relations team; Type: POLICY

CREATE POLICY team ON public.entity_relations USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: entity_rereads team; Type: POLICY

CREATE POLICY team ON public.entity_rereads USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: generation_lanes team; Type: POLICY

CREATE POLICY team ON public.generation_lanes USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: generation_runs team; Type: POLICY

CREATE POLICY team ON public.generation_runs USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: generation_spending team; Type: POLICY

CREATE POLICY team ON public.generation_spending USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: invitations team; Type: POLICY

CREATE POLICY team ON public.invitations USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: memberships team; Type: POLICY

CREATE POLICY team ON public.memberships USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: memory_telemetry team; Type: POLICY

CREATE POLICY team ON public.memory_telemetry USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_counters team; Type: POLICY

CREATE POLICY team ON public.observation_counters USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_derivations team; Type: POLICY

CREATE POLICY team ON public.observation_derivations USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_embeddings team; Type: POLICY

CREATE POLICY team ON public.observation_embeddings USING ((team_id = ( SELECT (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid AS "nullif")));

-- Name: observation_generation_job_events team; Type: POLICY

CREATE POLICY team ON public.observation_generation_job_events USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_generation_jobs team; Type: POLICY

CREATE POLICY team ON public.observation_generation_jobs USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_relationships team; Type: POLICY

CREATE POLICY team ON public.observation_relationships USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_sources team; Type: POLICY

CREATE POLICY team ON public.observation_sources USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_versions team; Type: POLICY

CREATE POLICY team ON public.observation_versions USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observations team; Type: POLICY

CREATE POLICY team ON public.observations USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: project_aliases team; Type: POLICY

CREATE POLICY team ON public.project_aliases USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: project_joined_rows team; Type: POLICY

CREATE POLICY team ON public.project_joined_rows USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: project_overviews team; Type: POLICY

CREATE POLICY team ON public.project_overviews USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: projects team; Type: POLICY

CREATE POLICY team ON public.projects USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: rate_limits team; Type: POLICY

CREATE POLICY team ON public.rate_limits USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: retention_counts team; Type: POLICY

CREATE POLICY team ON public.retention_counts USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: server_sessions team; Type: POLICY

CREATE POLICY team ON public.server_sessions USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: steward_events team; Type: POLICY

CREATE POLICY team ON public.steward_events USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: steward_jobs team; Type: POLICY

CREATE POLICY team ON public.steward_jobs USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: steward_modes team; Type: POLICY

CREATE POLICY team ON public.steward_modes USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: steward_policy_history team; Type: POLICY

CREATE POLICY team ON public.steward_policy_history USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: steward_runs team; Type: POLICY

CREATE POLICY team ON public.steward_runs USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: team_members team; Type: POLICY

CREATE POLICY team ON public.team_members USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: teams team; Type: POLICY

CREATE POLICY team ON public.teams USING ((id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: turn_ledger team; Type: POLICY

CREATE POLICY team ON public.turn_ledger USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: turn_sentences team; Type: POLICY

CREATE POLICY team ON public.turn_sentences USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: turn_traces team; Type: POLICY

CREATE POLICY team ON public.turn_traces USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: turns team; Type: POLICY

CREATE POLICY team ON public.turns USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: untraced_turns team; Type: POLICY

CREATE POLICY team ON public.untraced_turns USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: usage_counters team; Type: POLICY

CREATE POLICY team ON public.usage_counters USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: team_members; Type: ROW SECURITY

ALTER TABLE public.team_members ENABLE ROW LEVEL SECURITY;

-- Name: teams; Type: ROW SECURITY

ALTER TABLE public.teams ENABLE ROW LEVEL SECURITY;

-- Name: turn_ledger; Type: ROW SECURITY

ALTER TABLE public.turn_ledger ENABLE ROW LEVEL SECURITY;

-- Name: turn_sentences; Type: ROW SECURITY

ALTER TABLE public.turn_sentences ENABLE ROW LEVEL SECURITY;

-- Name: turn_traces; Type: ROW SECURITY

ALTER TABLE public.turn_traces ENABLE ROW LEVEL SECURITY;

-- Name: turns; Type: ROW SECURITY

ALTER TABLE public.turns ENABLE ROW LEVEL SECURITY;

-- Name: untraced_turns; Type: ROW SECURITY

ALTER TABLE public.untraced_turns ENABLE ROW LEVEL SECURITY;

-- Name: usage_counters; Type: ROW SECURITY

ALTER TABLE public.usage_counters ENABLE ROW LEVEL SECURITY;

-- Name: FUNCTION cut_paragraphs(notes text, part text); Type: ACL

REVOKE ALL ON FUNCTION public.cut_paragraphs(notes text, part text) FROM PUBLIC;

-- Name: FUNCTION erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean); Type: ACL

REVOKE ALL ON FUNCTION public.erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) FROM PUBLIC;

-- Name: FUNCTION follow_language(project uuid, team uuid); Type: ACL

REVOKE ALL ON FUNCTION public.follow_language(project uuid, team uuid) FROM PUBLIC;

-- Name: FUNCTION gather_moving(held uuid, team uuid, is_erased boolean); Type: ACL

REVOKE ALL ON FUNCTION public.gather_moving(held uuid, team uuid, is_erased boolean) FROM PUBLIC;

-- Name: FUNCTION give_entities_back(source uuid, target uuid, team uuid); Type: ACL

REVOKE ALL ON FUNCTION public.give_entities_back(source uuid, target uuid, team uuid) FROM PUBLIC;

-- Name: FUNCTION join_project(joining uuid, target uuid, team uuid); Type: ACL

REVOKE ALL ON FUNCTION public.join_project(joining uuid, target uuid, team uuid) FROM PUBLIC;

-- Name: FUNCTION move_entities(source uuid, target uuid, team uuid, is_whole boolean); Type: ACL

REVOKE ALL ON FUNCTION public.move_entities(source uuid, target uuid, team uuid, is_whole boolean) FROM PUBLIC;

-- Name: FUNCTION move_gathered(held uuid, target uuid, team uuid); Type: ACL

REVOKE ALL ON FUNCTION public.move_gathered(held uuid, target uuid, team uuid) FROM PUBLIC;

-- Name: FUNCTION move_session(moved uuid, target uuid, team uuid); Type: ACL

REVOKE ALL ON FUNCTION public.move_session(moved uuid, target uuid, team uuid) FROM PUBLIC;

-- Name: FUNCTION revive_what_words_replaced(); Type: ACL

REVOKE ALL ON FUNCTION public.revive_what_words_replaced() FROM PUBLIC;

-- Name: FUNCTION separate_project(joined uuid, team uuid); Type: ACL

REVOKE ALL ON FUNCTION public.separate_project(joined uuid, team uuid) FROM PUBLIC;

-- Name: TABLE agent_events; Type: ACL

GRANT SELECT,INSERT,DELETE ON TABLE public.agent_events TO cmserver_tenant;

-- Name: TABLE api_keys; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_keys TO cmserver_tenant;

-- Name: TABLE audit_log; Type: ACL

GRANT SELECT,INSERT ON TABLE public.audit_log TO cmserver_tenant;

-- Name: TABLE budgets; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.budgets TO cmserver_tenant;

-- Name: TABLE observation_versions; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_versions TO cmserver_tenant;

-- Name: TABLE observations; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observations TO cmserver_tenant;

-- Name: TABLE projects; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.projects TO cmserver_tenant;

-- Name: TABLE teams; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.teams TO cmserver_tenant;

-- Name: TABLE consolidation_progress; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.consolidation_progress TO cmserver_tenant;

-- Name: TABLE consolidation_suggestions; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.consolidation_suggestions TO cmserver_tenant;

-- Name: TABLE context_injections; Type: ACL

GRANT SELECT,INSERT,DELETE ON TABLE public.context_injections TO cmserver_tenant;

-- Name: TABLE embedding_calibrations; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.embedding_calibrations TO cmserver_tenant;

-- Name: TABLE embedding_models; Type: ACL

GRANT SELECT ON TABLE public.embedding_models TO cmserver_tenant;

-- Name: TABLE entities; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.entities TO cmserver_tenant;

-- Name: TABLE entity_mentions; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.entity_mentions TO cmserver_tenant;

-- Name: TABLE entity_progress; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.entity_progress TO cmserver_tenant;

-- Name: TABLE entity_relation_evidence; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.entity_relation_evidence TO cmserver_tenant;

-- Name: TABLE entity_relations; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.entity_relations TO cmserver_tenant;

-- Name: TABLE entity_rereads; Type: ACL

GRANT SELECT,INSERT,DELETE ON TABLE public.entity_rereads TO cmserver_tenant;

-- Name: TABLE observation_generation_jobs; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_generation_jobs TO cmserver_tenant;

-- Name: TABLE generation_lanes; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.generation_lanes TO cmserver_tenant;

-- Name: TABLE generation_runs; Type: ACL

GRANT SELECT,DELETE ON TABLE public.generation_runs TO cmserver_tenant;

-- Name: TABLE generation_spending; Type: ACL

GRANT SELECT ON TABLE public.generation_spending TO cmserver_tenant;

-- Name: TABLE memory_telemetry; Type: ACL

GRANT SELECT,INSERT,DELETE ON TABLE public.memory_telemetry TO cmserver_tenant;

-- Name: TABLE observation_counters; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.observation_counters TO cmserver_tenant;

-- Name: TABLE observation_derivations; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_derivations TO cmserver_tenant;

-- Name: TABLE observation_embeddings; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_embeddings TO cmserver_tenant;

-- Name: TABLE observation_generation_job_events; Type: ACL

GRANT SELECT,INSERT ON TABLE public.observation_generation_job_events TO cmserver_tenant;

-- Name: TABLE observation_relationships; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_relationships TO cmserver_tenant;

-- Name: TABLE observation_sources; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_sources TO cmserver_tenant;

-- Name: TABLE observations_in_team; Type: ACL

GRANT SELECT ON TABLE public.observations_in_team TO cmserver_tenant;

-- Name: TABLE project_aliases; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.project_aliases TO cmserver_tenant;

-- Name: TABLE project_overviews; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.project_overviews TO cmserver_tenant;

-- Name: TABLE rate_limits; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.rate_limits TO cmserver_tenant;

-- Name: TABLE server_sessions; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.server_sessions TO cmserver_tenant;

-- Name: TABLE steward_events; Type: ACL

GRANT SELECT,INSERT ON TABLE public.steward_events TO cmserver_tenant;

-- Name: TABLE steward_jobs; Type: ACL

GRANT SELECT,DELETE,UPDATE ON TABLE public.steward_jobs TO cmserver_tenant;

-- Name: TABLE steward_modes; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.steward_modes TO cmserver_tenant;

-- Name: TABLE steward_policy_history; Type: ACL

GRANT SELECT,INSERT ON TABLE public.steward_policy_history TO cmserver_tenant;

-- Name: TABLE steward_runs; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.steward_runs TO cmserver_tenant;

-- Name: TABLE team_members; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.team_members TO cmserver_tenant;

-- Name: TABLE turn_ledger; Type: ACL

GRANT SELECT ON TABLE public.turn_ledger TO cmserver_tenant;

-- Name: TABLE turn_sentences; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.turn_sentences TO cmserver_tenant;

-- Name: TABLE turn_traces; Type: ACL

GRANT SELECT ON TABLE public.turn_traces TO cmserver_tenant;

-- Name: TABLE turns; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.turns TO cmserver_tenant;

-- Name: TABLE turns_in_team; Type: ACL

GRANT SELECT ON TABLE public.turns_in_team TO cmserver_tenant;

-- Name: TABLE untraced_turns; Type: ACL

GRANT SELECT ON TABLE public.untraced_turns TO cmserver_tenant;

-- Name: TABLE usage_counters; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.usage_counters TO cmserver_tenant;
