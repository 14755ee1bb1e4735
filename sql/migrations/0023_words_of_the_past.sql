-- Who may read a row goes by today, also where a transaction reads the past: there the names of these tables are those of
-- `cmserver_past`, whose views ask the policies again, without an end. A view keeps the tables that it was made of.

CREATE VIEW turns_that_are_read WITH (security_invoker = true) AS SELECT id FROM turns;
COMMENT ON VIEW turns_that_are_read IS 'The turns whose words the reader may read, in transactions of the past, too.';
CREATE VIEW observations_that_are_read WITH (security_invoker = true) AS SELECT id FROM observations;
COMMENT ON VIEW observations_that_are_read IS 'The observations whose words the reader may read, in transactions of the past, too.';
GRANT SELECT ON turns_that_are_read, observations_that_are_read TO cmserver_tenant;

CREATE OR REPLACE FUNCTION reads_turn(turn uuid) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1 AS $$
BEGIN
    RETURN EXISTS (SELECT FROM turns_that_are_read t WHERE t.id = turn);
END $$;
CREATE OR REPLACE FUNCTION reads_observation(observation uuid) RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE COST 1 AS $$
BEGIN
    RETURN EXISTS (SELECT FROM observations_that_are_read o WHERE o.id = observation);
END $$;
