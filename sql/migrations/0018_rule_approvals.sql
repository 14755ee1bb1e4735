-- A team can say that a rule which a model or an agent's tool writes counts only after a person's yes
--
-- Such a rule is stored as an observation whose time is over: nothing that shows what holds comes by it, no search, index, list or count,
-- and it goes with its session, project or turn as any other. rule_approvals says that it waits for an answer. A yes gives it the time
-- that it would have had. No team asks until it says so.
--
-- How long: at once; no row is written.

ALTER TABLE teams ADD COLUMN approves_rules boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN teams.approves_rules IS 'Whether a rule that a model or an agent''s tool writes counts only after a person''s yes.';

CREATE TABLE rule_approvals (
    observation_id uuid PRIMARY KEY,
    team_id        uuid NOT NULL,
    project_id     uuid NOT NULL,
    state          text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'rejected', 'expired')),
    ttl_seconds    bigint CHECK (ttl_seconds > 0),
    asked_at       timestamptz NOT NULL DEFAULT now(),
    answered_at    timestamptz,
    CONSTRAINT answered_when_not_pending CHECK ((answered_at IS NULL) = (state = 'pending')),
    FOREIGN KEY (observation_id, project_id, team_id) REFERENCES observations (id, project_id, team_id)
        ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE
);
CREATE INDEX rule_approvals_observation ON rule_approvals (observation_id, project_id, team_id);
CREATE INDEX rule_approvals_asked ON rule_approvals (team_id, state, asked_at);
COMMENT ON TABLE rule_approvals IS 'Rules that wait for a person''s yes, or had an answer. Who gave it stands in the audit log.';
COMMENT ON COLUMN rule_approvals.state IS 'expired: nobody answered in time. Only an approved one counts.';
COMMENT ON COLUMN rule_approvals.ttl_seconds IS 'How long it lives from a yes on; NULL is for good.';
ALTER TABLE rule_approvals ENABLE ROW LEVEL SECURITY;
CREATE POLICY team ON rule_approvals USING (team_id = nullif(current_setting('cmserver.team_id', true), '')::uuid);
GRANT SELECT, INSERT, UPDATE ON rule_approvals TO cmserver_tenant;

-- What a rule names is found by that from the yes on.
CREATE FUNCTION approved_rule_is_read() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO entity_rereads (place_id, team_id) VALUES (NEW.observation_id, NEW.team_id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER approved_rules_are_read AFTER UPDATE OF state ON rule_approvals
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION approved_rule_is_read();
