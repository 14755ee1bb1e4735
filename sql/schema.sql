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
                   WHERE (n.model, n.status IN ('failed', 'unusable', 'lost'), n.cost_usd, n.input_tokens, n.output_tokens,
                          n.cache_read_tokens, n.cache_write_tokens)
                         IS DISTINCT FROM (o.model, o.status IN ('failed', 'unusable', 'lost'), o.cost_usd, o.input_tokens,
                          o.output_tokens, o.cache_read_tokens, o.cache_write_tokens)) THEN
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

-- Name: live_workers(); Type: FUNCTION

CREATE FUNCTION public.live_workers() RETURNS SETOF bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT g.worker_id FROM generation_workers g JOIN procrastinate_workers w ON w.id = g.worker_id
     WHERE w.last_heartbeat > now() - make_interval(secs => g.lease_seconds)
$$;

-- Name: FUNCTION live_workers(); Type: COMMENT

COMMENT ON FUNCTION public.live_workers() IS 'The workers on the outbox whose lease holds.';

-- Name: observation_waits_again(); Type: FUNCTION

CREATE FUNCTION public.observation_waits_again() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE observation_embeddings
       SET embedding = NULL, embedded_at = NULL, attempts = 0, next_at = now(), last_error = NULL
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
    INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id)
    SELECT n.id, m.id, n.team_id, n.project_id FROM new_ones n CROSS JOIN embedding_models m WHERE m.state <> 'retired'
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- Name: project_language(); Type: FUNCTION

CREATE FUNCTION public.project_language() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE observations SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    UPDATE session_prompts SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;

-- Name: prompt_words(); Type: FUNCTION

CREATE FUNCTION public.prompt_words() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    BEGIN
        NEW.text_search := search_words(NEW.search_language, NEW.text);
    EXCEPTION WHEN program_limit_exceeded THEN
        NEW.text_search := search_words(NEW.search_language, NEW.text, false);
    END;
    RETURN NEW;
END $$;

-- Name: requeue_stale(double precision); Type: FUNCTION

CREATE FUNCTION public.requeue_stale(hard_limit_seconds double precision DEFAULT 300) RETURNS SETOF uuid
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN QUERY
    WITH stale AS (
        SELECT j.id FROM observation_generation_jobs j
         WHERE j.status = 'processing'
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
                            WHERE j.worker_id = l.worker_id AND j.lane = l.lane AND j.status = 'processing')
         ORDER BY l.lane FOR UPDATE OF l SKIP LOCKED)
    UPDATE generation_lanes l
       SET worker_id = NULL, claim = NULL, due_at = greatest(l.held_until, now())
      FROM free WHERE l.lane = free.lane;

    DELETE FROM generation_workers g WHERE NOT EXISTS (SELECT FROM procrastinate_workers w WHERE w.id = g.worker_id);
END $$;

-- Name: FUNCTION requeue_stale(hard_limit_seconds double precision); Type: COMMENT

COMMENT ON FUNCTION public.requeue_stale(hard_limit_seconds double precision) IS 'Gives back what dead workers hold; returns the jobs. Every worker does this every two seconds.';

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

-- Name: search_names(text); Type: FUNCTION

CREATE FUNCTION public.search_names(said text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT array_agg(found.found[1]) AS array_agg FROM regexp_matches(search_names.said, '[A-Za-z0-9_$]+(?:[./:_#@\\][A-Za-z0-9_$-]+)+|[A-Za-z0-9$]*[a-z0-9][A-Z][A-Za-z0-9$]*|[A-Za-z0-9]*[_$][A-Za-z0-9_$]*|[A-Za-z]+-[0-9]+'::text, 'g'::text) found(found) WHERE (length(found.found[1]) <= 400));

-- Name: search_words(text, text, boolean); Type: FUNCTION

CREATE FUNCTION public.search_words(language text, said text, with_names boolean DEFAULT true) RETURNS tsvector
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $_$
DECLARE
    config regconfig := 'pg_catalog.' || language;
    names  text[]    := CASE WHEN with_names THEN search_names(said) END;
    wholes tsvector;
BEGIN
    IF names IS NULL THEN
        RETURN to_tsvector(config, said);
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
                                              '([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])', '\1\3 \2\4', 'g'));
END $_$;

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

-- Name: wake_sleeping_lanes(); Type: FUNCTION

CREATE FUNCTION public.wake_sleeping_lanes() RETURNS bigint
    LANGUAGE sql
    AS $$
    WITH sleeping AS (
        SELECT j.lane, min(j.team_id::text)::uuid AS team_id, min(j.project_id::text)::uuid AS project_id
          FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
         WHERE j.status = 'queued' AND (l.lane IS NULL OR (l.worker_id IS NULL AND l.due_at IS NULL))
         GROUP BY j.lane ORDER BY j.lane
    ), woken AS (
        INSERT INTO generation_lanes AS l (lane, team_id, project_id, due_at)
        SELECT lane, team_id, project_id, now() FROM sleeping ORDER BY lane
        ON CONFLICT (lane) DO UPDATE SET due_at = greatest(l.held_until, least(l.due_at, excluded.due_at)) RETURNING 1
    ) SELECT count(*) FROM woken
$$;

-- Name: FUNCTION wake_sleeping_lanes(); Type: COMMENT

COMMENT ON FUNCTION public.wake_sleeping_lanes() IS 'Finds queued jobs whose lane is missing or asleep (rows that psql wrote) and makes them due; done every ten minutes.';

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
    CONSTRAINT agent_events_origin_check CHECK ((origin = ANY (ARRAY['hook'::text, 'api'::text, 'mcp'::text, 'import'::text, 'model'::text]))),
    CONSTRAINT agent_events_size_chars_check CHECK ((size_chars >= 0))
);

-- Name: TABLE agent_events; Type: COMMENT

COMMENT ON TABLE public.agent_events IS 'What agents reported, once each, redacted; never changed.';

-- Name: COLUMN agent_events.origin; Type: COMMENT

COMMENT ON COLUMN public.agent_events.origin IS 'The door it came through, stamped by the server.';

-- Name: COLUMN agent_events.generate; Type: COMMENT

COMMENT ON COLUMN public.agent_events.generate IS 'Whether the sender asked for observations: such an event has exactly one job.';

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
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

-- Name: TABLE audit_log; Type: COMMENT

COMMENT ON TABLE public.audit_log IS 'Who did what, in ids and names, never in texts. Only appended to.';

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
    CONSTRAINT embedding_models_dimensions_check CHECK (((dimensions >= 1) AND (dimensions <= 4000))),
    CONSTRAINT embedding_models_state_check CHECK ((state = ANY (ARRAY['building'::text, 'current'::text, 'retired'::text])))
);

-- Name: TABLE embedding_models; Type: COMMENT

COMMENT ON TABLE public.embedding_models IS 'What embeds texts, of all teams: the model in use, and the one that takes its place when all is embedded.';

-- Name: COLUMN embedding_models.asked_dimensions; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.asked_dimensions IS 'How long its vectors shall be; NULL leaves it to the model.';

-- Name: COLUMN embedding_models.dimensions; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.dimensions IS 'How long they are; NULL until the first answer of a model whose length only its server knows.';

-- Name: COLUMN embedding_models.backfilled_to; Type: COMMENT

COMMENT ON COLUMN public.embedding_models.backfilled_to IS 'Down to which observation, by id, earlier ones have their rows in observation_embeddings; of a retired model: have none any more.';

-- Name: embedding_models_id_seq; Type: SEQUENCE

ALTER TABLE public.embedding_models ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.embedding_models_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

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
    idempotency_key text NOT NULL,
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
    CONSTRAINT attempts_within_bounds CHECK (((attempts <= max_attempts) AND ((status <> 'queued'::text) OR (attempts < max_attempts)))),
    CONSTRAINT locked_while_processing CHECK (((status = 'processing'::text) = ((locked_at IS NOT NULL) AND (locked_by IS NOT NULL) AND (worker_id IS NOT NULL) AND (claim IS NOT NULL)))),
    CONSTRAINT observation_generation_jobs_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT observation_generation_jobs_check CHECK ((((source_type = 'agent_event'::text) AND (agent_event_id IS NOT NULL) AND (source_id = agent_event_id)) OR ((source_type = 'session_summary'::text) AND (agent_event_id IS NULL) AND ((server_session_id IS NULL) OR (source_id = server_session_id))) OR ((source_type = 'observation_reindex'::text) AND (agent_event_id IS NULL)))),
    CONSTRAINT observation_generation_jobs_max_attempts_check CHECK ((max_attempts >= 1)),
    CONSTRAINT observation_generation_jobs_outcome_check CHECK ((outcome = ANY (ARRAY['observed'::text, 'skipped'::text]))),
    CONSTRAINT observation_generation_jobs_size_chars_check CHECK ((size_chars >= 0)),
    CONSTRAINT observation_generation_jobs_source_run_check CHECK ((source_run >= 1)),
    CONSTRAINT observation_generation_jobs_source_type_check CHECK ((source_type = ANY (ARRAY['agent_event'::text, 'session_summary'::text, 'observation_reindex'::text]))),
    CONSTRAINT observation_generation_jobs_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'processing'::text, 'completed'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT one_terminal_timestamp CHECK ((((completed_at IS NOT NULL) = (status = 'completed'::text)) AND ((failed_at IS NOT NULL) = (status = 'failed'::text)) AND ((cancelled_at IS NOT NULL) = (status = 'cancelled'::text)))),
    CONSTRAINT outcome_when_completed CHECK (((outcome IS NOT NULL) = (status = 'completed'::text)))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

-- Name: TABLE observation_generation_jobs; Type: COMMENT

COMMENT ON TABLE public.observation_generation_jobs IS 'The outbox, which is itself the queue: what is to be generated, and what became of it.';

-- Name: COLUMN observation_generation_jobs.lane; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.lane IS 'The session of the job, or the job itself when it has none. One batch of a lane is in progress at any time.';

-- Name: COLUMN observation_generation_jobs.claim; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.claim IS 'The fencing token: only the claim that took the job may write its end.';

-- Name: COLUMN observation_generation_jobs.waits_for_end; Type: COMMENT

COMMENT ON COLUMN public.observation_generation_jobs.waits_for_end IS 'By the policy at_end: the job alone does not make its lane due. Cleared when it is claimed.';

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
    CONSTRAINT projects_canonical_id_check CHECK (((canonical_id <> ''::text) AND (length(canonical_id) <= 500))),
    CONSTRAINT projects_generation_policy_check CHECK (public.is_generation_policy(generation_policy)),
    CONSTRAINT projects_name_check CHECK ((name <> ''::text)),
    CONSTRAINT projects_search_language_check CHECK ((search_language = ANY (ARRAY['simple'::text, 'arabic'::text, 'armenian'::text, 'basque'::text, 'catalan'::text, 'danish'::text, 'dutch'::text, 'english'::text, 'finnish'::text, 'french'::text, 'german'::text, 'greek'::text, 'hindi'::text, 'hungarian'::text, 'indonesian'::text, 'irish'::text, 'italian'::text, 'lithuanian'::text, 'nepali'::text, 'norwegian'::text, 'portuguese'::text, 'romanian'::text, 'russian'::text, 'serbian'::text, 'spanish'::text, 'swedish'::text, 'tamil'::text, 'turkish'::text, 'yiddish'::text])))
);

-- Name: TABLE projects; Type: COMMENT

COMMENT ON TABLE public.projects IS 'A code base of a team, by its canonical id (github.com/user/repo, a name, or a path).';

-- Name: COLUMN projects.search_language; Type: COMMENT

COMMENT ON COLUMN public.projects.search_language IS 'The text search configuration by which its texts and queries are stemmed; simple is none.';

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
    CONSTRAINT teams_events_per_month_check CHECK ((events_per_month >= 0)),
    CONSTRAINT teams_generation_policy_check CHECK (public.is_generation_policy(generation_policy)),
    CONSTRAINT teams_name_check CHECK ((name <> ''::text)),
    CONSTRAINT teams_requests_per_minute_check CHECK ((requests_per_minute > 0))
);

-- Name: TABLE teams; Type: COMMENT

COMMENT ON TABLE public.teams IS 'People who share what their agents remember; teams never see each other.';

-- Name: COLUMN teams.generation_policy; Type: COMMENT

COMMENT ON COLUMN public.teams.generation_policy IS 'When observations are made of the team''s events, and of which never; a project may say it for itself.';

-- Name: COLUMN teams.requests_per_minute; Type: COMMENT

COMMENT ON COLUMN public.teams.requests_per_minute IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';

-- Name: COLUMN teams.events_per_month; Type: COMMENT

COMMENT ON COLUMN public.teams.events_per_month IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';

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
    CONSTRAINT generation_runs_kind_check CHECK ((kind = ANY (ARRAY['observations'::text, 'summary'::text]))),
    CONSTRAINT generation_runs_status_check CHECK ((status = ANY (ARRAY['asked'::text, 'answered'::text, 'applied'::text, 'unusable'::text, 'failed'::text, 'lost'::text])))
);

-- Name: TABLE generation_runs; Type: COMMENT

COMMENT ON TABLE public.generation_runs IS 'Provider calls: what they served, what they cost, and an answer until it is applied.';

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
          WHERE ((j.lane = l.lane) AND (j.status = 'queued'::text))) AS queued
   FROM ((public.generation_lanes l
     LEFT JOIN public.projects p ON ((p.id = l.project_id)))
     LEFT JOIN public.teams t ON ((t.id = l.team_id)));

-- Name: VIEW lane_overview; Type: COMMENT

COMMENT ON VIEW public.lane_overview IS 'Each lane: working, held, due, waiting or idle, and how many jobs wait in it.';

-- Name: observation_counters; Type: TABLE

CREATE TABLE public.observation_counters (
    team_id uuid NOT NULL,
    last_number bigint DEFAULT 0 NOT NULL
);

-- Name: TABLE observation_counters; Type: COMMENT

COMMENT ON TABLE public.observation_counters IS 'The last number given out in a team. Its row is locked last in a transaction: a global sequence would show one team how busy another is.';

-- Name: observation_embeddings; Type: TABLE

CREATE TABLE public.observation_embeddings (
    observation_id uuid NOT NULL,
    model_id smallint NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_at timestamp with time zone DEFAULT now() NOT NULL,
    last_error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    embedded_at timestamp with time zone,
    embedding public.halfvec
)
WITH (toast_tuple_target='8160');

-- Name: TABLE observation_embeddings; Type: COMMENT

COMMENT ON TABLE public.observation_embeddings IS 'The place of each observation among meanings, by model. Without an embedding it waits for one.';

-- Name: COLUMN observation_embeddings.next_at; Type: COMMENT

COMMENT ON COLUMN public.observation_embeddings.next_at IS 'Not to be tried before; later after each failure, and while a worker has it in hand, who stores only what he finds it still to be.';

-- Name: COLUMN observation_embeddings.last_error; Type: COMMENT

COMMENT ON COLUMN public.observation_embeddings.last_error IS 'The kind of the last failure. One that was given up has a next_at of infinity.';

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
    CONSTRAINT observation_generation_job_events_event_type_check CHECK ((event_type = ANY (ARRAY['queued'::text, 'enqueued'::text, 'processing'::text, 'retry_scheduled'::text, 'completed'::text, 'failed'::text, 'cancelled'::text]))),
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
    CONSTRAINT closed_when_not_open CHECK (((closed_at IS NOT NULL) = COALESCE((state = ANY (ARRAY['done'::text, 'dropped'::text])), false))),
    CONSTRAINT observations_importance_check CHECK (((importance >= (0)::double precision) AND (importance <= (1)::double precision))),
    CONSTRAINT observations_kind_check CHECK ((kind = ANY (ARRAY['observation'::text, 'summary'::text, 'manual'::text]))),
    CONSTRAINT observations_number_check CHECK ((number >= 1)),
    CONSTRAINT observations_origin_check CHECK ((origin = ANY (ARRAY['hook'::text, 'api'::text, 'mcp'::text, 'import'::text, 'model'::text, 'rules'::text]))),
    CONSTRAINT observations_quote_check CHECK ((length(quote) <= 400)),
    CONSTRAINT observations_scope_check CHECK ((scope = ANY (ARRAY['project'::text, 'team'::text]))),
    CONSTRAINT observations_state_check CHECK ((state = ANY (ARRAY['open'::text, 'done'::text, 'dropped'::text]))),
    CONSTRAINT observations_type_check CHECK ((type = ANY (ARRAY['bugfix'::text, 'feature'::text, 'refactor'::text, 'change'::text, 'discovery'::text, 'decision'::text, 'security_alert'::text, 'security_note'::text, 'sensitive'::text])))
)
WITH (fillfactor='90', toast_tuple_target='8160');

-- Name: TABLE observations; Type: COMMENT

COMMENT ON TABLE public.observations IS 'What is remembered: one thing each, titled and typed, with facts and files.';

-- Name: COLUMN observations.number; Type: COMMENT

COMMENT ON COLUMN public.observations.number IS 'The short id that people and models use (#1234), counted per team.';

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
    closed_at
   FROM public.observations
  WHERE (team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid);

-- Name: VIEW observations_in_team; Type: COMMENT

COMMENT ON VIEW public.observations_in_team IS 'What search reads: the observations of the team in cmserver.team_id, with its indexes usable.';

-- Name: project_aliases; Type: TABLE

CREATE TABLE public.project_aliases (
    team_id uuid NOT NULL,
    alias text NOT NULL,
    project_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT project_aliases_alias_check CHECK (((alias <> ''::text) AND (length(alias) <= 500)))
);

-- Name: TABLE project_aliases; Type: COMMENT

COMMENT ON TABLE public.project_aliases IS 'Older and other names of projects.';

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
    e.active,
    q.delayed,
    q.held,
    e.completed,
    e.failed,
    e.cancelled,
    r.recovered,
    q.oldest_waiting
   FROM (((public.teams t
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE (((l.held_until > now()) IS NOT TRUE) AND ((l.due_at > now()) IS NOT TRUE))) AS waiting,
            count(*) FILTER (WHERE ((l.due_at > now()) AND ((l.held_until > now()) IS NOT TRUE))) AS delayed,
            count(*) FILTER (WHERE (l.held_until > now())) AS held,
            (now() - min(j.updated_at) FILTER (WHERE (((l.held_until > now()) IS NOT TRUE) AND ((l.due_at > now()) IS NOT TRUE)))) AS oldest_waiting
           FROM (public.observation_generation_jobs j
             LEFT JOIN public.generation_lanes l ON ((l.lane = j.lane)))
          WHERE ((j.team_id = t.id) AND (j.status = 'queued'::text) AND (j.created_at > '-infinity'::timestamp with time zone))) q)
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE (j.status = 'processing'::text)) AS active,
            count(*) FILTER (WHERE (j.status = 'completed'::text)) AS completed,
            count(*) FILTER (WHERE (j.status = 'failed'::text)) AS failed,
            count(*) FILTER (WHERE (j.status = 'cancelled'::text)) AS cancelled
           FROM public.observation_generation_jobs j
          WHERE ((j.team_id = t.id) AND (j.status = ANY (ARRAY['processing'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])) AND (j.created_at > '-infinity'::timestamp with time zone))) e)
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
    CONSTRAINT server_sessions_generation_status_check CHECK ((generation_status = ANY (ARRAY['idle'::text, 'processing'::text, 'completed'::text, 'failed'::text]))),
    CONSTRAINT server_sessions_title_check CHECK (((length(title) >= 1) AND (length(title) <= 200)))
);

-- Name: TABLE server_sessions; Type: COMMENT

COMMENT ON TABLE public.server_sessions IS 'Conversations of agents with their users, found by the id that the agent gave them.';

-- Name: COLUMN server_sessions.idle_from; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.idle_from IS 'The last sign of life that the idle sweep knows of; it looks at the session again when that is long ago. NULL when its last run has its summary and nothing has come since.';

-- Name: COLUMN server_sessions.title; Type: COMMENT

COMMENT ON COLUMN public.server_sessions.title IS 'What people call the session. NULL until somebody gives it a title.';

-- Name: session_prompts; Type: TABLE

CREATE TABLE public.session_prompts (
    id uuid NOT NULL,
    team_id uuid NOT NULL,
    project_id uuid NOT NULL,
    server_session_id uuid NOT NULL,
    agent_event_id uuid NOT NULL,
    prompt_number integer NOT NULL,
    text text NOT NULL,
    text_search tsvector,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    search_language text DEFAULT 'english'::text NOT NULL,
    CONSTRAINT session_prompts_prompt_number_check CHECK ((prompt_number >= 1))
);

-- Name: TABLE session_prompts; Type: COMMENT

COMMENT ON TABLE public.session_prompts IS 'What users asked for, numbered from 1 in each session.';

-- Name: session_prompts_in_team; Type: VIEW

CREATE VIEW public.session_prompts_in_team AS
 SELECT id,
    team_id,
    project_id,
    server_session_id,
    agent_event_id,
    prompt_number,
    text,
    text_search,
    created_at,
    search_language
   FROM public.session_prompts
  WHERE (team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid);

-- Name: VIEW session_prompts_in_team; Type: COMMENT

COMMENT ON VIEW public.session_prompts_in_team IS 'What search reads: the prompts of the team in cmserver.team_id, with their indexes usable.';

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

-- Name: agent_events agent_events_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.agent_events
    ADD CONSTRAINT agent_events_pkey PRIMARY KEY (id);

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

-- Name: context_injections context_injections_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_pkey PRIMARY KEY (id);

-- Name: embedding_models embedding_models_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.embedding_models
    ADD CONSTRAINT embedding_models_pkey PRIMARY KEY (id);

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

-- Name: observation_counters observation_counters_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_counters
    ADD CONSTRAINT observation_counters_pkey PRIMARY KEY (team_id);

-- Name: observation_embeddings observation_embeddings_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_embeddings
    ADD CONSTRAINT observation_embeddings_pkey PRIMARY KEY (observation_id, model_id);

-- Name: observation_generation_job_events observation_generation_job_events_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_generation_job_events
    ADD CONSTRAINT observation_generation_job_events_pkey PRIMARY KEY (id);

-- Name: observation_generation_jobs observation_generation_jobs_idempotency_key_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_idempotency_key_key UNIQUE (idempotency_key);

-- Name: observation_generation_jobs observation_generation_jobs_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_pkey PRIMARY KEY (id);

-- Name: observation_generation_jobs observation_generation_jobs_source_id_source_type_job_type__key; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_source_id_source_type_job_type__key UNIQUE (source_id, source_type, job_type, source_run, project_id, team_id);

-- Name: observation_generation_jobs observation_jobs_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_jobs_of_project UNIQUE (id, project_id, team_id);

-- Name: observation_sources observation_sources_observation_id_source_type_source_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_observation_id_source_type_source_id_key UNIQUE (observation_id, source_type, source_id);

-- Name: observation_sources observation_sources_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_pkey PRIMARY KEY (id);

-- Name: observation_sources observation_sources_source_type_source_id_generation_job_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_source_type_source_id_generation_job_id_key UNIQUE (source_type, source_id, generation_job_id, observation_id);

-- Name: observations observations_generation_key_project_id_team_id_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_generation_key_project_id_team_id_key UNIQUE (generation_key, project_id, team_id);

-- Name: observations observations_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_of_project UNIQUE (id, project_id, team_id);

-- Name: observations observations_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_pkey PRIMARY KEY (id);

-- Name: observations observations_team_id_number_key; Type: CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_team_id_number_key UNIQUE (team_id, number);

-- Name: project_aliases project_aliases_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.project_aliases
    ADD CONSTRAINT project_aliases_pkey PRIMARY KEY (team_id, alias);

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

-- Name: schema_migrations schema_migrations_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (number);

-- Name: server_sessions server_sessions_of_project; Type: CONSTRAINT

ALTER TABLE ONLY public.server_sessions
    ADD CONSTRAINT server_sessions_of_project UNIQUE (id, project_id, team_id);

-- Name: server_sessions server_sessions_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.server_sessions
    ADD CONSTRAINT server_sessions_pkey PRIMARY KEY (id);

-- Name: session_prompts session_prompts_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.session_prompts
    ADD CONSTRAINT session_prompts_pkey PRIMARY KEY (id);

-- Name: session_prompts session_prompts_server_session_id_prompt_number_key; Type: CONSTRAINT

ALTER TABLE ONLY public.session_prompts
    ADD CONSTRAINT session_prompts_server_session_id_prompt_number_key UNIQUE (server_session_id, prompt_number);

-- Name: team_members team_members_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.team_members
    ADD CONSTRAINT team_members_pkey PRIMARY KEY (team_id, user_id);

-- Name: teams teams_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.teams
    ADD CONSTRAINT teams_pkey PRIMARY KEY (id);

-- Name: usage_counters usage_counters_pkey; Type: CONSTRAINT

ALTER TABLE ONLY public.usage_counters
    ADD CONSTRAINT usage_counters_pkey PRIMARY KEY (team_id, month, kind, api_key_id);

-- Name: agent_events_project; Type: INDEX

CREATE INDEX agent_events_project ON public.agent_events USING btree (project_id, occurred_at);

-- Name: agent_events_project_session; Type: INDEX

CREATE INDEX agent_events_project_session ON public.agent_events USING btree (project_id, server_session_id, occurred_at);

-- Name: api_keys_project; Type: INDEX

CREATE INDEX api_keys_project ON public.api_keys USING btree (project_id, team_id) WHERE (project_id IS NOT NULL);

-- Name: api_keys_team; Type: INDEX

CREATE INDEX api_keys_team ON public.api_keys USING btree (team_id, created_at);

-- Name: audit_log_project; Type: INDEX

CREATE INDEX audit_log_project ON public.audit_log USING btree (project_id, id) WHERE (project_id IS NOT NULL);

-- Name: audit_log_seldom; Type: INDEX

CREATE INDEX audit_log_seldom ON public.audit_log USING btree (team_id, action, id) WHERE (action <> ALL (ARRAY['events.received'::text, 'jobs.queued'::text, 'generation.started'::text, 'observations.generated'::text, 'observations.served'::text]));

-- Name: audit_log_team; Type: INDEX

CREATE INDEX audit_log_team ON public.audit_log USING btree (team_id, id);

-- Name: context_injections_project; Type: INDEX

CREATE INDEX context_injections_project ON public.context_injections USING btree (project_id, created_at, id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: context_injections_session; Type: INDEX

CREATE INDEX context_injections_session ON public.context_injections USING btree (server_session_id, created_at, id) WHERE ((server_session_id IS NOT NULL) AND (created_at > '-infinity'::timestamp with time zone));

-- Name: embedding_models_building; Type: INDEX

CREATE UNIQUE INDEX embedding_models_building ON public.embedding_models USING btree (state) WHERE (state = 'building'::text);

-- Name: embedding_models_current; Type: INDEX

CREATE UNIQUE INDEX embedding_models_current ON public.embedding_models USING btree (state) WHERE (state = 'current'::text);

-- Name: generation_lanes_due; Type: INDEX

CREATE INDEX generation_lanes_due ON public.generation_lanes USING btree (due_at) WHERE ((worker_id IS NULL) AND (due_at IS NOT NULL));

-- Name: generation_lanes_held; Type: INDEX

CREATE INDEX generation_lanes_held ON public.generation_lanes USING btree (worker_id) WHERE (worker_id IS NOT NULL);

-- Name: generation_runs_asked; Type: INDEX

CREATE INDEX generation_runs_asked ON public.generation_runs USING btree (created_at) WHERE (status = 'asked'::text);

-- Name: generation_runs_project; Type: INDEX

CREATE INDEX generation_runs_project ON public.generation_runs USING btree (project_id, created_at);

-- Name: generation_runs_team; Type: INDEX

CREATE INDEX generation_runs_team ON public.generation_runs USING btree (team_id, created_at);

-- Name: observation_embeddings_scope; Type: INDEX

CREATE INDEX observation_embeddings_scope ON public.observation_embeddings USING btree (team_id, model_id, project_id) WHERE (embedding IS NOT NULL);

-- Name: observation_embeddings_waiting; Type: INDEX

CREATE INDEX observation_embeddings_waiting ON public.observation_embeddings USING btree (model_id, next_at) WHERE (embedding IS NULL);

-- Name: observation_job_events_job; Type: INDEX

CREATE INDEX observation_job_events_job ON public.observation_generation_job_events USING btree (generation_job_id, id);

-- Name: observation_job_events_recovered; Type: INDEX

CREATE INDEX observation_job_events_recovered ON public.observation_generation_job_events USING btree (team_id, project_id) WHERE ((details ->> 'reason'::text) = 'worker lost'::text);

-- Name: observation_jobs_event; Type: INDEX

CREATE INDEX observation_jobs_event ON public.observation_generation_jobs USING btree (agent_event_id) WHERE (agent_event_id IS NOT NULL);

-- Name: observation_jobs_held; Type: INDEX

CREATE INDEX observation_jobs_held ON public.observation_generation_jobs USING btree (worker_id) WHERE (status = 'processing'::text);

-- Name: observation_jobs_lane; Type: INDEX

CREATE INDEX observation_jobs_lane ON public.observation_generation_jobs USING btree (lane, seq) WHERE (status = 'queued'::text);

-- Name: observation_jobs_others; Type: INDEX

CREATE INDEX observation_jobs_others ON public.observation_generation_jobs USING btree (team_id, created_at, id, project_id, source_type, status) WHERE (source_type <> 'agent_event'::text);

-- Name: observation_jobs_project; Type: INDEX

CREATE INDEX observation_jobs_project ON public.observation_generation_jobs USING btree (project_id, status, created_at, id) INCLUDE (team_id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: observation_jobs_session; Type: INDEX

CREATE INDEX observation_jobs_session ON public.observation_generation_jobs USING btree (server_session_id, seq) WHERE (server_session_id IS NOT NULL);

-- Name: observation_jobs_team; Type: INDEX

CREATE INDEX observation_jobs_team ON public.observation_generation_jobs USING btree (team_id, status, created_at, id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: observation_sources_event; Type: INDEX

CREATE INDEX observation_sources_event ON public.observation_sources USING btree (agent_event_id) WHERE (agent_event_id IS NOT NULL);

-- Name: observation_sources_job; Type: INDEX

CREATE INDEX observation_sources_job ON public.observation_sources USING btree (generation_job_id) WHERE (generation_job_id IS NOT NULL);

-- Name: observations_content_search; Type: INDEX

CREATE INDEX observations_content_search ON public.observations USING gin (content_search);

-- Name: observations_job; Type: INDEX

CREATE INDEX observations_job ON public.observations USING btree (created_by_job_id) WHERE (created_by_job_id IS NOT NULL);

-- Name: observations_manual; Type: INDEX

CREATE INDEX observations_manual ON public.observations USING btree (team_id, created_at, id) WHERE (kind = 'manual'::text);

-- Name: observations_open; Type: INDEX

CREATE INDEX observations_open ON public.observations USING btree (team_id, project_id, number) WHERE (state = 'open'::text);

-- Name: observations_project; Type: INDEX

CREATE INDEX observations_project ON public.observations USING btree (project_id, created_at, id) INCLUDE (team_id, content_words);

-- Name: observations_project_session; Type: INDEX

CREATE INDEX observations_project_session ON public.observations USING btree (project_id, server_session_id, created_at);

-- Name: observations_quote_event; Type: INDEX

CREATE INDEX observations_quote_event ON public.observations USING btree (quote_event_id) WHERE (quote_event_id IS NOT NULL);

-- Name: observations_summaries; Type: INDEX

CREATE INDEX observations_summaries ON public.observations USING btree (project_id, created_at, id) WHERE (kind = 'summary'::text);

-- Name: observations_team; Type: INDEX

CREATE INDEX observations_team ON public.observations USING btree (team_id, created_at, id);

-- Name: observations_team_scope; Type: INDEX

CREATE INDEX observations_team_scope ON public.observations USING btree (team_id, created_at, id) INCLUDE (project_id, content_words) WHERE (scope = 'team'::text);

-- Name: observations_type; Type: INDEX

CREATE INDEX observations_type ON public.observations USING btree (team_id, type, created_at, id) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: project_aliases_project; Type: INDEX

CREATE INDEX project_aliases_project ON public.project_aliases USING btree (project_id, team_id);

-- Name: rate_limits_team; Type: INDEX

CREATE INDEX rate_limits_team ON public.rate_limits USING btree (team_id);

-- Name: server_sessions_content; Type: INDEX

CREATE INDEX server_sessions_content ON public.server_sessions USING btree (project_id, content_session_id) WHERE (content_session_id IS NOT NULL);

-- Name: server_sessions_external; Type: INDEX

CREATE UNIQUE INDEX server_sessions_external ON public.server_sessions USING btree (project_id, COALESCE(platform_source, ''::text), external_session_id) WHERE (external_session_id IS NOT NULL);

-- Name: server_sessions_idle; Type: INDEX

CREATE INDEX server_sessions_idle ON public.server_sessions USING btree (idle_from) WHERE (idle_from IS NOT NULL);

-- Name: server_sessions_open; Type: INDEX

CREATE INDEX server_sessions_open ON public.server_sessions USING btree (team_id, started_at, id) WHERE (ended_at IS NULL);

-- Name: server_sessions_project; Type: INDEX

CREATE INDEX server_sessions_project ON public.server_sessions USING btree (project_id, started_at);

-- Name: server_sessions_said; Type: INDEX

CREATE INDEX server_sessions_said ON public.server_sessions USING btree (team_id, content_session_id) WHERE (content_session_id IS NOT NULL);

-- Name: server_sessions_team; Type: INDEX

CREATE INDEX server_sessions_team ON public.server_sessions USING btree (team_id, started_at, id) WHERE (started_at > '-infinity'::timestamp with time zone);

-- Name: session_prompts_event; Type: INDEX

CREATE UNIQUE INDEX session_prompts_event ON public.session_prompts USING btree (agent_event_id);

-- Name: session_prompts_project; Type: INDEX

CREATE INDEX session_prompts_project ON public.session_prompts USING btree (project_id, created_at);

-- Name: session_prompts_search; Type: INDEX

CREATE INDEX session_prompts_search ON public.session_prompts USING gin (text_search);

-- Name: session_prompts_team; Type: INDEX

CREATE INDEX session_prompts_team ON public.session_prompts USING btree (team_id, created_at) WHERE (created_at > '-infinity'::timestamp with time zone);

-- Name: teams_name; Type: INDEX

CREATE UNIQUE INDEX teams_name ON public.teams USING btree (name) WHERE (archived_at IS NULL);

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

-- Name: observations observations_to_embed; Type: TRIGGER

CREATE TRIGGER observations_to_embed AFTER INSERT ON public.observations REFERENCING NEW TABLE AS new_ones FOR EACH STATEMENT EXECUTE FUNCTION public.observations_wait_for_embedding();

-- Name: observations observations_to_embed_again; Type: TRIGGER

CREATE TRIGGER observations_to_embed_again AFTER UPDATE OF title, subtitle, narrative, facts, concepts, summary, content ON public.observations FOR EACH ROW WHEN ((((((((old.title IS DISTINCT FROM new.title) OR (old.subtitle IS DISTINCT FROM new.subtitle)) OR (old.narrative IS DISTINCT FROM new.narrative)) OR (old.facts IS DISTINCT FROM new.facts)) OR (old.concepts IS DISTINCT FROM new.concepts)) OR (old.summary IS DISTINCT FROM new.summary)) OR (old.content IS DISTINCT FROM new.content))) EXECUTE FUNCTION public.observation_waits_again();

-- Name: observations observations_words; Type: TRIGGER

CREATE TRIGGER observations_words BEFORE INSERT OR UPDATE OF title, subtitle, narrative, facts, concepts, files_read, files_modified, summary, content, search_language ON public.observations FOR EACH ROW EXECUTE FUNCTION public.observation_words();

-- Name: projects projects_language; Type: TRIGGER

CREATE TRIGGER projects_language AFTER UPDATE OF search_language ON public.projects FOR EACH ROW WHEN ((old.search_language <> new.search_language)) EXECUTE FUNCTION public.project_language();

-- Name: session_prompts session_prompts_words; Type: TRIGGER

CREATE TRIGGER session_prompts_words BEFORE INSERT OR UPDATE OF text, search_language ON public.session_prompts FOR EACH ROW EXECUTE FUNCTION public.prompt_words();

-- Name: agent_events agent_events_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.agent_events
    ADD CONSTRAINT agent_events_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: agent_events agent_events_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.agent_events
    ADD CONSTRAINT agent_events_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE SET NULL (server_session_id);

-- Name: api_keys api_keys_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: api_keys api_keys_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: budgets budgets_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: budgets budgets_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: context_injections context_injections_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: context_injections context_injections_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE CASCADE;

-- Name: context_injections context_injections_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.context_injections
    ADD CONSTRAINT context_injections_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: generation_runs generation_runs_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.generation_runs
    ADD CONSTRAINT generation_runs_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: generation_spending generation_spending_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.generation_spending
    ADD CONSTRAINT generation_spending_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: observation_counters observation_counters_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_counters
    ADD CONSTRAINT observation_counters_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: observation_embeddings observation_embeddings_model_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_embeddings
    ADD CONSTRAINT observation_embeddings_model_id_fkey FOREIGN KEY (model_id) REFERENCES public.embedding_models(id);

-- Name: observation_embeddings observation_embeddings_observation_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_embeddings
    ADD CONSTRAINT observation_embeddings_observation_id_project_id_team_id_fkey FOREIGN KEY (observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE;

-- Name: observation_generation_job_events observation_generation_job_ev_generation_job_id_project_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_job_events
    ADD CONSTRAINT observation_generation_job_ev_generation_job_id_project_id_fkey FOREIGN KEY (generation_job_id, project_id, team_id) REFERENCES public.observation_generation_jobs(id, project_id, team_id) ON DELETE CASCADE;

-- Name: observation_generation_jobs observation_generation_jobs_agent_event_id_project_id_team_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_agent_event_id_project_id_team_fkey FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE CASCADE;

-- Name: observation_generation_jobs observation_generation_jobs_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: observation_generation_jobs observation_generation_jobs_server_session_id_project_id_t_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_generation_jobs
    ADD CONSTRAINT observation_generation_jobs_server_session_id_project_id_t_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE SET NULL (server_session_id);

-- Name: observation_sources observation_sources_agent_event_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_agent_event_id_project_id_team_id_fkey FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE CASCADE;

-- Name: observation_sources observation_sources_generation_job_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_generation_job_id_project_id_team_id_fkey FOREIGN KEY (generation_job_id, project_id, team_id) REFERENCES public.observation_generation_jobs(id, project_id, team_id) ON DELETE SET NULL (generation_job_id);

-- Name: observation_sources observation_sources_observation_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observation_sources
    ADD CONSTRAINT observation_sources_observation_id_project_id_team_id_fkey FOREIGN KEY (observation_id, project_id, team_id) REFERENCES public.observations(id, project_id, team_id) ON DELETE CASCADE;

-- Name: observations observations_created_by_job_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_created_by_job_id_project_id_team_id_fkey FOREIGN KEY (created_by_job_id, project_id, team_id) REFERENCES public.observation_generation_jobs(id, project_id, team_id) ON DELETE SET NULL (created_by_job_id);

-- Name: observations observations_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: observations observations_quote_event_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_quote_event_fkey FOREIGN KEY (quote_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE SET NULL (quote_event_id);

-- Name: observations observations_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT observations_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE SET NULL (server_session_id);

-- Name: project_aliases project_aliases_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.project_aliases
    ADD CONSTRAINT project_aliases_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: projects projects_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: rate_limits rate_limits_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.rate_limits
    ADD CONSTRAINT rate_limits_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: server_sessions server_sessions_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.server_sessions
    ADD CONSTRAINT server_sessions_project_id_team_id_fkey FOREIGN KEY (project_id, team_id) REFERENCES public.projects(id, team_id) ON DELETE CASCADE;

-- Name: session_prompts session_prompts_agent_event_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.session_prompts
    ADD CONSTRAINT session_prompts_agent_event_id_project_id_team_id_fkey FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES public.agent_events(id, project_id, team_id) ON DELETE CASCADE;

-- Name: session_prompts session_prompts_server_session_id_project_id_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.session_prompts
    ADD CONSTRAINT session_prompts_server_session_id_project_id_team_id_fkey FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES public.server_sessions(id, project_id, team_id) ON DELETE CASCADE;

-- Name: team_members team_members_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.team_members
    ADD CONSTRAINT team_members_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: usage_counters usage_counters_team_id_fkey; Type: FK CONSTRAINT

ALTER TABLE ONLY public.usage_counters
    ADD CONSTRAINT usage_counters_team_id_fkey FOREIGN KEY (team_id) REFERENCES public.teams(id) ON DELETE CASCADE;

-- Name: agent_events; Type: ROW SECURITY

ALTER TABLE public.agent_events ENABLE ROW LEVEL SECURITY;

-- Name: api_keys; Type: ROW SECURITY

ALTER TABLE public.api_keys ENABLE ROW LEVEL SECURITY;

-- Name: audit_log; Type: ROW SECURITY

ALTER TABLE public.audit_log ENABLE ROW LEVEL SECURITY;

-- Name: budgets; Type: ROW SECURITY

ALTER TABLE public.budgets ENABLE ROW LEVEL SECURITY;

-- Name: context_injections; Type: ROW SECURITY

ALTER TABLE public.context_injections ENABLE ROW LEVEL SECURITY;

-- Name: generation_lanes; Type: ROW SECURITY

ALTER TABLE public.generation_lanes ENABLE ROW LEVEL SECURITY;

-- Name: generation_runs; Type: ROW SECURITY

ALTER TABLE public.generation_runs ENABLE ROW LEVEL SECURITY;

-- Name: generation_spending; Type: ROW SECURITY

ALTER TABLE public.generation_spending ENABLE ROW LEVEL SECURITY;

-- Name: observation_counters; Type: ROW SECURITY

ALTER TABLE public.observation_counters ENABLE ROW LEVEL SECURITY;

-- Name: observation_embeddings; Type: ROW SECURITY

ALTER TABLE public.observation_embeddings ENABLE ROW LEVEL SECURITY;

-- Name: observation_generation_job_events; Type: ROW SECURITY

ALTER TABLE public.observation_generation_job_events ENABLE ROW LEVEL SECURITY;

-- Name: observation_generation_jobs; Type: ROW SECURITY

ALTER TABLE public.observation_generation_jobs ENABLE ROW LEVEL SECURITY;

-- Name: observation_sources; Type: ROW SECURITY

ALTER TABLE public.observation_sources ENABLE ROW LEVEL SECURITY;

-- Name: observations; Type: ROW SECURITY

ALTER TABLE public.observations ENABLE ROW LEVEL SECURITY;

-- Name: project_aliases; Type: ROW SECURITY

ALTER TABLE public.project_aliases ENABLE ROW LEVEL SECURITY;

-- Name: projects; Type: ROW SECURITY

ALTER TABLE public.projects ENABLE ROW LEVEL SECURITY;

-- Name: rate_limits; Type: ROW SECURITY

ALTER TABLE public.rate_limits ENABLE ROW LEVEL SECURITY;

-- Name: server_sessions; Type: ROW SECURITY

ALTER TABLE public.server_sessions ENABLE ROW LEVEL SECURITY;

-- Name: session_prompts; Type: ROW SECURITY

ALTER TABLE public.session_prompts ENABLE ROW LEVEL SECURITY;

-- Name: agent_events team; Type: POLICY

CREATE POLICY team ON public.agent_events USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: api_keys team; Type: POLICY

CREATE POLICY team ON public.api_keys USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: audit_log team; Type: POLICY

CREATE POLICY team ON public.audit_log USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: budgets team; Type: POLICY

CREATE POLICY team ON public.budgets USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: context_injections team; Type: POLICY

CREATE POLICY team ON public.context_injections USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: generation_lanes team; Type: POLICY

CREATE POLICY team ON public.generation_lanes USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: generation_runs team; Type: POLICY

CREATE POLICY team ON public.generation_runs USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: generation_spending team; Type: POLICY

CREATE POLICY team ON public.generation_spending USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_counters team; Type: POLICY

CREATE POLICY team ON public.observation_counters USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_embeddings team; Type: POLICY

CREATE POLICY team ON public.observation_embeddings USING ((team_id = ( SELECT (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid AS "nullif")));

-- Name: observation_generation_job_events team; Type: POLICY

CREATE POLICY team ON public.observation_generation_job_events USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_generation_jobs team; Type: POLICY

CREATE POLICY team ON public.observation_generation_jobs USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observation_sources team; Type: POLICY

CREATE POLICY team ON public.observation_sources USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: observations team; Type: POLICY

CREATE POLICY team ON public.observations USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: project_aliases team; Type: POLICY

CREATE POLICY team ON public.project_aliases USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: projects team; Type: POLICY

CREATE POLICY team ON public.projects USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: rate_limits team; Type: POLICY

CREATE POLICY team ON public.rate_limits USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: server_sessions team; Type: POLICY

CREATE POLICY team ON public.server_sessions USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: session_prompts team; Type: POLICY

CREATE POLICY team ON public.session_prompts USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: team_members team; Type: POLICY

CREATE POLICY team ON public.team_members USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: teams team; Type: POLICY

CREATE POLICY team ON public.teams USING ((id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: usage_counters team; Type: POLICY

CREATE POLICY team ON public.usage_counters USING ((team_id = (NULLIF(current_setting('cmserver.team_id'::text, true), ''::text))::uuid));

-- Name: team_members; Type: ROW SECURITY

ALTER TABLE public.team_members ENABLE ROW LEVEL SECURITY;

-- Name: teams; Type: ROW SECURITY

ALTER TABLE public.teams ENABLE ROW LEVEL SECURITY;

-- Name: usage_counters; Type: ROW SECURITY

ALTER TABLE public.usage_counters ENABLE ROW LEVEL SECURITY;

-- Name: TABLE agent_events; Type: ACL

GRANT SELECT,INSERT,DELETE ON TABLE public.agent_events TO cmserver_tenant;

-- Name: TABLE api_keys; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_keys TO cmserver_tenant;

-- Name: TABLE audit_log; Type: ACL

GRANT SELECT,INSERT ON TABLE public.audit_log TO cmserver_tenant;

-- Name: TABLE budgets; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.budgets TO cmserver_tenant;

-- Name: TABLE context_injections; Type: ACL

GRANT SELECT,INSERT,DELETE ON TABLE public.context_injections TO cmserver_tenant;

-- Name: TABLE embedding_models; Type: ACL

GRANT SELECT ON TABLE public.embedding_models TO cmserver_tenant;

-- Name: TABLE observation_generation_jobs; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_generation_jobs TO cmserver_tenant;

-- Name: TABLE projects; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.projects TO cmserver_tenant;

-- Name: TABLE teams; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.teams TO cmserver_tenant;

-- Name: TABLE generation_lanes; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.generation_lanes TO cmserver_tenant;

-- Name: TABLE generation_runs; Type: ACL

GRANT SELECT,DELETE ON TABLE public.generation_runs TO cmserver_tenant;

-- Name: TABLE generation_spending; Type: ACL

GRANT SELECT ON TABLE public.generation_spending TO cmserver_tenant;

-- Name: TABLE observation_counters; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.observation_counters TO cmserver_tenant;

-- Name: TABLE observation_embeddings; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_embeddings TO cmserver_tenant;

-- Name: TABLE observation_generation_job_events; Type: ACL

GRANT SELECT,INSERT ON TABLE public.observation_generation_job_events TO cmserver_tenant;

-- Name: TABLE observation_sources; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observation_sources TO cmserver_tenant;

-- Name: TABLE observations; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observations TO cmserver_tenant;

-- Name: TABLE observations_in_team; Type: ACL

GRANT SELECT ON TABLE public.observations_in_team TO cmserver_tenant;

-- Name: TABLE project_aliases; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.project_aliases TO cmserver_tenant;

-- Name: TABLE rate_limits; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.rate_limits TO cmserver_tenant;

-- Name: TABLE server_sessions; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.server_sessions TO cmserver_tenant;

-- Name: TABLE session_prompts; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.session_prompts TO cmserver_tenant;

-- Name: TABLE session_prompts_in_team; Type: ACL

GRANT SELECT ON TABLE public.session_prompts_in_team TO cmserver_tenant;

-- Name: TABLE team_members; Type: ACL

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.team_members TO cmserver_tenant;

-- Name: TABLE usage_counters; Type: ACL

GRANT SELECT,INSERT,UPDATE ON TABLE public.usage_counters TO cmserver_tenant;
