-- A derived observation that somebody deletes counts as refused; one that only grew old does not.

CREATE OR REPLACE FUNCTION erase_observation(gone uuid, team uuid) RETURNS boolean LANGUAGE plpgsql AS $$
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
