-- The tables of procrastinate: the heartbeats that leases are made of, and the queue of periodic and maintenance tasks.
--
-- Why: our outbox is itself the queue of generation (0004); procrastinate's worker drives it and its heartbeat rows are the leases.
-- Its schema is installed unchanged, from the installed package, so that its own tools work on this database. A test compares
-- the text with the one this migration was written for: when a new release brings another schema, it asks for a new migration.
-- How long: instant; the tables are new.

--include procrastinate
