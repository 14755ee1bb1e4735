-- Sends a failed or cancelled job back to the queue, with three more attempts. Needs -v job=<id>.
SELECT retry_job(:'job');
