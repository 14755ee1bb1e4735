-- Entities: the files, symbols, commands, errors, packages, people and things that observations are about.
--
-- Why: nothing knew that many observations are about one file or one tool. An entity is found in texts, by rules or by a model, or made
-- by people; its mentions say where. Numbers of a team are given out in the order of commits, so one number says how far a team is
-- read; an observation whose text or state changes is read again, which a trigger asks for. An alias is an entity that people merged
-- into another: it keeps its name, and its mentions count for the other. An entity that was found goes with its last mention.
-- The previous release keeps working: it knows none of this.
-- How long: instant; the tables are new. Observations that are there are read in the background afterwards: some minutes for a million.

CREATE TABLE entities (
    id            uuid PRIMARY KEY,
    team_id       uuid NOT NULL,
    project_id    uuid NOT NULL,
    type          text NOT NULL CHECK (type IN ('person', 'place', 'project', 'technology', 'concept', 'organization',
                                               'file', 'symbol', 'command', 'error')),
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
    FOREIGN KEY (project_id, team_id) REFERENCES projects (id, team_id) ON DELETE CASCADE
);
CREATE INDEX entities_by_mentions ON entities (project_id, mention_count DESC, id) WHERE merged_into IS NULL;
CREATE INDEX entities_aliases ON entities (merged_into) WHERE merged_into IS NOT NULL;
CREATE INDEX entities_team ON entities (team_id, mention_count DESC, id) WHERE merged_into IS NULL;
ALTER TABLE entities ADD CONSTRAINT entities_of_project UNIQUE (id, project_id, team_id);
ALTER TABLE entities ADD CONSTRAINT entities_merged_into_fkey FOREIGN KEY (merged_into, project_id, team_id)
    REFERENCES entities (id, project_id, team_id) ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE;
COMMENT ON TABLE entities IS 'What observations are about: files, symbols, commands, errors, technologies, people and others, by project.';
COMMENT ON COLUMN entities.folded_name IS 'The name without differences of case, width and spaces: one entity of a type has it in a project.';
COMMENT ON COLUMN entities.found_by IS 'One that people made stays without mentions.';
COMMENT ON COLUMN entities.merged_into IS 'The entity that this name is an alias of.';
COMMENT ON COLUMN entities.mention_count IS 'The observations that mention it or one of its aliases; 0 for an alias. Triggers keep it and the times.';

CREATE TABLE entity_mentions (
    observation_id uuid NOT NULL,
    named_id       uuid NOT NULL,
    entity_id      uuid NOT NULL,
    team_id        uuid NOT NULL,
    project_id     uuid NOT NULL,
    found_by       text NOT NULL CHECK (found_by IN ('rules', 'model', 'people')),
    seen_at        timestamptz NOT NULL,
    PRIMARY KEY (observation_id, named_id),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE,
    FOREIGN KEY (named_id, project_id, team_id) REFERENCES entities (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE,
    FOREIGN KEY (entity_id, project_id, team_id) REFERENCES entities (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX entity_mentions_entity ON entity_mentions (entity_id, seen_at, observation_id);
CREATE INDEX entity_mentions_named ON entity_mentions (named_id);
COMMENT ON TABLE entity_mentions IS 'Which observation mentions which entity, and by which of its names.';
COMMENT ON COLUMN entity_mentions.seen_at IS 'The time of the observation.';

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
    FOREIGN KEY (from_id, project_id, team_id) REFERENCES entities (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE,
    FOREIGN KEY (to_id, project_id, team_id) REFERENCES entities (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX entity_relations_to ON entity_relations (to_id);
COMMENT ON TABLE entity_relations IS 'What people or clients say of two entities. Which are mentioned together is counted from the mentions.';

CREATE TABLE entity_relation_evidence (
    relation_id    uuid NOT NULL,
    observation_id uuid NOT NULL,
    project_id     uuid NOT NULL,
    team_id        uuid NOT NULL,
    PRIMARY KEY (relation_id, observation_id),
    FOREIGN KEY (relation_id, team_id) REFERENCES entity_relations (id, team_id) ON DELETE CASCADE,
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id)
        ON DELETE CASCADE DEFERRABLE INITIALLY IMMEDIATE
);
CREATE INDEX entity_relation_evidence_observation ON entity_relation_evidence (observation_id);
COMMENT ON TABLE entity_relation_evidence IS 'The observations that say so.';

CREATE TABLE entity_progress (
    team_id uuid PRIMARY KEY REFERENCES teams (id) ON DELETE CASCADE,
    read_to bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE entity_progress IS 'Up to which number the observations of a team are read for entities.';

CREATE TABLE entity_rereads (
    observation_id uuid PRIMARY KEY,
    team_id        uuid NOT NULL REFERENCES teams (id) ON DELETE CASCADE
);
CREATE INDEX entity_rereads_team ON entity_rereads (team_id);
COMMENT ON TABLE entity_rereads IS 'Observations that have changed since they were read for entities; some may be gone.';

CREATE FUNCTION count_entity_mentions(ids uuid[]) RETURNS void LANGUAGE sql AS $$
    WITH counted AS (
        SELECT e.id, count(DISTINCT m.observation_id)::integer AS mentions, min(m.seen_at) AS first_at, max(m.seen_at) AS last_at
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
                   -- One observation that has two names of an entity counts once.
                   (count(DISTINCT observation_id) - count(DISTINCT observation_id) FILTER (
                       WHERE EXISTS (SELECT FROM entity_mentions o
                                      WHERE o.entity_id = r.entity_id AND o.seen_at = r.seen_at AND o.observation_id = r.observation_id
                                        AND NOT EXISTS (SELECT FROM new_rows w WHERE w.observation_id = o.observation_id
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
                   count(DISTINCT observation_id) FILTER (
                       WHERE NOT EXISTS (SELECT FROM entity_mentions m
                                          WHERE m.entity_id = r.entity_id AND m.seen_at = r.seen_at
                                            AND m.observation_id = r.observation_id))::integer AS mentions
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

CREATE FUNCTION observation_is_read_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO entity_rereads (observation_id, team_id) VALUES (NEW.id, NEW.team_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER observations_are_read_again
    AFTER UPDATE OF title, subtitle, narrative, facts, files_read, files_modified, anchors, content, superseded_at ON observations
    FOR EACH ROW
    WHEN ((OLD.title, OLD.subtitle, OLD.narrative, OLD.facts, OLD.files_read, OLD.files_modified, OLD.anchors, OLD.content,
           OLD.superseded_at)
          IS DISTINCT FROM (NEW.title, NEW.subtitle, NEW.narrative, NEW.facts, NEW.files_read, NEW.files_modified, NEW.anchors,
           NEW.content, NEW.superseded_at))
    EXECUTE FUNCTION observation_is_read_again();

CREATE TRIGGER imported_observations_are_read AFTER INSERT ON observations
    FOR EACH ROW WHEN (NEW.origin = 'import') EXECUTE FUNCTION observation_is_read_again();
COMMENT ON TRIGGER imported_observations_are_read ON observations IS 'They keep their numbers, which may be lower than what is read already.';

-- When projects are joined or separated, what their observations mention goes along, by name. Its observations have moved by then.
CREATE FUNCTION move_entities(source uuid, target uuid, team uuid, is_whole boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO entities (id, team_id, project_id, type, name, folded_name, notes, found_by)
    SELECT gen_random_uuid(), team, target, e.type, e.name, e.folded_name, e.notes, e.found_by
      FROM entities e
     WHERE e.project_id = source AND e.team_id = team
       AND (is_whole OR EXISTS (SELECT FROM entity_mentions m JOIN observations o ON o.id = m.observation_id
                                 WHERE m.named_id = e.id AND o.project_id = target))
    ON CONFLICT DO NOTHING;
    UPDATE entities t SET merged_into = ti.id
      FROM entities s
      JOIN entities si ON si.id = s.merged_into
      JOIN entities ti ON ti.project_id = target AND ti.folded_name = si.folded_name AND ti.type = si.type
     WHERE s.project_id = source AND t.project_id = target AND t.folded_name = s.folded_name AND t.type = s.type
       AND t.merged_into IS NULL AND ti.merged_into IS NULL AND t.id <> ti.id AND t.mention_count = 0
       AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = t.id);
    INSERT INTO entity_relations (id, team_id, project_id, from_id, to_id, label, created_at)
    SELECT gen_random_uuid(), team, target, nf.id, nt.id, r.label, r.created_at
      FROM entity_relations r
      JOIN entities f ON f.id = r.from_id
      JOIN entities nf ON nf.project_id = target AND nf.folded_name = f.folded_name AND nf.type = f.type
      JOIN entities t ON t.id = r.to_id
      JOIN entities nt ON nt.project_id = target AND nt.folded_name = t.folded_name AND nt.type = t.type
     WHERE is_whole AND r.project_id = source AND r.team_id = team AND nf.id <> nt.id
    ON CONFLICT DO NOTHING;
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
    IF is_whole THEN
        DELETE FROM entities WHERE project_id = source AND team_id = team;
    END IF;
    PERFORM count_entity_mentions(ARRAY(SELECT id FROM entities WHERE project_id IN (source, target) AND team_id = team));
    DELETE FROM entities e
     WHERE e.project_id IN (source, target) AND e.team_id = team AND e.mention_count = 0 AND e.found_by <> 'people'
       AND e.merged_into IS NULL AND NOT EXISTS (SELECT FROM entities a WHERE a.merged_into = e.id);
END $$;
REVOKE ALL ON FUNCTION move_entities(uuid, uuid, uuid, boolean) FROM PUBLIC;

CREATE FUNCTION entities_follow_project() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.joined_to IS NOT NULL THEN
        PERFORM move_entities(NEW.id, NEW.joined_to, NEW.team_id, true);
    ELSE
        PERFORM move_entities(OLD.joined_to, NEW.id, NEW.team_id, false);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER entities_follow_project AFTER UPDATE OF joined_to ON projects
    FOR EACH ROW WHEN (OLD.joined_to IS DISTINCT FROM NEW.joined_to OR NEW.joined_to IS NOT NULL)
    EXECUTE FUNCTION entities_follow_project();

ALTER TABLE entities ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entities USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE entity_mentions ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_mentions USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE entity_relations ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_relations USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE entity_relation_evidence ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_relation_evidence USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE entity_progress ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_progress USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
ALTER TABLE entity_rereads ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON entity_rereads USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE, DELETE ON entities, entity_mentions, entity_relations, entity_relation_evidence TO cmserver_tenant;
GRANT SELECT, INSERT, UPDATE ON entity_progress TO cmserver_tenant;
GRANT SELECT, INSERT, DELETE ON entity_rereads TO cmserver_tenant;
