"""The catalogue of what the program says about itself: the names of its log events. Metrics will join them here."""

from __future__ import annotations

EVENTS: dict[str, str] = {
    "access.denied": "A request came with a key that nobody has; refusals of a team's keys are in its audit log.",
    "batch.completed": "The observations of a batch are stored and its jobs are done.",
    "batch.failed": "A batch could not be generated; its jobs are tried again later or have failed for good.",
    "batch.held": "The lane of a batch rests: after a failure that time can heal, while providers are paused, or for a budget.",
    "batch.split": "A batch that was too large, refused, or answered unreadably is asked for again in two parts.",
    "batch.started": "A worker has claimed the waiting jobs of one lane.",
    "budget.exhausted": "All of a budget is spent: generation waits where it counts. Said once a period, and again of a new cap.",
    "budget.warned": "80 % of a budget are spent. Said once a day or month, and again of a new cap.",
    "calls.lost": "Provider calls of dead workers: nobody heard their end. What they are thought to have cost counts.",
    "credentials.not_written": "The data folder does not take the credentials file; commands on this machine need the key given.",
    "embedder.missing": "The embedder that is set, or in use, cannot be asked from here; texts wait, and search goes by words.",
    "embedder.recovered": "The embedder answers again; what has waited for it is embedded.",
    "embedder.unavailable": "The embedder gives no vectors; texts are stored and wait. Said once, until it answers again.",
    "embeddings.began": "A model is wanted that was not before; all that is known is embedded with it.",
    "embeddings.ended": "No model is wanted any more; embeddings are taken away, and search goes by words.",
    "embeddings.failed": "A round of embedding failed, which is a bug; the next one comes in a second.",
    "embeddings.index_dropped": "An approximate index of embeddings is of no more use, or was never finished.",
    "embeddings.indexed": "A team has so many embeddings that search uses an approximate index of them from now on.",
    "embeddings.not_indexed": "Approximate indexes could not be looked after, which is a bug; it is tried again in ten minutes.",
    "embeddings.switched": "A new model has embedded all that is known, and search uses it from now on.",
    "hook.told_nothing": "A hook's event is stored, but what its agent should be told could not be read; it is told nothing.",
    "jobs.failed": "Jobs have failed for good; `cmserver jobs failed` lists them with the reason.",
    "key.created": "An API key was made.",
    "lanes.recovered": "Lanes of a worker that fell silent were given back to be claimed by others.",
    "lanes.removed": "Lanes in which nothing has waited for a day were removed from the ready list.",
    "lanes.woken": "Jobs waited in lanes that were asleep (rows that psql wrote, mostly); they are due now.",
    "lease.lost": "A worker found that its batch belongs to another by now, and wrote nothing.",
    "listener.back": "The connection that listens for notifications is there again.",
    "listener.failed": "A part of the program could not take in a notification; a bug.",
    "listener.lost": "The connection that listens for notifications broke; work is found by polling meanwhile.",
    "mcp.failed": "A message of the Model Context Protocol ended in an error that is a bug or an outage; the answer says so.",
    "migration.applied": "A migration has changed the schema of the database.",
    "observations.dropped": "Observations of an answer in which every field was empty were left out.",
    "postgres.exited": "The embedded PostgreSQL ended without being asked to.",
    "postgres.restart_failed": "The embedded PostgreSQL could not be started again; it is tried once more after a pause.",
    "postgres.restarted": "The embedded PostgreSQL runs again after it ended.",
    "postgres.slow_to_stop": "The embedded PostgreSQL did not stop in time and gets a stronger signal.",
    "postgres.started": "The embedded PostgreSQL takes connections.",
    "postgres.stopped": "The embedded PostgreSQL was stopped.",
    "provider.paused": "A provider is left alone for a while: no credit, a refused key or request, or out of reach.",
    "provider.resumed": "A paused provider is asked again.",
    "queue.behind": "Jobs that are due have waited for longer than CMSERVER_QUEUE_WARNING_SECONDS; said at most once a minute.",
    "queue.not_watched": "Whether jobs wait for too long could not be found out; it is tried again in a minute.",
    "reaper.failed": "The look for work of dead workers failed; the next one comes in two seconds.",
    "request.abandoned": "A client went away before its request was read.",
    "request.failed": "A request ended in an error that is a bug or an outage; the answer carries the same request id.",
    "search.without_meaning": "The embedder gave no vector of a query; for a while search goes by words alone.",
    "server.started": "The server listens.",
    "server.stopped": "The server has stopped.",
    "server.stopping": "The server was asked to stop and finishes what it has begun.",
    "session.not_ended": "An idle session could not be ended, which is a bug; the next sweep tries it again.",
    "sessions.ended": "Sessions without a sign of life were ended; each gets its summary.",
    "setting.unknown": "A variable or a key of the config file looks like a setting but is none.",
    "stream.dropped": "A reader of the live stream was too slow; his stream was ended, and he may resume where he was.",
    "stream.failed": "The live stream could not be told what is new; a bug. It is tried again in a second.",
    "summary.minimal": "No model gave a usable summary of a session; it got one by rules.",
    "team.created": "A team was made.",
    "usage.not_written": "What keys have used could not be told to the database; it is kept and told after the next request.",
    "worker.failed": "A worker ended with an error; a fresh one is started.",
    "worker.lost": "A worker was cut off for longer than its lease; it stops, and a new one takes its place.",
    "worker.not_unregistered": "A stopping worker could not give back its work; the others take it when the lease is over.",
    "worker.restarting": "A worker ended and is started again, after a pause that grows.",
    "worker.started": "A worker takes jobs.",
    "worker.stopped": "A worker has stopped and holds no jobs.",
}


def events_page() -> str:
    """docs/reference/logs.md."""
    rows = "\n".join(f"| `{name}` | {sentence} |" for name, sentence in sorted(EVENTS.items()))
    return _EVENTS_PAGE.format(rows=rows)


_EVENTS_PAGE = """\
# Logs

<!-- Generated from cmserver/base/telemetry.py. -->

Logs go to standard error: for a person to read on a terminal, else one JSON object a line (`CMSERVER_LOG_FORMAT`,
`CMSERVER_LOG_LEVEL`). Each record has `ts` (ISO 8601, UTC, milliseconds), `level`, `event` and `logger`; `request_id`,
`job_id` and `lane` where there is one; an exception as text in `exception`; and what belongs to the event. Values of
keys that look like secrets are replaced by `***`, and long values are cut in the middle. Records of the libraries below
(uvicorn, psycopg, procrastinate) have the same shape; their `event` is a sentence.

| event | what has happened |
|---|---|
{rows}
"""
