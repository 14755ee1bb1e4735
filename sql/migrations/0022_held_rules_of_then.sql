-- A rule that waits for a person's yes is of no time before it, and psql refuses a time that the commands refuse
--
-- A rule's time is when it was said, and it was held only when it was written: of a time between the two the view of the past had it as
-- if nobody had to answer. It is there from the yes on, and without one not at all; an undone yes that is given anew counts from the
-- second one. observations_at and what calls it say an error for NULL and for a time to come.
--
-- How long: at once; no row is written.

CREATE OR REPLACE VIEW cmserver_past.observations WITH (security_invoker = true) AS
    SELECT o.id, o.number, o.project_id, o.team_id, o.server_session_id,
           CASE WHEN o.scope = 'team' THEN r.scope ELSE o.scope END AS scope, o.kind, r.type, o.origin, r.title, r.subtitle,
           r.narrative, r.facts, r.concepts, r.files_read, r.files_modified, r.summary, o.prompt_number, r.content,
           w.content_search,
           CASE WHEN w.is_anew THEN tsvector_words(w.content_search) ELSE o.content_words END AS content_words,
           r.read_tokens, o.discovery_tokens, o.access_count, o.last_accessed_at, o.generation_key, r.metadata,
           o.created_by_job_id, o.created_at, o.updated_at, o.search_language, r.importance, r.quote, o.quote_event_id, r.anchors,
           r.state, r.closed_by, r.closed_at, r.ttl_seconds, r.expires_at, r.version, r.superseded_by, r.superseded_at, r.merged_from,
           r.agent, r.caller_type, r.stale, o.actor_id, o.turn_number,
           greatest(o.created_at, a.answered_at,
                    (SELECT max(c.until) FROM past_values c
                      WHERE c.observation_id = o.id AND c.team_id = o.team_id AND c.until <= m.moment
                        AND c.before ?| '{title,subtitle,narrative,facts,content}')) AS valid_from,
           least((SELECT min(c.until) FROM past_values c
                   WHERE c.observation_id = o.id AND c.team_id = o.team_id AND c.until > m.moment
                     AND c.before ?| '{title,subtitle,narrative,facts,content}'),
                 o.superseded_at, o.expires_at, e.closed_at,
                 to_timestamp((o.stale ->> 'markedAtEpoch')::bigint / 1000.0)) AS valid_to, o.taken_at, o.recorded_at, o.person_id
      FROM observations o
      LEFT JOIN rule_approvals a ON a.observation_id = o.id AND a.team_id = o.team_id
     CROSS JOIN LATERAL (SELECT cmserver_past.known_at() AS known, cmserver_past.held_at() AS held,
                                least(cmserver_past.known_at(), cmserver_past.held_at()) AS moment) m
     CROSS JOIN LATERAL (SELECT jsonb_object_agg(v.key, v.value ORDER BY b.until DESC, b.id DESC) AS before
                           FROM past_values b CROSS JOIN LATERAL jsonb_each(b.before) v
                          WHERE b.observation_id = o.id AND b.team_id = o.team_id AND b.until > m.moment) p
     CROSS JOIN LATERAL jsonb_populate_record(o, p.before) r
     CROSS JOIN LATERAL (SELECT p.before ?| '{title,subtitle,narrative,facts,concepts,files_read,files_modified,summary,content}' AS is_anew,
           CASE WHEN p.before ?| '{title,subtitle,narrative,facts,concepts,files_read,files_modified,summary,content}' THEN
                setweight(search_words(o.search_language, coalesce(r.title, '')), 'A')
                || setweight(search_words(o.search_language, concat_ws(' ', r.subtitle, array_to_string(r.facts, ' '))), 'B')
                || setweight(search_words(o.search_language, coalesce(r.narrative,
                             CASE WHEN r.title IS NULL OR r.summary IS NOT NULL THEN r.content END, '')), 'C')
                || setweight(search_words(o.search_language, concat_ws(' ', array_to_string(r.concepts, ' '),
                             array_to_string(r.files_read, ' '), array_to_string(r.files_modified, ' '),
                             replace(concat_ws(' ', array_to_string(r.files_read, ' '), array_to_string(r.files_modified, ' ')),
                                     '/', ' '))), 'D')
                ELSE o.content_search END AS content_search) w
     CROSS JOIN LATERAL (SELECT CASE WHEN o.state IN ('done', 'dropped')
                                     THEN coalesce((SELECT t.created_at FROM turns t
                                                     WHERE t.team_id = o.team_id AND t.number = o.closed_by), o.closed_at) END
                                AS closed_at) e
     WHERE (a.observation_id IS NULL OR (a.state = 'approved' AND a.answered_at <= m.moment))
       AND o.taken_at IS NULL AND o.created_at <= m.held AND coalesce(o.recorded_at, recorded_at(o.id, o.created_at)) <= m.known
       AND (m.held = 'infinity'
            OR (r.state IS DISTINCT FROM 'done' AND r.state IS DISTINCT FROM 'dropped' AND r.stale IS NULL
                AND (e.closed_at IS NULL OR o.closed_by IS NULL OR e.closed_at > m.held)));

CREATE OR REPLACE FUNCTION observations_at(held timestamptz, known timestamptz) RETURNS SETOF cmserver_past.observations LANGUAGE plpgsql AS $$
DECLARE
    held_before text := coalesce(current_setting('cmserver.as_of', true), '');
    known_before text := coalesce(current_setting('cmserver.known_at', true), '');
BEGIN
    IF held IS NULL OR known IS NULL THEN
        RAISE EXCEPTION 'A time is expected, not NULL.' USING ERRCODE = 'null_value_not_allowed';
    ELSIF (held > clock_timestamp() AND held < 'infinity') OR (known > clock_timestamp() AND known < 'infinity') THEN
        RAISE EXCEPTION 'The time is in the future.' USING ERRCODE = 'datetime_field_overflow';
    END IF;
    PERFORM set_config('cmserver.as_of', held::text, true), set_config('cmserver.known_at', known::text, true);
    RETURN QUERY SELECT o.* FROM cmserver_past.observations o
                  WHERE o.superseded_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > cmserver_past.now());
    PERFORM set_config('cmserver.as_of', held_before, true), set_config('cmserver.known_at', known_before, true);
END $$;
