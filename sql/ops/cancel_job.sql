-- Ends a waiting job at once; a running one is marked and writes nothing. Needs -v job=<id>.
SELECT cancel_job(:'job');
