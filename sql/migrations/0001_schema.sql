-- Everything that cmserver keeps, in one file. A database that the 64 migrations before it have made has all of it, and is only marked.
--
-- In this order: helper functions; procrastinate; then room by room, each table with its indexes, comments, policy and rights, and
-- the triggers and views behind them; last what goes through several rooms. Three rules hold for every table:
--
-- 1. Several teams share one server and never see each other. Every table with a team_id has row-level security ENABLED (not FORCED:
--    the owner, which claims work and runs the operator's commands, must see every team). Requests run as the role cmserver_tenant,
--    which owns nothing, and name their team per transaction in the setting cmserver.team_id. When it is unset, or the empty string that an
--    ended transaction leaves behind, no row is visible. The role is made before this file runs: roles belong to the cluster.
-- 2. References carry project and team along: a simple foreign key is checked past row-level security, and would let one team attach to
--    another's row. Those between rows of a project are DEFERRABLE: rows of a joined project move one table after the other.
-- 3. A table that is referred to this way has its UNIQUE (id, project_id, team_id) behind its other whole indexes, of which none starts
--    with two of these columns: on a table without statistics the planner takes such an index for just as good, keeps the plan, and
--    each check of a foreign key reads the whole project (40 times slower until the first autoanalyze). An index of lists therefore has
--    a WHERE that is true of every row (`created_at > '-infinity'`), which the queries that use it say, too. A test keeps it so.
--
-- How long: a second.

-- ---- Helper functions
--
-- Search takes words as people type them. PostgreSQL's parser takes `getOrCreateSession` for one word and `src/auth/oauth.ts` for
-- another, so neither is found by a part of it, and a sentence of a script without spaces (Chinese, Japanese, Thai, Lao, Khmer,
-- Burmese) for one word, too. search_words() adds the names of a text, whole and in parts, and a lexeme for each pair of
-- neighbouring characters of such scripts and of Korean. It is used for texts and queries alike. Texts that are not English are
-- stemmed by their own language, which a project says.

CREATE FUNCTION tsvector_words(vector tsvector) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(sum(cardinality(u.positions)), 0)::integer FROM unnest(vector) u;
END;

-- A name is what no word of a language looks like: signs or a capital within, or a number behind letters and a hyphen, which the parser
-- takes for a negative one.
CREATE FUNCTION search_names(said text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT array_agg(found[1]) FROM regexp_matches(said,
    '[A-Za-z0-9_$]+(?:[./:_#@\\][A-Za-z0-9_$-]+)+|[A-Za-z0-9$]*[a-z0-9][A-Z][A-Za-z0-9$]*|[A-Za-z0-9]*[_$][A-Za-z0-9_$]*'
    '|[A-Za-z]+-[0-9]+', 'g') AS found
    WHERE length(found[1]) <= 400);

-- The characters that are written without spaces, as ranges of a regular expression; without digits and punctuation.
CREATE FUNCTION unsegmented_characters() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '\u0E01-\u0E3A\u0E40-\u0E4E'                                             -- Thai
    || '\u0E81-\u0EBD\u0EC0-\u0ECE\u0EDC-\u0EDF'                                -- Lao
    || '\u1000-\u103F\u1050-\u108F'                                             -- Burmese
    || '\u1780-\u17D3\u17D7\u17DC\u17DD'                                        -- Khmer
    || '\u3041-\u3096\u309D-\u309F\u30A1-\u30FA\u30FC-\u30FF\u31F0-\u31FF'      -- Hiragana, Katakana
    || '\u3005-\u3007\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF' -- Chinese characters
    || '\uAC00-\uD7A3';                                                         -- Korean syllables

-- Whether a text has such characters, or forms that become them or Latin letters (half-width, full-width, parts of a syllable).
CREATE FUNCTION is_unsegmented(said text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN octet_length(said) > length(said) AND said ~ ('[\u1100-\u11FF\uFF00-\uFFEF' || unsegmented_characters() || ']');

-- The pairs of neighbouring characters in each run of such characters, at places with a gap between two runs, so that a phrase does not
-- reach from one into the next. A run of one character is a lexeme itself. Those of Chinese and Korean are lexemes without a place
-- inside longer runs: found when a query has one alone, and no part of the document's length. A tsvector has room for a megabyte and
-- 16,383 places: what is behind the first 16,000 characters in a field is not found by its pairs.
CREATE FUNCTION search_pairs(said text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT string_agg(CASE WHEN following IS NOT NULL THEN '''' || letter || following || ''':' || place
                           WHEN nth = 1 THEN '''' || letter || ''':' || place
                           ELSE '' END
                   || CASE WHEN letter ~ '[\u3400-\u9FFF\uAC00-\uD7A3\uF900-\uFAFF\U00020000-\U0003FFFF]' AND (nth > 1 OR following IS NOT NULL)
                           THEN ' ''' || letter || '''' ELSE '' END, ' ')::tsvector
      FROM (SELECT letter, nth, lead(letter) OVER (PARTITION BY run ORDER BY nth) AS following, row_number() OVER (ORDER BY run, nth) AS place
              FROM regexp_matches(said, '[' || unsegmented_characters() || ']+', 'g') WITH ORDINALITY AS runs (found, run)
             CROSS JOIN LATERAL string_to_table(found[1], NULL) WITH ORDINALITY AS letters (letter, nth)) AS letters
     WHERE place <= 16000);

-- The words of a text as the language has them, and behind them its names: each whole, its parts that are names themselves (the file
-- of a path, a column of a table), a version without its v, and the words in it. The same for a query: whoever types a name as it is
-- shares the most with it.
CREATE FUNCTION search_words(language text, said text, with_names boolean DEFAULT true) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
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
END $$;

-- All that a text says, as a condition: the words of other scripts, in a row where it is a phrase, and each run of such characters.
CREATE FUNCTION search_mixed(language text, said text, is_phrase boolean) RETURNS tsquery LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
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

CREATE FUNCTION search_marked_mixed(language text, said text) RETURNS tsquery LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
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

-- The conditions of a query: all its words; or what it marks as "phrases" and -"exclusions". Without such characters that is a function
-- of PostgreSQL, and the planner sees no other.
CREATE FUNCTION search_all(language text, said text) RETURNS tsquery LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN is_unsegmented(said) THEN search_mixed(language, said, false)
            ELSE plainto_tsquery(('pg_catalog.' || language)::regconfig, said) END;

CREATE FUNCTION search_marked(language text, said text) RETURNS tsquery LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN is_unsegmented(said) THEN search_marked_mixed(language, said)
            ELSE websearch_to_tsquery(('pg_catalog.' || language)::regconfig, said) END;

CREATE FUNCTION observation_hash(title text, subtitle text, narrative text, facts text[], content text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
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
END $$;

CREATE FUNCTION time_of_event(occurred_at timestamptz, received_at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN occurred_at BETWEEN received_at - interval '30 days' AND received_at - interval '1 minute'
                THEN occurred_at ELSE received_at END
$$;
COMMENT ON FUNCTION time_of_event IS 'When something happened: as its client says if it was delivered late, else when it arrived.';

-- What psql writes there must be what the program reads, to the length of each text: a policy that it cannot read stops a project.
CREATE FUNCTION is_generation_policy(policy jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof(policy) = 'object' THEN
               policy - ARRAY['mode', 'debounceSeconds', 'skipEventTypes', 'skipTools', 'verbosity', 'language', 'skipRules'] = '{}'
               AND coalesce(policy ->> 'mode', 'burst') IN ('per_event', 'burst', 'at_end')
               AND CASE WHEN jsonb_typeof(coalesce(policy -> 'debounceSeconds', '0')) = 'number'
                        THEN coalesce((policy ->> 'debounceSeconds')::numeric, 0) BETWEEN 0 AND 3600 ELSE false END
               AND coalesce(policy ->> 'verbosity', 'normal') IN ('minimal', 'normal', 'verbose')
               AND jsonb_typeof(coalesce(policy -> 'language', '"en"')) IN ('string', 'null')
               AND length(coalesce(policy ->> 'language', 'en')) BETWEEN 2 AND 40
               AND (SELECT bool_and(CASE WHEN jsonb_typeof(coalesce(policy -> list.name, '[]')) = 'array' THEN
                                         jsonb_array_length(coalesce(policy -> list.name, '[]')) <= list.most
                                         AND NOT EXISTS (SELECT FROM jsonb_array_elements(coalesce(policy -> list.name, '[]')) AS one(text)
                                                          WHERE jsonb_typeof(one.text) <> 'string'
                                                             OR length(one.text #>> '{}') NOT BETWEEN list.shortest AND list.longest)
                                         ELSE false END)
                      FROM (VALUES ('skipEventTypes', 100, 1, 100), ('skipTools', 100, 1, 100), ('skipRules', 50, 3, 200))
                           AS list(name, most, shortest, longest))
           ELSE false END;
END;

-- What psql writes there must be what the program reads.
CREATE FUNCTION is_retention_policy(policy jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN jsonb_typeof(policy) = 'object' THEN
               policy - ARRAY['observationsDays', 'minImportance', 'promoteAccesses', 'eventsDays', 'jobLogDays', 'receiptsDays',
                              'auditDays', 'defaultTtlSeconds', 'extendFactor', 'promoteImportance', 'cleanupSeconds',
                              'suggestAbove', 'autoMergeAbove', 'mergeStrategy'] = '{}'
               AND (SELECT bool_and(CASE jsonb_typeof(coalesce(policy -> field.name, 'null'))
                                         WHEN 'null' THEN true
                                         WHEN 'number' THEN (policy ->> field.name)::numeric BETWEEN field.least AND field.most
                                              AND (field.is_share OR scale((policy ->> field.name)::numeric) = 0)
                                         ELSE false END)
                      FROM (VALUES ('observationsDays', 0, 36500, false), ('minImportance', 0, 1, true),
                                   ('promoteAccesses', 1, 1000000, false), ('eventsDays', 0, 36500, false),
                                   ('jobLogDays', 0, 36500, false), ('receiptsDays', 0, 36500, false),
                                   ('auditDays', 0, 36500, false), ('defaultTtlSeconds', 1, 3155760000, false),
                                   ('extendFactor', 0, 100, true), ('promoteImportance', 0, 1, true),
                                   ('cleanupSeconds', 1, 31536000, false), ('suggestAbove', 0, 1, true),
                                   ('autoMergeAbove', 0, 1, true)) AS field(name, least, most, is_share))
               AND CASE jsonb_typeof(coalesce(policy -> 'mergeStrategy', 'null'))
                        WHEN 'null' THEN true
                        WHEN 'string' THEN policy ->> 'mergeStrategy' IN ('latest_wins', 'append', 'smart_merge')
                        ELSE false END
           ELSE false END;
END;

CREATE FUNCTION is_found_by_meaning(type text, notes text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT type IN ('person', 'place', 'project', 'technology', 'concept', 'organization') OR notes IS NOT NULL
$$;
COMMENT ON FUNCTION is_found_by_meaning IS 'Whether an entity of the type, with the notes, has a vector.';

-- Whether a proposal of a run names one of these rows.
CREATE FUNCTION is_proposal_of(proposal jsonb, ids uuid[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (SELECT FROM jsonb_path_query(proposal, 'strict $.**') part WHERE part #>> '{}' IN (SELECT unnest(ids)::text));
$$;

-- The notes without the part, which stands in them as whole paragraphs; unchanged where it does not, null where nothing is left.
CREATE FUNCTION cut_paragraphs(notes text, part text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN place = 0 THEN notes
                ELSE nullif(concat_ws(E'\n\n', nullif(left(notes, greatest(place - 3, 0)), ''),
                                      nullif(substr(notes, place + length(part) + 2), '')), '') END
      FROM (SELECT coalesce(position(E'\n\n' || part || E'\n\n' IN E'\n\n' || notes || E'\n\n'), 0) AS place) p
$$;

-- ---- procrastinate
--
-- The heartbeats that leases are made of, and the queue of periodic and maintenance tasks. Our outbox is itself the queue of
-- generation; procrastinate's worker drives it. Its schema is installed unchanged, from the installed package, so that its own
-- tools work on this database. A test compares it with the one this file was written for: a release that brings another schema asks
-- for a migration.

--include procrastinate

-- ---- Access: teams, people, projects, keys, limits, and the audit log

CREATE TABLE installation (
    only_one   boolean DEFAULT true PRIMARY KEY CHECK (only_one),
    id         uuid NOT NULL,
    secret     bytea NOT NULL CHECK (length(secret) >= 32),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE installation IS 'One row: who this server is, and the secret of its keyed hashes (an idempotency key must not let anybody guess what it was made from).';

CREATE TABLE teams (
    id                  uuid PRIMARY KEY,
    name                text NOT NULL CHECK (name <> ''),
    metadata            jsonb NOT NULL DEFAULT '{}',
    archived_at         timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    generation_policy   jsonb NOT NULL DEFAULT '{}' CHECK (is_generation_policy(generation_policy)),
    requests_per_minute integer CHECK (requests_per_minute > 0),
    events_per_month    bigint CHECK (events_per_month >= 0),
    retention           jsonb NOT NULL DEFAULT '{}' CHECK (is_retention_policy(retention))
);
CREATE UNIQUE INDEX teams_name ON teams (name) WHERE archived_at IS NULL;
COMMENT ON TABLE teams IS 'People who share what their agents remember; teams never see each other.';
COMMENT ON COLUMN teams.generation_policy IS 'When observations are made of the team''s events, and of which never; a project may say it for itself.';
COMMENT ON COLUMN teams.requests_per_minute IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';
COMMENT ON COLUMN teams.events_per_month IS 'For all keys of the team together; NULL for no limit. Set by the operator only.';
COMMENT ON COLUMN teams.retention IS 'How long what is kept; a project may say it for itself. 0 days is for good.';
ALTER TABLE teams ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON teams USING (id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON teams TO cmserver_tenant;

-- A person has an account, belongs to teams by its id (memberships), and is signed in by a cookie (web_sessions) that stands for
-- the account, or for a key. Only the owner reads these tables; their policies stand there nevertheless. Secrets are stored as
-- hashes: passwords by argon2id, tokens of links and cookies by SHA-256. A key that a person made names them, so that it ends with
-- their membership.
CREATE TABLE users (
    id               uuid PRIMARY KEY,
    name             text NOT NULL CHECK (name <> '' AND length(name) <= 100),
    password_hash    text,
    is_operator      boolean NOT NULL DEFAULT false,
    reset_hash       text,
    reset_expires_at timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CHECK ((reset_hash IS NULL) = (reset_expires_at IS NULL))
);
CREATE UNIQUE INDEX users_name ON users (lower(name));
CREATE UNIQUE INDEX users_reset ON users (reset_hash) WHERE reset_hash IS NOT NULL;
COMMENT ON TABLE users IS 'Accounts of people. Names are unique without regard to case.';
COMMENT ON COLUMN users.is_operator IS 'Whether the person may run the server as a whole; no role in a team.';
COMMENT ON COLUMN users.reset_hash IS 'SHA-256 of the token of a link that signs the person in once, to set a new password.';

-- An isolated project shares nothing with the team and sees nothing that others share, whoever writes it: a trigger says so, and no
-- query can forget it.
CREATE TABLE projects (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    canonical_id      text NOT NULL CHECK (canonical_id <> '' AND length(canonical_id) <= 500),
    name              text NOT NULL CHECK (name <> ''),
    metadata          jsonb NOT NULL DEFAULT '{}',
    archived_at       timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    generation_policy jsonb NOT NULL DEFAULT '{}' CHECK (is_generation_policy(generation_policy)),
    search_language   text NOT NULL DEFAULT 'english',
    consolidation     text NOT NULL DEFAULT 'suggest' CHECK (consolidation IN ('off', 'suggest', 'merge')),
    retention         jsonb NOT NULL DEFAULT '{}' CHECK (is_retention_policy(retention)),
    joined_to         uuid,
    stays_apart       boolean NOT NULL DEFAULT false,
    merge_with_model  boolean NOT NULL DEFAULT false,
    isolated          boolean NOT NULL DEFAULT false,
    UNIQUE (id, team_id),
    UNIQUE (team_id, canonical_id),
    CONSTRAINT projects_joined_is_archived CHECK (joined_to IS NULL OR archived_at IS NOT NULL),
    CONSTRAINT projects_joined_to_another CHECK (joined_to <> id),
    CHECK (search_language IN ('simple', 'arabic', 'armenian', 'basque', 'catalan', 'danish', 'dutch', 'english', 'finnish',
        'french', 'german', 'greek', 'hindi', 'hungarian', 'indonesian', 'irish', 'italian', 'lithuanian', 'nepali', 'norwegian',
        'portuguese', 'romanian', 'russian', 'serbian', 'spanish', 'swedish', 'tamil', 'turkish', 'yiddish')),
    CONSTRAINT projects_joined_to_fkey FOREIGN KEY (joined_to, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX projects_joined ON projects (joined_to, team_id) WHERE joined_to IS NOT NULL;
CREATE INDEX projects_isolated ON projects (team_id) WHERE isolated;
COMMENT ON TABLE projects IS 'A code base of a team, by its canonical id (github.com/user/repo, a name, or a path).';
COMMENT ON COLUMN projects.search_language IS 'The text search configuration by which its texts and queries are stemmed; simple is none.';
COMMENT ON COLUMN projects.consolidation IS 'What becomes of generated observations that say what is there already.';
COMMENT ON COLUMN projects.joined_to IS 'The project that has its rows, and is meant by its names.';
COMMENT ON COLUMN projects.stays_apart IS 'It was separated again: it is joined by nobody but people.';
COMMENT ON COLUMN projects.merge_with_model IS 'Whether a model words what people merge; what is merged by itself is merged by rules.';
COMMENT ON COLUMN projects.isolated IS 'Nothing of it is found from elsewhere, and it sees nothing that other projects share.';
ALTER TABLE projects ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON projects USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON projects TO cmserver_tenant;

CREATE TABLE project_aliases (
    team_id    uuid NOT NULL,
    alias      text NOT NULL CHECK (alias <> '' AND length(alias) <= 500),
    project_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    name_until timestamptz,
    PRIMARY KEY (team_id, alias),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX project_aliases_project ON project_aliases (project_id, team_id);
COMMENT ON TABLE project_aliases IS 'Older and other names of projects.';
COMMENT ON COLUMN project_aliases.name_until IS 'When the project got another name by itself, whose name it was until then. NULL for what people called it.';
ALTER TABLE project_aliases ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON project_aliases USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON project_aliases TO cmserver_tenant;

CREATE TABLE team_members (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id    text NOT NULL CHECK (user_id <> ''),
    role       text NOT NULL CHECK (role IN ('owner', 'member')),
    metadata   jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, user_id)
);
COMMENT ON TABLE team_members IS 'Who belongs to a team, as owner or member.';
ALTER TABLE team_members ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON team_members USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON team_members TO cmserver_tenant;

CREATE TABLE memberships (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    user_id    uuid NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role       text NOT NULL CHECK (role IN ('owner', 'member', 'viewer')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, user_id)
);
CREATE INDEX memberships_user ON memberships (user_id);
COMMENT ON TABLE memberships IS 'Which people belong to which team, and as what.';
ALTER TABLE memberships ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON memberships USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

CREATE TABLE api_keys (
    id                  uuid PRIMARY KEY,
    key_hash            text NOT NULL UNIQUE,
    team_id             uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id          uuid,
    name                text NOT NULL DEFAULT '',
    actor_id            text NOT NULL CHECK (actor_id <> ''),
    scopes              jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(scopes) = 'array'),
    revoked_at          timestamptz,
    expires_at          timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    last_used_at        timestamptz,
    replaced_by         uuid,
    counts_as           uuid,
    requests_per_minute integer CHECK (requests_per_minute > 0),
    events_per_month    bigint CHECK (events_per_month >= 0),
    user_id             uuid REFERENCES users (id) ON DELETE SET NULL,
    made_by             uuid REFERENCES users (id) ON DELETE SET NULL,
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX api_keys_team ON api_keys (team_id, created_at);
CREATE INDEX api_keys_project ON api_keys (project_id, team_id) WHERE project_id IS NOT NULL;
CREATE INDEX api_keys_user ON api_keys (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX api_keys_made_by ON api_keys (made_by) WHERE made_by IS NOT NULL;
COMMENT ON TABLE api_keys IS 'Keys: what they may do, in which team, and in which project when bound to one.';
COMMENT ON COLUMN api_keys.key_hash IS 'SHA-256 of the secret part of the key, hex. The key itself is shown once and stored nowhere.';
COMMENT ON COLUMN api_keys.last_used_at IS 'Known to the minute: it is not written with each request.';
COMMENT ON COLUMN api_keys.replaced_by IS 'The key that a rotation has put in its place.';
COMMENT ON COLUMN api_keys.counts_as IS 'The key whose limits and usage this one goes on with: the first that was rotated into it; NULL for its own. Or any key could escape its limits by rotating itself.';
COMMENT ON COLUMN api_keys.user_id IS 'The person who made the key for themselves; it ends with their membership.';
COMMENT ON COLUMN api_keys.made_by IS 'The person who made it, for themselves or another actor, also by a key of theirs; it ends with their membership.';
ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON api_keys USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON api_keys TO cmserver_tenant;

CREATE TABLE invitations (
    id             uuid PRIMARY KEY,
    team_id        uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    role           text NOT NULL CHECK (role IN ('owner', 'member', 'viewer')),
    makes_operator boolean NOT NULL DEFAULT false,
    token_hash     text NOT NULL UNIQUE,
    note           text NOT NULL DEFAULT '',
    invited_by     text NOT NULL,
    expires_at     timestamptz NOT NULL,
    used_at        timestamptz,
    used_by        uuid REFERENCES users (id) ON DELETE SET NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    made_by        uuid REFERENCES users (id) ON DELETE CASCADE
);
CREATE INDEX invitations_team ON invitations (team_id, created_at);
CREATE INDEX invitations_used_by ON invitations (used_by) WHERE used_by IS NOT NULL;
CREATE INDEX invitations_made_by ON invitations (made_by) WHERE made_by IS NOT NULL;
COMMENT ON TABLE invitations IS 'Links that make somebody a member of a team, once.';
COMMENT ON COLUMN invitations.made_by IS 'The person who made it, also by a key of theirs; it ends with their membership.';
ALTER TABLE invitations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON invitations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

CREATE TABLE web_sessions (
    id              uuid PRIMARY KEY,
    token_hash      text NOT NULL UNIQUE,
    user_id         uuid REFERENCES users (id) ON DELETE CASCADE,
    api_key_id      uuid REFERENCES api_keys (id) ON DELETE CASCADE,
    current_team_id uuid REFERENCES teams (id) ON DELETE SET NULL,
    address         text NOT NULL DEFAULT '',
    browser         text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    last_seen_at    timestamptz NOT NULL DEFAULT now(),
    CHECK (num_nonnulls(user_id, api_key_id) = 1)
);
CREATE INDEX web_sessions_user ON web_sessions (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX web_sessions_key ON web_sessions (api_key_id) WHERE api_key_id IS NOT NULL;
CREATE INDEX web_sessions_team ON web_sessions (current_team_id) WHERE current_team_id IS NOT NULL;
COMMENT ON TABLE web_sessions IS 'Who is signed in to the web interface: a person, or whoever sent a key. They end after 14 days without a request.';

-- No foreign keys: the log outlives what it names (ids and names, never texts), and deleting a team must not fail on it.
CREATE TABLE audit_log (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id       uuid NOT NULL,
    project_id    uuid,
    actor_id      text,
    api_key_id    uuid,
    action        text NOT NULL,
    resource_type text NOT NULL,
    resource_id   text,
    request_id    text,
    details       jsonb NOT NULL DEFAULT '{}',
    created_at    timestamptz NOT NULL DEFAULT now(),
    user_id       uuid
);
CREATE INDEX audit_log_team ON audit_log (team_id, id);
CREATE INDEX audit_log_project ON audit_log (project_id, id) WHERE project_id IS NOT NULL;
-- What is done by the thousand is soon found among the newest rows; what is seldom done would be looked for in all of them.
CREATE INDEX audit_log_seldom ON audit_log (team_id, action, id)
    WHERE action NOT IN ('events.received', 'jobs.queued', 'generation.started', 'observations.generated', 'observations.served');
COMMENT ON TABLE audit_log IS 'Who did what, in ids and names, never in texts. Only appended to.';
COMMENT ON COLUMN audit_log.user_id IS 'The person who acted, by their account or a key of theirs.';
ALTER TABLE audit_log ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON audit_log USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT ON audit_log TO cmserver_tenant;

-- A bucket holds one minute's worth of requests and is refilled evenly. It may be overdrawn by as much: what several processes let
-- pass in the same second is paid back. Each process counts in memory and tells it here at most once a second a key.
CREATE TABLE rate_limits (
    id          uuid PRIMARY KEY,
    team_id     uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    per_minute  integer NOT NULL CHECK (per_minute > 0),
    tokens      double precision NOT NULL,
    refilled_at timestamptz NOT NULL,
    CHECK (tokens >= (- per_minute)::double precision AND tokens <= per_minute::double precision)
);
CREATE INDEX rate_limits_team ON rate_limits (team_id);
COMMENT ON TABLE rate_limits IS 'Token buckets of keys and teams with a limit of requests per minute; the id is the key''s or the team''s.';
ALTER TABLE rate_limits ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON rate_limits USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limits TO cmserver_tenant;

-- No reference to the key: what a team has used stays used when a key goes with its project.
CREATE TABLE usage_counters (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    month      date NOT NULL CHECK (EXTRACT(day FROM month) = 1),
    kind       text NOT NULL CHECK (kind IN ('requests', 'events')),
    api_key_id uuid NOT NULL,
    amount     bigint NOT NULL CHECK (amount >= 0),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, month, kind, api_key_id)
);
COMMENT ON TABLE usage_counters IS 'Requests and newly stored events of each key, by calendar month (UTC).';
ALTER TABLE usage_counters ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON usage_counters USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON usage_counters TO cmserver_tenant;

-- A call of a provider is made only while every budget that it falls under has something left, which is asked right before each.
CREATE TABLE budgets (
    id           uuid PRIMARY KEY,
    team_id      uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id   uuid,
    period       text NOT NULL CHECK (period IN ('day', 'month')),
    max_tokens   bigint CHECK (max_tokens > 0),
    max_usd      numeric CHECK (max_usd > 0),
    warned_at    timestamptz,
    exhausted_at timestamptz,
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (team_id, project_id, period),
    CHECK (num_nonnulls(max_tokens, max_usd) > 0),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
COMMENT ON TABLE budgets IS 'How much a team, or one of its projects, may spend on providers in a calendar day or month (UTC); at the cap generation waits.';
COMMENT ON COLUMN budgets.project_id IS 'NULL is the whole team.';
COMMENT ON COLUMN budgets.warned_at IS 'When it was last said that 80 % are spent: once a period. NULL again when the budget is changed.';
COMMENT ON COLUMN budgets.exhausted_at IS 'When it was last said that all is spent: once a period. NULL again when the budget is changed.';
ALTER TABLE budgets ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON budgets USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON budgets TO cmserver_tenant;

CREATE FUNCTION isolated_projects_share_nothing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM projects WHERE id = NEW.project_id AND isolated) THEN
        NEW.scope := 'project';
    END IF;
    RETURN NEW;
END $$;

-- ---- Sessions, what agents reported, and turns

-- `idle_from` is what the idle sweep goes by: an agent that crashes never ends its session, and its summary would never be written.
-- It is written seldom (a start; the first sign of life after a summary), not with each event: the sweep looks at the events of the
-- few sessions that seem idle. Hooks find a session by team, agent and the agent's id (from_hooks): the folder's project changes
-- while a session runs. A call of the API that names a project means the session of that project.
CREATE TABLE server_sessions (
    id                  uuid PRIMARY KEY,
    project_id          uuid NOT NULL,
    team_id             uuid NOT NULL,
    external_session_id text,
    content_session_id  text,
    agent_id            text,
    agent_type          text,
    platform_source     text,
    generation_status   text NOT NULL DEFAULT 'idle' CHECK (generation_status IN ('idle', 'processing', 'completed', 'failed')),
    metadata            jsonb NOT NULL DEFAULT '{}',
    started_at          timestamptz NOT NULL DEFAULT now(),
    ended_at            timestamptz,
    last_generated_at   timestamptz,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    idle_from           timestamptz DEFAULT now(),
    title               text CHECK (length(title) BETWEEN 1 AND 200),
    origin_project_id   uuid,
    from_hooks          boolean NOT NULL DEFAULT false,
    moved_at            timestamptz,
    actor_id            text,
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX server_sessions_project ON server_sessions (project_id, started_at);
ALTER TABLE server_sessions ADD CONSTRAINT server_sessions_of_project UNIQUE (id, project_id, team_id);
CREATE INDEX server_sessions_team ON server_sessions (team_id, started_at, id) WHERE started_at > '-infinity';
CREATE INDEX server_sessions_open ON server_sessions (team_id, started_at, id) WHERE ended_at IS NULL;
CREATE INDEX server_sessions_idle ON server_sessions (idle_from) WHERE idle_from IS NOT NULL;
CREATE INDEX server_sessions_said ON server_sessions (team_id, content_session_id) WHERE content_session_id IS NOT NULL;
CREATE UNIQUE INDEX server_sessions_external ON server_sessions
    (coalesce(origin_project_id, project_id), coalesce(platform_source, ''), external_session_id) WHERE external_session_id IS NOT NULL;
CREATE INDEX server_sessions_content ON server_sessions (coalesce(origin_project_id, project_id), content_session_id)
    WHERE content_session_id IS NOT NULL;
CREATE UNIQUE INDEX server_sessions_of_hooks ON server_sessions (team_id, coalesce(platform_source, ''), external_session_id)
    WHERE from_hooks;
COMMENT ON TABLE server_sessions IS 'Conversations of agents with their users, found by the id that the agent gave them.';
COMMENT ON COLUMN server_sessions.idle_from IS 'The last sign of life that the idle sweep knows of; it looks at the session again when that is long ago. NULL when its last run has its summary and nothing has come since.';
COMMENT ON COLUMN server_sessions.title IS 'What people call the session. NULL until somebody gives it a title.';
COMMENT ON COLUMN server_sessions.origin_project_id IS 'The project by whose name it was made, if that is another one: its keys and those of its events contain it. It may be deleted.';
COMMENT ON COLUMN server_sessions.from_hooks IS 'Whether hooks find it by its agent''s id alone, whatever the folder''s project is.';
COMMENT ON COLUMN server_sessions.moved_at IS 'When people moved it here from another project. NULL for never.';
COMMENT ON COLUMN server_sessions.actor_id IS 'Whose key began it.';
ALTER TABLE server_sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON server_sessions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON server_sessions TO cmserver_tenant;

-- What an agent sends is kept as it came (redacted, and cut where it is very long), so that observations can be drawn from it
-- again. Of an event the payload goes first: the row stays, so that what was sent twice is still known, and what came of it.
CREATE TABLE agent_events (
    id                uuid NOT NULL,
    project_id        uuid NOT NULL,
    team_id           uuid NOT NULL,
    server_session_id uuid,
    source_adapter    text NOT NULL,
    source_event_id   text,
    idempotency_key   text NOT NULL UNIQUE,
    event_type        text NOT NULL,
    platform_source   text,
    origin            text NOT NULL CHECK (origin IN ('hook', 'api', 'mcp', 'import', 'model')),
    generate          boolean NOT NULL,
    size_chars        integer NOT NULL CHECK (size_chars >= 0),
    payload           jsonb NOT NULL,
    metadata          jsonb NOT NULL DEFAULT '{}',
    occurred_at       timestamptz NOT NULL,
    received_at       timestamptz NOT NULL DEFAULT now(),
    created_at        timestamptz NOT NULL DEFAULT now(),
    payload_purged_at timestamptz,
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES server_sessions (id, project_id, team_id)
        ON DELETE SET NULL (server_session_id) DEFERRABLE
);
CREATE INDEX agent_events_project_session ON agent_events (project_id, server_session_id, occurred_at);
CREATE INDEX agent_events_project ON agent_events (project_id, occurred_at);
ALTER TABLE agent_events ADD CONSTRAINT agent_events_of_project UNIQUE (id, project_id, team_id);
CREATE INDEX agent_events_payload ON agent_events (project_id, received_at) WHERE payload_purged_at IS NULL;
CREATE INDEX agent_events_purged ON agent_events (payload_purged_at) WHERE payload_purged_at IS NOT NULL;
COMMENT ON TABLE agent_events IS 'What agents reported, once each, redacted. Never changed, but for the payload, which retention may empty.';
COMMENT ON COLUMN agent_events.origin IS 'The door it came through, stamped by the server.';
COMMENT ON COLUMN agent_events.generate IS 'Whether the sender asked for observations: such an event has exactly one job.';
COMMENT ON COLUMN agent_events.payload_purged_at IS 'When the payload was emptied; NULL while it is there.';
ALTER TABLE agent_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON agent_events USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON agent_events TO cmserver_tenant;

-- One row: written at the prompt, completed at the turn's end with the agent's last message, and the files, checks and commits in
-- between. `#12` names an observation or a turn: both take their numbers from one counter. A sub-agent has one turn, with its id at
-- the agent and without a number in the session; one that somebody writes by hand has no event.
CREATE TABLE turns (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid NOT NULL,
    server_session_id uuid NOT NULL,
    agent_event_id    uuid,
    prompt_number     integer CHECK (prompt_number >= 1),
    prompt            text NOT NULL,
    text_search       tsvector,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    search_language   text NOT NULL DEFAULT 'english',
    number            bigint NOT NULL,
    reply             text,
    actor_id          text,
    files             text[] NOT NULL DEFAULT '{}',
    checks            text[] NOT NULL DEFAULT '{}',
    commits           text[] NOT NULL DEFAULT '{}',
    ended_at          timestamptz,
    agent_id          text,
    own_line          text CHECK (length(own_line) <= 600),
    borrowed          integer[] NOT NULL DEFAULT '{}',
    UNIQUE (server_session_id, prompt_number),
    CONSTRAINT turns_of_user_or_subagent CHECK ((prompt_number IS NULL) = (agent_id IS NOT NULL)),
    FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES server_sessions (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES agent_events (id, project_id, team_id)
        ON DELETE SET NULL (agent_event_id) DEFERRABLE
);
CREATE UNIQUE INDEX turns_event ON turns (agent_event_id);
-- Short pending lists, here and for observations: each look-up of a word reads them from end to end.
CREATE INDEX turns_search ON turns USING gin (text_search) WITH (gin_pending_list_limit = 128);
CREATE INDEX turns_project ON turns (project_id, created_at);
CREATE INDEX turns_team ON turns (team_id, created_at) WHERE created_at > '-infinity';
CREATE UNIQUE INDEX turns_number ON turns (team_id, number);
ALTER TABLE turns ADD CONSTRAINT turns_of_project UNIQUE (id, project_id, team_id);
CREATE UNIQUE INDEX turns_subagent ON turns (server_session_id, agent_id) WHERE agent_id IS NOT NULL;
COMMENT ON TABLE turns IS 'What users asked for and what the agent answered, whole, numbered from 1 in each session. Its number is the team''s.';
COMMENT ON COLUMN turns.prompt_number IS 'Counts the user''s prompts in the session. NULL for a sub-agent''s turn.';
COMMENT ON COLUMN turns.number IS 'From the same counter as those of observations: a number means one thing.';
COMMENT ON COLUMN turns.reply IS 'The agent''s last message of the turn. NULL until there is one.';
COMMENT ON COLUMN turns.actor_id IS 'Whose key it was.';
COMMENT ON COLUMN turns.ended_at IS 'When the agent had answered, or the turn was over without an answer.';
COMMENT ON COLUMN turns.agent_id IS 'The sub-agent that was asked and answered, by its id at the agent. NULL for the session''s own.';
COMMENT ON COLUMN turns.own_line IS 'What a person says its line shall be: empty for none, NULL for the one that is made of it.';
COMMENT ON COLUMN turns.borrowed IS 'Hashes of the reply''s sentences that share eight words in a row with what a tool put out.';
ALTER TABLE turns ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON turns USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON turns TO cmserver_tenant;

CREATE FUNCTION turn_words() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER turns_words
    BEFORE INSERT OR UPDATE OF prompt, reply, files, commits, search_language ON turns FOR EACH ROW EXECUTE FUNCTION turn_words();

CREATE VIEW turns_in_team AS
    SELECT id, team_id, project_id, server_session_id, agent_event_id, prompt_number, prompt, text_search, created_at,
           search_language, number, reply, actor_id, files, checks, commits, ended_at, agent_id
      FROM turns
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid;
COMMENT ON VIEW turns_in_team IS 'What search reads: the turns of the team in cmserver.team_id, with their indexes usable.';
GRANT SELECT ON turns_in_team TO cmserver_tenant;

-- A line of a turn would say `MAX_ROWS` is 2000 for ever, though a later turn's edit had taken that out, and that `pytest` failed,
-- though it passes since. A worker notes at a turn's end, file by file, what its edits put in and took out, and how its checks
-- ended; where a later turn takes out what an earlier one had put in, or passes the check that had failed, turn_ledger has an
-- entry. Tokens are numbers of 32 bits that nothing can be read from. All of it goes with its turns.
CREATE TABLE turn_traces (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id uuid NOT NULL,
    turn_id    uuid NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('edit', 'check')),
    name       text NOT NULL,
    put_in     integer[] NOT NULL DEFAULT '{}',
    took_out   integer[] NOT NULL DEFAULT '{}',
    results    jsonb NOT NULL DEFAULT '[]',
    commit     text,
    PRIMARY KEY (turn_id, kind, name),
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id) ON UPDATE CASCADE
        ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX turn_traces_name ON turn_traces (project_id, kind, name);
COMMENT ON TABLE turn_traces IS 'What a turn''s edits put into each file and took out of it, and how its checks ended. Made of its events.';
COMMENT ON COLUMN turn_traces.name IS 'The file of an edit, the program of a check.';
COMMENT ON COLUMN turn_traces.put_in IS 'Telling words and numbers of the new lines, as hashes; 0 stands between two places of the file.';
COMMENT ON COLUMN turn_traces.took_out IS 'The same of the old lines, with a 0 for each of put_in.';
COMMENT ON COLUMN turn_traces.results IS 'How the runs of a check ended, in order.';
COMMENT ON COLUMN turn_traces.commit IS 'The commit that has the edit, empty where its hash is not known; NULL until there is one.';
ALTER TABLE turn_traces ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON turn_traces USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT ON turn_traces TO cmserver_tenant;

CREATE TABLE turn_ledger (
    team_id            uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    earlier_id         uuid NOT NULL,
    earlier_project_id uuid NOT NULL,
    later_id           uuid NOT NULL,
    later_project_id   uuid NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('edit', 'check')),
    name               text NOT NULL,
    token              integer NOT NULL,
    instead            integer[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (earlier_id, kind, name, token),
    FOREIGN KEY (earlier_id, earlier_project_id, team_id) REFERENCES turns (id, project_id, team_id) ON UPDATE CASCADE
        ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (later_id, later_project_id, team_id) REFERENCES turns (id, project_id, team_id) ON UPDATE CASCADE
        ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX turn_ledger_later ON turn_ledger (later_id);
COMMENT ON TABLE turn_ledger IS 'What of an earlier turn is over, by which later one. Made of turn_traces.';
COMMENT ON COLUMN turn_ledger.kind IS 'The evidence: an edit, or git, took out what was put in; or the check passes.';
COMMENT ON COLUMN turn_ledger.name IS 'The file, or the check as its turn names it.';
COMMENT ON COLUMN turn_ledger.token IS 'What was taken out, as a hash; 0 for a check.';
COMMENT ON COLUMN turn_ledger.instead IS 'What the same place of the file got instead.';
ALTER TABLE turn_ledger ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON turn_ledger USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT ON turn_ledger TO cmserver_tenant;

-- The nearest sentences of turns are told with a prompt, and a sentence points to the nearest later one. The worker writes them at
-- a turn's end: at most eight, one row a turn, their vectors in one array of at most 2 kB. A turn that ends, or whose text or own
-- line changes, waits in its row from the same transaction on, without the text it had. A short answer is kept with what it
-- answers, and loses that with it.
CREATE TABLE turn_sentences (
    turn_id      uuid PRIMARY KEY,
    team_id      uuid NOT NULL,
    project_id   uuid NOT NULL,
    due_at       timestamptz DEFAULT now(),
    texts        text[] NOT NULL DEFAULT '{}',
    of_user      smallint NOT NULL DEFAULT 0,
    words        tsvector[] NOT NULL DEFAULT '{}',
    model_id     integer NOT NULL DEFAULT 0,
    vectors      bytea,
    later_ids    uuid[] NOT NULL DEFAULT '{}',
    later_places smallint[] NOT NULL DEFAULT '{}',
    nearness     real[] NOT NULL DEFAULT '{}',
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE
) WITH (toast_tuple_target = 8160);
CREATE INDEX turn_sentences_due ON turn_sentences (turn_id) WHERE due_at IS NOT NULL;
CREATE INDEX turn_sentences_model ON turn_sentences (model_id, turn_id);
COMMENT ON TABLE turn_sentences IS 'The sentences of a turn that say most, the user''s first.';
COMMENT ON COLUMN turn_sentences.due_at IS 'When the worker shall write them, or at the latest, while it has them in hand. NULL when they are written.';
COMMENT ON COLUMN turn_sentences.of_user IS 'How many of the first are the user''s; the others are the agent''s.';
COMMENT ON COLUMN turn_sentences.words IS 'The words of each, as search knows them.';
COMMENT ON COLUMN turn_sentences.model_id IS 'The embedding model that was asked for their vectors; 0 without one.';
COMMENT ON COLUMN turn_sentences.vectors IS 'A vector of length 127 for each, one after the other, a signed byte a number. NULL where the model made none.';
COMMENT ON COLUMN turn_sentences.later_ids IS 'For each sentence the later turn of the project in which the nearest later one was said, NULL without one. It may be gone.';
COMMENT ON COLUMN turn_sentences.later_places IS 'Which of its sentences that is, from 0.';
COMMENT ON COLUMN turn_sentences.nearness IS 'How near it is.';
ALTER TABLE turn_sentences ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON turn_sentences USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON turn_sentences TO cmserver_tenant;

CREATE FUNCTION turn_waits_for_sentences() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER quotes_of_deleted_turns AFTER DELETE ON turns FOR EACH ROW
    WHEN (OLD.reply IS NOT NULL AND OLD.agent_id IS NULL) EXECUTE FUNCTION turn_waits_for_sentences();
CREATE TRIGGER turns_to_sentences AFTER INSERT OR UPDATE OF prompt, reply, own_line, ended_at, search_language ON turns FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL AND NEW.agent_id IS NULL) EXECUTE FUNCTION turn_waits_for_sentences();

-- Turns of before, or of an import, are traced by the worker in the order in which they were asked; the project in which somebody
-- worked last comes first.
CREATE TABLE untraced_turns (
    place      bigint GENERATED ALWAYS AS IDENTITY,
    turn_id    uuid PRIMARY KEY,
    team_id    uuid NOT NULL,
    project_id uuid NOT NULL,
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id) ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE INDEX untraced_turns_place ON untraced_turns (place);
COMMENT ON TABLE untraced_turns IS 'Turns of which the worker shall still note what they did, in this order; a row goes when it has.';
ALTER TABLE untraced_turns ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON untraced_turns USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT ON untraced_turns TO cmserver_tenant;

-- ---- Generation: the outbox, which is itself the queue
--
-- The row that says "this event should become observations" is the row that a worker claims. Lanes are the ready list: one row per
-- session (or per job without one), so that a busy, failing or held session never delays another, and a claim costs the same beside
-- a backlog of a hundred thousand. The jobs stay the one truth of what is to be done.

CREATE SEQUENCE generation_claims;

-- No index on (status, next_attempt_at), for lanes carry the time; no foreign key to the API key (a key's row is locked by every
-- insert otherwise; the worker reads the key again before it works); a summary job may lose its session. Indexes hold the phase:
-- `open` while a job is queued or processing, else its status, so that a claim changes no index (HOT); half of a page is kept free
-- for that. Lists are read backwards, one range for each phase, and figures are counted from the indexes alone. A job of an event
-- has no idempotency key: it is unique by its columns.
CREATE TABLE observation_generation_jobs (
    id                  uuid NOT NULL,
    seq                 bigint GENERATED ALWAYS AS IDENTITY,
    project_id          uuid NOT NULL,
    team_id             uuid NOT NULL,
    lane                uuid NOT NULL,
    agent_event_id      uuid,
    source_type         text NOT NULL CHECK (source_type IN ('agent_event', 'session_summary', 'observation_reindex', 'turn')),
    source_id           uuid NOT NULL,
    source_run          integer NOT NULL DEFAULT 1 CHECK (source_run >= 1),
    server_session_id   uuid,
    job_type            text NOT NULL,
    status              text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'processing', 'completed', 'failed', 'cancelled')),
    idempotency_key     text,
    attempts            integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    max_attempts        integer NOT NULL DEFAULT 3 CHECK (max_attempts >= 1),
    next_attempt_at     timestamptz,
    locked_at           timestamptz,
    locked_by           text,
    worker_id           bigint,
    claim               bigint,
    cancel_requested_at timestamptz,
    completed_at        timestamptz,
    failed_at           timestamptz,
    cancelled_at        timestamptz,
    outcome             text CHECK (outcome IN ('observed', 'skipped')),
    outcome_reason      text,
    generation_run_id   uuid,
    last_error          jsonb,
    payload             jsonb NOT NULL DEFAULT '{}',
    size_chars          integer NOT NULL DEFAULT 0 CHECK (size_chars >= 0),
    api_key_id          uuid,
    actor_id            text,
    source_adapter      text,
    request_id          text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    waits_for_end       boolean NOT NULL DEFAULT false,
    phase               text GENERATED ALWAYS AS (CASE WHEN status IN ('queued', 'processing') THEN 'open' ELSE status END)
                        STORED NOT NULL,
    CONSTRAINT attempts_within_bounds CHECK (attempts <= max_attempts AND (status <> 'queued' OR attempts < max_attempts)),
    CONSTRAINT locked_while_processing CHECK ((status = 'processing') = (locked_at IS NOT NULL AND locked_by IS NOT NULL
        AND worker_id IS NOT NULL AND claim IS NOT NULL)),
    CHECK (source_type = 'agent_event' AND agent_event_id IS NOT NULL AND source_id = agent_event_id
        OR source_type = 'session_summary' AND agent_event_id IS NULL AND (server_session_id IS NULL
        OR source_id = server_session_id) OR (source_type IN ('observation_reindex', 'turn')) AND agent_event_id IS NULL),
    CONSTRAINT one_terminal_timestamp CHECK ((completed_at IS NOT NULL) = (status = 'completed')
        AND (failed_at IS NOT NULL) = (status = 'failed') AND (cancelled_at IS NOT NULL) = (status = 'cancelled')),
    CONSTRAINT outcome_when_completed CHECK ((outcome IS NOT NULL) = (status = 'completed')),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES agent_events (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES server_sessions (id, project_id, team_id)
        ON DELETE SET NULL (server_session_id) DEFERRABLE
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05, fillfactor = 50);
CREATE INDEX observation_jobs_session ON observation_generation_jobs (server_session_id, seq) WHERE server_session_id IS NOT NULL;
ALTER TABLE observation_generation_jobs ADD CONSTRAINT observation_jobs_of_project UNIQUE (id, project_id, team_id);
CREATE UNIQUE INDEX observation_jobs_source ON observation_generation_jobs (source_id, source_type, job_type, source_run)
    WHERE source_type <> 'agent_event';
CREATE UNIQUE INDEX observation_jobs_event ON observation_generation_jobs (agent_event_id) WHERE agent_event_id IS NOT NULL;
CREATE INDEX observation_jobs_lane ON observation_generation_jobs (lane, seq) WHERE phase = 'open';
CREATE INDEX observation_jobs_team ON observation_generation_jobs (team_id, phase, created_at, id) WHERE created_at > '-infinity';
-- The team beside it: a project's jobs are counted from the index alone, under the policy too.
CREATE INDEX observation_jobs_project ON observation_generation_jobs (project_id, phase, created_at, id) INCLUDE (team_id)
    WHERE created_at > '-infinity';
CREATE INDEX observation_jobs_others ON observation_generation_jobs (team_id, created_at, id, project_id, source_type, phase)
    WHERE source_type <> 'agent_event';
COMMENT ON TABLE observation_generation_jobs IS 'The outbox, which is itself the queue: what is to be generated, and what became of it.';
COMMENT ON COLUMN observation_generation_jobs.lane IS 'The session of the job, or the job itself when it has none. One batch of a lane is in progress at any time.';
COMMENT ON COLUMN observation_generation_jobs.idempotency_key IS 'Of summaries and reindex jobs. The job of an event is unique by its event.';
COMMENT ON COLUMN observation_generation_jobs.claim IS 'The fencing token: only the claim that took the job may write its end.';
COMMENT ON COLUMN observation_generation_jobs.waits_for_end IS 'By the policy at_end: the job alone does not make its lane due. Cleared when it is claimed.';
COMMENT ON COLUMN observation_generation_jobs.phase IS '`open` while queued or processing, else the status: what indexes hold, so that a claim changes none.';
ALTER TABLE observation_generation_jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_generation_jobs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_generation_jobs TO cmserver_tenant;

CREATE TABLE observation_generation_job_events (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid NOT NULL,
    generation_job_id uuid NOT NULL,
    event_type        text NOT NULL,
    status_after      text NOT NULL CHECK (status_after IN ('queued', 'processing', 'completed', 'failed', 'cancelled')),
    attempt           integer NOT NULL DEFAULT 0,
    details           jsonb NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (event_type IN ('queued', 'processing', 'retry_scheduled', 'completed', 'failed', 'cancelled')),
    FOREIGN KEY (generation_job_id, project_id, team_id) REFERENCES observation_generation_jobs (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX observation_job_events_job ON observation_generation_job_events (generation_job_id, id);
CREATE INDEX observation_job_events_recovered ON observation_generation_job_events (team_id, project_id)
    WHERE (details ->> 'reason') = 'worker lost';
COMMENT ON TABLE observation_generation_job_events IS 'The lifecycle log of jobs, written by a trigger whoever makes the step.';
ALTER TABLE observation_generation_job_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_generation_job_events USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT ON observation_generation_job_events TO cmserver_tenant;

-- No foreign keys: a lane is a place in the ready list, written by every ingest, and gone when idle.
CREATE TABLE generation_lanes (
    lane        uuid PRIMARY KEY,
    team_id     uuid NOT NULL,
    project_id  uuid NOT NULL,
    due_at      timestamptz,
    held_until  timestamptz,
    held_reason text,
    held_for    text,
    worker_id   bigint,
    claim       bigint,
    locked_at   timestamptz,
    at_most     integer CHECK (at_most >= 1),
    CHECK ((worker_id IS NULL) = (claim IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX generation_lanes_due ON generation_lanes (due_at) WHERE worker_id IS NULL AND due_at IS NOT NULL;
CREATE INDEX generation_lanes_held ON generation_lanes (worker_id) WHERE worker_id IS NOT NULL;
COMMENT ON TABLE generation_lanes IS 'The ready list: one row a session (or a job without one), claimed by one worker at a time.';
COMMENT ON COLUMN generation_lanes.due_at IS 'When the lane may be claimed; NULL when nothing waits in it. Never before held_until.';
COMMENT ON COLUMN generation_lanes.held_for IS 'The provider whose pause holds the lane; budget, where it waits for money; NULL for a back-off.';
COMMENT ON COLUMN generation_lanes.at_most IS 'How many events one provider call may serve, where the policy of the last one says so; NULL for as many as the settings allow.';
ALTER TABLE generation_lanes ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON generation_lanes USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON generation_lanes TO cmserver_tenant;

-- No team: who works on the outbox. procrastinate keeps the heartbeats, of these and of the workers of its own queue.
CREATE TABLE generation_workers (
    worker_id     bigint PRIMARY KEY,
    label         text NOT NULL,
    lease_seconds double precision NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE generation_workers IS 'Who works on the outbox; procrastinate keeps their heartbeats.';

-- The law of a job's life, for workers and for whoever types UPDATE in psql alike. It also writes the timestamps that belong to a step.
CREATE FUNCTION generation_job_law() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER generation_job_law BEFORE UPDATE OF status ON observation_generation_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION generation_job_law();

-- The lifecycle log, statement-level with transition tables (row-level cost twice as much), and the wake-up of the lanes
-- of jobs that an operator sent back.
CREATE FUNCTION generation_job_log_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_generation_job_events (team_id, project_id, generation_job_id, event_type, status_after, attempt)
    SELECT team_id, project_id, id, status, status, attempts FROM new_rows ORDER BY seq;
    RETURN NULL;
END $$;
CREATE TRIGGER generation_job_log_insert AFTER INSERT ON observation_generation_jobs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_job_log_insert();

CREATE FUNCTION generation_job_log_update() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER generation_job_log_update AFTER UPDATE ON observation_generation_jobs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_job_log_update();

-- What an operator may do from psql. Each gives the same result and trace as the API.
CREATE FUNCTION retry_job(job uuid) RETURNS text LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION retry_job IS 'Sends a failed or cancelled job back to the queue, with three more attempts.';

CREATE FUNCTION cancel_job(job uuid) RETURNS text LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION cancel_job IS 'Ends a queued job at once; a running one is marked, and writes nothing.';

CREATE FUNCTION retry_failed(team uuid, since timestamptz) RETURNS bigint LANGUAGE sql AS $$
    WITH picked AS (SELECT id FROM observation_generation_jobs
                     WHERE team_id = team AND status = 'failed' AND failed_at >= since ORDER BY id FOR UPDATE),
         sent AS (UPDATE observation_generation_jobs j SET status = 'queued' FROM picked WHERE j.id = picked.id RETURNING 1)
    SELECT count(*) FROM sent
$$;
COMMENT ON FUNCTION retry_failed IS 'Sends back every job of a team that failed since then; returns how many.';

-- What every worker does every two seconds. A worker is alive while its heartbeat is younger than its own lease.
CREATE FUNCTION live_workers() RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT g.worker_id FROM generation_workers g JOIN procrastinate_workers w ON w.id = g.worker_id
     WHERE w.last_heartbeat > now() - make_interval(secs => g.lease_seconds)
$$;
COMMENT ON FUNCTION live_workers IS 'The workers on the outbox whose lease holds.';

CREATE FUNCTION requeue_stale(hard_limit_seconds double precision DEFAULT 300) RETURNS SETOF uuid LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION requeue_stale IS 'Gives back what dead workers hold; returns the jobs. Every worker does this every two seconds.';

CREATE FUNCTION wake_sleeping_lanes() RETURNS bigint LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION wake_sleeping_lanes IS 'Finds queued jobs whose lane is missing or asleep (rows that psql wrote) and makes them due; done every ten minutes.';

-- Views for the operator. They see every team, so only the owner may read them.
CREATE VIEW queue_overview AS
    SELECT t.name AS team, p.canonical_id AS project, j.source_type, j.status, count(*) AS jobs,
           min(j.created_at) AS oldest, max(j.attempts) AS most_attempts
      FROM observation_generation_jobs j JOIN projects p ON p.id = j.project_id JOIN teams t ON t.id = j.team_id
     GROUP BY 1, 2, 3, 4;
COMMENT ON VIEW queue_overview IS 'Jobs by team, project, source and status.';

CREATE VIEW lane_overview AS
    SELECT l.lane, t.name AS team, p.canonical_id AS project,
           CASE WHEN l.worker_id IS NOT NULL THEN 'working' WHEN l.held_until > now() THEN 'held'
                WHEN l.due_at <= now() THEN 'due' WHEN l.due_at IS NOT NULL THEN 'waiting' ELSE 'idle' END AS state,
           l.due_at, l.held_until, l.held_reason, l.worker_id, l.locked_at,
           (SELECT count(*) FROM observation_generation_jobs j
             WHERE j.lane = l.lane AND j.phase = 'open' AND j.status = 'queued') AS queued
      FROM generation_lanes l LEFT JOIN projects p ON p.id = l.project_id LEFT JOIN teams t ON t.id = l.team_id;
COMMENT ON VIEW lane_overview IS 'Each lane: working, held, due, waiting or idle, and how many jobs wait in it.';

CREATE VIEW failed_jobs AS
    SELECT j.id, t.name AS team, p.canonical_id AS project, j.job_type, j.attempts, j.failed_at,
           j.last_error ->> 'reason' AS reason, j.last_error ->> 'message' AS message
      FROM observation_generation_jobs j JOIN projects p ON p.id = j.project_id JOIN teams t ON t.id = j.team_id
     WHERE j.status = 'failed';
COMMENT ON VIEW failed_jobs IS 'Jobs that have failed for good, with the reason; retry_job(id) sends one back.';

CREATE VIEW worker_overview AS
    SELECT g.worker_id, g.label, g.started_at, w.last_heartbeat, now() - w.last_heartbeat AS silent_for,
           count(l.lane) AS lanes, min(l.locked_at) AS oldest_batch
      FROM generation_workers g LEFT JOIN procrastinate_workers w ON w.id = g.worker_id
      LEFT JOIN generation_lanes l ON l.worker_id = g.worker_id
     GROUP BY g.worker_id, g.label, g.started_at, w.last_heartbeat;
COMMENT ON VIEW worker_overview IS 'Each worker: how long it has been silent, and what it holds.';

CREATE VIEW queue_totals AS
    SELECT t.name AS team, q.waiting, q.active, q.delayed, q.held, e.completed, e.failed, e.cancelled, r.recovered, q.oldest_waiting
      FROM teams t
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE o.state = 'waiting') AS waiting, count(*) FILTER (WHERE o.state = 'delayed') AS delayed,
                  count(*) FILTER (WHERE o.state = 'held') AS held, count(*) FILTER (WHERE o.state = 'active') AS active,
                  now() - min(o.updated_at) FILTER (WHERE o.state = 'waiting') AS oldest_waiting
             FROM (SELECT j.updated_at,
                          CASE WHEN j.status = 'processing' THEN 'active' WHEN l.held_until > now() THEN 'held'
                               WHEN l.due_at > now() THEN 'delayed' ELSE 'waiting' END AS state
                     FROM observation_generation_jobs j LEFT JOIN generation_lanes l ON l.lane = j.lane
                    WHERE j.team_id = t.id AND j.phase = 'open' AND j.created_at > '-infinity') o) q
     CROSS JOIN LATERAL (
           SELECT count(*) FILTER (WHERE j.phase = 'completed') AS completed, count(*) FILTER (WHERE j.phase = 'failed') AS failed,
                  count(*) FILTER (WHERE j.phase = 'cancelled') AS cancelled
             FROM observation_generation_jobs j
            WHERE j.team_id = t.id AND j.phase IN ('completed', 'failed', 'cancelled') AND j.created_at > '-infinity') e
     CROSS JOIN LATERAL (
           SELECT count(*) AS recovered FROM observation_generation_job_events j
            WHERE j.team_id = t.id AND j.details ->> 'reason' = 'worker lost') r;
COMMENT ON VIEW queue_totals IS 'Each team''s queue at a glance: what waits, runs, rests and has ended, what came back from lost workers, and how long the oldest has waited.';

-- ---- Calls of providers: runs, what they cost, pauses

-- A call is on record before it is made, as 'asked' with an estimate of its tokens, and takes on what the provider said when that
-- comes; 'lost' is a call of which nobody will hear any more, and keeps its estimate. Budgets count by these rows.
CREATE TABLE generation_runs (
    id                 uuid PRIMARY KEY,
    team_id            uuid NOT NULL,
    project_id         uuid NOT NULL,
    lane               uuid NOT NULL,
    claim              bigint NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('observations', 'summary', 'merge', 'guard', 'derive', 'overview', 'entities')),
    provider           text NOT NULL,
    model              text NOT NULL,
    job_ids            uuid[] NOT NULL,
    status             text NOT NULL CHECK (status IN ('asked', 'answered', 'applied', 'unusable', 'failed', 'lost')),
    error_class        text,
    error_message      text,
    answer             text,
    input_tokens       integer NOT NULL DEFAULT 0,
    output_tokens      integer NOT NULL DEFAULT 0,
    cache_read_tokens  integer NOT NULL DEFAULT 0,
    cache_write_tokens integer NOT NULL DEFAULT 0,
    cost_usd           numeric(12,6),
    latency_ms         integer NOT NULL DEFAULT 0,
    created_at         timestamptz NOT NULL DEFAULT now(),
    applied_at         timestamptz,
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX generation_runs_project ON generation_runs (project_id, created_at);
CREATE INDEX generation_runs_team ON generation_runs (team_id, created_at);
-- The few that are under way.
CREATE INDEX generation_runs_asked ON generation_runs (created_at) WHERE status = 'asked';
CREATE INDEX generation_runs_steward ON generation_runs (team_id, created_at) WHERE kind IN ('guard', 'derive');
COMMENT ON TABLE generation_runs IS 'Provider calls: what they served, what they cost, and an answer until it is applied.';
COMMENT ON COLUMN generation_runs.lane IS 'Of its jobs; a call that is made for none has none, and its own id here.';
COMMENT ON COLUMN generation_runs.status IS 'asked (its tokens are an estimate), answered (not applied yet), applied, unusable (its answer is kept), failed (there was none), lost (nobody heard the end).';
COMMENT ON COLUMN generation_runs.answer IS 'The raw answer until it has been applied: a crash between answer and write does not buy it twice. One that could not be used stays, for the operator.';
COMMENT ON COLUMN generation_runs.cost_usd IS 'By the provider, or by its price table; NULL where no price is known.';
ALTER TABLE generation_runs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON generation_runs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, DELETE ON generation_runs TO cmserver_tenant;

-- Summing up a month of a million calls takes 90 ms; so what is spent is kept by day, project and model, by triggers: no call can
-- be written that is not counted. No reference to the project: what is erased stays spent; a purge would else be a way to spend
-- twice.
CREATE TABLE generation_spending (
    team_id            uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    day                date NOT NULL,
    project_id         uuid NOT NULL,
    provider           text NOT NULL,
    model              text NOT NULL,
    calls              bigint NOT NULL,
    failed_calls       bigint NOT NULL,
    unpriced_calls     bigint NOT NULL,
    input_tokens       bigint NOT NULL,
    output_tokens      bigint NOT NULL,
    cache_read_tokens  bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_usd           numeric NOT NULL,
    PRIMARY KEY (team_id, day, project_id, provider, model)
) WITH (fillfactor = 70);
COMMENT ON TABLE generation_spending IS 'What was spent on providers, by day (UTC), project and model: the sums of generation_runs, kept by its triggers, and by what is gone from it.';
COMMENT ON COLUMN generation_spending.failed_calls IS 'Those that gave no answer that could be used, and those whose end nobody heard.';
COMMENT ON COLUMN generation_spending.unpriced_calls IS 'Those with tokens whose price is not known; they are not in cost_usd.';
ALTER TABLE generation_spending ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON generation_spending USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT ON generation_spending TO cmserver_tenant;

-- Adds to the sums what has changed; of a call that has changed, what it was is taken away. One statement may be many calls: their sums
-- are taken in one order, so that two statements never wait for each other.
CREATE FUNCTION generation_runs_count() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER generation_runs_count_new AFTER INSERT ON generation_runs
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_runs_count();
CREATE TRIGGER generation_runs_count_changed AFTER UPDATE ON generation_runs
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION generation_runs_count();

-- No team: a quota or a bad key stops the provider for everybody. For at most 24 hours.
CREATE TABLE provider_pauses (
    provider  text PRIMARY KEY,
    reason    text NOT NULL,
    message   text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    until_at  timestamptz NOT NULL,
    times     integer NOT NULL DEFAULT 1
);
COMMENT ON TABLE provider_pauses IS 'Providers that nobody calls for now, and why.';

CREATE VIEW spend_by_project AS
    SELECT t.name AS team, p.canonical_id AS project, r.provider, r.model, date_trunc('day', r.created_at) AS day,
           count(*) AS calls, count(*) FILTER (WHERE r.status = 'failed') AS failed_calls,
           sum(r.input_tokens) AS input_tokens, sum(r.output_tokens) AS output_tokens,
           sum(r.cache_read_tokens) AS cache_read_tokens, sum(r.cache_write_tokens) AS cache_write_tokens,
           sum(r.cost_usd) AS cost_usd,
           count(*) FILTER (WHERE r.cost_usd IS NULL AND r.input_tokens + r.output_tokens > 0) AS unpriced_calls
      FROM generation_runs r JOIN projects p ON p.id = r.project_id JOIN teams t ON t.id = r.team_id
     GROUP BY 1, 2, 3, 4, 5;
COMMENT ON VIEW spend_by_project IS 'Provider calls, tokens and money by project, model and day.';

-- ---- Observations

-- The vector of words and its length stand in the row, for BM25; a trigger keeps them, so that a correction typed in psql is found
-- at once. An observation of scope `team` is recalled in every project of its team: those have an index of their own. What is
-- superseded or has expired is kept for a while, so that it can be undone, but nothing shows it: each query says so (a test looks
-- for one that forgot). Room is left for counting accesses in place, without a touch of any index, and the words are in the row
-- itself and not packed: unpacking them took more time than all the rest of a search.
CREATE TABLE observations (
    id                uuid NOT NULL,
    number            bigint NOT NULL CHECK (number >= 1),
    project_id        uuid NOT NULL,
    team_id           uuid NOT NULL,
    server_session_id uuid,
    scope             text NOT NULL DEFAULT 'project' CHECK (scope IN ('project', 'team')),
    kind              text NOT NULL DEFAULT 'observation' CHECK (kind IN ('observation', 'summary', 'manual')),
    type              text NOT NULL DEFAULT 'change',
    origin            text NOT NULL CHECK (origin IN ('hook', 'api', 'mcp', 'import', 'model', 'rules')),
    title             text,
    subtitle          text,
    narrative         text,
    facts             text[],
    concepts          text[],
    files_read        text[],
    files_modified    text[],
    summary           jsonb,
    prompt_number     integer,
    content           text NOT NULL,
    content_search    tsvector NOT NULL,
    content_words     integer NOT NULL,
    read_tokens       integer,
    discovery_tokens  integer,
    access_count      integer NOT NULL DEFAULT 0,
    last_accessed_at  timestamptz,
    generation_key    text,
    metadata          jsonb NOT NULL DEFAULT '{}',
    created_by_job_id uuid,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    search_language   text NOT NULL DEFAULT 'english',
    importance        real NOT NULL DEFAULT 0.5 CHECK (importance BETWEEN 0 AND 1),
    quote             text CHECK (length(quote) <= 400),
    quote_event_id    uuid,
    anchors           text[],
    state             text CHECK (state IN ('open', 'done', 'dropped')),
    closed_by         bigint,
    closed_at         timestamptz,
    ttl_seconds       bigint CHECK (ttl_seconds > 0),
    expires_at        timestamptz,
    version           integer NOT NULL DEFAULT 1 CHECK (version >= 1),
    superseded_by     uuid,
    superseded_at     timestamptz,
    merged_from       uuid[] NOT NULL DEFAULT '{}',
    agent             text,
    caller_type       text,
    stale             jsonb CHECK (jsonb_typeof(stale) = 'object'),
    actor_id          text,
    turn_number       bigint,
    UNIQUE (team_id, number),
    UNIQUE (generation_key, project_id, team_id),
    CONSTRAINT closed_when_not_open CHECK ((closed_at IS NOT NULL) = coalesce(state IN ('done', 'dropped'), false)),
    CONSTRAINT expires_with_a_lifetime CHECK (expires_at IS NULL OR ttl_seconds IS NOT NULL),
    CHECK (type IN ('bugfix', 'feature', 'refactor', 'change', 'discovery', 'decision', 'security_alert', 'security_note',
        'sensitive')),
    CONSTRAINT superseded_at_a_time CHECK ((superseded_by IS NULL) = (superseded_at IS NULL)),
    CONSTRAINT superseded_by_another CHECK (superseded_by <> id),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES server_sessions (id, project_id, team_id)
        ON DELETE SET NULL (server_session_id) DEFERRABLE,
    FOREIGN KEY (created_by_job_id, project_id, team_id) REFERENCES observation_generation_jobs (id, project_id, team_id)
        ON DELETE SET NULL (created_by_job_id) DEFERRABLE,
    CONSTRAINT observations_quote_event_fkey FOREIGN KEY (quote_event_id, project_id, team_id)
        REFERENCES agent_events (id, project_id, team_id) ON DELETE SET NULL (quote_event_id) DEFERRABLE
) WITH (fillfactor = 90, toast_tuple_target = 8160);
CREATE INDEX observations_project_session ON observations (project_id, server_session_id, created_at);
CREATE INDEX observations_team ON observations (team_id, created_at, id);
CREATE INDEX observations_summaries ON observations (project_id, created_at, id) WHERE kind = 'summary';
CREATE INDEX observations_job ON observations (created_by_job_id) WHERE created_by_job_id IS NOT NULL;
CREATE INDEX observations_content_search ON observations USING gin (content_search) WITH (gin_pending_list_limit = 128);
ALTER TABLE observations ADD CONSTRAINT observations_of_project UNIQUE (id, project_id, team_id);
CREATE INDEX observations_manual ON observations (team_id, created_at, id) WHERE kind = 'manual';
CREATE INDEX observations_type ON observations (team_id, type, created_at, id) WHERE created_at > '-infinity';
-- What is open in a project is shown at the start of a session and compared with each piece of work.
CREATE INDEX observations_open ON observations (team_id, project_id, number) WHERE state = 'open';
CREATE INDEX observations_quote_event ON observations (quote_event_id) WHERE quote_event_id IS NOT NULL;
CREATE INDEX observations_superseded ON observations (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX observations_expiring ON observations (expires_at) WHERE expires_at IS NOT NULL;
-- The words and the end of life beside it: the average length that BM25 needs is read from the index alone.
CREATE INDEX observations_project ON observations (project_id, created_at, id) INCLUDE (team_id, content_words, expires_at)
    WHERE superseded_at IS NULL;
CREATE INDEX observations_team_scope ON observations (team_id, created_at, id) INCLUDE (project_id, content_words, expires_at)
    WHERE (scope = 'team') AND (superseded_at IS NULL);
CREATE INDEX observations_hash ON observations (project_id, observation_hash(title, subtitle, narrative, facts, content))
    WHERE (superseded_at IS NULL) AND (kind = 'manual');
CREATE INDEX observations_closed ON observations (team_id, closed_at) WHERE closed_by IS NOT NULL;
ALTER TABLE observations ADD CONSTRAINT observations_superseded_by_fkey FOREIGN KEY (superseded_by, project_id, team_id)
    REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;
COMMENT ON TABLE observations IS 'What is remembered: one thing each, titled and typed, with facts and files.';
COMMENT ON COLUMN observations.number IS 'The short id that people and models use (#1234), counted per team.';
COMMENT ON COLUMN observations.ttl_seconds IS 'How long it lives after it was written; NULL is for good.';
COMMENT ON COLUMN observations.expires_at IS 'From then on it is not shown. NULL is never.';
COMMENT ON COLUMN observations.superseded_by IS 'The observation that it was merged into. Its text goes when that one is deleted.';
COMMENT ON COLUMN observations.agent IS 'Who wrote it by hand, in his own words.';
COMMENT ON COLUMN observations.caller_type IS 'The type that the caller gave, where it is none of ours.';
COMMENT ON COLUMN observations.stale IS 'Why what it says of a file does not hold any more: reason, path, event and time. NULL while nothing is known against it.';
COMMENT ON COLUMN observations.actor_id IS 'Whose key it came by.';
COMMENT ON COLUMN observations.turn_number IS 'The number of the turn that it was made of; that may be deleted.';
ALTER TABLE observations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observations TO cmserver_tenant;

CREATE TRIGGER isolated_projects_share_nothing BEFORE INSERT OR UPDATE OF scope, project_id ON observations
    FOR EACH ROW WHEN (NEW.scope = 'team') EXECUTE FUNCTION isolated_projects_share_nothing();

CREATE FUNCTION observation_words() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER observations_words
    BEFORE INSERT OR UPDATE OF title, subtitle, narrative, facts, concepts, files_read, files_modified, summary, content, search_language
    ON observations FOR EACH ROW EXECUTE FUNCTION observation_words();

CREATE FUNCTION observation_is_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END $$;
COMMENT ON FUNCTION observation_is_changed IS 'For edits that do not say when they were made. What is read, expires or is merged does not change.';
CREATE TRIGGER observations_are_changed BEFORE UPDATE OF type, scope, title, subtitle, narrative, facts, concepts, files_read,
    files_modified, summary, content, importance, metadata, state, quote ON observations FOR EACH ROW
    WHEN (new.updated_at = old.updated_at
          AND (new.type, new.scope, new.title, new.subtitle, new.narrative, new.facts, new.concepts, new.files_read,
               new.files_modified, new.summary, new.content, new.importance, new.metadata, new.state, new.quote)
              IS DISTINCT FROM
              (old.type, old.scope, old.title, old.subtitle, old.narrative, old.facts, old.concepts, old.files_read,
               old.files_modified, old.summary, old.content, old.importance, old.metadata, old.state, old.quote))
    EXECUTE FUNCTION observation_is_changed();

CREATE FUNCTION project_is_isolated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observations SET scope = 'project' WHERE project_id = NEW.id AND team_id = NEW.team_id AND scope = 'team';
    RETURN NULL;
END $$;
CREATE TRIGGER project_is_isolated AFTER UPDATE OF isolated ON projects
    FOR EACH ROW WHEN (NEW.isolated AND NOT OLD.isolated) EXECUTE FUNCTION project_is_isolated();

CREATE TABLE observation_sources (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid NOT NULL,
    observation_id    uuid NOT NULL,
    agent_event_id    uuid,
    generation_job_id uuid,
    source_type       text NOT NULL CHECK (source_type IN ('agent_event', 'session_summary', 'observation_reindex', 'manual')),
    source_id         uuid NOT NULL,
    metadata          jsonb NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (observation_id, source_type, source_id),
    CHECK (source_type = 'agent_event' AND agent_event_id IS NOT NULL AND source_id = agent_event_id
        OR source_type <> 'agent_event' AND agent_event_id IS NULL),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (agent_event_id, project_id, team_id) REFERENCES agent_events (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (generation_job_id, project_id, team_id) REFERENCES observation_generation_jobs (id, project_id, team_id)
        ON DELETE SET NULL (generation_job_id) DEFERRABLE
);
CREATE INDEX observation_sources_event ON observation_sources (agent_event_id) WHERE agent_event_id IS NOT NULL;
CREATE INDEX observation_sources_job ON observation_sources (generation_job_id) WHERE generation_job_id IS NOT NULL;
COMMENT ON TABLE observation_sources IS 'What each observation was drawn from.';
ALTER TABLE observation_sources ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_sources USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_sources TO cmserver_tenant;

CREATE TABLE observation_counters (
    team_id     uuid PRIMARY KEY REFERENCES teams (id) ON DELETE CASCADE,
    last_number bigint NOT NULL DEFAULT 0,
    turns       bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE observation_counters IS 'The last number given out in a team. Its row is locked last in a transaction: a global sequence would show one team how busy another is.';
COMMENT ON COLUMN observation_counters.turns IS 'How many of the numbers were given to turns.';
ALTER TABLE observation_counters ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_counters USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON observation_counters TO cmserver_tenant;

CREATE VIEW observations_in_team AS
    SELECT * FROM observations
     WHERE team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid
       AND superseded_at IS NULL AND (expires_at IS NULL OR expires_at > now());
COMMENT ON VIEW observations_in_team IS 'What search reads: the observations of the team in cmserver.team_id, with its indexes usable.';
GRANT SELECT ON observations_in_team TO cmserver_tenant;

-- What was changed, and how it was before. What came of a change is the next row's `before`, or the observation itself.
CREATE TABLE observation_versions (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid NOT NULL,
    observation_id    uuid NOT NULL,
    version           integer NOT NULL,
    action            text NOT NULL CHECK (action IN ('corrected', 'merged', 'promoted')),
    before            jsonb,
    source_ids        uuid[] NOT NULL DEFAULT '{}',
    strategy          text CHECK (strategy IN ('latest_wins', 'append', 'smart_merge')),
    similarity        real,
    measured_by       text CHECK (measured_by IN ('text', 'vector', 'words')),
    performed_by      text NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    undone_at         timestamptz,
    sources_purged_at timestamptz,
    UNIQUE (observation_id, version),
    CHECK ((before IS NULL) = (undone_at IS NOT NULL)),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX observation_versions_team ON observation_versions (team_id, created_at, id);
CREATE INDEX observation_versions_sources ON observation_versions USING gin (source_ids) WHERE source_ids <> '{}';
COMMENT ON TABLE observation_versions IS 'The changes of observations: how each was before, and what it was merged from.';
COMMENT ON COLUMN observation_versions.version IS 'The version that the observation got with the change.';
COMMENT ON COLUMN observation_versions.performed_by IS 'The name of the key, or `system`.';
COMMENT ON COLUMN observation_versions.sources_purged_at IS 'When the texts of merged sources went; from then on the merge cannot be undone.';
ALTER TABLE observation_versions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_versions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_versions TO cmserver_tenant;

CREATE VIEW consolidation_log AS
    SELECT v.created_at, t.name AS team, p.canonical_id AS project, o.number AS target, v.version, v.strategy, v.similarity,
           v.measured_by, v.performed_by, v.undone_at,
           ARRAY(SELECT s.number FROM observations s WHERE s.id = ANY(v.source_ids) ORDER BY s.number) AS sources
      FROM observation_versions v
      JOIN observations o ON o.id = v.observation_id
      JOIN projects p ON p.id = v.project_id
      JOIN teams t ON t.id = v.team_id
     WHERE v.action = 'merged';
COMMENT ON VIEW consolidation_log IS 'Merges of all teams, for operators: which observations became which, how alike they were, and who did it.';

-- How often texts are read is counted from the audit log, by a job that remembers how far it is.
CREATE TABLE access_counting (
    only_one   boolean DEFAULT true PRIMARY KEY CHECK (only_one),
    counted_to bigint NOT NULL DEFAULT 0,
    seen_to    bigint NOT NULL DEFAULT 0,
    seen_below xid8
);
COMMENT ON TABLE access_counting IS 'One row: up to which row of audit_log accesses are counted into observations.';
COMMENT ON COLUMN access_counting.seen_to IS 'Up to here all is counted next, when every transaction below seen_below is over.';

-- Another language of a project: its texts get the words of it with the same transaction. Some half a millisecond each.
CREATE FUNCTION project_language() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observations SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    UPDATE turns SET search_language = NEW.search_language WHERE project_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;
CREATE TRIGGER projects_language AFTER UPDATE OF search_language ON projects
    FOR EACH ROW WHEN (OLD.search_language <> NEW.search_language) EXECUTE FUNCTION project_language();

-- ---- Consolidation: observations that say the same
--
-- What two sessions found out is stored twice. After generation new observations are compared with the project's; a pair that says
-- the same is suggested to people, or merged where the project says so (projects.consolidation). Numbers of a team are given out in
-- the order of commits, so one number says how far a team is compared.

CREATE TABLE observation_relationships (
    id              uuid PRIMARY KEY,
    team_id         uuid NOT NULL,
    from_id         uuid NOT NULL,
    from_project_id uuid NOT NULL,
    to_id           uuid NOT NULL,
    to_project_id   uuid NOT NULL,
    relationship    text NOT NULL CHECK (relationship ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    strength        real NOT NULL DEFAULT 0.5 CHECK (strength BETWEEN 0 AND 1),
    context         text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    UNIQUE (from_id, to_id, relationship),
    CHECK (from_id <> to_id),
    FOREIGN KEY (from_id, from_project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (to_id, to_project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX observation_relationships_to ON observation_relationships (to_id);
COMMENT ON TABLE observation_relationships IS 'How observations of a team have to do with each other: SUPERSEDES and DERIVED_FROM by the system, all others by callers.';
ALTER TABLE observation_relationships ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_relationships USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_relationships TO cmserver_tenant;

CREATE TABLE consolidation_suggestions (
    id          uuid PRIMARY KEY,
    team_id     uuid NOT NULL,
    project_id  uuid NOT NULL,
    left_id     uuid NOT NULL,
    right_id    uuid NOT NULL,
    similarity  real NOT NULL,
    measured_by text NOT NULL CHECK (measured_by IN ('vector', 'words')),
    reason      text NOT NULL CHECK (reason IN ('same', 'related', 'contradicts')),
    status      text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'accepted', 'dismissed')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    resolved_at timestamptz,
    resolved_by text,
    UNIQUE (left_id, right_id),
    CHECK (left_id < right_id),
    CHECK ((status = 'open') = (resolved_at IS NULL)),
    FOREIGN KEY (left_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (right_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX consolidation_suggestions_right ON consolidation_suggestions (right_id);
CREATE INDEX consolidation_suggestions_team ON consolidation_suggestions (team_id, created_at, id);
CREATE INDEX consolidation_suggestions_open ON consolidation_suggestions (team_id, project_id, similarity) WHERE status = 'open';
COMMENT ON TABLE consolidation_suggestions IS 'Pairs of observations that seem to say the same, or to contradict each other. What was dismissed is not suggested again.';
ALTER TABLE consolidation_suggestions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON consolidation_suggestions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON consolidation_suggestions TO cmserver_tenant;

CREATE TABLE consolidation_progress (
    team_id     uuid PRIMARY KEY REFERENCES teams (id) ON DELETE CASCADE,
    compared_to bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE consolidation_progress IS 'Up to which number the observations of a team are compared with the others of their projects.';
ALTER TABLE consolidation_progress ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON consolidation_progress USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON consolidation_progress TO cmserver_tenant;

CREATE FUNCTION revive_what_words_replaced() RETURNS integer LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION revive_what_words_replaced IS 'Shows again what was hidden by later words alone, marked beside them; returns how many observations that were.';

-- ---- Graph: what observations and turns are about, and a page on each project
--
-- An entity is found in texts, by rules or by a model, or made by people; its mentions say where. Numbers of a team are given out
-- in the order of commits, so one number says how far a team is read; a text that changes is read again, which a trigger asks for.
-- An alias is an entity that people merged into another: it keeps its name, and its mentions count for the other. An entity that
-- was found goes with its last mention.

CREATE TABLE entities (
    id            uuid PRIMARY KEY,
    team_id       uuid NOT NULL,
    project_id    uuid NOT NULL,
    type          text NOT NULL,
    name          text NOT NULL CHECK (name <> ''),
    folded_name   text COLLATE "C" NOT NULL CHECK (folded_name <> ''),
    notes         text,
    found_by      text NOT NULL CHECK (found_by IN ('rules', 'model', 'people')),
    merged_into   uuid,
    mention_count integer NOT NULL DEFAULT 0,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    created_at    timestamptz NOT NULL DEFAULT now(),
    UNIQUE (project_id, folded_name, type),
    CHECK (merged_into <> id),
    CHECK (type IN ('person', 'place', 'project', 'technology', 'concept', 'organization', 'file', 'symbol', 'command', 'error')),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX entities_by_mentions ON entities (project_id, mention_count DESC, id) WHERE merged_into IS NULL;
CREATE INDEX entities_aliases ON entities (merged_into) WHERE merged_into IS NOT NULL;
CREATE INDEX entities_team ON entities (team_id, mention_count DESC, id) WHERE merged_into IS NULL;
ALTER TABLE entities ADD CONSTRAINT entities_of_project UNIQUE (id, project_id, team_id);
ALTER TABLE entities ADD CONSTRAINT entities_merged_into_fkey FOREIGN KEY (merged_into, project_id, team_id)
    REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE;
COMMENT ON TABLE entities IS 'What observations are about: files, symbols, commands, errors, technologies, people and others, by project.';
COMMENT ON COLUMN entities.folded_name IS 'The name without differences of case, width and spaces: one entity of a type has it in a project.';
COMMENT ON COLUMN entities.found_by IS 'One that people made stays without mentions.';
COMMENT ON COLUMN entities.merged_into IS 'The entity that this name is an alias of.';
COMMENT ON COLUMN entities.mention_count IS 'The observations and turns that mention it or one of its aliases; 0 for an alias. Triggers keep it and the times.';
ALTER TABLE entities ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entities USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON entities TO cmserver_tenant;

-- A mention belongs to an observation or to a turn; place_id is either.
CREATE TABLE entity_mentions (
    observation_id uuid,
    named_id       uuid NOT NULL,
    entity_id      uuid NOT NULL,
    team_id        uuid NOT NULL,
    project_id     uuid NOT NULL,
    found_by       text NOT NULL CHECK (found_by IN ('rules', 'model', 'people')),
    seen_at        timestamptz NOT NULL,
    turn_id        uuid,
    place_id       uuid GENERATED ALWAYS AS (coalesce(observation_id, turn_id)) STORED NOT NULL,
    CONSTRAINT entity_mentions_of_one CHECK (num_nonnulls(observation_id, turn_id) = 1),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (named_id, project_id, team_id) REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (entity_id, project_id, team_id) REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX entity_mentions_named ON entity_mentions (named_id);
CREATE UNIQUE INDEX entity_mentions_of_observation ON entity_mentions (observation_id, named_id) WHERE observation_id IS NOT NULL;
CREATE UNIQUE INDEX entity_mentions_of_turn ON entity_mentions (turn_id, named_id) WHERE turn_id IS NOT NULL;
-- The team in it: of an entity of 100,000 mentions the newest are read from the index alone.
CREATE INDEX entity_mentions_newest ON entity_mentions (entity_id, seen_at, place_id) INCLUDE (team_id);
CREATE INDEX entity_mentions_place ON entity_mentions (place_id) INCLUDE (entity_id, team_id);
COMMENT ON TABLE entity_mentions IS 'Which observation or turn mentions which entity, and by which of its names.';
COMMENT ON COLUMN entity_mentions.seen_at IS 'The time of the observation or the turn.';
COMMENT ON COLUMN entity_mentions.place_id IS 'The observation or the turn.';
ALTER TABLE entity_mentions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_mentions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON entity_mentions TO cmserver_tenant;

CREATE TABLE entity_relations (
    id         uuid PRIMARY KEY,
    team_id    uuid NOT NULL,
    project_id uuid NOT NULL,
    from_id    uuid NOT NULL,
    to_id      uuid NOT NULL,
    label      text NOT NULL CHECK (label <> ''),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (from_id, to_id, label),
    UNIQUE (id, team_id),
    CHECK (from_id <> to_id),
    FOREIGN KEY (from_id, project_id, team_id) REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (to_id, project_id, team_id) REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX entity_relations_to ON entity_relations (to_id);
COMMENT ON TABLE entity_relations IS 'What people or clients say of two entities. Which are mentioned together is counted from the mentions.';
ALTER TABLE entity_relations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_relations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON entity_relations TO cmserver_tenant;

CREATE TABLE entity_relation_evidence (
    relation_id    uuid NOT NULL,
    observation_id uuid NOT NULL,
    project_id     uuid NOT NULL,
    team_id        uuid NOT NULL,
    PRIMARY KEY (relation_id, observation_id),
    FOREIGN KEY (relation_id, team_id) REFERENCES entity_relations (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX entity_relation_evidence_observation ON entity_relation_evidence (observation_id);
COMMENT ON TABLE entity_relation_evidence IS 'The observations that say so.';
ALTER TABLE entity_relation_evidence ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_relation_evidence USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON entity_relation_evidence TO cmserver_tenant;

CREATE TABLE entity_progress (
    team_id uuid PRIMARY KEY REFERENCES teams (id) ON DELETE CASCADE,
    read_to bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE entity_progress IS 'Up to which number the observations of a team are read for entities.';
ALTER TABLE entity_progress ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_progress USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON entity_progress TO cmserver_tenant;

CREATE TABLE entity_rereads (
    place_id uuid PRIMARY KEY,
    team_id  uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE
);
CREATE INDEX entity_rereads_team ON entity_rereads (team_id);
COMMENT ON TABLE entity_rereads IS 'Turns that have ended, and observations that have changed since they were read for entities; some may be gone.';
COMMENT ON COLUMN entity_rereads.place_id IS 'The observation or the turn.';
ALTER TABLE entity_rereads ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_rereads USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON entity_rereads TO cmserver_tenant;

CREATE FUNCTION count_entity_mentions(ids uuid[]) RETURNS void LANGUAGE sql AS $$
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
COMMENT ON FUNCTION count_entity_mentions IS 'Counts the mentions of these entities anew.';

CREATE FUNCTION entity_mentions_added() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER entity_mentions_added AFTER INSERT ON entity_mentions REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION entity_mentions_added();

CREATE FUNCTION entity_mentions_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER entity_mentions_deleted AFTER DELETE ON entity_mentions REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION entity_mentions_deleted();

CREATE FUNCTION text_is_read_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO entity_rereads (place_id, team_id) VALUES (NEW.id, NEW.team_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_are_read_again
    AFTER UPDATE OF title, subtitle, narrative, facts, files_read, files_modified, anchors, content, superseded_at ON observations
    FOR EACH ROW
    WHEN ((OLD.title, OLD.subtitle, OLD.narrative, OLD.facts, OLD.files_read, OLD.files_modified, OLD.anchors, OLD.content,
           OLD.superseded_at)
          IS DISTINCT FROM (NEW.title, NEW.subtitle, NEW.narrative, NEW.facts, NEW.files_read, NEW.files_modified, NEW.anchors,
           NEW.content, NEW.superseded_at))
    EXECUTE FUNCTION text_is_read_again();
CREATE TRIGGER imported_observations_are_read AFTER INSERT ON observations
    FOR EACH ROW WHEN (NEW.origin = 'import') EXECUTE FUNCTION text_is_read_again();
COMMENT ON TRIGGER imported_observations_are_read ON observations IS 'They keep their numbers, which may be lower than what is read already.';
CREATE TRIGGER ended_turns_are_read AFTER INSERT ON turns
    FOR EACH ROW WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION text_is_read_again();
CREATE TRIGGER turns_are_read_again AFTER UPDATE OF prompt, reply, ended_at ON turns
    FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL
          AND (OLD.ended_at IS NULL OR (OLD.prompt, OLD.reply) IS DISTINCT FROM (NEW.prompt, NEW.reply)))
    EXECUTE FUNCTION text_is_read_again();

-- Made of what is remembered, with the numbers of the observations, and made anew after ten summaries. A page repeats what
-- observations say, so it is emptied when one that it cites is deleted or changed.
CREATE TABLE project_overviews (
    id            uuid PRIMARY KEY,
    project_id    uuid NOT NULL UNIQUE,
    team_id       uuid NOT NULL,
    body          text,
    opening       text[] NOT NULL DEFAULT '{}',
    numbers       bigint[] NOT NULL DEFAULT '{}',
    made_by       text NOT NULL DEFAULT 'rules',
    summary_count integer NOT NULL DEFAULT 0,
    new_summaries integer NOT NULL DEFAULT 0,
    made_at       timestamptz,
    CHECK ((body IS NULL) = (made_at IS NULL)),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX project_overviews_due ON project_overviews (team_id) WHERE (body IS NULL) OR (new_summaries >= 10);
COMMENT ON TABLE project_overviews IS 'The page about each project. Without a body it is still to be made.';
COMMENT ON COLUMN project_overviews.opening IS 'The lines with which the index of a session begins.';
COMMENT ON COLUMN project_overviews.numbers IS 'The observations and turns that it cites.';
COMMENT ON COLUMN project_overviews.made_by IS '`rules`, the model that wrote it, or `people`.';
COMMENT ON COLUMN project_overviews.new_summaries IS 'Session summaries since it was made.';
ALTER TABLE project_overviews ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON project_overviews USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON project_overviews TO cmserver_tenant;

CREATE FUNCTION overviews_forget_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews p SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
      FROM (SELECT project_id, array_agg(number) AS numbers FROM old_rows GROUP BY project_id) o
     WHERE p.project_id = o.project_id AND p.numbers && o.numbers;
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_forget_deleted AFTER DELETE ON observations REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION overviews_forget_deleted();
CREATE TRIGGER overviews_forget_deleted AFTER DELETE ON turns REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION overviews_forget_deleted();

CREATE FUNCTION overviews_forget_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
     WHERE project_id = OLD.project_id AND numbers @> ARRAY[OLD.number];
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_forget_changed AFTER UPDATE OF title, content, summary, superseded_at, project_id ON observations FOR EACH ROW
    WHEN ((OLD.title, OLD.content, OLD.summary, OLD.superseded_at, OLD.project_id)
          IS DISTINCT FROM (NEW.title, NEW.content, NEW.summary, NEW.superseded_at, NEW.project_id))
    EXECUTE FUNCTION overviews_forget_changed();
CREATE TRIGGER overviews_forget_changed AFTER UPDATE OF project_id ON turns FOR EACH ROW
    WHEN (OLD.project_id IS DISTINCT FROM NEW.project_id) EXECUTE FUNCTION overviews_forget_changed();

-- An open end that was closed is no secret: the page is right again after the next summaries.
CREATE FUNCTION overviews_age() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews SET new_summaries = new_summaries + 1
     WHERE project_id = NEW.project_id AND numbers @> ARRAY[NEW.number];
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_age AFTER UPDATE OF state ON observations FOR EACH ROW
    WHEN (OLD.state = 'open' AND NEW.state IS DISTINCT FROM 'open') EXECUTE FUNCTION overviews_age();

-- The page has names of entities, too.
CREATE FUNCTION overviews_forget_entities() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE project_overviews p SET body = NULL, opening = '{}', numbers = '{}', made_at = NULL
     WHERE p.body IS NOT NULL
       AND EXISTS (SELECT FROM old_rows o
                    WHERE o.project_id = p.project_id AND o.type IN ('file', 'technology')
                      AND strpos(p.body, regexp_replace(o.name, '^.*/', '')) > 0);
    RETURN NULL;
END $$;
CREATE TRIGGER overviews_forget_entities AFTER DELETE ON entities REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION overviews_forget_entities();

-- ---- Embeddings: the place of a text among meanings
--
-- The row is there from the moment the text is, in the same transaction; it waits until `embedding` has a value, so what waits can
-- be counted. Triggers do that, and not the statements of the program: whoever writes, psql too, cannot forget it. Without a model
-- that is wanted there is nothing to wait for. A changed text keeps its old vector until the new one is there. A superseded
-- observation has no vector, and the end of a life stands beside the vector, because the nearest-neighbour search reads no other
-- table.

-- Whoever asks how embedding goes sees how far the download of a model is: another process may be asked than the one that waits for
-- it. What was put before a text is part of what its vector says: with another prefix everything is embedded anew, as for another
-- model.
CREATE TABLE embedding_models (
    id               smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider         text NOT NULL,
    model            text NOT NULL,
    base_url         text,
    asked_dimensions integer,
    dimensions       integer CHECK (dimensions BETWEEN 1 AND 4000),
    state            text NOT NULL CHECK (state IN ('building', 'current', 'retired')),
    backfilled_to    uuid,
    is_backfilled    boolean NOT NULL DEFAULT false,
    created_at       timestamptz NOT NULL DEFAULT now(),
    switched_at      timestamptz,
    pulled_percent   smallint CHECK (pulled_percent BETWEEN 0 AND 100),
    document_prefix  text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX embedding_models_building ON embedding_models (state) WHERE state = 'building';
CREATE UNIQUE INDEX embedding_models_current ON embedding_models (state) WHERE state = 'current';
COMMENT ON TABLE embedding_models IS 'What embeds texts, of all teams: the model in use, and the one that takes its place when all is embedded.';
COMMENT ON COLUMN embedding_models.asked_dimensions IS 'How long its vectors shall be; NULL leaves it to the model.';
COMMENT ON COLUMN embedding_models.dimensions IS 'How long they are; NULL until the first answer of a model whose length only its server knows.';
COMMENT ON COLUMN embedding_models.backfilled_to IS 'Down to which observation, turn or entity, by id, earlier ones have their rows in observation_embeddings; of a retired model: have none any more.';
COMMENT ON COLUMN embedding_models.pulled_percent IS 'How much of the model its server has downloaded; NULL while it downloads nothing.';
COMMENT ON COLUMN embedding_models.document_prefix IS 'What is put before each text that is embedded with it.';
GRANT SELECT ON embedding_models TO cmserver_tenant;

-- A row belongs to an observation, a turn or an entity. Without pgvector nothing is embedded, and the column has a type that every
-- PostgreSQL knows; the program makes it a halfvec at the first start that finds the extension. Its policy reads the team once and
-- not for each row: here they are compared by the ten thousand.
CREATE TABLE observation_embeddings (
    observation_id uuid,
    model_id       smallint NOT NULL REFERENCES embedding_models (id),
    team_id        uuid NOT NULL,
    project_id     uuid NOT NULL,
    attempts       integer NOT NULL DEFAULT 0,
    next_at        timestamptz NOT NULL DEFAULT now(),
    last_error     text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    embedded_at    timestamptz,
    embedding      real[],
    expires_at     timestamptz,
    is_outdated    boolean NOT NULL DEFAULT false,
    turn_id        uuid,
    entity_id      uuid,
    CONSTRAINT observation_embeddings_of_one CHECK (num_nonnulls(observation_id, turn_id, entity_id) = 1),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (turn_id, project_id, team_id) REFERENCES turns (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE,
    FOREIGN KEY (entity_id, project_id, team_id) REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE
) WITH (toast_tuple_target = 8160);
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'vector') THEN
        ALTER TABLE observation_embeddings ALTER COLUMN embedding TYPE halfvec USING embedding::halfvec;
    END IF;
END $$;
CREATE INDEX observation_embeddings_waiting ON observation_embeddings (model_id, next_at) WHERE embedding IS NULL OR is_outdated;
CREATE UNIQUE INDEX observation_embeddings_of_observation ON observation_embeddings (observation_id, model_id)
    WHERE observation_id IS NOT NULL;
CREATE UNIQUE INDEX observation_embeddings_of_turn ON observation_embeddings (turn_id, model_id) WHERE turn_id IS NOT NULL;
CREATE INDEX observation_embeddings_scope ON observation_embeddings (team_id, model_id, project_id)
    WHERE embedding IS NOT NULL AND observation_id IS NOT NULL;
CREATE INDEX observation_embeddings_turn_scope ON observation_embeddings (team_id, model_id, project_id)
    WHERE embedding IS NOT NULL AND turn_id IS NOT NULL;
CREATE UNIQUE INDEX observation_embeddings_of_entity ON observation_embeddings (entity_id, model_id) WHERE entity_id IS NOT NULL;
CREATE INDEX observation_embeddings_entity_scope ON observation_embeddings (team_id, model_id, project_id)
    WHERE embedding IS NOT NULL AND entity_id IS NOT NULL;
COMMENT ON TABLE observation_embeddings IS 'The place of each observation, turn and entity among meanings, by model. Without an embedding it waits for one.';
COMMENT ON COLUMN observation_embeddings.next_at IS 'Not to be tried before; later after each failure, and while a worker has it in hand, who stores only what he finds it still to be.';
COMMENT ON COLUMN observation_embeddings.last_error IS 'The kind of the last failure. One that was given up has a next_at of infinity.';
COMMENT ON COLUMN observation_embeddings.expires_at IS 'That of the observation; a trigger keeps it.';
COMMENT ON COLUMN observation_embeddings.is_outdated IS 'The text has changed since: the embedding is used until there is another.';
ALTER TABLE observation_embeddings ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_embeddings USING (team_id = (SELECT nullif(current_setting('cmserver.team_id', true), '')::uuid));
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_embeddings TO cmserver_tenant;

-- An answer says how likely the query is about what was searched. Cosines of embedding models lie in different ranges, so that is
-- measured with titles of a team's own documents. By team: what one has written must not move the answers of another, not even by a
-- number.
CREATE TABLE embedding_calibrations (
    team_id       uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    model_id      smallint NOT NULL REFERENCES embedding_models (id) ON DELETE CASCADE,
    intercept     double precision NOT NULL,
    slope         double precision NOT NULL CHECK (slope > 0),
    titles        integer NOT NULL CHECK (titles >= 1),
    calibrated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, model_id)
);
CREATE INDEX embedding_calibrations_model ON embedding_calibrations (model_id);
COMMENT ON TABLE embedding_calibrations IS 'What the cosine of a query and its nearest document says about the query, by team and embedding model.';
COMMENT ON COLUMN embedding_calibrations.intercept IS 'The log-odds that a title is one of the project, at a cosine of 0.';
COMMENT ON COLUMN embedding_calibrations.slope IS 'How much they grow with the cosine.';
COMMENT ON COLUMN embedding_calibrations.titles IS 'How many titles of the team it was measured with.';
ALTER TABLE embedding_calibrations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON embedding_calibrations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON embedding_calibrations TO cmserver_tenant;

CREATE FUNCTION observations_wait_for_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_embeddings (observation_id, model_id, team_id, project_id, expires_at)
    SELECT n.id, m.id, n.team_id, n.project_id, n.expires_at
      FROM new_ones n CROSS JOIN embedding_models m WHERE m.state <> 'retired' AND n.superseded_at IS NULL
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_to_embed AFTER INSERT ON observations
    REFERENCING NEW TABLE AS new_ones FOR EACH STATEMENT EXECUTE FUNCTION observations_wait_for_embedding();

CREATE FUNCTION observation_waits_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE observation_embeddings
       SET is_outdated = embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL
     WHERE observation_id = NEW.id AND team_id = NEW.team_id;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_to_embed_again
    AFTER UPDATE OF title, subtitle, narrative, facts, concepts, summary, content ON observations FOR EACH ROW
    WHEN ((OLD.title, OLD.subtitle, OLD.narrative, OLD.facts, OLD.concepts, OLD.summary, OLD.content)
          IS DISTINCT FROM (NEW.title, NEW.subtitle, NEW.narrative, NEW.facts, NEW.concepts, NEW.summary, NEW.content))
    EXECUTE FUNCTION observation_waits_again();

CREATE FUNCTION observation_vectors_follow() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER observations_vectors_follow AFTER UPDATE OF superseded_at, expires_at ON observations FOR EACH ROW
    WHEN ((OLD.superseded_at, OLD.expires_at) IS DISTINCT FROM (NEW.superseded_at, NEW.expires_at))
    EXECUTE FUNCTION observation_vectors_follow();

CREATE FUNCTION turn_waits_for_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER turns_to_embed AFTER INSERT OR UPDATE OF prompt, reply, ended_at ON turns FOR EACH ROW
    WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION turn_waits_for_embedding();

CREATE FUNCTION entity_waits_for_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observation_embeddings AS e (entity_id, model_id, team_id, project_id)
    SELECT NEW.id, m.id, NEW.team_id, NEW.project_id FROM embedding_models m WHERE m.state <> 'retired'
    ON CONFLICT (entity_id, model_id) WHERE entity_id IS NOT NULL DO UPDATE
       SET is_outdated = e.embedding IS NOT NULL, attempts = 0, next_at = now(), last_error = NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER entities_to_embed AFTER INSERT ON entities FOR EACH ROW
    WHEN (is_found_by_meaning(NEW.type, NEW.notes)) EXECUTE FUNCTION entity_waits_for_embedding();
CREATE TRIGGER entities_to_embed_again AFTER UPDATE OF name, notes ON entities FOR EACH ROW
    WHEN ((OLD.name, OLD.notes) IS DISTINCT FROM (NEW.name, NEW.notes)
          AND (is_found_by_meaning(NEW.type, NEW.notes) OR OLD.notes IS NOT NULL))
    EXECUTE FUNCTION entity_waits_for_embedding();

-- ---- Receipts of what sessions were shown

-- A line must not be shown twice in a session, and a resumed session is told only what is new. One row for each text that was
-- handed out, with the numbers of what stood in it and of what was left out, never the text.
CREATE TABLE context_injections (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id        uuid NOT NULL,
    server_session_id uuid,
    reason            text NOT NULL CHECK (reason IN ('startup', 'resume', 'clear', 'compact', 'fork', 'prompt', 'file', 'asked')),
    platform_source   text,
    numbers           bigint[] NOT NULL,
    summary_numbers   bigint[] NOT NULL,
    left_out          bigint[] NOT NULL,
    left_out_count    integer NOT NULL CHECK (left_out_count >= 0),
    tokens            integer NOT NULL CHECK (tokens >= 0),
    budget_tokens     integer NOT NULL CHECK (budget_tokens >= 0),
    chars             integer NOT NULL CHECK (chars >= 0),
    details           jsonb NOT NULL DEFAULT '{}',
    created_at        timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (server_session_id, project_id, team_id) REFERENCES server_sessions (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX context_injections_session ON context_injections (server_session_id, created_at, id)
    WHERE (server_session_id IS NOT NULL) AND (created_at > '-infinity');
CREATE INDEX context_injections_project ON context_injections (project_id, created_at, id) WHERE created_at > '-infinity';
COMMENT ON TABLE context_injections IS 'Receipts: what of the memory was shown to which session, why, and how many tokens it cost. Never the text itself.';
COMMENT ON COLUMN context_injections.reason IS 'How the session started (startup, resume, clear, compact, fork), a prompt, a file that was opened, or asked: somebody asked for what the session would be told.';
COMMENT ON COLUMN context_injections.numbers IS 'The observations that were shown, in the order of the text.';
COMMENT ON COLUMN context_injections.summary_numbers IS 'Those of them that are summaries.';
COMMENT ON COLUMN context_injections.left_out IS 'The most useful of those that had no room, at most 100.';
COMMENT ON COLUMN context_injections.details IS 'How useful each line was judged and by what, for cmserver context --explain. Numbers and words of ours, never a text of an observation.';
ALTER TABLE context_injections ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON context_injections USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON context_injections TO cmserver_tenant;

-- ---- The steward
--
-- Merging what is suggested, marking what became stale and deriving what several sessions found are small decisions that wait for
-- people who have other work. The steward prepares them, and makes those that a team allows (steward_modes; nothing without a row).
-- A job and its task in procrastinate's queue are committed together, by a trigger; the row alone says who holds it, under which
-- number, and until when. procrastinate recovers nothing of a process that was killed, so requeue_steward_jobs() does, by the lease
-- in the row.

CREATE SEQUENCE steward_claims;

CREATE TABLE steward_modes (
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id uuid,
    mode       text CHECK (mode IN ('off', 'dry_run', 'write')),
    is_paused  boolean NOT NULL DEFAULT false,
    executors  text[] NOT NULL DEFAULT '{auto_merge,derive,recheck,policy_tune}'
               CHECK (executors <@ '{auto_merge,derive,recheck,policy_tune}'),
    changed_by text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (team_id, project_id),
    CHECK ((project_id IS NULL) = (mode IS NOT NULL)),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
COMMENT ON TABLE steward_modes IS 'What the steward of a team may do, and which executors it may run; a row of a project narrows the executors. No row is off.';
ALTER TABLE steward_modes ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_modes USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON steward_modes TO cmserver_tenant;

CREATE TABLE steward_jobs (
    id                     uuid PRIMARY KEY,
    team_id                uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id             uuid,
    job_type               text NOT NULL CHECK (job_type <> ''),
    source_observation_ids uuid[] NOT NULL DEFAULT '{}',
    trigger_reason         text NOT NULL,
    payload                jsonb NOT NULL DEFAULT '{}',
    status                 text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'succeeded', 'failed',
        'dead_letter', 'cancelled')),
    priority               integer NOT NULL DEFAULT 0,
    attempt_count          integer NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    max_attempts           integer NOT NULL DEFAULT 3 CHECK (max_attempts >= 1),
    run_after              timestamptz NOT NULL DEFAULT now(),
    claim                  bigint,
    locked_by              text,
    locked_at              timestamptz,
    lease_expires_at       timestamptz,
    cancel_requested_at    timestamptz,
    decision               jsonb,
    last_error             text,
    idempotency_key        text,
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    ended_at               timestamptz,
    UNIQUE (id, team_id),
    CHECK ((status = 'running') = (lease_expires_at IS NOT NULL)),
    CHECK ((status IN ('queued', 'running')) = (ended_at IS NULL)),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_jobs_open ON steward_jobs (team_id, project_id, run_after) WHERE status IN ('queued', 'running');
CREATE INDEX steward_jobs_lease ON steward_jobs (lease_expires_at) WHERE status = 'running';
CREATE INDEX steward_jobs_team ON steward_jobs (team_id, job_type, created_at, id);
CREATE INDEX steward_jobs_project ON steward_jobs (project_id) WHERE project_id IS NOT NULL;
CREATE INDEX steward_jobs_suggestion ON steward_jobs ((payload ->> 'suggestionId')) WHERE job_type = 'auto_merge';
CREATE UNIQUE INDEX steward_jobs_idempotency ON steward_jobs (team_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX steward_jobs_dead ON steward_jobs (team_id, ended_at) WHERE status = 'dead_letter';
COMMENT ON TABLE steward_jobs IS 'What the steward has to do and has done. Each queued row has a task in procrastinate''s queue.';
COMMENT ON COLUMN steward_jobs.claim IS 'The number of the last claim. Who writes for a job names it, so that a worker whose lease is over writes nothing.';
COMMENT ON COLUMN steward_jobs.decision IS 'The last decision: what, why, how sure, and whether it is tried again.';
ALTER TABLE steward_jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_jobs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, UPDATE, DELETE ON steward_jobs TO cmserver_tenant;

CREATE TABLE steward_runs (
    id                uuid PRIMARY KEY,
    team_id           uuid NOT NULL,
    project_id        uuid,
    job_id            uuid NOT NULL,
    job_type          text NOT NULL,
    attempt           integer NOT NULL,
    provider          text,
    model             text,
    input_snapshot    jsonb NOT NULL DEFAULT '{}',
    output_snapshot   jsonb,
    input_hash        text,
    prompt_tokens     integer NOT NULL DEFAULT 0 CHECK (prompt_tokens >= 0),
    completion_tokens integer NOT NULL DEFAULT 0 CHECK (completion_tokens >= 0),
    total_tokens      integer GENERATED ALWAYS AS (prompt_tokens + completion_tokens) STORED NOT NULL,
    latency_ms        integer CHECK (latency_ms >= 0),
    status            text NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'succeeded', 'failed', 'skipped')),
    error_class       text,
    error_message     text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    completed_at      timestamptz,
    undone_at         timestamptz,
    undone_by         text,
    UNIQUE (id, team_id),
    CHECK ((status = 'running') = (completed_at IS NULL)),
    CHECK ((undone_at IS NULL) = (undone_by IS NULL)),
    FOREIGN KEY (job_id, team_id) REFERENCES steward_jobs (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_runs_job ON steward_runs (job_id, created_at);
CREATE INDEX steward_runs_team ON steward_runs (team_id, created_at, id);
CREATE INDEX steward_runs_project ON steward_runs (project_id) WHERE project_id IS NOT NULL;
CREATE INDEX steward_runs_with_proposals ON steward_runs (team_id) WHERE (output_snapshot -> 'proposals') <> '[]';
COMMENT ON TABLE steward_runs IS 'Each attempt at a job: what it looked at and decided, by ids; tokens, duration, and how it ended.';
ALTER TABLE steward_runs ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_runs USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON steward_runs TO cmserver_tenant;

CREATE TABLE steward_events (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id        uuid NOT NULL,
    job_id         uuid NOT NULL,
    run_id         uuid,
    event_type     text NOT NULL,
    data           jsonb NOT NULL DEFAULT '{}',
    schema_version integer NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CHECK (event_type IN ('job_created', 'job_claimed', 'model_invoked', 'decision_made', 'write_applied', 'write_skipped',
        'job_completed', 'job_failed', 'recovery_detected', 'run_undone')),
    FOREIGN KEY (job_id, team_id) REFERENCES steward_jobs (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (run_id, team_id) REFERENCES steward_runs (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_events_job ON steward_events (job_id, id);
CREATE INDEX steward_events_run ON steward_events (run_id, id) WHERE run_id IS NOT NULL;
COMMENT ON TABLE steward_events IS 'The timeline of the steward, only appended, each in the transaction of what it tells.';
ALTER TABLE steward_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_events USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT ON steward_events TO cmserver_tenant;

CREATE TABLE observation_derivations (
    id                     uuid PRIMARY KEY,
    team_id                uuid NOT NULL,
    project_id             uuid NOT NULL,
    run_id                 uuid,
    fingerprint            text NOT NULL,
    source_observation_ids uuid[] NOT NULL,
    derived_observation_id uuid,
    derivation_type        text NOT NULL,
    confidence             real NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    novelty                real NOT NULL CHECK (novelty BETWEEN 0 AND 1),
    status                 text NOT NULL CHECK (status IN ('candidate', 'accepted', 'skipped', 'failed', 'undone')),
    model                  text,
    payload                jsonb NOT NULL DEFAULT '{}',
    created_at             timestamptz NOT NULL DEFAULT now(),
    updated_at             timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (run_id, team_id) REFERENCES steward_runs (id, team_id) ON DELETE SET NULL (run_id),
    CONSTRAINT observation_derivations_derived_fkey FOREIGN KEY (derived_observation_id, project_id, team_id)
        REFERENCES observations (id, project_id, team_id) ON DELETE SET NULL (derived_observation_id) DEFERRABLE
);
CREATE INDEX observation_derivations_derived ON observation_derivations (derived_observation_id)
    WHERE derived_observation_id IS NOT NULL;
CREATE INDEX observation_derivations_run ON observation_derivations (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX observation_derivations_fingerprint ON observation_derivations (project_id, fingerprint);
COMMENT ON TABLE observation_derivations IS 'What the steward drew from several observations, or would have, from which, how sure and how new.';
ALTER TABLE observation_derivations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON observation_derivations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON observation_derivations TO cmserver_tenant;

CREATE TABLE steward_policy_history (
    id             uuid PRIMARY KEY,
    team_id        uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    run_id         uuid,
    policy_key     text NOT NULL,
    prior_value    double precision NOT NULL,
    new_value      double precision NOT NULL,
    reason         text NOT NULL,
    sample_size    integer NOT NULL DEFAULT 0,
    evidence       jsonb NOT NULL DEFAULT '{}',
    changed_by     text NOT NULL,
    rollback_of_id uuid UNIQUE,
    created_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (id, team_id),
    FOREIGN KEY (run_id, team_id) REFERENCES steward_runs (id, team_id) ON DELETE SET NULL (run_id),
    FOREIGN KEY (rollback_of_id, team_id) REFERENCES steward_policy_history (id, team_id) ON DELETE CASCADE
);
CREATE INDEX steward_policy_history_key ON steward_policy_history (team_id, policy_key, created_at, id);
CREATE INDEX steward_policy_history_run ON steward_policy_history (run_id) WHERE run_id IS NOT NULL;
COMMENT ON TABLE steward_policy_history IS 'Changes of the steward''s thresholds with their evidence. The newest of a key is what holds.';
ALTER TABLE steward_policy_history ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON steward_policy_history USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT ON steward_policy_history TO cmserver_tenant;

-- The law of a job's life. A retry by hand adds three attempts; attempts are never reset.
CREATE FUNCTION steward_job_law() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER steward_job_law BEFORE UPDATE OF status ON steward_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION steward_job_law();

-- Its timeline, and its task in procrastinate's queue. Only the owner may queue: the tasks are the owner's.
CREATE FUNCTION steward_job_log() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER steward_job_log_insert AFTER INSERT ON steward_jobs FOR EACH ROW EXECUTE FUNCTION steward_job_log();
CREATE TRIGGER steward_job_log_update AFTER UPDATE OF status ON steward_jobs
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION steward_job_log();

CREATE FUNCTION requeue_steward_jobs() RETURNS SETOF uuid LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION requeue_steward_jobs IS 'Gives back the jobs of the steward whose lease is over; returns them. Every worker does this every few seconds.';

CREATE FUNCTION wake_steward_jobs() RETURNS bigint LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION wake_steward_jobs IS 'Makes a task for each queued job of the steward that has none: it was paused, or psql took the task away. Done every minute.';

-- ---- Retention, and what clients of Contextify look for

-- The sweep counts what it took, by team and kind, so that the sums of `cmserver verify` explain themselves. A project says how
-- long each kind is kept, else its team, else the settings.
CREATE TABLE retention_counts (
    team_id   uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    kind      text NOT NULL,
    row_count bigint NOT NULL CHECK (row_count >= 0),
    last_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (team_id, kind)
);
COMMENT ON TABLE retention_counts IS 'How many rows retention took of each team, by kind, since it exists.';
ALTER TABLE retention_counts ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON retention_counts USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

-- Two logs are read in the order of their ids; a pass begins anew at the end.
CREATE TABLE retention_marks (
    kind    text PRIMARY KEY,
    read_to bigint NOT NULL
);
COMMENT ON TABLE retention_marks IS 'Up to which row of a log the current pass of retention has looked.';

-- Searches that were tried and that found something, things that were offered and what became of each. The words of a query stand
-- there redacted, and only where it names a project, with whose memory they are erased.
CREATE TABLE memory_telemetry (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    team_id        uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    project_id     uuid,
    observation_id uuid,
    event_type     text NOT NULL CHECK (event_type IN ('recall_attempt', 'recall_hit', 'store_opportunity', 'store_action')),
    session_id     text,
    request_id     text,
    agent          text,
    action         text CHECK (action IN ('created', 'created_with_suggestions', 'updated')),
    hit_count      integer CHECK (hit_count >= 0),
    latency_ms     integer CHECK (latency_ms >= 0),
    query_text     text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    CHECK (query_text IS NULL OR project_id IS NOT NULL),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX memory_telemetry_team ON memory_telemetry (team_id, created_at);
CREATE INDEX memory_telemetry_project ON memory_telemetry (project_id) WHERE project_id IS NOT NULL;
COMMENT ON TABLE memory_telemetry IS 'What clients of Contextify looked for and stored, and what came of it; for its funnel.';
COMMENT ON COLUMN memory_telemetry.observation_id IS 'The observation that was stored or merged into; it may be gone.';
COMMENT ON COLUMN memory_telemetry.session_id IS 'The session in the words of the client (X-Session-ID); no row is looked up by it.';
COMMENT ON COLUMN memory_telemetry.query_text IS 'The words that were looked for, redacted.';
ALTER TABLE memory_telemetry ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON memory_telemetry USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, DELETE ON memory_telemetry TO cmserver_tenant;

-- ---- Moving, joining, separating, erasing
--
-- Two projects that turn out to be one are joined, and can be separated again: join_project() gives all rows of one to the other,
-- and its names mean the other from then on. Sessions know the project under whose name they came (origin_project_id);
-- project_joined_rows has the ids of all else that goes back. Events keep their keys, which contain the first project's id, so an
-- event that is sent again after a join is still known. Entities and relations of a joined project wait in it, unseen, until it is
-- separated; the other one gets copies. A derivation moves with the last of its sources, and a job of the steward with the
-- observations that it is about.

CREATE TABLE project_joined_rows (
    project_id uuid NOT NULL,
    row_id     uuid NOT NULL,
    team_id    uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    PRIMARY KEY (project_id, row_id),
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX project_joined_rows_team ON project_joined_rows (team_id);
COMMENT ON TABLE project_joined_rows IS 'The rows that a joined project had, or that were made of them in the other one; they may be gone.';
ALTER TABLE project_joined_rows ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON project_joined_rows USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);

-- Texts are searched in the language of their project.
CREATE FUNCTION follow_language(project uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    language text := (SELECT search_language FROM projects WHERE id = project AND team_id = team);
BEGIN
    UPDATE observations SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
    UPDATE turns SET search_language = language
     WHERE project_id = project AND team_id = team AND search_language <> language;
END $$;

CREATE FUNCTION forget_sources(gone uuid[], team uuid) RETURNS void LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION forget_sources IS 'Deletes what the steward drew from these observations and events: observations, candidates, proposals of runs.';

CREATE FUNCTION erase_observation(gone uuid, team uuid) RETURNS boolean LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION erase_observation IS 'Deletes an observation with what was merged into it and what the steward drew from those.';

-- Adds to the table `moving`, which has ids of rows of the project `held`, the ids of all that belongs to them. What was derived goes when
-- none of its sources stays, or with the first one that is erased. Returns the numbers of observations that were merged with some that stay.
-- `moving` begins with sessions; each step adds what belongs to what is there, and tells the planner how little it is.
CREATE FUNCTION gather_moving(held uuid, team uuid, is_erased boolean) RETURNS bigint[] LANGUAGE plpgsql AS $$
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

-- Gives the rows of the table `moving` from one project to another: the only list of what belongs to a project. Of the sessions among
-- them the caller says by whose name they came.
CREATE FUNCTION move_gathered(held uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
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

CREATE FUNCTION join_project(joining uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
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

-- The numbers of observations that were merged with some of the other project since; nothing is done while there are any. What became
-- isolated meanwhile stays so.
CREATE FUNCTION separate_project(joined uuid, team uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
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

-- Gives a session with all that belongs to it to another project; returns what separate_project() does.
CREATE FUNCTION move_session(moved uuid, target uuid, team uuid) RETURNS bigint[] LANGUAGE plpgsql AS $$
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

CREATE FUNCTION erase_session(gone uuid, team uuid, only_count boolean, with_merged boolean) RETURNS jsonb LANGUAGE plpgsql AS $$
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

-- What moved observations mention goes along, by name; when a project is joined (is_whole), what people made of entities, too, as copies:
-- the project keeps its own until it is separated. Its observations have moved by then.
CREATE FUNCTION move_entities(source uuid, target uuid, team uuid, is_whole boolean) RETURNS void LANGUAGE plpgsql AS $$
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

-- A project that is separated has its entities with what people changed of their copies. A copy is found by rules again, or goes.
CREATE FUNCTION give_entities_back(source uuid, target uuid, team uuid) RETURNS void LANGUAGE plpgsql AS $$
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

CREATE FUNCTION entities_follow_project() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.joined_to IS NULL THEN
        PERFORM give_entities_back(OLD.joined_to, NEW.id, NEW.team_id);
    ELSE
        PERFORM move_entities(NEW.id, NEW.joined_to, NEW.team_id, OLD.joined_to IS NULL);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER entities_follow_project AFTER UPDATE OF joined_to ON projects
    FOR EACH ROW WHEN (OLD.joined_to IS DISTINCT FROM NEW.joined_to OR NEW.joined_to IS NOT NULL)
    EXECUTE FUNCTION entities_follow_project();

CREATE FUNCTION joined_entities_go_along() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM old_rows) THEN
        RETURN NULL;
    END IF;
    DELETE FROM entities e USING old_rows o, projects p
     WHERE p.joined_to = o.project_id AND p.team_id = o.team_id
       AND e.project_id = p.id AND e.team_id = o.team_id AND e.folded_name = o.folded_name AND e.type = o.type;
    RETURN NULL;
END $$;
CREATE TRIGGER joined_entities_go_along AFTER DELETE ON entities REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION joined_entities_go_along();
COMMENT ON TRIGGER joined_entities_go_along ON entities IS 'What is deleted after a join does not come back when it is separated.';

CREATE FUNCTION joined_relations_go_along() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER joined_relations_go_along AFTER DELETE ON entity_relations REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION joined_relations_go_along();

-- Of the owner alone: they see every team.
REVOKE ALL ON FUNCTION follow_language, join_project, separate_project, move_entities, move_gathered, move_session,
    erase_session, gather_moving, give_entities_back, cut_paragraphs, revive_what_words_replaced FROM PUBLIC;
