"""Settings of earlier versions. Each is a constant beside its use by now, or has another name."""

from __future__ import annotations

from typing import Final

REMOVED: Final = {
    "answer_max_tokens": "Set CMSERVER_MODEL_CONTEXT_TOKENS: an answer may have an eighth of it.",
    "prompt_event_tokens": (
        "Set CMSERVER_MODEL_CONTEXT_TOKENS to the context of the model (CMSERVER_MODEL_CONTEXT_TOKENS=32768 holds "
        "for Ollama): it also says how many tokens of events a model is shown."
    ),
    "allowed_origins": "List the origins in CMSERVER_ALLOWED_HOSTS one by one: `*` there is any host, and no origin.",
    "claude_program": "Set CLAUDE_CODE_PATH.",
    "context_on_prompt": "Set CMSERVER_CONTEXT_ON: `prompt` is the default.",
    "context_on_file": "Set CMSERVER_CONTEXT_ON to `file` or `both`.",
    "voyage_api_key": "Set CMSERVER_EMBEDDER_KEY, or CMSERVER_EMBEDDER_KEY_FILE.",
    "language": "Set the language of a team: `cmserver teams policy TEAM --language German`.",
    "retention_observations_days": (
        "Observations are kept for good where no policy says otherwise. Start without this setting, and set one for a team: "
        "`cmserver teams retention TEAM --observations-days DAYS`."
    ),
    "retention_events_days": (
        "Payloads of events are kept for good where no policy says otherwise. Start without this setting, and set one for a team: "
        "`cmserver teams retention TEAM --events-days DAYS`."
    ),
    "retention_audit_days": (
        "The audit log is kept for good where no policy says otherwise. Start without this setting, and set one for a team: "
        "`cmserver teams retention TEAM --audit-days DAYS`."
    ),
    "retention_audit_min_days": (
        "A team keeps its audit log for 365 days at least, and for good where no policy says otherwise. To keep it longer than "
        "a year set `cmserver teams retention TEAM --audit-days DAYS`."
    ),
    "key_requests_per_minute": "A new key has 600 requests a minute: `cmserver keys create --requests-per-minute` gives it others.",
    "drain_seconds": "It follows from CMSERVER_LEASE_SECONDS: two fifths of it, 8 at most.",
    "job_hard_limit_seconds": "It follows from CMSERVER_PROVIDER_TIMEOUT_SECONDS: 2.5 times as long, 5 minutes at least.",
    "steward_lease_seconds": "It follows from CMSERVER_LEASE_SECONDS: three times as long.",
    "steward_daily_tokens": "The steward may spend 3,200 tokens a day on a project, besides the budgets of its team.",
    "search_meaning_weight": "Meaning counts half of a score, unless a search says `meaningWeight`.",
    "embedder_dimensions": "Vectors have the length that the model gives them; those of another length are all made anew.",
    "session_idle_hours": "A session ends after four hours without events.",
    "checkpoint_events": "An open session is summarized after 50 events.",
    "context_tokens": "A session's index has 2,000 tokens at most.",
    "context_observations": "A session's index has 50 observations at most.",
    "context_summaries": "A session's index has 10 summaries at most.",
    "batch_max_events": "A call of a model takes 20 events at most.",
    "queue_warning_seconds": "A due job that has waited for five minutes is warned of.",
    "queue_warning_jobs": "A team with more than 2,000 queued jobs is warned of.",
    "undo_days": "What expired or was merged can be brought back for 7 days, then it is deleted; nothing sets another time.",
    "backup_keep": (
        "Of the backups that are made every so many hours the newest 7 are kept. For another number make them from cron, without "
        "CMSERVER_BACKUP_EVERY_HOURS: `cmserver backup --to DIR --keep NUMBER`."
    ),
    "body_max_bytes": "A body has 8 MiB at most.",
    "body_timeout_seconds": "A request's head, and then its body, have 30 seconds.",
    "max_connections": "A process takes 1,000 connections.",
    "field_max_chars": "A payload's field keeps 16,000 characters.",
    "streams_per_key": "A key has 50 open streams at most.",
    "stalled_client_seconds": "A client that reads nothing for 30 seconds is cut off.",
    "database_pool_timeout_seconds": "A request waits three seconds for a connection of the database.",
    "database_pool_idle_seconds": "The pool closes idle connections by itself.",
    "batch_max_chars": "A call of a model takes 60,000 characters of events at most.",
    "job_max_attempts": "A job that fails is tried again as often as before.",
    "checkpoint_minutes": "An open session is summarized after 30 minutes.",
    "queue_warning_growth": "A queue that grows is warned of when it is long.",
    "stream_heartbeat_seconds": "A live stream has its own heartbeat.",
    "expired_retention_days": "What expired can be brought back for 7 days, then it is deleted; nothing sets another time.",
    "superseded_retention_days": "What was merged can be brought back for 7 days, then it is deleted; nothing sets another time.",
    "retention_min_importance": "Set it for a team: `cmserver teams retention TEAM --min-importance IMPORTANCE`.",
    "retention_job_log_days": "Set it for a team: `cmserver teams retention TEAM --job-log-days DAYS`.",
    "retention_receipts_days": "Set it for a team: `cmserver teams retention TEAM --receipts-days DAYS`.",
    "retention_event_rows_days": "An event's row goes a year after its payload.",
    "retention_telemetry_days": "Counts of Contextify's clients are kept for a year.",
    "retention_steward_days": "Ended jobs of the steward are kept for 30 days.",
    "retention_rows_per_run": "A sweep takes 50,000 rows at most.",
    "search_k1": "Search has one value for it.",
    "search_b": "Search has one value for it.",
    "search_min_score": "A search can say its own `minScore`.",
}
"""Name -> what stands in its place, in one sentence."""

HOLDING: Final = {
    "retention_observations_days": 0,
    "retention_events_days": 0,
    "retention_audit_days": 0,
    "retention_audit_min_days": 365,
    "retention_min_importance": 0.8,
    "retention_job_log_days": 90,
    "retention_receipts_days": 90,
    "retention_event_rows_days": 365,
    "retention_telemetry_days": 365,
    "retention_steward_days": 30,
    "undo_days": 7,
    "expired_retention_days": 7,
    "superseded_retention_days": 7,
    "backup_keep": 7,
}
"""Name -> what holds now: days, backups, or an importance. With another value nothing starts: what somebody wanted kept would be
deleted for good, or the other way round."""
